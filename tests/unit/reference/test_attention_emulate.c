/* SPDX-License-Identifier: Apache-2.0
 *
 * test_attention_emulate.c: the emulating and the bounding reference.
 *   - The emulation against a scalar restatement of its rules, and against cases worked out by hand.
 *   - The sums of an error bound against their formulas.
 *   - The bound made of these sums against the error of the emulation.
 */
#include "tests/unit/attention_fixture.h"

enum { DIM_MAX = 256 };

/* ---------------------------------------------------------------- emulation, restated */

/* State of one row in one split. */
struct online {
    double max, sum, o[DIM_MAX];
};

static double operand(enum kvg_ref_format to, int scaled_first, const struct kvg_ref_kv *kv, int64_t at,
                      int64_t head)
{
    float x = kvg_ref_load(kv->format, kv->data, at);
    if (scaled_first)
        x *= kv->scale[head * kv->scale_stride];
    return (double)kvg_ref_round(to, x);
}

static double emulated_logit(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                             const struct kvg_ref_row *r, int64_t g, int64_t key)
{
    int64_t q_at = (a->cu_q_lens[r->seq] + r->q_index) * a->q_stride_token + r->q_head * a->q_stride_head;
    int64_t k_at = kvg_ref_kv_index(&a->k, r->seq, key, g);
    double dot = 0, scale = a->softmax_scale * (double)a->q_scale[g * a->q_scale_stride];
    for (int64_t d = 0; d < a->head_dim; d++)
        dot += (double)kvg_ref_round(how->q_operand, kvg_ref_load(a->q_format, a->q, q_at + d)) *
               operand(how->k_operand, how->k_scaled_first, &a->k, k_at + d, g);
    if (!how->k_scaled_first)
        scale *= (double)a->k.scale[g * a->k.scale_stride];
    return a->soft_cap > 0 ? a->soft_cap * tanh(dot * scale / a->soft_cap) : dot * scale;
}

static double offset_of(const struct kvg_ref_emulation *how)
{
    return how->p_format == KVG_REF_E4M3 || how->p_format == KVG_REF_F16 ? how->p_offset_log2 : 0;
}

static void emulated_tile(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                          const struct kvg_ref_row *r, int64_t g, int64_t first, int64_t last,
                          struct online *state)
{
    double before = state->max, offset = offset_of(how);
    for (int64_t j = first; j <= last; j++)
        state->max = fmax(state->max, emulated_logit(a, how, r, g, j) * M_LOG2E);
    double shrink = before == -INFINITY ? 0 : exp2(before - state->max);
    state->sum *= shrink;
    for (int64_t d = 0; d < a->head_dim; d++)
        state->o[d] *= shrink;
    for (int64_t j = first; j <= last; j++) {
        float p = (float)exp2(emulated_logit(a, how, r, g, j) * M_LOG2E - state->max + offset);
        float rounded = kvg_ref_round(how->p_format, p);
        state->sum += (double)(how->row_sum_of_rounded_p ? rounded : p);
        for (int64_t d = 0; d < a->head_dim; d++)
            state->o[d] += (double)rounded * operand(how->v_operand, how->v_scaled_first, &a->v,
                                                     kvg_ref_kv_index(&a->v, r->seq, j, g) + d, g);
    }
}

/* One split: keys [first, last] visible, tiles counted from `start`. */
static void emulated_split(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                           const struct kvg_ref_row *r, int64_t g, int64_t start, int64_t first, int64_t last,
                           struct online *state)
{
    *state = (struct online){.max = -INFINITY};
    int64_t tiles = (last - start) / how->tile + 1;
    for (int64_t n = 0; n < tiles; n++) {
        int64_t tile = how->tile_last_first ? tiles - 1 - n : n;
        int64_t from = start + tile * how->tile, to = from + how->tile - 1;
        from = from < first ? first : from;
        to = to > last ? last : to;
        if (from <= to)
            emulated_tile(a, how, r, g, from, to, state);
    }
}

