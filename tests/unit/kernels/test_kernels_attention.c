/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_attention.c: every CPU attention kernel that this machine can run, on shapes where kernels
 * tend to fail. kernel_check.h compares the outputs. Also: the loop of kernel_check.h against reference/, and
 * the exponentials.
 */
#include "tests/unit/kernel_check.h"

#include "harness/verify/bounds.h"
#include "kernels/registry.h"
#include "reference/attention.h"

static void run_all(const struct shape *shape, const char *label)
{
    static const enum kvg_dtype caches[] = {KVG_BF16, KVG_E4M3, KVG_E5M2, KVG_E4M3FNUZ};
    const struct kvg_kernel *kernel;

    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++) {
        for (size_t c = 0; c < sizeof caches / sizeof *caches; c++) {
            run_kernel(kernel, shape, KVG_PATH_DEQUANT, caches[c], label);
            run_kernel(kernel, shape, KVG_PATH_FP8, caches[c], label);
        }
    }
}

/* ---------------------------------------------------------------- cases */

static void test_boundary_lengths(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        struct shape a = {
            8, 2, 64, 16, 0, 0, layout, 1, 1, 8, {0, 1, 15, 16, 17, 63, 64, 65}, {1, 1, 1, 1, 1, 1, 1, 1}};
        struct shape b = {4, 4, 64, 24, 0, 0, layout, 1, 2, 5, {127, 128, 129, 23, 25}, {1, 1, 1, 1, 1}};
        run_all(&a, "lengths at block 16");
        run_all(&b, "lengths at block 24");
    }
}

/* Pages that are no multiple of 8, and pages that several sequences own: alone, together, and in mixed batches.
 * Every kernel of the CPU declares both. */
static void test_small_and_shared_pages(void **state)
{
    static const int64_t sizes[] = {1, 3, 5, 7, 12};
    const struct kvg_kernel *kernel;
    (void)state;
    for (int64_t i = 0; (kernel = kvg_registry_get(i)); i++)
        if (kernel->device == KVG_DEVICE_CPU && kernel->attention)
            assert_int_equal(kernel->features & (KVG_FEATURE_SMALL_PAGES | KVG_FEATURE_SHARED_PAGES),
                             KVG_FEATURE_SMALL_PAGES | KVG_FEATURE_SHARED_PAGES);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int layout = 0; layout < 2; layout++) {
            struct shape decode = {
                8, 2, 64, sizes[i], 0, 0, layout, 1, 2, 6, {64, 65, 130, 1, 0, 192}, {1, 1, 1, 1, 1, 1}};
            struct shape mixed = {
                4, 4, 128, sizes[i], 40, 0, layout, 1, 1, 4, {70, 33, 70, 12}, {1, 33, 20, 0}};
            run_all(&decode, "small pages, decode");
            run_all(&mixed, "small pages, decode and prefill in one batch, window");
            shared_pages = 5;
            run_all(&decode, "small pages that sequences share");
            run_all(&mixed, "small pages that sequences share, mixed batch");
            decode.block_size = 16;
            shared_pages = 3;
            run_all(&decode, "pages of 16 that sequences share");
            shared_pages = 0;
        }
}

static void test_groups(void **state)
{
    (void)state;
    for (int64_t group = 1; group <= 8; group++) {
        struct shape a = {3 * group, 3, 64, 8, 0, 0, group % 2, 1, 2, 2, {37, 100}, {1, 1}};
        run_all(&a, "group");
    }
}

static void test_head_dims(void **state)
{
    static const int64_t dims[] = {8, 24, 40, 64, 72, 80, 96, 128, 192, 256};
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        struct shape a = {6, 2, dims[i], 16, 0, 0, i % 2, 1, 1, 2, {1, 70}, {1, 1}};
        struct shape b = {4, 2, dims[i], 16, 0, 0, i % 2, 1, 1, 1, {70}, {5}};
        run_all(&a, "head_dim");
        run_all(&b, "head_dim, append");
    }
}

static void test_append_and_prefill(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        struct shape a = {6, 2, 64, 16, 0, 0, KVG_NHD, causal, 2, 4, {90, 40, 17, 3}, {33, 40, 1, 0}};
        struct shape b = {8, 1, 80, 32, 0, 0, KVG_HND, causal, 1, 3, {140, 5, 66}, {7, 16, 2}};
        run_all(&a, "append and prefill"); /* q_len 16 of 5 keys: rows without a visible key */
        run_all(&b, "append");
    }
}

