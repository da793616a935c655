/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_store.c: every CPU store kernel that this machine can run must leave the whole cache byte for
 * byte as the reference does: the named slots are written, and nothing else.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/fp8.h"
#include "kernels/registry.h"
#include "reference/formats.h"
#include "reference/paged.h"
#include "harness/prepare/prepared.h"
#include "kernels/scales.h"

static enum kvg_ref_format ref_format(enum kvg_dtype dtype)
{
    static const enum kvg_ref_format map[] = {KVG_REF_F32,  KVG_REF_F16,  KVG_REF_BF16,
                                              KVG_REF_E4M3, KVG_REF_E5M2, KVG_REF_E4M3FNUZ};
    return map[dtype];
}

static uint32_t random_bits(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state ^ *state >> 15;
}

/* Mostly numbers in the range of the formats, some of them exactly on a tie; one in eight is any bit pattern
 * (NaN, infinities, subnormals). */
static void fill(enum kvg_dtype dtype, void *data, int64_t count, uint32_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t r = random_bits(&seed), kind = r % 16;
        const float x =
            kind < 2   ? kvg_f32_from_bits(random_bits(&seed))
            : kind < 5 ? kvg_fp8_e4m3_decode((uint8_t)(r >> 8)) * 1.0625f
                       : (float)((int)(r >> 8 & 0xffff) - 32768) * ldexpf(1.0f, (int)(r >> 24) % 24 - 26);
        kvg_ref_store(ref_format(dtype), data, i, x);
    }
}

struct layout {
    int64_t stride_block, stride_slot, stride_head;
};

static void check_store(const struct kvg_kernel *kernel, enum kvg_dtype from, enum kvg_dtype to, int64_t dim,
                        int64_t block, enum kvg_layout order, enum kvg_scheme scheme, int padded, int threads)
{
    enum { TOKENS = 37, HEADS = 3, BLOCKS = 41 };
    const int64_t head_gap = dim + (padded ? 8 : 0), bytes = kvg_dtype_bytes(to);
    const struct layout l = order == KVG_NHD
                                ? (struct layout){block * HEADS * head_gap, HEADS * head_gap, head_gap}
                                : (struct layout){block * HEADS * head_gap, head_gap, block * head_gap};
    const int64_t elements = BLOCKS * l.stride_block, source = TOKENS * HEADS * head_gap;
    const struct kvg_problem p = {.phase = KVG_PHASE_STORE,
                                  .q_dtype = from,
                                  .kv_dtype = to,
                                  .scheme = scheme,
                                  .layout = order,
                                  .batch = 1,
                                  .q_heads = HEADS,
                                  .kv_heads = HEADS,
                                  .head_dim = dim,
                                  .block_size = block,
                                  .total_q = TOKENS,
                                  .threads = threads};
    const float scale_k[HEADS] = {0.37f, 1.0f, 3.0f}, scale_v[HEADS] = {1.7f, 0x1p-5f, 0.011f};
    int64_t slots[TOKENS];
    unsigned char *k = malloc((size_t)source * 4), *v = malloc((size_t)source * 4);
    unsigned char *cache[2], *want[2];
    char why[256];

    assert_true(k && v);
    if (!kernel->supports(&p, why, sizeof why)) {
        free(k);
        free(v);
        return;
    }
    for (int i = 0; i < 2; i++) {
        cache[i] = malloc((size_t)(elements * bytes));
        want[i] = malloc((size_t)(elements * bytes));
        assert_true(cache[i] && want[i]);
        memset(cache[i], 0xa5, (size_t)(elements * bytes));
        memset(want[i], 0xa5, (size_t)(elements * bytes));
    }
    fill(from, k, source, 1);
    fill(from, v, source, 2);
    for (int64_t i = 0; i < TOKENS; i++) /* distinct slots in no order; some tokens are padding */
        slots[i] = i % 7 == 3 ? -1 : (i * 29 + 5) % (BLOCKS * block);
    struct kvg_store_args a = {.problem = &p,
                               .k = k,
                               .v = v,
                               .k_stride_token = HEADS * head_gap,
                               .k_stride_head = head_gap,
                               .v_stride_token = HEADS * head_gap,
                               .v_stride_head = head_gap,
                               .slot_mapping = slots,
                               .tokens = TOKENS,
                               .k_cache = {cache[0], l.stride_block, l.stride_slot, l.stride_head},
                               .v_cache = {cache[1], l.stride_block, l.stride_slot, l.stride_head},
                               .num_blocks = BLOCKS,
                               .scales = kvg_scales_of(NULL, scale_k, scale_v, scheme == KVG_PER_HEAD)};
    assert_int_equal(kernel->store(&a), KVG_OK);
    for (int i = 0; i < 2; i++) {
        const struct kvg_ref_kv ref = {.format = ref_format(to),
                                       .stride_block = l.stride_block,
                                       .stride_slot = l.stride_slot,
                                       .stride_head = l.stride_head,
                                       .block_size = block,
                                       .scale = i ? scale_v : scale_k,
                                       .scale_stride = scheme == KVG_PER_HEAD};
        kvg_ref_paged_store(&ref, want[i], ref_format(from), i ? v : k, HEADS * head_gap, head_gap, slots,
                            TOKENS, HEADS, dim);
        for (int64_t j = 0; j < elements * bytes; j++) {
            if (cache[i][j] != want[i][j]) {
                fail_msg("%s %s to %s, dim %d, block %d: %c byte %d is 0x%02x, want 0x%02x", kernel->name,
                         kvg_dtype_name(from), kvg_dtype_name(to), (int)dim, (int)block, "KV"[i], (int)j,
                         cache[i][j], want[i][j]);
            }
        }
    }
    slots[5] = BLOCKS * block; /* one past the cache: refused before anything is written */
    assert_int_equal(kernel->store(&a), KVG_EINVAL);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(cache[i], want[i], (size_t)(elements * bytes));
        free(cache[i]);
        free(want[i]);
    }
    free(k);
    free(v);
}

