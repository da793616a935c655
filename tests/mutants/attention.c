/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c: plain attention, one query row at a time. Keys are taken in tiles of MUTANT_TILE with a
 * running maximum. Tiles form splits of MUTANT_SPLIT keys, whose results are in the workspace until they are
 * merged. On path dequant everything is FP32. On path fp8, as in FlashAttention-3, P is rounded to e4m3 with
 * an offset of 2^8, the last tile of a split comes first, and the row sum adds unrounded P.
 */
#include <math.h>
#include <string.h>

#include "attention_row.h"

#define LOG2E 1.44269504f
#define LN2 0.693147181f

/* ---------------------------------------------------------------- arithmetic */

/* A 14-bit accumulator with up to 32 products: all terms are aligned to the largest exponent, 13 fraction
 * bits are kept and the rest cut off. The sum is then cut to 14 bits. */
static double cut(double x, int exponent)
{
    return ldexp(trunc(ldexp(x, 14 - exponent)), exponent - 14);
}

static float accumulate_narrow(float acc, const float *x, const float *y, int64_t y_stride, int64_t count)
{
    double product[32], sum;
    int largest, e;
    frexp((double)acc, &largest);
    if (acc == 0.0f)
        largest = -1000;
    for (int64_t j = 0; j < count; j++) {
        product[j] = (double)x[j] * (double)y[j * y_stride];
        frexp(product[j], &e);
        if (product[j] != 0.0 && e > largest)
            largest = e;
    }
    sum = cut((double)acc, largest);
    for (int64_t j = 0; j < count; j++)
        sum += cut(product[j], largest);
    frexp(sum, &e);
    return (float)cut(sum, e);
}

static float with_bits(float x, int bits)
{
    const uint32_t drop = 24u - (uint32_t)bits;
    uint32_t word = kvg_f32_bits(x);
    word += (1u << (drop - 1)) - 1u + (word >> drop & 1u);
    return kvg_f32_from_bits(word >> drop << drop);
}

static float dot(const struct row *r, const float *key)
{
    const struct mutant *m = r->m;
    int64_t dims = r->p->head_dim;
    float sum = 0.0f;
    if (FAULT(dims_beyond_64_missing) && dims > 64)
        dims = dims / 64 * 64;
    if (m->where == WHERE_TWO_LEVEL) {
        for (int64_t d = 0; d < dims; d += 32)
            sum = accumulate_narrow(sum, r->q + d, key + d, 1, dims - d < 32 ? dims - d : 32);
        return sum;
    }
    for (int64_t d = 0; d < dims && FAULT(accumulator_f16_logit); d++)
        sum = with_bits(sum + r->q[d] * key[d], 11);
    if (FAULT(accumulator_f16_logit))
        return sum;
    float part[8] = {0}; /* eight chains, so the compiler may use vectors; head_dim is a multiple of 8 */
    for (int64_t d = 0; d < dims; d += 8)
        for (int64_t j = 0; j < 8; j++)
            part[j] += r->q[d + j] * key[d + j];
    for (int j = 0; j < 8; j++)
        sum += part[j];
    return sum;
}

/* A number in (-1, 1), as good as random, made from the bits of x. */
static float noise_of(float x)
{
    return (float)(int32_t)(kvg_f32_bits(x) * 2654435769u) * 0x1p-31f;
}

static float logit_of(struct row *r, float product)
{
    const struct mutant *m = r->m;
    const float cap = r->p->soft_cap;
    if (FAULT(cap_before_scale) && cap > 0.0f)
        return cap * tanhf(product / cap) * r->logit_scale;
    float s = product * r->logit_scale;
    if (FAULT(logit_noise))
        s *= 1.0f + 0x1p-15f * noise_of(s);
    if (cap <= 0.0f || FAULT(cap_ignored) || FAULT(cap_ignored_fp8) ||
        (FAULT(cap_ignored_with_window) && r->p->window > 0))
        return s;
    return FAULT(cap_rational) ? cap * (s / cap) / (1.0f + fabsf(s / cap)) : cap * tanhf(s / cap);
}

