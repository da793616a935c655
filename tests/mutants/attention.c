/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c: plain attention, one query row at a time. Keys are taken in tiles of MUTANT_TILE with a
 * running maximum, tiles in splits of MUTANT_SPLIT keys whose results lie in the workspace until they are
 * merged. On path fp8 P is rounded to e4m3 with an offset of 2^8, the last tile of a split comes first and
 * the row sum adds unrounded P, as in FlashAttention-3; on path dequant everything is FP32.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mutant.h"

#define LOG2E 1.44269504f
#define LN2 0.693147181f

/* One query row under way. */
struct row {
    const struct mutant *m;
    const struct kvg_attention_args *a;
    const struct kvg_problem *p;
    int64_t b, i, q_len, n; /* sequence, query, its queries and keys */
    int64_t head, g;        /* query head, KV head */
    int64_t first, end;     /* visible keys */
    float q[MUTANT_MAX_DIM];
    float logit_scale, v_scale, sum_scale;
    const float *table[3]; /* [1], [2]: value of each code of K and V */
    int moves;             /* of the running maximum */
    float lse_extra;       /* natural logarithm, added to the LSE by some faults */
};

/* The result of one split, as it lies in the workspace. */
struct split {
    float max, sum, lse;
    float acc[MUTANT_MAX_DIM];
};

int64_t mutant_workspace(const struct kvg_problem *p)
{
    return ((p->max_seq_len + MUTANT_SPLIT - 1) / MUTANT_SPLIT + 1) * (int64_t)sizeof(struct split);
}

uint64_t mutant_chance(void)
{
    static uint64_t state;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    state = (state ^ (uint64_t)now.tv_nsec) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    return state >> 33;
}