static void test_store_is_bit_exact(void **state)
{
    static const int64_t dims[] = {8, 64, 80, 100, 128}, small[] = {1, 3, 5, 7, 12};
    const struct kvg_kernel *kernel;
    (void)state;

    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++) {
        if (kernel->device != KVG_DEVICE_CPU || !kernel->store)
            continue;
        for (int from = KVG_F32; from <= KVG_BF16; from++) {
            for (int to = KVG_BF16; to <= KVG_E4M3FNUZ; to++) {
                for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
                    for (int variant = 0; variant < 16; variant++) {
                        check_store(kernel, (enum kvg_dtype)from, (enum kvg_dtype)to, dims[d],
                                    variant & 1 ? 8 : 24, variant & 2 ? KVG_HND : KVG_NHD,
                                    variant & 4 ? KVG_PER_HEAD : KVG_PER_TENSOR, variant >> 3,
                                    1 + 2 * (variant & 1));
                    }
                    for (size_t b = 0; b < sizeof small / sizeof *small; b++)
                        check_store(kernel, (enum kvg_dtype)from, (enum kvg_dtype)to, dims[d], small[b],
                                    b & 1 ? KVG_HND : KVG_NHD, KVG_PER_HEAD, 1, 1);
                }
            }
        }
    }
}