static float power_of_two(const struct row *r, float x)
{
    const struct mutant *m = r->m;
    if (!FAULT(exp_of_low_accuracy))
        return exp2f(x);
    const float whole = floorf(x), f = x - whole;
    return ldexpf(1.0f + f * (0.6565f + 0.3435f * f), (int)fmaxf(whole, -1000.0f));
}

static float rounded_weight(const struct row *r, float w)
{
    const struct mutant *m = r->m;
    const int fp8 = r->p->path == KVG_PATH_FP8;
    if (FAULT(p_bf16))
        return kvg_bf16_decode(kvg_bf16_encode(w));
    if (FAULT(p_e5m2))
        return kvg_fp8_e5m2_decode(kvg_fp8_e5m2_encode(w));
    if (FAULT(p_e4m3_in_dequant))
        return kvg_fp8_e4m3_decode(kvg_fp8_e4m3_encode(w * 256.0f)) / 256.0f;
    if ((FAULT(p_flushes_subnormals) && w < 0x1p-6f) || (FAULT(p_smallest_code_missing) && w <= 0x1.8p-9f))
        return 0.0f;
    return fp8 ? kvg_fp8_e4m3_decode(kvg_fp8_e4m3_encode(w)) : w;
}

static float p_offset(const struct row *r)
{
    const struct mutant *m = r->m;
    return r->p->path == KVG_PATH_FP8 && !FAULT(p_offset_missing) ? (float)MUTANT_P_OFFSET : 0.0f;
}

/* ---------------------------------------------------------------- tiles */

static void add_values(struct row *r, struct split *s, const float *weight, const float *values, int64_t keys)
{
    const struct mutant *m = r->m;
    const int64_t dim = r->p->head_dim;
    const int chain = FAULT(accumulator_13_bits) || FAULT(accumulator_not_flushed);
    if (m->where == WHERE_TWO_LEVEL || chain) {
        for (int64_t d = 0; d < dim; d++) {
            float sum = chain ? s->acc[d] : 0.0f; /* added to FP32 after each tile, or never */
            for (int64_t t = 0; t < keys; t += 32)
                sum = accumulate_narrow(sum, weight + t, values + t * dim + d, dim,
                                        keys - t < 32 ? keys - t : 32);
            s->acc[d] = chain ? sum : s->acc[d] + sum;
        }
        return;
    }
    for (int64_t t = 0; t < keys; t++) {
        const float w = weight[t], *value = values + t * dim;
        for (int64_t d = 0; d < dim; d++)
            s->acc[d] += w * value[d];
        for (int64_t d = 0; d < dim && FAULT(accumulator_bf16); d++)
            s->acc[d] = kvg_bf16_decode(kvg_bf16_encode(s->acc[d]));
    }
}

/* Takes over a new running maximum: the sums so far shrink. */
static void raise_maximum(struct row *r, struct split *s, float max)
{
    const struct mutant *m = r->m;
    float factor = s->max == -INFINITY ? 0.0f : power_of_two(r, (s->max - max) * LOG2E);
    if (FAULT(rescale_forgotten_once) && factor != 1.0f && r->moves++ == 1)
        factor = 1.0f;
    if (!FAULT(rescale_of_sum_forgotten))
        s->sum *= factor;
    for (int64_t d = 0; d < r->p->head_dim; d++)
        s->acc[d] *= factor;
    s->max = max;
}

/* 1: sum from back to front. Both orders are right, but the last bits of their sums differ. */
static int back_to_front(const struct row *r, int64_t key)
{
    const struct mutant *m = r->m;
    const struct kvg_attention_args *a = r->a;
    const int64_t page = a->block_table[r->b * a->block_table_stride + key / r->p->block_size];
    return (FAULT(order_by_page_number) && 2 * page >= a->num_blocks) ||
           (FAULT(order_by_head) && r->head == r->p->q_heads - 1) ||
           (FAULT(order_by_sequence) && r->b == r->p->batch - 1) ||
           (FAULT(order_by_threads) && r->p->threads == 1) ||
           (FAULT(order_by_batch_size) && r->p->batch > 1) || (FAULT(order_by_query_rows) && r->q_len > 2) ||
           (FAULT(order_by_most_rows) && r->p->max_q_len > 16);
}