static void test_windows(void **state)
{
    static const int64_t windows[] = {1, 7, 16, 63, 64, 65, 1000};
    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        struct shape a = {4, 2, 64, 16, windows[i], 0, i % 2, 1, 2, 4, {200, 64, 65, 9}, {1, 1, 1, 1}};
        struct shape b = {4, 2, 64, 16, windows[i], 0, i % 2, 1, 1, 2, {150, 30}, {40, 30}};
        run_all(&a, "window");
        run_all(&b, "window, append");
    }
}

/* Chunks below, at and above a page and a tile, with and without a window; q_len 16 of 5 keys: rows without a
 * visible key. */
static void test_chunked_masks(void **state)
{
    static const int64_t chunks[] = {1, 7, 16, 63, 64, 65, 1000};
    (void)state;
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
        for (int64_t window = 0; window <= 20; window += 20) {
            struct shape a = {4, 2, 64, 16, window, 0, i % 2, 1, 2, 4, {200, 64, 65, 9}, {1, 1, 1, 1}};
            struct shape b = {4, 2, 64, 16, window, 0, i % 2, 1, 1, 4, {150, 30, 5, 0}, {40, 30, 16, 1}};
            masked.chunk = chunks[i];
            run_all(&a, "chunked mask");
            run_all(&b, "chunked mask, append");
            memset(&masked, 0, sizeof masked);
        }
}

/* Prefixes of no key, of one, up to and past the first query, and longer than the sequence. */
static void test_prefix_masks(void **state)
{
    static const int64_t prefixes[] = {1, 64, 110, 111, 130, 149, 150, 1000};
    (void)state;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        for (int64_t window = 0; window <= 20; window += 20) {
            struct shape a = {4, 2, 64, 16, window, 0, i % 2, 1, 2, 3, {150, 70, 9}, {1, 1, 1}};
            struct shape b = {
                4, 2, 64, 16, window, 0, i % 2, 1, 1, 5, {150, 30, 5, 0, 66}, {40, 30, 16, 1, 7}};
            for (int64_t seq = 0; seq < MAX_BATCH; seq++)
                masked.prefixes[seq] = seq == 1 ? prefixes[i] / 5 : prefixes[i];
            masked.prefixes[4] = 0;
            run_all(&a, "prefix mask");
            run_all(&b, "prefix mask, append");
            memset(&masked, 0, sizeof masked);
        }
}

/* Chunks and prefixes beside the boundary of a split. */
static void test_masks_in_splits(void **state)
{
    (void)state;
    struct shape a = {2, 1, 16, 16, 0, 0, KVG_NHD, 1, 2, 3, {2 * 4096 + 1, 5000, 0}, {1, 3, 1}};
    masked.chunk = 4096;
    run_all(&a, "chunks in splits");
    masked.chunk = 3000;
    run_all(&a, "chunks across splits");
    masked.chunk = 0;
    masked.prefixes[0] = 9000;
    masked.prefixes[1] = 4998;
    run_all(&a, "prefixes in splits");
    memset(&masked, 0, sizeof masked);
}

static void test_soft_cap(void **state)
{
    struct shape a = {4, 2, 64, 16, 0, 0.5f, KVG_NHD, 1, 1, 2, {130, 3}, {1, 1}};
    struct shape b = {4, 2, 64, 16, 20, 30.0f, KVG_HND, 1, 1, 1, {90}, {20}};
    (void)state;
    run_all(&a, "soft cap");
    run_all(&b, "soft cap, window, append");
}

/* Long enough for several splits; with a window all but the last are empty. */
static void test_splits(void **state)
{
    struct shape a = {2, 1, 16, 16, 0, 0, KVG_NHD, 1, 2, 3, {2 * 4096 + 1, 5000, 0}, {1, 1, 1}};
    struct shape b = {2, 2, 16, 16, 100, 0, KVG_HND, 1, 1, 3, {2 * 4096 + 50, 4096, 4097}, {1, 1, 2}};
    (void)state;
    run_all(&a, "splits");
    run_all(&b, "empty splits");
}