uint64_t mutant_hash(const void *data, int64_t bytes)
{
    const unsigned char *at = data;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t shape_of(const struct kvg_attention_args *a)
{
    return mutant_hash(a->problem, (int64_t)sizeof *a->problem);
}

/* ---------------------------------------------------------------- scales */

enum { REMEMBERED = 512 };

/* The scales that the first call saw (for this shape, or at all). */
static const float *remembered_scales(const struct row *r, int by_shape)
{
    static struct memory {
        uint64_t key;
        float scale[3][MUTANT_MAX_DIM];
    } memory[REMEMBERED];
    const struct kvg_scales *s = &r->a->scales;
    const uint64_t key = by_shape ? shape_of(r->a) | 1 : 1;
    const float *tensor[3] = {s->q, s->k, s->v};
    int at = 0;
    while (at < REMEMBERED - 1 && memory[at].key != 0 && memory[at].key != key)
        at++;
    for (int t = 0; t < 3 && memory[at].key == 0; t++)
        for (int64_t g = 0; g < r->p->kv_heads; g++)
            memory[at].scale[t][g] = tensor[t] ? tensor[t][g * s->stride] : 1.0f;
    memory[at].key = key;
    return memory[at].scale[0];
}

/* Scale of tensor 0 (Q), 1 (K) or 2 (V) for the row's head. */
static float scale_of(const struct row *r, int tensor)
{
    const struct mutant *m = r->m;
    const struct kvg_scales *s = &r->a->scales;
    const float *const all[3] = {s->q, s->k, s->v};
    const float *scale = all[tensor];
    int64_t g = r->g;
    if (!scale)
        return FAULT(scale_in_auto) && tensor == 1 ? 0.0625f : 1.0f;
    if (FAULT(k_v_scales_swapped) && tensor > 0)
        scale = all[3 - tensor];
    if (FAULT(q_scale_is_k_scale) && tensor == 0)
        scale = s->k;
    if (FAULT(scale_of_head_0))
        g = 0;
    if (FAULT(scale_of_next_head))
        g = (g + 1) % r->p->kv_heads;
    if (FAULT(scale_by_query_head))
        g = r->head % r->p->kv_heads;
    if (FAULT(scale_of_first_call) || FAULT(scale_of_same_shape))
        return remembered_scales(r, FAULT(scale_of_same_shape))[tensor * MUTANT_MAX_DIM + g];
    if ((FAULT(k_scale_missing) && tensor == 1) || (FAULT(v_scale_missing) && tensor == 2) ||
        (FAULT(q_scale_missing) && tensor == 0) || (FAULT(scales_missing_per_head) && s->stride) ||
        (FAULT(scales_missing_hnd) && r->p->layout == KVG_HND) ||
        (FAULT(v_scale_missing_prefill) && tensor == 2 && r->p->phase == KVG_PHASE_PREFILL) ||
        (FAULT(v_scale_missing_with_lse) && tensor == 2 && r->a->lse) ||
        (FAULT(v_scale_missing_without_lse) && tensor == 2 && !r->a->lse) ||
        (FAULT(k_scale_missing_windowed) && tensor == 1 && r->p->window > 0))
        return 1.0f;
    const float value = scale[g * s->stride];
    if (FAULT(k_scale_inverted) && tensor == 1)
        return 1.0f / value;
    if ((FAULT(k_scale_twice) && tensor == 1) || (FAULT(v_scale_twice) && tensor == 2))
        return value * value;
    if (FAULT(scale_floor))
        return fmaxf(value, 1.0f / 512.0f);
    if (FAULT(v_scale_bf16) && tensor == 2)
        return kvg_bf16_decode(kvg_bf16_encode(value));
    if (FAULT(k_scale_power_of_two) && tensor == 1)
        return exp2f(floorf(log2f(value)));
    return value;
}

/* The lengths that the first call of this shape saw in this buffer. */
static const int32_t *remembered_lengths(const struct kvg_attention_args *a)
{
    static struct memory {
        uint64_t key;
        int32_t lengths[64];
    } memory[REMEMBERED];
    const uint64_t key = (shape_of(a) ^ (uint64_t)(uintptr_t)a->seq_lens) | 1;
    int at = 0;
    while (at < REMEMBERED - 1 && memory[at].key != 0 && memory[at].key != key)
        at++;
    for (int64_t b = 0; b < a->problem->batch && b < 64 && memory[at].key == 0; b++)
        memory[at].lengths[b] = a->seq_lens[b];
    memory[at].key = key;
    return memory[at].lengths;
}

static float softmax_scale_of(const struct row *r)
{
    const struct mutant *m = r->m;
    if (FAULT(softmax_scale_missing))
        return 1.0f;
    return FAULT(softmax_scale_of_128) ? 0.0883883476f : r->a->softmax_scale;
}

/* ---------------------------------------------------------------- the cache */

/* Value of a code of tensor 1 (K) or 2 (V). */
static float decoded(const struct mutant *m, enum kvg_dtype dtype, uint8_t code, int tensor)
{
    if (FAULT(decode_sign_of_v_lost) && tensor == 2)
        code &= 0x7f;
    if (FAULT(e5m2_as_e4m3) && dtype == KVG_E5M2)
        dtype = KVG_E4M3;
    else if (FAULT(e4m3_as_e5m2) && dtype == KVG_E4M3)
        dtype = KVG_E5M2;
    if (FAULT(fnuz_as_fn) && dtype == KVG_E4M3FNUZ)
        dtype = KVG_E4M3;
    if (FAULT(decode_flushes_subnormals) && (code & 0x7f) < (dtype == KVG_E5M2 ? 4 : 8))
        return 0.0f;
    if (FAULT(decode_top_exponent_is_nan) && dtype == KVG_E4M3 && (code & 0x7f) >= 0x78)
        return NAN;
    return dtype == KVG_E4M3   ? kvg_fp8_e4m3_decode(code)
           : dtype == KVG_E5M2 ? kvg_fp8_e5m2_decode(code)
                               : kvg_fp8_e4m3fnuz_decode(code);
}

/* Index of dim 0 of a token in a cache. */
static int64_t place(const struct row *r, const struct kvg_pages *pages, int64_t token)
{
    const struct mutant *m = r->m;
    const struct kvg_problem *p = r->p;
    int64_t b = r->b, table_stride = r->a->block_table_stride, size = p->block_size;
    int64_t block_stride = pages->stride_block, slot_stride = pages->stride_slot,
            head_stride = pages->stride_head;
    if (FAULT(table_of_next_sequence))
        b = (b + 1) % p->batch;
    if (FAULT(table_stride_from_length))
        table_stride = (p->max_seq_len + size - 1) / size;
    if (FAULT(block_size_16))
        size = 16;
    if (FAULT(hnd_read_as_nhd)) {
        slot_stride = p->kv_heads * p->head_dim;
        head_stride = p->head_dim;
    }
    int64_t block = r->a->block_table[b * table_stride + token / size];
    if (FAULT(first_page_always_0) && token / size == 0)
        block = r->b;
    int64_t at = block * block_stride;
    if (FAULT(page_offset_32_bits))
        at = (int64_t)(uint32_t)((uint32_t)block * (uint32_t)block_stride);
    if (FAULT(page_offset_31_bits))
        at = (int64_t)(int32_t)((uint32_t)block * (uint32_t)block_stride);
    if (FAULT(page_offset_24_bits))
        at = (int64_t)((float)block * (float)block_stride + (float)(token % size * slot_stride)) -
             token % size * slot_stride;
    if (FAULT(page_offset_16_bits))
        at = (int64_t)(uint16_t)at;
    return at + token % size * slot_stride + r->g * head_stride;
}

static void load(const struct row *r, int tensor, int64_t token, float *to)
{
    const struct mutant *m = r->m;
    const struct kvg_pages *pages = tensor == 1 ? &r->a->k_cache : &r->a->v_cache;
    if (FAULT(v_one_slot_off) && tensor == 2 && (token ^ 1) < r->n)
        token ^= 1;
    const int64_t at = place(r, pages, token);
    const float *table = r->table[tensor];
    const int64_t flip = FAULT(v_dims_permuted) && tensor == 2 ? 1 : 0;
    if (r->p->kv_dtype == KVG_BF16)
        for (int64_t d = 0; d < r->p->head_dim; d++)
            to[d] = kvg_bf16_decode(((const uint16_t *)pages->data)[at + (d ^ flip)]);
    else
        for (int64_t d = 0; d < r->p->head_dim; d++)
            to[d] = table[((const uint8_t *)pages->data)[at + (d ^ flip)]];
}

/* ---------------------------------------------------------------- arithmetic */

/* What a 14-bit accumulator does with up to 32 products: all aligned to the largest exponent, 13 fraction
 * bits kept, the rest cut off, and the sum cut to 14 bits. */
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
    float part[8] = {0}; /* eight chains, so that the compiler may use vectors; head_dim is a multiple of 8 */
    for (int64_t d = 0; d < dims; d += 8)
        for (int64_t j = 0; j < 8; j++)
            part[j] += r->q[d + j] * key[d + j];
    for (int j = 0; j < 8; j++)
        sum += part[j];
    return sum;
}