static void take_tile(struct row *r, struct split *s, int64_t from, int64_t to)
{
    const struct mutant *m = r->m;
    const int64_t dim = r->p->head_dim;
    float logit[2 * MUTANT_TILE], weight[2 * MUTANT_TILE], key[MUTANT_MAX_DIM], max = s->max;
    if (FAULT(maximum_starts_at_minus_5e4))
        max = fmaxf(max, -50000.0f);
    if (FAULT(exponential_without_maximum))
        max = 0.0f;
    static float values[2 * MUTANT_TILE * MUTANT_MAX_DIM];
    int64_t keys = to - from;
    for (int64_t t = 0; t < keys; t++) {
        row_load(r, 1, from + t, key);
        row_load(r, 2, from + t, values + t * dim);
        logit[t] = logit_of(r, dot(r, key));
        if (FAULT(nan_key_skipped) && isnan(logit[t]))
            logit[t] = -1e30f;
        if (!FAULT(exponential_without_maximum))
            max = logit[t] > max || isnan(logit[t]) ? logit[t] : max;
    }
    if (FAULT(tail_of_k_in_maximum) && to == r->n && to % r->p->block_size != 0) {
        row_load(r, 1, to, key);
        max = fmaxf(max, logit_of(r, dot(r, key)) + 0.0f * key[0]) + 0.0f * key[0];
    }
    raise_maximum(r, s, max);
    for (int64_t n = 0; n < keys; n++) {
        const int64_t t = back_to_front(r, from) ? keys - 1 - n : n;
        const float w = power_of_two(r, (logit[t] - max) * LOG2E + p_offset(r));
        weight[t] = rounded_weight(r, w);
        if (FAULT(tile_last_key_missed) && t == MUTANT_TILE - 1)
            weight[t] = 0.0f;
        if (FAULT(collapse_at_128_keys) && r->n == 128 && from >= MUTANT_TILE)
            weight[t] = 0.0f;
        s->sum += FAULT(row_sum_of_rounded_p) ? weight[t] : w;
        if (FAULT(slot_counts_more) && (from + t) % r->p->block_size == 3)
            weight[t] *= 1.002f;
        if (FAULT(last_page_counts_less) && from + t >= (r->end - 1) / r->p->block_size * r->p->block_size)
            weight[t] *= 0.99f;
        if (FAULT(row_sum_bf16))
            s->sum = kvg_bf16_decode(kvg_bf16_encode(s->sum));
    }
    if (FAULT(tail_of_v_times_zero) && to == r->n && to % r->p->block_size != 0 && keys < 2 * MUTANT_TILE) {
        row_load(r, 2, to, values + keys * dim);
        weight[keys++] = 0.0f;
    }
    add_values(r, s, weight, values, keys);
}

static void take_split(struct row *r, struct split *s, int64_t begin, int64_t end)
{
    const struct mutant *m = r->m;
    const int64_t tiles = (end - begin + MUTANT_TILE - 1) / MUTANT_TILE;
    const int last_first = r->p->path == KVG_PATH_FP8 && !FAULT(tiles_first_to_last);
    if (!FAULT(workspace_taken_as_zero))
        memset(s, 0, sizeof *s);
    s->max = -INFINITY;
    for (int64_t k = 0; k < tiles; k++) {
        const int64_t at = begin + (last_first ? tiles - 1 - k : k) * MUTANT_TILE;
        const int64_t from = most(at, r->first), to = least(least(at + MUTANT_TILE, end), r->end);
        if (from < to)
            take_tile(r, s, from, to);
    }
    if (FAULT(split_boundary_twice) && end > r->first && end < r->end)
        take_tile(r, s, end, end + 1);
    if (FAULT(extra_key) && r->end - 1 >= begin && r->end - 1 < end && r->end > r->first)
        take_tile(r, s, r->end - 1, r->end);
    s->lse = s->max + logf(s->sum) - p_offset(r) * LN2;
}

/* ---------------------------------------------------------------- a row */