static void emulated_row(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                         const struct kvg_ref_row *r, double *out, double *lse)
{
    int64_t g = r->q_head / (a->q_heads / a->kv_heads), first, last;
    kvg_ref_visible(&a->mask, r->seq, a->seq_lens[r->seq], a->cu_q_lens[r->seq + 1] - a->cu_q_lens[r->seq],
                    r->q_index, &first, &last);
    double offset = offset_of(how), total = 0;
    double factor = how->v_scaled_first ? 1 : (double)a->v.scale[g * a->v.scale_stride];
    int64_t start = how->split_from_window ? first : 0,
            step = how->split_tokens ? how->split_tokens : 1 << 30;
    for (int64_t d = 0; d < a->head_dim; d++)
        out[d] = 0;
    /* `total` is e^lse: the logits of these tests are small enough for that */
    for (; start <= last; start += step) {
        int64_t from = start > first ? start : first, to = start + step - 1 < last ? start + step - 1 : last;
        struct online state;
        if (to < from)
            continue;
        emulated_split(a, how, r, g, start, from, to, &state);
        double weight = exp2(state.max - offset) * state.sum;
        total += weight;
        for (int64_t d = 0; d < a->head_dim; d++)
            out[d] += weight * factor * state.o[d] / state.sum;
    }
    for (int64_t d = 0; d < a->head_dim && total > 0; d++)
        out[d] /= total;
    *lse = total > 0 ? log(total) : -INFINITY;
}

static const struct kvg_ref_emulation manners[] = {
    {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0, KVG_REF_E4M3, 8, 0, 96, 1, 0, 0, 0},
    {KVG_REF_BF16, KVG_REF_BF16, KVG_REF_BF16, 1, 1, KVG_REF_BF16, 0, 1, 32, 0, 0, 0, 0},
    {KVG_REF_BF16, KVG_REF_BF16, KVG_REF_BF16, 0, 0, KVG_REF_E4M3, 8, 1, 128, 1, 512, 0, 0},
    {KVG_REF_BF16, KVG_REF_BF16, KVG_REF_F32, 1, 0, KVG_REF_F32, 0, 0, 7, 0, 100, 1, 0},
    {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0, KVG_REF_E4M3, 4, 0, 1, 0, 33, 1, 0},
    {KVG_REF_F16, KVG_REF_F16, KVG_REF_F16, 1, 1, KVG_REF_F16, 8, 0, 64, 1, 64, 0, 0},
};
enum { MANNERS = sizeof manners / sizeof manners[0] };

static void test_against_scalar_emulation(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 21);
        int64_t dim = p.a.head_dim, step = p.n_rows > 100 ? p.n_rows / 40 : 1;
        float *out = malloc((size_t)(p.n_rows * dim) * sizeof *out),
              *lse = malloc((size_t)p.n_rows * sizeof *lse);
        for (int m = 0; m < MANNERS; m++) {
            assert_int_equal(kvg_ref_attention_emulate(&p.a, &manners[m], p.rows, p.n_rows, out, lse), 0);
            for (int64_t r = 0; r < p.n_rows; r += step) {
                double expected[DIM_MAX], expected_lse, error = 0, norm = 0;
                emulated_row(&p.a, &manners[m], &p.rows[r], expected, &expected_lse);
                for (int64_t d = 0; d < dim; d++) {
                    error += pow((double)out[r * dim + d] - expected[d], 2);
                    norm += expected[d] * expected[d];
                }
                if (!(error <= 1e-12 * norm))
                    fail_msg("shape %d, manner %d, row %d: relative error %g", s, m, (int)r,
                             sqrt(error / norm));
                assert_true((double)lse[r] == expected_lse ||
                            fabs((double)lse[r] - expected_lse) < 1e-6 * fmax(1, fabs(expected_lse)));
            }
        }
        free(out);
        free(lse);
        problem_free(&p);
    }
}