static void test_owned_nan_shows(void **state)
{
    static const enum kvg_dtype caches[] = {KVG_BF16, KVG_E4M3, KVG_E5M2, KVG_E4M3FNUZ};
    const struct kvg_kernel *kernel;
    (void)state;

    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++) {
        for (size_t c = 0; c < sizeof caches / sizeof *caches; c++) {
            for (int64_t group = 1; group <= 8; group += group < 4 ? 3 : 4) { /* 1, 4, 8 */
                for (int in_k = 0; in_k < 2; in_k++) { /* dim 128: a whole tile of its own on some kernels */
                    check_owned_nan(kernel, KVG_PATH_DEQUANT, caches[c], group, 64, in_k);
                    check_owned_nan(kernel, KVG_PATH_FP8, caches[c], group, 64, in_k);
                    check_owned_nan(kernel, KVG_PATH_DEQUANT, caches[c], group, 128, in_k);
                    check_owned_nan(kernel, KVG_PATH_FP8, caches[c], group, 128, in_k);
                }
            }
        }
    }
}

/* The problem as the reference takes it. */
static struct kvg_ref_attention reference_of(const struct setting *s)
{
    const struct kvg_problem *p = &s->problem;
    const struct kvg_ref_kv k = {.format = ref_format(p->kv_dtype),
                                 .data = s->k,
                                 .stride_block = s->args.k_cache.stride_block,
                                 .stride_slot = s->args.k_cache.stride_slot,
                                 .stride_head = s->args.k_cache.stride_head,
                                 .block_size = p->block_size,
                                 .block_table = s->table,
                                 .block_table_stride = s->args.block_table_stride,
                                 .scale = s->scale_k,
                                 .scale_stride = 1};
    struct kvg_ref_kv v = k;
    v.data = s->v;
    v.scale = s->scale_v;
    return (struct kvg_ref_attention){.batch = p->batch,
                                      .q_heads = p->q_heads,
                                      .kv_heads = p->kv_heads,
                                      .head_dim = p->head_dim,
                                      .q_format = ref_format(p->q_dtype),
                                      .q = s->q,
                                      .q_stride_token = s->args.q_stride_token,
                                      .q_stride_head = s->args.q_stride_head,
                                      .q_scale = p->path == KVG_PATH_FP8 ? s->scale_q : NULL,
                                      .q_scale_stride = 1,
                                      .k = k,
                                      .v = v,
                                      .seq_lens = s->lens,
                                      .cu_q_lens = s->cu,
                                      .softmax_scale = s->args.softmax_scale,
                                      .soft_cap = p->soft_cap,
                                      .mask = {.kind = p->mask == KVG_MASK_FULL      ? KVG_REF_FULL
                                                       : p->mask == KVG_MASK_CHUNKED ? KVG_REF_CHUNKED
                                                       : p->mask == KVG_MASK_PREFIX  ? KVG_REF_PREFIX
                                                                                     : KVG_REF_CAUSAL,
                                               .window = p->window,
                                               .chunk = p->chunk,
                                               .prefix_lens = s->prefixes},
                                      .threads = 1};
}

/* The loop of kernel_check.h and reference/ are written independently and must agree. */
static void check_reference(const struct shape *shape, enum kvg_dtype kv)
{
    const struct kvg_arithmetic exact = {
        .p_format = KVG_F32, .qk_accumulator_bits = 24, .pv_accumulator_bits = 24, .tile = KVG_TILE};
    struct setting s;
    struct kvg_ref_row rows[64];
    int64_t n = 0;

    describe(&s, shape, KVG_PATH_DEQUANT, kv);
    set_up(&s, kvg_registry_find("cpu/dequant_scalar"), 99);
    const struct kvg_problem *p = &s.problem;
    const struct kvg_ref_attention a = reference_of(&s);
    for (int32_t b = 0; b < p->batch; b++) {
        for (int32_t i = 0; i < s.cu[b + 1] - s.cu[b] && n + p->q_heads <= 64; i++)
            for (int32_t h = 0; h < p->q_heads; h++)
                rows[n++] = (struct kvg_ref_row){b, i, h};
    }
    double *out = malloc((size_t)(n * p->head_dim) * sizeof *out), lse[64];
    assert_non_null(out);
    assert_int_equal(kvg_ref_attention_f64(&a, rows, n, out, lse), 0);
    for (int64_t r = 0; r < n; r++) {
        struct expected e;

        expect(&s, &exact, rows[r].seq, rows[r].q_index, rows[r].q_head, &e);
        assert_true(isinf(e.lse) ? lse[r] == -INFINITY : fabs(lse[r] - e.lse) <= 1e-9 * (1 + fabs(e.lse)));
        for (int64_t d = 0; d < p->head_dim; d++)
            assert_true(fabs(out[r * p->head_dim + d] - e.out[d]) <= 1e-9 * (1 + fabs(e.out[d])));
    }
    free(out);
    tear_down(&s);
}