/* The sink of the row's query head; -infinity without sinks. */
static float sink_of(const struct row *r)
{
    const struct mutant *m = r->m;
    if (!r->a->sinks || FAULT(sink_ignored))
        return -INFINITY;
    const float sink = r->a->sinks[FAULT(sink_of_kv_head) ? r->g : r->head];
    if (FAULT(sink_capped) && r->p->soft_cap > 0.0f)
        return r->p->soft_cap * tanhf(sink / r->p->soft_cap);
    return FAULT(sink_scaled) ? sink * row_softmax_scale(r) : sink;
}

/* Adds the sink to the merged splits, of which `filled` have a visible key. */
static void add_sink(const struct row *r, int64_t filled, float *max, float *sum, float *acc)
{
    const struct mutant *m = r->m;
    const float sink = sink_of(r), top = fmaxf(*max, sink), shrink = expf(*max - top);
    if (sink == -INFINITY)
        return;
    *sum = *sum * shrink + expf(sink - top) * (FAULT(sink_once_per_split) ? (float)filled : 1.0f);
    for (int64_t d = 0; d < r->p->head_dim; d++)
        acc[d] *= shrink;
    *max = top;
}

static void merge(struct row *r, const struct split *splits, int64_t count, float *acc, float *lse)
{
    const struct mutant *m = r->m;
    float max = -INFINITY, sum = 0.0f;
    const int64_t last = count - 1;
    int64_t filled = 0;
    memset(acc, 0, (size_t)r->p->head_dim * sizeof *acc);
    for (int64_t k = 0; k < count; k++)
        max = fmaxf(max, splits[k].lse);
    for (int64_t k = 0; k < count; k++) {
        const struct split *s = &splits[k];
        const int empty = s->sum == 0.0f;
        filled += !empty;
        float weight = empty ? 0.0f : expf(s->lse - max);
        if (FAULT(empty_split_nan) && empty)
            weight = expf(s->lse - s->max); /* -inf - -inf */
        if ((FAULT(empty_split_counts) && empty) || (FAULT(first_split_outside_window) && empty && k == 0)) {
            sum += 1.0f;
            continue;
        }
        if (FAULT(splits_above_8) && k >= 8)
            continue;
        if (empty && !FAULT(empty_split_nan))
            continue;
        if (FAULT(merge_without_rescale))
            weight = 1.0f;
        if (FAULT(merge_drops_last_split) && k == last && k > 0)
            continue;
        if (FAULT(merge_takes_first_twice) && k == 0 && count > 1)
            weight *= 2.0f;
        if (FAULT(split_counts_more) && k == 1)
            weight *= 1.001f;
        sum += weight;
        for (int64_t d = 0; d < r->p->head_dim; d++)
            acc[d] += s->acc[d] / s->sum * weight;
    }
    if (FAULT(denominator_plus_one))
        sum += expf(-max);
    const float lse_of_keys = max + logf(sum);
    add_sink(r, filled, &max, &sum, acc);
    for (int64_t d = 0; d < r->p->head_dim; d++)
        acc[d] = acc[d] / sum * r->v_scale;
    *lse = FAULT(merge_lse_maximum) ? max : FAULT(sink_not_in_lse) ? lse_of_keys : max + logf(sum);
}

/* Where the output of the row goes. */
static uint16_t *place_of_out(const struct row *r, int64_t token)
{
    const struct mutant *m = r->m;
    const struct kvg_attention_args *a = r->a;
    int64_t stride_token = a->out_stride_token, stride_head = a->out_stride_head;
    if (FAULT(out_token_stride_from_shape))
        stride_token = r->p->q_heads * r->p->head_dim;
    if (FAULT(out_head_stride_from_shape))
        stride_head = r->p->head_dim;
    if (FAULT(out_strides_of_q)) {
        stride_token = a->q_stride_token;
        stride_head = a->q_stride_head;
    }
    return (uint16_t *)a->out + token * stride_token + r->head * stride_head;
}