/* If nothing is rounded on purpose, the result is the exact one for all tiles and splits. */
static void test_without_rounding_it_is_exact(void **state)
{
    (void)state;
    const struct kvg_ref_emulation plain[] = {
        {.tile = 0},
        {.tile = 1 << 20, .tile_last_first = 1},
        {.tile = 16, .tile_last_first = 1, .split_tokens = 48},
        {.tile = 100, .split_tokens = 1000, .split_from_window = 1},
        {.p_format = KVG_REF_F32, .p_offset_log2 = 8, .row_sum_of_rounded_p = 1, .tile = 128},
    };
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 22);
        int64_t n = p.n_rows * p.a.head_dim;
        float *out = malloc((size_t)n * sizeof *out), *lse = malloc((size_t)p.n_rows * sizeof *lse);
        float *emulated = malloc((size_t)n * sizeof *out),
              *emulated_lse = malloc((size_t)p.n_rows * sizeof *lse);
        assert_int_equal(kvg_ref_attention_f32(&p.a, p.rows, p.n_rows, out, lse), 0);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(
                kvg_ref_attention_emulate(&p.a, &plain[i], p.rows, p.n_rows, emulated, emulated_lse), 0);
            double error = 0, norm = 0;
            for (int64_t j = 0; j < n; j++) {
                error += pow((double)emulated[j] - (double)out[j], 2);
                norm += (double)out[j] * (double)out[j];
            }
            assert_true(sqrt(error / norm) < 2e-7);
            for (int64_t r = 0; r < p.n_rows; r++)
                assert_true(lse[r] == emulated_lse[r] ||
                            fabsf(lse[r] - emulated_lse[r]) < 5e-7f * fabsf(lse[r]) + 1e-7f);
        }
        free(out);
        free(lse);
        free(emulated);
        free(emulated_lse);
        problem_free(&p);
    }
}

/* ---------------------------------------------------------------- emulation, by hand */

/* Two keys with logits 0 and -18 in units of log2, and values 0 and 1. With offset 8 the second weight is
 * 2^-10. That is midway between 0 and the smallest code, 2^-9, and the tie goes to zero. In a tile of its own
 * that is taken first, the second key is itself the maximum and is not lost. So the rounding depends on the
 * order of the tiles. */
static void test_order_of_tiles_by_hand(void **state)
{
    (void)state;
    float q[16] = {1}, k[32] = {0}, v[32] = {0}, out[16], lse;
    const int32_t seq_lens[] = {2}, cu_q_lens[] = {0, 1};
    struct kvg_ref_attention a = {.batch = 1,
                                  .q_heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = 16,
                                  .q = q,
                                  .q_stride_token = 16,
                                  .q_stride_head = 16,
                                  .seq_lens = seq_lens,
                                  .cu_q_lens = cu_q_lens,
                                  .mask = {.kind = KVG_REF_CAUSAL},
                                  .softmax_scale = M_LN2,
                                  .threads = 1};
    a.k = (struct kvg_ref_kv){.data = k, .stride_slot = 16, .stride_head = 16};
    a.v = (struct kvg_ref_kv){.data = v, .stride_slot = 16, .stride_head = 16};
    const struct kvg_ref_row row = {0, 0, 0};
    struct kvg_ref_emulation how = {.p_format = KVG_REF_E4M3, .p_offset_log2 = 8, .tile = 2};
    k[16] = -18, v[16] = 1;
    const double exact = 0x1p-18 / (1 + 0x1p-18);

    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(out[0] == 0);
    assert_true(fabs((double)lse - log(1 + 0x1p-18)) < 1e-11); /* the row sum adds unrounded weights */
    how.row_sum_of_rounded_p = 1;
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(out[0] == 0 && lse == 0);
    how.row_sum_of_rounded_p = 0;

    how.tile = 1; /* first tile first: the maximum is known before the small weight is rounded */
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(out[0] == 0);
    how.tile_last_first = 1; /* the small weight comes first and is rounded as 2^8 */
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(fabs((double)out[0] - exact) < 1e-12);
    how.tile_last_first = 0, how.split_tokens = 1; /* each split has its own maximum */
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(fabs((double)out[0] - exact) < 1e-12);

    how.split_tokens = 0, how.tile = 2, k[16] = -17.5f; /* 2^-9.5 rounds up to 2^-9 */
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(fabs((double)out[0] - 0x1p-17 / (1 + exp2(-17.5))) < 1e-12);
    how.p_offset_log2 = 0; /* without the offset, weights of 2^-10 and less are lost */
    k[16] = -10;
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(out[0] == 0);

    how.p_format = KVG_REF_F16, how.p_offset_log2 = 11, k[16] = -26; /* smallest number of FP16: 2^-24 */
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(fabs((double)out[0] - 0x1p-26 / (1 + 0x1p-26)) < 1e-15);
    assert_true(fabs((double)lse - log(1 + 0x1p-26)) < 1e-15); /* without the offset */
    how.p_offset_log2 = 0;
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(out[0] == 0);
    how.p_format = KVG_REF_BF16, how.p_offset_log2 = 11; /* the offset is not used for BF16 */
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(fabs((double)out[0] - 0x1p-26 / (1 + 0x1p-26)) < 1e-15);
}