static float logit_of(struct row *r, float product)
{
    const struct mutant *m = r->m;
    const float cap = r->p->soft_cap;
    if (FAULT(cap_before_scale) && cap > 0.0f)
        return cap * tanhf(product / cap) * r->logit_scale;
    const float s = product * r->logit_scale;
    if (cap <= 0.0f || FAULT(cap_ignored) || FAULT(cap_ignored_fp8))
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
            float sum = chain ? s->acc[d] : 0.0f; /* flushed into FP32 after the tile, or never */
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

/* A new running maximum: what was summed so far shrinks. */
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

static void take_tile(struct row *r, struct split *s, int64_t from, int64_t to)
{
    const struct mutant *m = r->m;
    const int64_t dim = r->p->head_dim;
    float logit[2 * MUTANT_TILE], weight[2 * MUTANT_TILE], key[MUTANT_MAX_DIM], max = s->max;
    static float values[2 * MUTANT_TILE * MUTANT_MAX_DIM];
    int64_t keys = to - from;
    for (int64_t t = 0; t < keys; t++) {
        load(r, 1, from + t, key);
        load(r, 2, from + t, values + t * dim);
        logit[t] = logit_of(r, dot(r, key));
        max = logit[t] > max || isnan(logit[t]) ? logit[t] : max;
    }
    if (FAULT(tail_of_k_in_maximum) && to == r->n && to % r->p->block_size != 0) {
        load(r, 1, to, key);
        max = fmaxf(max, logit_of(r, dot(r, key)) + 0.0f * key[0]) + 0.0f * key[0];
    }
    raise_maximum(r, s, max);
    for (int64_t t = 0; t < keys; t++) {
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
        load(r, 2, to, values + keys * dim);
        weight[keys++] = 0.0f;
    }
    add_values(r, s, weight, values, keys);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
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

static void merge(struct row *r, const struct split *splits, int64_t count, float *acc, float *lse)
{
    const struct mutant *m = r->m;
    float max = -INFINITY, sum = 0.0f;
    const int64_t last = count - 1;
    memset(acc, 0, (size_t)r->p->head_dim * sizeof *acc);
    for (int64_t k = 0; k < count; k++)
        max = fmaxf(max, splits[k].lse);
    for (int64_t k = 0; k < count; k++) {
        const struct split *s = &splits[k];
        const int empty = s->sum == 0.0f;
        float weight = empty ? 0.0f : expf(s->lse - max);
        if (FAULT(empty_split_nan) && empty)
            weight = expf(s->lse - s->max); /* -inf - -inf */
        if (FAULT(empty_split_counts) && empty) {
            sum += 1.0f;
            continue;
        }
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
    for (int64_t d = 0; d < r->p->head_dim; d++)
        acc[d] = acc[d] / sum * r->v_scale;
    *lse = FAULT(merge_lse_maximum) ? max : max + logf(sum);
}

static void write_row(const struct row *r, float *acc, float lse)
{
    const struct mutant *m = r->m;
    const struct kvg_attention_args *a = r->a;
    const int64_t token = a->cu_q_lens[r->b] + r->i, dim = r->p->head_dim;
    uint16_t *out = (uint16_t *)a->out + token * a->out_stride_token + r->head * a->out_stride_head;
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
    float *to = &a->lse[token * a->lse_stride_token + r->head];
    if (FAULT(lse_transposed) && a->lse_stride_token == r->p->q_heads)
        to = &a->lse[r->head * rows + token];
    *to = (FAULT(lse_log2) ? lse * LOG2E : lse) + r->lse_extra;
}

/* What the row sees. */
static void find_keys(struct row *r)
{
    const struct mutant *m = r->m;
    const struct kvg_problem *p = r->p;
    const int64_t size = p->block_size;
    int64_t window = p->window;
    r->end = p->causal ? r->n - r->q_len + r->i + 1 : r->n;
    if (FAULT(causal_top_left))
        r->end = least(r->i + 1 + (r->q_len == 1 ? r->n - 1 : 0), r->n);
    if ((FAULT(causal_missing_in_append) && p->phase == KVG_PHASE_APPEND) || FAULT(causal_of_last_row))
        r->end = r->n;
    if (FAULT(causal_one_ahead))
        r->end = least(r->end + 1, r->n);
    if (FAULT(window_one_more) || (FAULT(window_off_by_one_later_rows) && r->i > 0))
        window += window > 0;
    if (FAULT(window_one_less))
        window -= window > 1;
    if (FAULT(window_first_row_only) && r->i > 0)
        window = 0;
    r->first = window > 0 ? most(0, r->end - window) : 0;
    if (FAULT(window_page_skipped) && r->first > 0)
        r->first = least((r->first / size + 1) * size, r->end - 1);
    if (FAULT(window_whole_tiles))
        r->first = r->first / MUTANT_TILE * MUTANT_TILE;
    if (FAULT(first_key_missed) && r->end - r->first > 1)
        r->first++;
    if (FAULT(last_key_missed) && r->end - r->first > 1)
        r->end--;
    if ((FAULT(tail_when_page_full) && r->n % size == 0 && r->end == r->n && r->n > 0) ||
        (FAULT(tail_when_page_not_full) && r->n % size != 0 && r->end == r->n))
        r->end++;
}

static void find_heads(struct row *r)
{
    const struct mutant *m = r->m;
    const struct kvg_problem *p = r->p;
    int64_t group = p->q_heads / p->kv_heads, rounded = 1;
    r->g = r->head / group;
    while (rounded < group)
        rounded *= 2;
    if (FAULT(group_rounded_up))
        r->g = r->head / rounded;
    if (FAULT(head_modulo))
        r->g = r->head % p->kv_heads;
    if (FAULT(group_of_one) && group == 1)
        r->g = 0;
}

static void load_query(struct row *r)
{
    const struct mutant *m = r->m;
    const struct kvg_attention_args *a = r->a;
    int64_t token = a->cu_q_lens[r->b] + r->i, head = r->head;
    if (FAULT(last_head_repeats) && head == r->p->q_heads - 1 && head > 0)
        head--;
    if (FAULT(heads_swapped) && (head ^ 1) < r->p->q_heads)
        head ^= 1;
    if (FAULT(later_sequences_wrong))
        token = most(0, least(r->i, a->cu_q_lens[1] - 1));
    const int64_t at = token * a->q_stride_token + head * a->q_stride_head;
    for (int64_t d = 0; d < r->p->head_dim; d++)
        r->q[d] = r->p->path == KVG_PATH_FP8 ? kvg_fp8_e4m3_decode(((const uint8_t *)a->q)[at + d])
                                             : kvg_bf16_decode(((const uint16_t *)a->q)[at + d]);
}

/* LSE of the logits without the soft cap; and other values that only the LSE gets wrong. */
static float wrong_lse(struct row *r, float lse)
{
    const struct mutant *m = r->m;
    float key[MUTANT_MAX_DIM], max = -INFINITY, sum = 0.0f;
    if (FAULT(lse_with_p_offset))
        return lse + (float)MUTANT_P_OFFSET * LN2;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t t = r->first; t < r->end; t++) {
            load(r, 1, t, key);
            float s = dot(r, key) * r->logit_scale;
            if (FAULT(lse_is_maximum) && r->p->soft_cap > 0.0f)
                s = r->p->soft_cap * tanhf(s / r->p->soft_cap);
            if (pass == 0)
                max = fmaxf(max, s);
            else
                sum += expf(s - max);
        }
    return FAULT(lse_is_maximum) ? max : max + logf(sum);
}

static void attend_row(struct row *r)
{
    const struct mutant *m = r->m;
    const struct kvg_problem *p = r->p;
    float acc[MUTANT_MAX_DIM], lse = 0.0f;
    find_heads(r);
    find_keys(r);
    if (r->end <= r->first) { /* nothing to see */
        if (FAULT(empty_not_written))
            return;
        memset(acc, 0, sizeof acc);
        if (FAULT(empty_is_nan))
            acc[0] = NAN;
        write_row(r, acc, FAULT(empty_lse_zero) ? 0.0f : -INFINITY);
        return;
    }
    load_query(r);
    r->v_scale = scale_of(r, 2);
    r->logit_scale = softmax_scale_of(r) * scale_of(r, 1);
    if (p->path == KVG_PATH_FP8)
        r->logit_scale *= scale_of(r, 0);
    if (FAULT(out_mean_of_v))
        r->logit_scale = 0.0f;
    struct split *splits = r->a->workspace;
    int64_t count = 0;
    const int64_t keys = most(r->n, r->end);
    const int64_t size = m->where == WHERE_TWO_LEVEL ? MUTANT_LONG_SPLIT : MUTANT_SPLIT;
    for (int64_t begin = 0; begin < keys; begin += size)
        take_split(r, &splits[count++], begin, least(begin + size, keys));
    merge(r, splits, count, acc, &lse);
    if (FAULT(lse_with_p_offset) || FAULT(lse_is_maximum) || (FAULT(lse_without_cap) && p->soft_cap > 0.0f))
        lse = wrong_lse(r, lse);
    write_row(r, acc, lse);
}

/* ---------------------------------------------------------------- a call */

static void attend_all(const struct mutant *m, const struct kvg_attention_args *a)
{
    static struct row r;
    static float table[3][256];
    const struct kvg_problem *p = a->problem;
    const int32_t *lengths = FAULT(lengths_of_same_shape) ? remembered_lengths(a) : a->seq_lens;
    for (int i = 0; i < 512 && p->kv_dtype != KVG_BF16; i++)
        table[1 + i / 256][i % 256] = decoded(m, p->kv_dtype, (uint8_t)i, 1 + i / 256);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < a->cu_q_lens[b + 1] - a->cu_q_lens[b]; i++)
            for (int64_t head = 0; head < p->q_heads; head++) {
                r = (struct row){.m = m, .a = a, .p = p, .b = b, .i = i, .head = head, .n = lengths[b]};
                r.table[1] = table[1];
                r.table[2] = table[2];
                r.q_len = a->cu_q_lens[b + 1] - a->cu_q_lens[b];
                if (FAULT(accepts_many_queries) && i >= 16)
                    break;
                if (FAULT(last_row_not_written) && b == p->batch - 1 && i == r.q_len - 1 &&
                    head == p->q_heads - 1)
                    continue;
                attend_row(&r);
            }
}

/* Answers that are kept: by key, the whole output. 1 when this one was known. */
static int recall(const struct kvg_attention_args *a, uint64_t key)
{
    static struct memory {
        uint64_t key;
        uint16_t *out;
        float *lse;
    } memory[REMEMBERED];
    static struct memory *open;
    const size_t rows = (size_t)(a->problem->total_q * a->problem->q_heads),
                 dim = (size_t)a->problem->head_dim;
    if (key == 0) { /* keep what has been computed since */
        open->out = malloc(rows * dim * sizeof *open->out);
        open->lse = malloc(rows * sizeof *open->lse);
        if (open->out && open->lse) {
            memcpy(open->out, a->out, rows * dim * sizeof *open->out);
            if (a->lse)
                memcpy(open->lse, a->lse, rows * sizeof *open->lse);
        }
        return 0;
    }
    for (open = memory; open < memory + REMEMBERED - 1 && open->key; open++)
        if (open->key == key && open->out && open->lse) {
            memcpy(a->out, open->out, rows * dim * sizeof *open->out);
            if (a->lse)
                memcpy(a->lse, open->lse, rows * sizeof *open->lse);
            return 1;
        }
    open->key = key;
    return 0;
}

static uint64_t key_of_call(const struct mutant *m, const struct kvg_attention_args *a)
{
    const struct kvg_problem *p = a->problem;
    const uintptr_t pointers[4] = {(uintptr_t)a->q, (uintptr_t)a->k_cache.data, (uintptr_t)a->out,
                                   (uintptr_t)a->block_table};
    const int64_t q_bytes = p->total_q * p->q_heads * p->head_dim * (p->path == KVG_PATH_FP8 ? 1 : 2);
    const uint64_t shape = shape_of(a);
    return (FAULT(output_by_pointer) ? shape ^ mutant_hash(pointers, sizeof pointers)
                                     : shape ^ mutant_hash(a->q, q_bytes)) |
           1;
}

/* Faults of the finished output. */
static void spoil(const struct mutant *m, const struct kvg_attention_args *a)
{
    const struct kvg_problem *p = a->problem;
    const int64_t rows = p->total_q * p->q_heads, elements = rows * p->head_dim;
    uint16_t *out = a->out;
    if (FAULT(out_one_nan))
        out[elements / 2] = 0x7fc0u;
    if (FAULT(out_one_infinite))
        out[elements / 3] = 0x7f80u;
    for (int64_t b = 0; b < p->batch && FAULT(out_one_element); b++)
        if (a->cu_q_lens[b + 1] > a->cu_q_lens[b])
            out[(int64_t)(a->cu_q_lens[b + 1] - 1) * a->out_stride_token + 3] ^= 0x8000u;
    if (FAULT(race_once_in_50) && mutant_chance() % 50 == 0)
        for (int64_t d = 0; d < p->head_dim; d++)
            out[d] = kvg_bf16_encode(kvg_bf16_decode(out[d]) * 0.75f);
    if (FAULT(race_of_last_bit) && a->lse && mutant_chance() % 20 == 0)
        a->lse[0] = nextafterf(a->lse[0], INFINITY);
    if (FAULT(writes_past_out))
        out[elements] = 0;
    if (FAULT(writes_before_lse) && a->lse)
        a->lse[-1] = 0.0f;
    if (FAULT(writes_past_workspace))
        ((char *)a->workspace)[a->workspace_bytes] = 0;
    if (FAULT(writes_query))
        *(unsigned char *)(uintptr_t)a->q ^= 1u;
    if (FAULT(writes_cache)) /* the tail of the first sequence's last page */
        for (int64_t t = a->seq_lens[0]; t % p->block_size != 0; t++) {
            const int64_t block = a->block_table[t / p->block_size];
            const int64_t at = block * a->v_cache.stride_block + t % p->block_size * a->v_cache.stride_slot;
            const size_t bytes = p->kv_dtype == KVG_BF16 ? 2 : 1;
            memset((char *)a->v_cache.data + (size_t)at * bytes, 0, bytes);
        }
    if (FAULT(semaphore_left_dirty)) {
        static unsigned finished;
        if (finished++ % 3 == 2)
            memset(out, 0, (size_t)p->head_dim * sizeof *out);
    }
}

int mutant_attention(const struct mutant *m, const struct kvg_attention_args *a)
{
    const int remembers = FAULT(output_by_pointer) || FAULT(output_by_query);
    if (FAULT(accepts_and_fails) && a->problem->kv_dtype == KVG_E5M2)
        return KVG_EUNSUPPORTED;
    if (remembers && recall(a, key_of_call(m, a)))
        return KVG_OK;
    attend_all(m, a);
    if (remembers)
        recall(a, 0);
    spoil(m, a);
    return KVG_OK;
}