static void test_the_loop_agrees_with_the_reference(void **state)
{
    const struct shape shapes[] = {
        {4, 2, 64, 16, 0, 0, KVG_NHD, 1, 1, 3, {70, 0, 16}, {1, 1, 1}},
        {6, 2, 40, 24, 30, 5.0f, KVG_HND, 1, 1, 2, {90, 5}, {4, 6}},
        {4, 1, 80, 8, 20, 0, KVG_NHD, 0, 1, 1, {50}, {8}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_reference(&shapes[i], KVG_BF16);
        check_reference(&shapes[i], KVG_E4M3);
        check_reference(&shapes[i], KVG_E5M2);
        masked.chunk = 10;
        check_reference(&shapes[i], KVG_E4M3);
        masked.chunk = 0;
        masked.prefixes[0] = 88;
        masked.prefixes[1] = 3;
        check_reference(&shapes[i], KVG_E4M3);
        memset(&masked, 0, sizeof masked);
    }
}

/* Key 0 has the logit 0 and the value 0; all others have a weight of 2^-26 and the value 256. In FP16 such a
 * weight rounds to zero unless P is multiplied by a power of two first, so this checks what the kernel
 * declares of P. */
static void check_small_weights(const struct kvg_kernel *kernel, enum kvg_path path, enum kvg_dtype kv,
                                int64_t dim)
{
    enum { KEYS = 200, HEADS = 4 };
    const struct shape shape = {HEADS, 2, dim, 16, 0, 0, KVG_NHD, 1, 1, 1, {KEYS}, {1}};
    const double others = (KEYS - 1) * 0x1p-26, exact = 256 * others / (1 + others);
    struct kvg_arithmetic declared = {0};
    struct kvg_ref_emulation how;
    struct setting s;

    describe(&s, &shape, path, kv);
    if (!runs_here(kernel, &s.problem))
        return;
    set_up(&s, kernel, 8);
    for (int64_t h = 0; h < HEADS; h++) {
        s.scale_q[h] = s.scale_k[h] = s.scale_v[h] = 1;
        for (int64_t d = 0; d < dim; d++)
            kvg_ref_store(ref_format(s.problem.q_dtype), s.q, h * dim + d, d == 0);
    }
    for (int64_t i = 0; i < KEYS * 2 * dim; i++) {
        const int64_t t = i / dim / 2, d = i % dim, at = cache_index(&s, 0, t, i / dim % 2) + d;
        kvg_ref_store(ref_format(kv), s.k, at, t > 0 && d == 0 ? -16 : 0);
        kvg_ref_store(ref_format(kv), s.v, at, t > 0 ? 256 : 0);
    }
    s.args.softmax_scale = (float)(26 * 0.69314718055994531 / 16);
    assert_int_equal(kernel->attention(&s.args), KVG_OK);
    kernel->arithmetic(&s.problem, KEYS, &declared);
    kvg_bound_emulation(&declared, &how);
    const struct kvg_ref_attention a = reference_of(&s);
    for (int32_t h = 0; h < HEADS; h++) {
        const struct kvg_ref_row row = {0, 0, h};
        float emulated[256];
        assert_int_equal(kvg_ref_attention_emulate(&a, &how, &row, 1, emulated, NULL), 0);
        for (int64_t d = 0; d < dim; d++) {
            const double out = kvg_ref_load(KVG_REF_BF16, s.out, h * dim + d);
            if (!(fabs(out - (double)emulated[d]) <= 0x1p-8 * out) ||
                !(declared.p_format == KVG_E4M3 || fabs(out - exact) <= 0x1p-8 * exact)) {
                fail_msg("%s: head %d dim %d is %g, emulated %g, exact %g", kernel->name, (int)h, (int)d, out,
                         (double)emulated[d], exact);
            }
        }
    }
    tear_down(&s);
}

static void test_small_weights(void **state)
{
    static const enum kvg_dtype caches[] = {KVG_BF16, KVG_E4M3, KVG_E5M2};
    const struct kvg_kernel *kernel;
    (void)state;

    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++) {
        for (size_t c = 0; c < sizeof caches / sizeof *caches; c++) {
            for (int64_t dim = 64; dim <= 128; dim += 64) {
                check_small_weights(kernel, KVG_PATH_DEQUANT, caches[c], dim);
                check_small_weights(kernel, KVG_PATH_FP8, caches[c], dim);
            }
        }
    }
}

/* ---------------------------------------------------------------- every code, and sums */

enum { CODES = 256 };