/* With scaled_first an operand is rounded after it is scaled: 1.125 * 1.05 is not a bf16 number. */
static void test_scaled_operands_by_hand(void **state)
{
    (void)state;
    uint8_t k[16], v[16];
    float q[16] = {1}, out[16], lse, k_scale = 1.05f, v_scale = 1.1f;
    for (int d = 0; d < 16; d++)
        k[d] = v[d] = kvg_ref_fp8_encode(KVG_REF_E4M3, 1.125f);
    const int32_t seq_lens[] = {1}, cu_q_lens[] = {0, 1};
    struct kvg_ref_attention a = {.batch = 1,
                                  .q_heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = 16,
                                  .q = q,
                                  .q_stride_token = 16,
                                  .q_stride_head = 16,
                                  .seq_lens = seq_lens,
                                  .cu_q_lens = cu_q_lens,
                                  .softmax_scale = 1,
                                  .threads = 1};
    a.k = (struct kvg_ref_kv){.format = KVG_REF_E4M3, .data = k, .stride_slot = 16, .scale = &k_scale};
    a.v = (struct kvg_ref_kv){.format = KVG_REF_E4M3, .data = v, .stride_slot = 16, .scale = &v_scale};
    const struct kvg_ref_row row = {0, 0, 0};
    struct kvg_ref_emulation how = {
        KVG_REF_BF16, KVG_REF_BF16, KVG_REF_BF16, 1, 1, KVG_REF_BF16, 0, 0, 8, 0, 0, 0, 0};
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    /* 1.18125 and 1.2375 rounded to 8 bits: 151.2 and 158.4 steps of 2^-7 */
    assert_true(lse == 151.0f / 128 && out[0] == 158.0f / 128);
    how.k_scaled_first = how.v_scaled_first = 0;
    kvg_ref_attention_emulate(&a, &how, &row, 1, out, &lse);
    assert_true(fabs((double)lse - 1.125 * (double)k_scale) < 1e-7);
    assert_true(fabs((double)out[0] - 1.125 * (double)v_scale) < 1e-7);
}

/* ---------------------------------------------------------------- bound */

#define NO_FLOORS                                                                                            \
    {                                                                                                        \
        0, 0, 0, 0, 0, 0                                                                                     \
    }

struct bound_arrays {
    double *element[7], *row[4];
    struct kvg_ref_terms terms;
    float *out, *lse;
};

static struct bound_arrays bound_of(const struct problem *p, const struct kvg_ref_bound_model *model)
{
    struct bound_arrays b;
    size_t n = (size_t)(p->n_rows * p->a.head_dim);
    for (int i = 0; i < 7; i++)
        b.element[i] = malloc(n * sizeof(double));
    for (int i = 0; i < 4; i++)
        b.row[i] = malloc((size_t)p->n_rows * sizeof(double));
    b.out = malloc(n * sizeof(float));
    b.lse = malloc((size_t)p->n_rows * sizeof(float));
    b.terms = (struct kvg_ref_terms){b.element[0], b.element[1], b.element[2], b.element[3],
                                     b.element[4], b.element[5], b.element[6], b.row[0],
                                     b.row[1],     b.row[2],     b.row[3],     NULL};
    assert_int_equal(kvg_ref_attention_bound(&p->a, model, p->rows, p->n_rows, b.out, b.lse, &b.terms), 0);
    return b;
}

static void bound_free(struct bound_arrays *b)
{
    for (int i = 0; i < 7; i++)
        free(b->element[i]);
    for (int i = 0; i < 4; i++)
        free(b->row[i]);
    free(b->out);
    free(b->lse);
}

/* |x|' of struct kvg_ref_floors: at least the floor, except that zero stays zero. */
static double aligned_size(double x, double floor)
{
    return x == 0.0 ? 0.0 : fmax(fabs(x), floor);
}

