/* SPDX-License-Identifier: Apache-2.0
 *
 * device_check_case.c: compares generated tensors with the host's generator, bit by bit, and the store with
 * the reference's.
 */
#include "device_check.h"
#include "harness/inputs/generator.h"
#include "harness/inputs/inputs.h"
#include "harness/prepare/prepare.h"
#include "harness/prepare/special.h"
#include "reference/paged.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- inputs */

/* 0 if all bits agree. */
static int compare_tensor(struct checks *c, const struct kvg_input_shape *shape, enum kvg_tensor tensor,
                          enum kvg_token_set set, int64_t tokens)
{
    struct kvg_generator g;
    struct kvg_error error;
    if (kvg_generator_make(shape, tensor, set, &g, &error)) {
        printf("%s\n", error.text);
        return 1;
    }
    const int64_t bytes = tokens * g.heads * g.head_dim * 2;
    uint16_t *want = must_malloc(bytes), *got = must_malloc(bytes), *there = must_allocate(c, bytes + 16);
    kvg_generator_fill(&g, 0, tokens, omp_get_max_threads(), want);
    int bad = c->d->ops->fill(c->d, there, 0xff, bytes + 16) ||
              c->d->ops->generate(c->d, &g, tokens, there) || c->d->ops->download(c->d, got, there, bytes) ||
              memcmp(want, got, (size_t)bytes);
    unsigned char behind[16];
    bad = bad || c->d->ops->download(c->d, behind, (char *)there + bytes, 16);
    for (int i = 0; i < 16 && !bad; i++)
        bad = behind[i] != 0xff;
    if (bad)
        for (int64_t i = 0; i < bytes / 2; i++)
            if (want[i] != got[i]) {
                printf(
                    "  %s seed %llu tensor %d set %d heads %lld dim %lld: element %lld is %04x, not %04x\n",
                    shape->input, (unsigned long long)shape->seed, tensor, set, (long long)g.heads,
                    (long long)g.head_dim, (long long)i, got[i], want[i]);
                break;
            }
    c->d->ops->release(c->d, there);
    kvg_generator_free(&g);
    free(want);
    free(got);
    return bad;
}

/* Checks every tensor, seed, sequence, set and shape of one input. */
static void check_input(struct checks *c, const char *input)
{
    static const int64_t shapes[][3] = {{32, 8, 128}, {4, 2, 64},  {6, 3, 96},
                                        {2, 1, 256},  {5, 5, 192}, {2, 2, 80}};
    static const uint64_t seeds[] = {1, 42, (UINT64_C(1) << 40) + 7};
    int bad = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
            for (int tensor = KVG_TENSOR_Q; tensor <= KVG_TENSOR_V; tensor++) {
                const struct kvg_input_shape shape = {.input = input,
                                                      .seed = seeds[i],
                                                      .seq = (int64_t)(i * 5),
                                                      .context = 517,
                                                      .q_len = 1,
                                                      .q_heads = shapes[s][0],
                                                      .kv_heads = shapes[s][1],
                                                      .head_dim = shapes[s][2]};
                bad += compare_tensor(c, &shape, (enum kvg_tensor)tensor, KVG_SET_EVALUATION, 517);
                if (s == 0 && i == 0)
                    bad += compare_tensor(c, &shape, (enum kvg_tensor)tensor, KVG_SET_CALIBRATION, 128);
            }
    check(c, !bad, "input %s: same bits as on the host", input);
}

void check_inputs(struct checks *c)
{
    for (int64_t i = 0; kvg_input_synthetic(i); i++)
        check_input(c, kvg_input_synthetic(i)->name);
    check_input(c, "needle:0");
    check_input(c, "needle:1");
    struct kvg_input_shape shape = {.input = "outlier",
                                    .seed = 3,
                                    .seq = 1,
                                    .context = 65537,
                                    .q_len = 1,
                                    .q_heads = 32,
                                    .kv_heads = 8,
                                    .head_dim = 128};
    check(c, !compare_tensor(c, &shape, KVG_TENSOR_K, KVG_SET_EVALUATION, 65537),
          "input outlier, 65537 tokens: same bits as on the host");
    struct kvg_generator g;
    struct kvg_error error;
    const int64_t tokens = 1 << 20, values = tokens * 8 * 128;
    uint16_t *there = must_allocate(c, 2 * values);
    shape.input = "normal";
    double seconds[2] = {0, 0};
    int bad = kvg_generator_make(&shape, KVG_TENSOR_K, KVG_SET_EVALUATION, &g, &error);
    for (int i = 0; i < 2 && !bad; i++)
        bad = c->d->ops->start(c->d, 1) || c->d->ops->generate(c->d, &g, tokens, there) ||
              c->d->ops->stop(c->d, &seconds[i]);
    check(c, !bad, "generate: %.1f G values/s", (double)values / seconds[1] / 1e9);
    if (!bad)
        kvg_generator_free(&g);
    c->d->ops->release(c->d, there);
}

/* ---------------------------------------------------------------- store */

struct store_case {
    enum kvg_dtype dtype;
    int64_t tokens, heads, head_dim, block_size;
    int hnd, per_head;
    int64_t gap; /* elements between rows */
};

/* All 65536 bf16 values for each head, in a different order for each: NaN, infinities, zeros, subnormals
 * and ties. */