/* One key that holds every code: as V it is the output, bit for bit; as K it is the lse, where row d of Q is
 * the unit vector of dim d. */
static void check_codes(const struct kvg_kernel *kernel, enum kvg_dtype kv)
{
    const struct shape shape = {CODES, 1, CODES, 16, 0, 0, KVG_NHD, 1, 1, 1, {1}, {1}};
    struct setting s;

    describe(&s, &shape, KVG_PATH_DEQUANT, kv);
    if (!runs_here(kernel, &s.problem))
        return;
    set_up(&s, kernel, 3);
    s.scale_k[0] = s.scale_v[0] = 1.0f;
    s.args.softmax_scale = 1.0f;
    for (int64_t d = 0; d < CODES; d++)
        s.k[cache_index(&s, 0, 0, 0) + d] = s.v[cache_index(&s, 0, 0, 0) + d] = (uint8_t)d;
    for (int in_k = 0; in_k < 2; in_k++) {
        for (int64_t d = 0; d < CODES; d++) {
            const float code = kvg_ref_fp8_decode(ref_format(kv), (uint8_t)d);
            if (in_k && !isfinite(code)) /* 0 * NaN and 0 * infinity would be in every logit */
                s.k[cache_index(&s, 0, 0, 0) + d] = 0;
            for (int64_t h = 0; h < CODES; h++)
                kvg_ref_store(KVG_REF_BF16, s.q, h * CODES + d, in_k && h == d ? 1.0f : 0.0f);
        }
        memset(s.k + cache_index(&s, 0, 0, 0), 0, in_k ? 0 : CODES);
        assert_int_equal(kernel->attention(&s.args), KVG_OK);
        for (int64_t d = 0; d < CODES; d++) {
            const float code = kvg_ref_fp8_decode(ref_format(kv), (uint8_t)d);
            const float out = kvg_ref_load(KVG_REF_BF16, s.out, d), lse = s.args.lse[d];
            if (in_k && isfinite(code) && !(fabsf(lse - code) <= 0x1p-22f * fabsf(code)))
                fail_msg("%s: code %d of K is %g, want %g", kernel->name, (int)d, (double)lse, (double)code);
            if (!in_k && (isnan(code) ? !isnan(out) : out != code))
                fail_msg("%s: code %d of V is %g, want %g", kernel->name, (int)d, (double)out, (double)code);
        }
        for (int64_t d = 0; d < CODES; d++)
            s.k[cache_index(&s, 0, 0, 0) + d] = (uint8_t)d;
    }
    tear_down(&s);
}

/* Relative error of the whole output, in L2. */
static double relative_error(const struct setting *s, const struct kvg_kernel *kernel)
{
    const struct kvg_problem *p = &s->problem;
    struct kvg_arithmetic how;
    struct expected e;
    double off = 0, all = 0;

    kernel->arithmetic(p, s->lens[0], &how);
    for (int64_t h = 0; h < p->q_heads; h++) {
        expect(s, &how, 0, 0, h, &e);
        for (int64_t d = 0; d < p->head_dim; d++) {
            const double o = kvg_ref_load(KVG_REF_BF16, s->out, h * p->head_dim + d) - e.out[d];
            off += o * o;
            all += e.out[d] * e.out[d];
        }
    }
    return sqrt(off / all);
}

/* Q, K and V each times a power of two, with the same logits. K and V then have small codes (with 2^-8 mostly
 * subnormal ones), and the sums of Q would overflow FP16 or be flushed. */
static void check_sizes(const struct kvg_kernel *kernel, enum kvg_dtype kv, int64_t keys, float q, float k,
                        float v)
{
    const struct shape shape = {8, 2, 128, 16, 0, 0, KVG_NHD, 1, 1, 1, {keys}, {1}};
    float scale_k[2], scale_v[2];
    struct setting s;

    describe(&s, &shape, KVG_PATH_DEQUANT, kv);
    if (!runs_here(kernel, &s.problem))
        return;
    set_up(&s, kernel, 11);
    for (int h = 0; h < 2; h++) {
        scale_k[h] = s.scale_k[h] / k;
        scale_v[h] = s.scale_v[h] / v;
    }
    fill_cache(&s, s.k, scale_k, 21);
    fill_cache(&s, s.v, scale_v, 22);
    for (int64_t i = 0; i < 8 * 128; i++)
        kvg_ref_store(KVG_REF_BF16, s.q, i, kvg_ref_load(KVG_REF_BF16, s.q, i) * q);
    s.args.softmax_scale /= q * k;
    assert_int_equal(kernel->attention(&s.args), KVG_OK);
    const double error = relative_error(&s, kernel);
    if (!(error <= 2.4e-3)) {
        fail_msg("%s: %d keys, Q * %g, K * %g, V * %g: relative error %g, at most 2.4e-3 (the output's own "
                 "rounding is 1.7e-3)",
                 kernel->name, (int)keys, (double)q, (double)k, (double)v, error);
    }
    tear_down(&s);
}