/* The largest change of the capped logit when the logit before the soft cap is off by h in either
 * direction. */
static double capped(const struct kvg_ref_attention *a, const struct kvg_ref_row *r, int64_t g, int64_t j,
                     double h)
{
    const struct kvg_ref_emulation none = {.tile = 1};
    struct kvg_ref_attention plain = *a;
    plain.soft_cap = 0;
    const double x = emulated_logit(&plain, &none, r, g, j), cap = a->soft_cap;
    if (!(cap > 0))
        return h;
    return cap * fmax(tanh(x / cap) - tanh((x - h) / cap), tanh((x + h) / cap) - tanh(x / cap));
}

/* The terms of one row, by their formulas. */
static void direct_terms(const struct problem *p, const struct kvg_ref_bound_model *m,
                         const struct kvg_ref_row *r, double element[7][DIM_MAX], double row[4])
{
    const struct kvg_ref_attention *a = &p->a;
    const struct kvg_ref_emulation none = {.tile = 1};
    int64_t g = r->q_head / (a->q_heads / a->kv_heads), first, last;
    int64_t q_at = (a->cu_q_lens[r->seq] + r->q_index) * a->q_stride_token + r->q_head * a->q_stride_head;
    double o[DIM_MAX], lse, largest = 0, scale = a->softmax_scale * (double)a->q_scale[g * a->q_scale_stride];
    scale *= (double)a->k.scale[g * a->k.scale_stride];
    kvg_ref_visible(&a->mask, r->seq, a->seq_lens[r->seq], a->cu_q_lens[r->seq + 1] - a->cu_q_lens[r->seq],
                    r->q_index, &first, &last);
    assert_int_equal(kvg_ref_attention_f64(a, r, 1, o, &lse), 0);
    memset(element, 0, 7 * sizeof *element);
    memset(row, 0, 4 * sizeof *row);
    for (int64_t j = first; j <= last; j++)
        largest = fmax(largest, exp(emulated_logit(a, &none, r, g, j) - lse));
    for (int64_t j = first; j <= last; j++) {
        double pj = exp(emulated_logit(a, &none, r, g, j) - lse), spread = 0;
        for (int64_t d = 0; d < a->head_dim; d++)
            spread +=
                aligned_size((double)kvg_ref_load(a->q_format, a->q, q_at + d), m->floors.q) *
                aligned_size(
                    (double)kvg_ref_load(a->k.format, a->k.data, kvg_ref_kv_index(&a->k, r->seq, j, g) + d),
                    m->floors.k / (m->floors.k_scaled ? (double)a->k.scale[g * a->k.scale_stride] : 1.0));
        double delta = capped(a, r, g, j, m->logit_rel * fabs(scale) * spread) + m->logit_abs;
        double eta = fmin(pj, fmax(m->p_rel * pj, m->p_abs * largest));
        double aligned_p = fmin(16.0 * pj, fmax(pj, m->floors.p * largest));
        row[0] += pj * exp(-delta);
        row[1] += eta;
        row[2] += pj * delta;
        row[3] += pj * expm1(delta);
        for (int64_t d = 0; d < a->head_dim; d++) {
            double v =
                (double)kvg_ref_load(a->v.format, a->v.data, kvg_ref_kv_index(&a->v, r->seq, j, g) + d) *
                (double)a->v.scale[g * a->v.scale_stride];
            element[0][d] += pj * fabs(v);
            element[1][d] += pj * expm1(delta) * fabs(v - o[d]);
            element[2][d] += eta * fabs(v);
            element[3][d] += pj * pj * v * v;
            element[4][d] += pj * pj * delta * delta * (v - o[d]) * (v - o[d]);
            double x =
                aligned_p *
                aligned_size(v, m->floors.v *
                                    (m->floors.v_scaled ? 1.0 : (double)a->v.scale[g * a->v.scale_stride]));
            element[5][d] += x;
            element[6][d] += x * x;
        }
    }
}

/* How close a sum of a bound must be. It is enlarged, so that FP32 cannot make it too small. So it may be too
 * large, by 1e-4 in total:
 *
 *   2^-15      roundings of the sum
 *   2 * 2^-16  a squared delta, with 256 dimensions
 *   2^-15      where the largest delta of a row stands for all of them
 *
 * It may be too small only by the error of the FP32 weights of the exact reference, because the terms are
 * built on its sum and output: 1e-6. In addition v - o can be zero in one computation and 1e-8 v in the
 * other. So the tolerance also has 3e-7 of the same sum taken over v, `scale`. */