static void fill_source(const struct store_case *s, uint16_t *source)
{
    for (int64_t t = 0; t < s->tokens; t++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t d = 0; d < s->head_dim; d++)
                source[(t * s->heads + h) * s->head_dim + d] =
                    (uint16_t)((t * s->head_dim + d) * 40503 + h * 977);
}

static struct kvg_pages pages_of(const struct store_case *s)
{
    struct kvg_pages p = {.data = NULL};
    const int64_t row = s->head_dim + s->gap;
    p.stride_slot = s->hnd ? row : s->heads * row;
    p.stride_head = s->hnd ? s->block_size * row : row;
    p.stride_block = s->block_size * s->heads * row;
    return p;
}

static int compare_store(struct checks *c, const struct store_case *s, const float *scale)
{
    const int64_t blocks = s->tokens / s->block_size + 9, element = kvg_dtype_bytes(s->dtype);
    struct kvg_pages pages = pages_of(s);
    const int64_t bytes = blocks * pages.stride_block * element, values = s->tokens * s->heads * s->head_dim;
    const struct kvg_problem problem = {.phase = KVG_PHASE_STORE,
                                        .kv_dtype = s->dtype,
                                        .batch = 1,
                                        .q_heads = s->heads,
                                        .kv_heads = s->heads,
                                        .head_dim = s->head_dim,
                                        .block_size = s->block_size};
    const struct kvg_ref_kv view = {.format = kvg_ref_format_of(s->dtype),
                                    .stride_block = pages.stride_block,
                                    .stride_slot = pages.stride_slot,
                                    .stride_head = pages.stride_head,
                                    .block_size = s->block_size,
                                    .scale = scale,
                                    .scale_stride = s->per_head};
    uint16_t *source = must_malloc(2 * values), *source_there = must_allocate(c, 2 * values);
    int64_t *slots = must_malloc(8 * s->tokens), *slots_there = must_allocate(c, 8 * s->tokens);
    unsigned char *want = must_malloc(bytes), *got = must_malloc(bytes);
    pages.data = must_allocate(c, bytes);
    fill_source(s, source);
    /* Slots spread over all blocks, each used once; one token in seven has none. 7919 divides no number of
     * slots here. */
    for (int64_t t = 0; t < s->tokens; t++)
        slots[t] = t % 7 == 3 ? -1 - t % 2 : (t * 7919 + 11) % (blocks * s->block_size);
    memset(want, 0xee, (size_t)bytes);
    kvg_ref_paged_store(&view, want, KVG_REF_BF16, source, s->heads * s->head_dim, s->head_dim, slots,
                        s->tokens, s->heads, s->head_dim);
    int bad =
        c->d->ops->upload(c->d, source_there, source, 2 * values) ||
        c->d->ops->upload(c->d, slots_there, slots, 8 * s->tokens) ||
        c->d->ops->fill(c->d, pages.data, 0xee, bytes) ||
        c->d->ops->store(c->d, &problem, source_there, slots_there, s->tokens, scale, s->per_head, &pages) ||
        c->d->ops->download(c->d, got, pages.data, bytes);
    for (int64_t i = 0; i < bytes && !bad; i++)
        if (want[i] != got[i]) {
            printf("  dtype %d dim %lld hnd %d per_head %d gap %lld: byte %lld is %02x, not %02x\n", s->dtype,
                   (long long)s->head_dim, s->hnd, s->per_head, (long long)s->gap, (long long)i, got[i],
                   want[i]);
            bad = 1;
        }
    c->d->ops->release(c->d, source_there);
    c->d->ops->release(c->d, slots_there);
    c->d->ops->release(c->d, pages.data);
    free(source);
    free(slots);
    free(want);
    free(got);
    return bad;
}

static void check_dtype(struct checks *c, enum kvg_dtype dtype, const char *name)
{
    enum { HEADS = 8 };
    static const int64_t dims[] = {128, 64, 96, 80, 12};
    const enum kvg_ref_format format = kvg_ref_format_of(dtype);
    float scale[3][HEADS];
    int bad = 0;
    for (int64_t h = 0; h < HEADS; h++) {
        scale[0][h] =
            dtype == KVG_E4M3 || dtype == KVG_E5M2 ? kvg_scale_with_ties(format, h) : 1.0f + 0.07f * (float)h;
        scale[1][h] = h % 2 ? 1.0f : 0.011f * (float)(h + 1);
        scale[2][h] = h == 1 ? 1e-38f : h == 2 ? 3e38f : h == 3 ? 0x1p-30f : 0x1p-7f * (float)(h + 1);
    }
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (int hnd = 0; hnd < 2; hnd++)
            for (int set = 0; set < 3; set++) {
                const struct store_case s = {
                    dtype,    (65536 + dims[i] - 1) / dims[i], HEADS, dims[i], set == 1 ? 24 : 16, hnd,
                    set != 1, set == 2 ? (hnd ? 8 : 3) : 0};
                bad += compare_store(c, &s, scale[set]);
                if (set == 0 && !hnd)
                    bad += compare_store(c, &s, NULL);
            }
    check(c, !bad, "store %s: same bytes as the reference", name);
}

void check_store(struct checks *c)
{
    check_dtype(c, KVG_BF16, "bf16");
    check_dtype(c, KVG_E4M3, "e4m3");
    check_dtype(c, KVG_E5M2, "e5m2");
    check_dtype(c, KVG_E4M3FNUZ, "e4m3fnuz");
}