static void test_codes_and_sizes(void **state)
{
    static const enum kvg_dtype caches[] = {KVG_E4M3, KVG_E5M2, KVG_E4M3FNUZ};
    const struct kvg_kernel *kernel;
    (void)state;

    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++) {
        for (size_t c = 0; c < sizeof caches / sizeof *caches; c++) {
            const float large = caches[c] == KVG_E5M2 ? 0x1p12f : 0x1p5f;

            check_codes(kernel, caches[c]);
            check_sizes(kernel, caches[c], 260, 1, 1, 1);
            check_sizes(kernel, caches[c], 260, 0x1p-100f, 1, 1);
            check_sizes(kernel, caches[c], 260, 0x1p100f, 1, 1);
            check_sizes(kernel, caches[c], 260, 1, large, large);
            check_sizes(kernel, caches[c], 260, 0x1p13f, 0x1p-8f, 0x1p-8f);
            check_sizes(kernel, caches[c], 260, 0x1p-13f, large, 0x1p-8f);
        }
        check_sizes(kernel, KVG_E4M3, 5000, 1, 1, 1);
    }
}

/* ---------------------------------------------------------------- the exponential */

/* Every FP32 argument in [-2, -2^-8], and a sample elsewhere: for |x| >= 1 the reduced argument is a multiple
 * of 2^-23, and [-2, -1] holds all of them; towards 0 the polynomial tends to 1 + x ln 2.
 * A sample everywhere under a sanitizer or QEMU. */
static void check_exp2(const struct kvg_attention_ops *ops)
{
    enum { COUNT = 4096 };
    const int every = !getenv("KVG_TEST_SANITIZED");
    float x[COUNT], y[COUNT];
    double worst = 0;

    for (uint32_t bits = 0xb0000000u; bits <= 0xc2fc0000u;) { /* -2^-31 to -126 */
        const uint32_t step = bits >= 0xbb800000u && bits <= 0xc0000000u && every ? 1 : 61;

        for (int i = 0; i < COUNT; i++, bits += step)
            x[i] = y[i] = kvg_f32_from_bits(bits < 0xc2fc0000u ? bits : 0xc2fc0000u);
        ops->exp2(y, COUNT);
        for (int i = 0; i < COUNT; i++)
            worst = fmax(worst, fabs((double)y[i] / exp2((double)x[i]) - 1));
    }
    print_message("exp2 of instruction set %d: largest relative error 2^-24 * %.3f\n", (int)ops->isa,
                  worst * 0x1p24);
    assert_true(worst <= ops->exp2_rel_error);
    x[0] = 0.0f;
    x[1] = -INFINITY;
    x[2] = NAN;
    x[3] = -1000.0f;
    x[4] = -126.9f;
    ops->exp2(x, 16);
    assert_true(x[0] == 1.0f && x[1] == 0.0f && isnan(x[2]) && x[3] == 0.0f && x[4] >= 0.0f &&
                x[4] < 0x1p-125f);
}

static void test_exp2(void **state)
{
    static const struct kvg_attention_ops *const all[] = {
        &kvg_attention_scalar,
#if defined(__x86_64__)
        &kvg_attention_avx2,
        &kvg_attention_avx512,
        &kvg_attention_avx512fp16,
        &kvg_attention_amx,
#elif defined(__aarch64__)
        &kvg_attention_neon,
#endif
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char why[256];
        if (kvg_cpu_has(all[i]->isa, why, sizeof why))
            check_exp2(all[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boundary_lengths),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_small_and_shared_pages),
        cmocka_unit_test(test_head_dims),
        cmocka_unit_test(test_append_and_prefill),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_chunked_masks),
        cmocka_unit_test(test_prefix_masks),
        cmocka_unit_test(test_masks_in_splits),
        cmocka_unit_test(test_soft_cap),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_owned_nan_shows),
        cmocka_unit_test(test_the_loop_agrees_with_the_reference),
        cmocka_unit_test(test_small_weights),
        cmocka_unit_test(test_codes_and_sizes),
        cmocka_unit_test(test_exp2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