static int close_above(double value, double expected, double scale)
{
    return value >= expected * (1 - 1e-6) - 3e-7 * scale && value <= expected * (1 + 1e-4) + 3e-7 * scale;
}

static void test_terms_against_formulas(void **state)
{
    (void)state;
    const int like[7] = {0, 0, 2, 3, 3, 5, 6};
    const struct kvg_ref_bound_model models[] = {{1e-4, 1e-5, 0x1p-4, 0x1p-18, NO_FLOORS, 0},
                                                 {3e-3, 0, 0x1p-9, 0, {0.3, 0.2, 0x1p-8, 0.4, 0, 0}, 0},
                                                 {0, 0.5, 0, 1e-3, {0.1, 0.5, 0.5, 0.1, 1, 1}, 0}};
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 23);
        int64_t dim = p.a.head_dim, step = p.n_rows > 100 ? p.n_rows / 40 : 1;
        for (int m = 0; m < 3; m++) {
            struct bound_arrays b = bound_of(&p, &models[m]);
            for (int64_t r = 0; r < p.n_rows; r += step) {
                double element[7][DIM_MAX], row[4];
                direct_terms(&p, &models[m], &p.rows[r], element, row);
                assert_true(close_above(row[0], b.row[0][r], 0)); /* shrink divides: not too large */
                for (int i = 1; i < 4; i++)
                    assert_true(close_above(b.row[i][r], row[i], 0));
                for (int i = 0; i < 7; i++)
                    for (int64_t d = 0; d < dim; d++)
                        if (!close_above(b.element[i][r * dim + d], element[i][d], element[like[i]][d]))
                            fail_msg("shape %d, model %d, row %d, term %d, dim %d: %.9g, expected %.9g", s, m,
                                     (int)r, i, (int)d, b.element[i][r * dim + d], element[i][d]);
            }
            bound_free(&b);
        }
        problem_free(&p);
    }
}

/* The output that comes with the terms is the exact output. No bit of output or terms depends on the
 * threads. */
static void test_same_bits(void **state)
{
    (void)state;
    const struct kvg_ref_bound_model model = {1e-4, 1e-5, 0x1p-4, 0x1p-18, NO_FLOORS, 0};
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 24);
        size_t n = (size_t)(p.n_rows * p.a.head_dim);
        float *out = malloc(n * sizeof *out), *other = malloc(n * sizeof *out);
        p.a.threads = 1;
        struct bound_arrays one = bound_of(&p, &model);
        kvg_ref_attention_f32(&p.a, p.rows, p.n_rows, out, NULL);
        assert_memory_equal(out, one.out, n * sizeof *out);
        kvg_ref_attention_emulate(&p.a, &manners[2], p.rows, p.n_rows, out, NULL);
        p.a.threads = 3;
        struct bound_arrays three = bound_of(&p, &model);
        kvg_ref_attention_emulate(&p.a, &manners[2], p.rows, p.n_rows, other, NULL);
        assert_memory_equal(out, other, n * sizeof *out);
        for (int i = 0; i < 7; i++)
            assert_memory_equal(one.element[i], three.element[i], n * sizeof(double));
        for (int i = 0; i < 4; i++)
            assert_memory_equal(one.row[i], three.row[i], (size_t)p.n_rows * sizeof(double));
        bound_free(&one);
        bound_free(&three);
        free(out);
        free(other);
        problem_free(&p);
    }
}

/* FNV-1a */
static void mix(uint64_t *hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}

/* A hash of everything that the reference returns for these problems. The values are checked by other tests.
 * The hash checks that they have the same bits on every machine, with every compiler and vector width. It was
 * found equal with gcc 12 at -O1 and -O3, for SSE2, AVX2 and AVX-512, and with clang 14. It changes only when
 * the arithmetic changes. */