static void write_row(const struct row *r, float *acc, float lse)
{
    const struct mutant *m = r->m;
    const struct kvg_attention_args *a = r->a;
    const int64_t token = row_token(r), dim = r->p->head_dim;
    uint16_t *out = place_of_out(r, token);
    float largest = 0.0f;
    for (int64_t d = 0; d < dim; d++)
        largest = fmaxf(largest, fabsf(acc[d]));
    for (int64_t d = 0; d < dim; d++) {
        float o = acc[d];
        if (FAULT(gain_099))
            o *= 0.99f;
        if (FAULT(gain_1006))
            o *= 1.006f;
        if (FAULT(offset_added))
            o += 0.01f * largest;
        if (FAULT(out_zero))
            o = 0.0f;
        if (FAULT(out_negated))
            o = -o;
        out[d] = FAULT(out_truncated) ? (uint16_t)(kvg_f32_bits(o) >> 16) : kvg_bf16_encode(o);
    }
    if (FAULT(accepts_wide_heads) && dim > 64)
        for (int64_t d = 64; d < dim; d++)
            out[d] = 0;
    if (!a->lse || (FAULT(lse_last_head_missing) && r->head == r->p->q_heads - 1))
        return;
    const int64_t rows = a->problem->total_q;
    float *to =
        &a->lse[token * (FAULT(lse_stride_from_shape) ? r->p->q_heads : a->lse_stride_token) + r->head];
    if (FAULT(lse_transposed) && a->lse_stride_token == r->p->q_heads)
        to = &a->lse[r->head * rows + token];
    *to = (FAULT(lse_log2) ? lse * LOG2E : lse) + r->lse_extra;
}

/* A wrong LSE next to a right output: of the logits without the soft cap, without the sum, or with the
 * offset of P. */
static float wrong_lse(struct row *r, float lse)
{
    const struct mutant *m = r->m;
    float key[MUTANT_MAX_DIM], max = -INFINITY, sum = 0.0f;
    if (FAULT(lse_with_p_offset))
        return lse + (float)MUTANT_P_OFFSET * LN2;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t t = r->first; t < r->end; t++) {
            row_load(r, 1, t, key);
            float s = dot(r, key) * r->logit_scale;
            if (FAULT(lse_is_maximum) && r->p->soft_cap > 0.0f)
                s = r->p->soft_cap * tanhf(s / r->p->soft_cap);
            if (pass == 0)
                max = fmaxf(max, s);
            else
                sum += expf(s - max);
        }
    if (FAULT(lse_is_maximum))
        return max;
    return max + logf(sum + expf(sink_of(r) - max));
}

void row_attend(struct row *r)
{
    const struct mutant *m = r->m;
    const struct kvg_problem *p = r->p;
    float acc[MUTANT_MAX_DIM], lse = 0.0f;
    row_find_heads(r);
    row_find_keys(r);
    if (r->end <= r->first) { /* no visible key */
        if (FAULT(empty_not_written))
            return;
        memset(acc, 0, sizeof acc);
        if (FAULT(empty_is_nan))
            acc[0] = NAN;
        write_row(r, acc,
                  FAULT(empty_lse_zero)          ? 0.0f
                  : FAULT(sink_not_in_empty_lse) ? -INFINITY
                                                 : sink_of(r));
        return;
    }
    row_load_query(r);
    r->v_scale = row_scale(r, 2);
    r->logit_scale = row_softmax_scale(r) * row_scale(r, 1);
    if (p->path == KVG_PATH_FP8)
        r->logit_scale *= row_scale(r, 0);
    if (FAULT(out_mean_of_v))
        r->logit_scale = 0.0f;
    struct split *splits = r->a->workspace;
    if (FAULT(rounds_workspace_down))
        splits = (struct split *)((uintptr_t)splits & ~(uintptr_t)63);
    int64_t count = 0;
    const int64_t keys = most(r->n, r->end);
    const int64_t size = mutant_split(m, p);
    for (int64_t begin = 0; begin < keys; begin += size)
        take_split(r, &splits[count++], begin, least(begin + size, keys));
    merge(r, splits, count, acc, &lse);
    if (FAULT(lse_with_p_offset) || FAULT(lse_is_maximum) || (FAULT(lse_without_cap) && p->soft_cap > 0.0f))
        lse = wrong_lse(r, lse);
    write_row(r, acc, lse);
}