/* Every bf16 with each of a few scales. Q is multiplied by the reciprocal, as the reference does it too. */
static void test_quantize_q_is_bit_exact(void **state)
{
    enum { DIM = 64, Q_HEADS = 8, KV_HEADS = 4, TOKENS = 65536 / DIM / Q_HEADS, COUNT = 65536 };
    const float scales[KV_HEADS] = {1.0f, 0.3f, 0.0123f, 7.0f};
    uint16_t *q = malloc(COUNT * 2);
    uint8_t *got = malloc(COUNT), *want = malloc(COUNT);
    const struct kvg_kernel *kernel;
    (void)state;

    assert_true(q && got && want);
    for (int i = 0; i < COUNT; i++)
        q[i] = (uint16_t)(i * 40503u); /* an odd factor permutes all codes */
    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++) {
        const struct kvg_problem store = {.phase = KVG_PHASE_STORE,
                                          .q_dtype = KVG_BF16,
                                          .kv_dtype = KVG_E4M3,
                                          .kv_heads = KV_HEADS,
                                          .head_dim = DIM,
                                          .block_size = 16,
                                          .threads = 2};
        struct kvg_problem p = store;
        char why[256];

        if (kernel->device != KVG_DEVICE_CPU || !kernel->quantize_q || !kernel->store ||
            !kernel->supports(&store, why, sizeof why))
            continue;
        p.path = KVG_PATH_FP8;
        p.q_heads = Q_HEADS;
        p.total_q = TOKENS;
        for (int stride = 0; stride < 2; stride++) {
            for (int first = 0; first < KV_HEADS; first += stride ? KV_HEADS : 1) {
                const struct kvg_quantize_q_args a = {.problem = &p,
                                                      .q = q,
                                                      .q_stride_token = Q_HEADS * DIM,
                                                      .q_stride_head = DIM,
                                                      .q8 = got,
                                                      .q8_stride_token = Q_HEADS * DIM,
                                                      .q8_stride_head = DIM,
                                                      .scales =
                                                          kvg_scales_of(scales + first, NULL, NULL, stride)};
                memset(got, 0xa5, COUNT);
                assert_int_equal(kernel->quantize_q(&a), KVG_OK);
                kvg_ref_quantize_q(KVG_REF_E4M3, KVG_REF_RECIPROCAL, KVG_REF_BF16, q, TOKENS, Q_HEADS,
                                   KV_HEADS, DIM, scales + first, stride, want);
                assert_memory_equal(got, want, COUNT);
            }
        }
    }
    free(q);
    free(got);
    free(want);
}

/* A page whose first element lies beyond 2^31 elements: a 32-bit offset would be wrong. The memory is only
 * reserved; the pages that are touched become real. */
static void test_store_offsets_are_64_bit(void **state)
{
    enum { DIM = 64, BLOCK = 16 };
    const int64_t page = (int64_t)1 << 20, blocks = 2100;
    const struct kvg_problem p = {.phase = KVG_PHASE_STORE,
                                  .q_dtype = KVG_BF16,
                                  .kv_dtype = KVG_E4M3,
                                  .batch = 1,
                                  .q_heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = DIM,
                                  .block_size = BLOCK,
                                  .total_q = 1,
                                  .threads = 1};
    const int64_t slot = 2099 * BLOCK + 3;
    const float one = 1.0f;
    uint16_t source[DIM];
    unsigned char *cache = calloc((size_t)(blocks * page), 1); /* zero pages until written */
    const struct kvg_kernel *kernel;
    (void)state;

    if (!cache)
        skip();
    for (int i = 0; i < DIM; i++)
        source[i] = kvg_bf16_encode((float)(i + 1));
    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++) {
        char why[256];
        unsigned char *at = cache + 2099 * page + 3 * DIM;
        const struct kvg_store_args a = {.problem = &p,
                                         .k = source,
                                         .v = source,
                                         .k_stride_token = DIM,
                                         .k_stride_head = DIM,
                                         .v_stride_token = DIM,
                                         .v_stride_head = DIM,
                                         .slot_mapping = &slot,
                                         .tokens = 1,
                                         .k_cache = {cache, page, DIM, DIM},
                                         .v_cache = {cache, page, DIM, DIM},
                                         .num_blocks = blocks,
                                         .scales = kvg_scales_of(NULL, &one, &one, 0)};
        if (kernel->device != KVG_DEVICE_CPU || !kernel->store || !kernel->supports(&p, why, sizeof why))
            continue;
        memset(at, 0, DIM);
        assert_int_equal(kernel->store(&a), KVG_OK);
        for (int d = 0; d < DIM; d++)
            assert_int_equal(at[d], kvg_ref_fp8_encode(KVG_REF_E4M3, (float)(d + 1)));
    }
    free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_is_bit_exact),
        cmocka_unit_test(test_quantize_q_is_bit_exact),
        cmocka_unit_test(test_store_offsets_are_64_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