static void test_same_bits_on_every_machine(void **state)
{
    (void)state;
    const struct kvg_ref_bound_model model = {1e-4, 1e-5, 0x1p-4, 0x1p-18, NO_FLOORS, 0};
    uint64_t hash = 14695981039346656037u;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 77);
        size_t n = (size_t)(p.n_rows * p.a.head_dim);
        struct bound_arrays b = bound_of(&p, &model);
        mix(&hash, b.out, n * sizeof *b.out);
        mix(&hash, b.lse, (size_t)p.n_rows * sizeof *b.lse);
        for (int i = 0; i < 7; i++)
            mix(&hash, b.element[i], n * sizeof(double));
        for (int i = 0; i < 4; i++)
            mix(&hash, b.row[i], (size_t)p.n_rows * sizeof(double));
        kvg_ref_attention_emulate(&p.a, &manners[2], p.rows, p.n_rows, b.out, b.lse);
        mix(&hash, b.out, n * sizeof *b.out);
        mix(&hash, b.lse, (size_t)p.n_rows * sizeof *b.lse);
        bound_free(&b);
        problem_free(&p);
    }
    if (hash != 0xd757b2587eb9d9e1)
        fail_msg("the bits of the reference are not those of other machines: 0x%016llx",
                 (unsigned long long)hash);
}

/* The error of rounding P to e4m3 stays within its term for every tile order and split, and reaches a good
 * part of it. */
static void test_emulation_stays_within_bound(void **state)
{
    (void)state;
    const struct kvg_ref_bound_model model = {0, 0, 0x1p-4, 0x1p-18, NO_FLOORS, 0};
    double largest = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int m = 0; m < 4; m++) {
            struct problem p;
            problem_make(&p, &shapes[s], 25);
            struct kvg_ref_emulation how = {
                .p_format = KVG_REF_E4M3, .p_offset_log2 = 8, .tile = m % 2 ? 64 : 9};
            how.tile_last_first = m / 2, how.split_tokens = m % 2 ? 0 : 128;
            int64_t n = p.n_rows * p.a.head_dim;
            float *out = malloc((size_t)n * sizeof *out);
            struct bound_arrays b = bound_of(&p, &model);
            kvg_ref_attention_emulate(&p.a, &how, p.rows, p.n_rows, out, NULL);
            for (int64_t i = 0; i < n; i++) {
                double error = fabs((double)out[i] - (double)b.out[i]), slack = 1e-6 * b.element[0][i];
                assert_true(error <= b.element[2][i] + slack);
                largest = b.element[2][i] > 0 ? fmax(largest, error / (b.element[2][i] + slack)) : largest;
            }
            bound_free(&b);
            free(out);
            problem_free(&p);
        }
    assert_true(largest > 0.3);
}

/* Any of the arrays may be NULL; the others have the same values. */
static void test_missing_arrays(void **state)
{
    (void)state;
    const struct kvg_ref_bound_model model = {1e-4, 1e-5, 0x1p-4, 0x1p-18, NO_FLOORS, 0};
    struct problem p;
    problem_make(&p, &shapes[1], 26);
    struct bound_arrays b = bound_of(&p, &model);
    double *shrink = malloc((size_t)p.n_rows * sizeof *shrink);
    const struct kvg_ref_terms terms = {.shrink = shrink};
    assert_int_equal(kvg_ref_attention_bound(&p.a, &model, p.rows, p.n_rows, NULL, NULL, &terms), 0);
    assert_memory_equal(shrink, b.row[0], (size_t)p.n_rows * sizeof *shrink);
    for (int64_t r = 0; r < p.n_rows; r++)
        if (p.shape.seq_len[p.rows[r].seq] == 0)
            assert_true(shrink[r] == 0 && b.row[1][r] == 0 && b.element[0][r * p.a.head_dim] == 0);
    assert_int_equal(kvg_ref_attention_emulate(&p.a, &manners[0], p.rows, p.n_rows, NULL, NULL), 0);
    free(shrink);
    bound_free(&b);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_scalar_emulation),
        cmocka_unit_test(test_without_rounding_it_is_exact),
        cmocka_unit_test(test_order_of_tiles_by_hand),
        cmocka_unit_test(test_scaled_operands_by_hand),
        cmocka_unit_test(test_terms_against_formulas),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_on_every_machine),
        cmocka_unit_test(test_emulation_stays_within_bound),
        cmocka_unit_test(test_missing_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
