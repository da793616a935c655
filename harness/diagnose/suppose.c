/* SPDX-License-Identifier: Apache-2.0
 *
 * suppose.c: attention for one row, key by key, with one thing changed. `is(id)` is true for the tried
 * supposition.
 */
#include "suppose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/prepare/prepared.h"
#include "harness/verify/expectation.h"
#include "places.h"
#include "supposed.h"

#define LN2 0.69314718055994531

static void find_heads(struct row *r)
{
    const struct kvg_problem *problem = &r->p->problem;
    const int64_t group = problem->q_heads / problem->kv_heads;
    int64_t rounded = 1;
    while (rounded < group)
        rounded *= 2;
    r->g = r->h / group;
    if (is(HEAD_MODULO))
        r->g = r->h % problem->kv_heads;
    if (is(GROUP_ROUNDED_UP))
        r->g = r->h / rounded;
    if (is(KV_HEAD_0))
        r->g = 0;
    if (is(KV_HEAD_BESIDE))
        r->g = (r->g + 1) % problem->kv_heads;
}

/* Scale of tensor 0 (Q), 1 (K) or 2 (V). */
static double scale_of(const struct row *r, int tensor)
{
    const struct kvg_prepared *p = r->p;
    const float *const all[3] = {p->q8 ? p->q_scale : NULL, p->k_scale, p->v_scale};
    const float *scale = all[tensor];
    int64_t g = r->g, stride = p->scale_stride;
    if (!scale)
        return 1.0;
    if (is(SCALES_SWAPPED) && tensor > 0)
        scale = all[3 - tensor];
    if (is(Q_SCALE_IS_K_SCALE) && tensor == 0)
        scale = p->k_scale;
    if (is(SCALE_OF_HEAD_0))
        g = 0;
    if (is(SCALE_OF_NEXT_HEAD))
        g = (g + 1) % p->problem.kv_heads;
    if (is(SCALE_BY_QUERY_HEAD))
        g = r->h % p->problem.kv_heads;
    if (is(SCALES_OF_THE_PAST)) {
        const struct kvg_past_scales *past = r->s->past;
        const float *const old[3] = {past->q, past->k, past->v};
        scale = old[tensor];
        stride = 1;
        g = least(g, past->kv_heads - 1);
    }
    const double value = (double)scale[g * stride];
    if ((is(Q_SCALE_1) && tensor == 0) || (is(K_SCALE_1) && tensor == 1) || (is(V_SCALE_1) && tensor == 2) ||
        is(ALL_SCALES_1))
        return 1.0;
    if ((is(K_SCALE_TWICE) && tensor == 1) || (is(V_SCALE_TWICE) && tensor == 2))
        return value * value;
    if ((is(K_SCALE_INVERTED) && tensor == 1) || (is(V_SCALE_INVERTED) && tensor == 2))
        return 1.0 / value;
    if (is(K_SCALE_POWER_OF_2) && tensor == 1)
        return exp2(floor(log2(value)));
    if (is(V_SCALE_BF16) && tensor == 2)
        return (double)kvg_ref_round(KVG_REF_BF16, (float)value);
    return value;
}

static void find_scales(struct row *r)
{
    double softmax = (double)r->p->softmax_scale;
    if (is(SOFTMAX_SCALE_1))
        softmax = 1.0;
    if (is(SCALE_OF_SHAPE))
        softmax = 1.0 / sqrt((double)r->dim);
    if (is(SCALE_OF_128))
        softmax = 1.0 / sqrt(128.0);
    if (is(KEYS_ALIKE))
        softmax = 0.0;
    if (is(LOGITS_SCALED))
        softmax *= r->s->factor;
    r->k_scale = scale_of(r, 1);
    r->v_scale = scale_of(r, 2);
    r->logit_scale = softmax * scale_of(r, 0);
    if (!r->declared->k_scaled_before_qk)
        r->logit_scale *= r->k_scale;
}

static void find_sink(struct row *r)
{
    const float *sinks = r->p->sinks;
    r->sink = sinks ? (double)sinks[is(SINK_OF_KV_HEAD) ? r->g : r->h] : -INFINITY;
    if (is(SINK_SCALED))
        r->sink *= (double)r->p->softmax_scale;
    if (is(SINK_CAPPED) && sinks)
        r->sink = (double)r->p->problem.soft_cap * tanh(r->sink / (double)r->p->problem.soft_cap);
    if (is(SINK_IGNORED))
        r->sink = -INFINITY;
}

/* 1 if the sink begins the running maximum of the split with the first visible key. */
static int sink_begins(const struct row *r)
{
    return r->declared->sink_in_maximum && r->sink > -INFINITY && r->last >= r->first;
}

/* NaN outside the buffer. */
static void load_row(enum kvg_ref_format format, const struct kvg_place *place, int64_t dim, float *to)
{
    if (place->at >= 0) {
        kvg_ref_load_row(format, place->buffer, place->at, dim, to);
        return;
    }
    for (int64_t d = 0; d < dim; d++)
        to[d] = NAN;
}

static void load_query(struct row *r)
{
    const struct kvg_prepared *p = r->p;
    int64_t token = r->token, head = r->h;
    if (is(LAST_HEAD_REPEATS) && head == p->problem.q_heads - 1 && head > 0)
        head--;
    if (is(HEADS_IN_PAIRS) && (head ^ 1) < p->problem.q_heads)
        head ^= 1;
    if (is(Q_OF_FIRST_SEQUENCE))
        token = most(0, least(r->i, p->cu_q_lens[1] - 1));
    if (is(Q_OF_FIRST_QUERY))
        token = p->cu_q_lens[r->b];
    const struct kvg_place place = kvg_place_of_query(p, r->what, token, head);
    load_row(p->q8 ? KVG_REF_E4M3 : KVG_REF_BF16, &place, r->dim, r->q);
    kvg_ref_round_row(kvg_ref_format_of(r->declared->qk_operand), r->q, r->dim);
}

/* ---------------------------------------------------------------- the cache */

static int64_t assumed_block_size(const struct row *r)
{
    const int64_t own = r->p->problem.block_size;
    int64_t power = 1;
    while (power < own)
        power *= 2;
    if (is(BLOCK_SIZE_POWER_2) || is(BLOCK_SIZE_EIGHTS))
        return is(BLOCK_SIZE_EIGHTS) ? (own + 7) / 8 * 8 : power;
    return is(BLOCK_SIZE_8)    ? 8
           : is(BLOCK_SIZE_16) ? 16
           : is(BLOCK_SIZE_32) ? 32
           : is(BLOCK_SIZE_64) ? 64
                               : r->p->problem.block_size;
}

/* Where K (is_v 0) or V of a token is looked for. */
static struct kvg_place place_of(const struct row *r, int is_v, int64_t token)
{
    const struct kvg_prepared *p = r->p;
    const int64_t size = assumed_block_size(r);
    int64_t b = r->b, stride = p->block_table_stride;
    if (is(TABLE_OF_NEXT))
        b = (b + 1) % p->problem.batch;
    if (is(TABLE_OF_FIRST))
        b = 0;
    if (is(TABLE_STRIDE_OF_LONGEST))
        stride = (p->problem.max_seq_len + size - 1) / size;
    const int64_t entry = b * stride + token / size;
    if (entry >= p->problem.batch * p->block_table_stride)
        return (struct kvg_place){NULL, -1};
    int64_t page = p->block_table[entry];
    if (is(FIRST_PAGE_BY_SEQUENCE) && token / size == 0)
        page = r->b;
    if (is(PAGES_IN_A_ROW))
        page = p->block_table[b * stride] + token / size;
    if (is(PREFIX_ROUNDED_UP) && r->b > 0 && token / size > 0 && token / size == kvg_supposed_common_pages(r))
        page = p->block_table[token / size];
    return kvg_place_of_key(p, r->what, is_v, page, is(SLOT_MASKED) ? token & (size - 1) : token % size,
                            r->g);
}

static enum kvg_ref_format assumed_format(const struct row *r)
{
    return is(E5M2_AS_E4M3) || is(FNUZ_AS_FN) ? KVG_REF_E4M3
           : is(E4M3_AS_E5M2)                 ? KVG_REF_E5M2
           : is(FN_AS_FNUZ)                   ? KVG_REF_E4M3FNUZ
                                              : kvg_ref_format_of(r->p->problem.kv_dtype);
}

static int reads_codes_wrong(const struct row *r)
{
    return r->what >= KVG_SUPPOSE_SUBNORMALS_LOST && r->what <= KVG_SUPPOSE_TOP_EXPONENT_IS_NAN;
}

/* The value that is read for the code of x. */
static float misread(const struct row *r, enum kvg_ref_format format, int v, float x)
{
    const struct kvg_ref_format_info *info = kvg_ref_format_get_info(format);
    const float size = fabsf(x);
    const int lost =
        is(SUBNORMALS_LOST) || (v && is(SUBNORMALS_OF_V_LOST)) || (!v && is(SUBNORMALS_OF_K_LOST));
    if (lost && size < ldexpf(1.0f, info->min_exponent))
        return 0.0f;
    if (is(LARGEST_CODE_IS_480) && size == (float)info->max)
        return copysignf(480.0f, x);
    if ((is(LARGEST_CODE_IS_NAN) && size == (float)info->max) || (is(TOP_EXPONENT_IS_NAN) && size > 240.0f) ||
        (is(NEGATIVE_ZERO_IS_NAN) && x == 0.0f && signbit(x)))
        return NAN;
    return x;
}

/* A row of K (tensor 1) or V (2), rounded to the operand format. */
static void load(const struct row *r, int tensor, int64_t token, float *to)
{
    const int v = tensor == 2;
    const enum kvg_ref_format format = assumed_format(r);
    if (is(V_NEXT_SLOT) && v && (token ^ 1) < r->n)
        token ^= 1;
    const struct kvg_place place = place_of(r, v != is(CACHES_SWAPPED), token);
    load_row(format, &place, r->dim, to);
    for (int64_t d = 0; d < r->dim && reads_codes_wrong(r); d++)
        to[d] = misread(r, format, v, to[d]);
    for (int64_t d = 0; d < r->dim && ((is(SIGN_OF_V_LOST) && v) || (is(SIGN_OF_K_LOST) && !v)); d++)
        to[d] = fabsf(to[d]);
    for (int64_t d = 0; d + 1 < r->dim && is(V_DIMS_IN_PAIRS) && v; d += 2) {
        const float even = to[d];
        to[d] = to[d + 1];
        to[d + 1] = even;
    }
    const int scaled = v ? r->declared->v_scaled_before_pv : r->declared->k_scaled_before_qk;
    const enum kvg_dtype operand = v ? r->declared->pv_operand : r->declared->qk_operand;
    for (int64_t d = 0; d < r->dim && scaled; d++)
        to[d] *= (float)(v ? r->v_scale : r->k_scale);
    if (scaled || operand != r->p->problem.kv_dtype) /* else the codes themselves are the operands */
        kvg_ref_round_row(kvg_ref_format_of(operand), to, r->dim);
}

/* ---------------------------------------------------------------- tiles */

static double logit_of(struct row *r, int64_t token)
{
    double part[8] = {0}, product = 0.0;
    const double cap = (double)r->p->problem.soft_cap;
    const int64_t dims = is(QK_DIMS_64) ? r->dim / 64 * 64 : r->dim;
    load(r, 1, token, r->key);
    for (int64_t d = 0; d < dims; d += 8) /* head_dim is a multiple of 8 */
        for (int64_t j = 0; j < 8; j++)
            part[j] += (double)r->q[d + j] * (double)r->key[d + j];
    for (int j = 0; j < 8; j++)
        product += part[j];
    const double s = product * r->logit_scale;
    if (!(cap > 0.0) || is(CAP_IGNORED))
        return s;
    if (is(CAP_BEFORE_SCALE))
        return cap * tanh(product / cap) * r->logit_scale;
    return is(CAP_RATIONAL) ? s / (1.0 + fabs(s / cap)) : cap * tanh(s / cap);
}

static void raise_maximum(struct row *r, double max)
{
    double shrink = r->max == -INFINITY ? 0.0 : exp(r->max - max);
    if (shrink != 0.0 && shrink != 1.0) {
        if (is(RESCALE_FORGOTTEN) && r->moved++ == 0)
            shrink = 1.0;
    }
    if (!is(SUM_NOT_RESCALED))
        r->sum *= shrink;
    for (int64_t d = 0; d < r->dim && !is(ACC_NOT_RESCALED); d++)
        r->acc[d] *= shrink;
    r->max = max;
}

/* Adds keys [from, to], which are one tile. later: 1 if it is not the first tile of its split. logit:
 * scratch, one number a key. */
static void take_tile(struct row *r, int64_t from, int64_t to, int later, double *logit)
{
    double max = r->max;
    for (int64_t t = from; t <= to; t++) {
        const double s = logit[t - from] = logit_of(r, t);
        max = s > max || isnan(s) ? s : max;
    }
    raise_maximum(r, is(NO_MAXIMUM) ? 0.0 : max);
    max = r->max;
    const double offset = r->p_offset * LN2;
    for (int64_t t = from; t <= to; t++) {
        const float p = (float)exp(logit[t - from] - max + offset);
        float weight = kvg_ref_round(r->p_format, p);
        r->sum += (double)(r->row_sum_of_rounded_p ? weight : p);
        if ((is(LAST_KEY_OF_TILE) && t - from == r->tile - 1) || (is(LATER_TILES_LOST) && later))
            weight = 0.0f;
        if (weight == 0.0f && !is(TAIL_TIMES_ZERO))
            continue;
        load(r, 2, t, r->value);
        for (int64_t d = 0; d < r->dim; d++)
            r->acc[d] += (double)weight * (double)r->value[d];
        for (int64_t d = 0; d < r->dim && is(ACC_BF16); d++)
            r->acc[d] = (double)kvg_ref_round(KVG_REF_BF16, (float)r->acc[d]);
    }
    if (is(TAIL_TIMES_ZERO) && to == r->n - 1 && r->n % r->p->problem.block_size != 0) {
        load(r, 2, to + 1, r->value);
        for (int64_t d = 0; d < r->dim; d++)
            r->acc[d] += 0.0 * (double)r->value[d];
    }
}

static void take_split(struct row *r, int64_t begin, int64_t end, double *logit)
{
    const int64_t tiles = (end - begin + r->tile - 1) / r->tile;
    const int last_first = r->declared->tile_last_first != is(TILES_REVERSED);
    r->max = -INFINITY;
    r->sum = 0.0;
    if (sink_begins(r) && r->first >= begin && r->first < end) {
        r->max = r->sink;
        r->sum = exp(r->p_offset * LN2);
    }
    for (int64_t d = 0; d < r->dim; d++)
        r->acc[d] = 0.0;
    for (int64_t k = 0; k < tiles; k++) {
        const int64_t number = last_first ? tiles - 1 - k : k, at = begin + number * r->tile;
        const int64_t from = most(at, r->first), to = least(least(at + r->tile, end) - 1, r->last);
        if (from <= to)
            take_tile(r, from, to, number > 0, logit);
    }
    if (is(SPLIT_BOUNDARY_TWICE) && end > r->first && end <= r->last)
        take_tile(r, end, end, 0, logit);
    if (is(LAST_KEY_TWICE) && r->last >= begin && r->last < end && r->last >= r->first)
        take_tile(r, r->last, r->last, 0, logit);
}

/* ---------------------------------------------------------------- splits */

/* The splits merged so far. r->total is the sum of their weighted outputs, relative to e^max. */
struct merged {
    double max, sum; /* largest lse; sum of the weights, relative to e^max */
    double largest;  /* largest lse of a split */
    double maximum;  /* largest logit */
    int64_t empty;   /* splits without a visible key that count */
    int64_t number;  /* of splits that were merged */
    int64_t filled;  /* splits with a visible key */
};

static void add_split(struct row *r, struct merged *m, int is_first, int is_last)
{
    const double offset = r->p_offset * LN2, lse = r->max + log(r->sum) - offset;
    double weight = 1.0;
    m->filled += r->sum != 0.0;
    m->empty += r->sum == 0.0 && (is(EMPTY_SPLIT_COUNTS) || (is(EMPTY_FIRST_SPLIT_COUNTS) && is_first));
    if (is(SPLITS_ABOVE_8) && m->number++ >= 8)
        return;
    if (r->sum == 0.0 && is(EMPTY_SPLIT_NAN))
        m->sum = NAN;
    if (r->sum == 0.0 || (is(LAST_SPLIT_LOST) && is_last && !is_first) ||
        (is(FIRST_SPLIT_LOST) && is_first && !is_last))
        return;
    if (is(FIRST_SPLIT_TWICE) && is_first && !is_last)
        weight = 2.0;
    m->largest = lse > m->largest || isnan(lse) ? lse : m->largest;
    m->maximum = r->max > m->maximum || isnan(r->max) ? r->max : m->maximum;
    if (!is(SPLITS_AVERAGED)) {
        const double max = lse > m->max || isnan(lse) ? lse : m->max, shrink = exp(m->max - max);
        for (int64_t d = 0; d < r->dim && m->max != -INFINITY; d++)
            r->total[d] *= shrink;
        m->sum = m->max == -INFINITY ? m->sum : m->sum * shrink;
        m->max = max;
        weight *= exp(lse - max);
    }
    m->sum += weight;
    for (int64_t d = 0; d < r->dim; d++)
        r->total[d] += weight * r->acc[d] / r->sum;
}

/* The sink as one more split, whose output is 0. */
static void add_sink(struct row *r, struct merged *m)
{
    if (r->sink == -INFINITY)
        return;
    const double max = r->sink > m->max ? r->sink : m->max,
                 shrink = m->max == -INFINITY ? 0.0 : exp(m->max - max);
    const double times = is(SINK_PER_SPLIT) ? (double)(m->filled - sink_begins(r)) : 1.0;
    for (int64_t d = 0; d < r->dim; d++)
        r->total[d] *= shrink;
    m->sum = m->sum * shrink + times * exp(r->sink - max);
    m->max = max;
}

static void merge(struct row *r, double *logit, float *out, float *lse)
{
    struct merged m = {.max = -INFINITY, .largest = -INFINITY, .maximum = -INFINITY};
    const int64_t keys = most(r->n, r->last + 1);
    for (int64_t d = 0; d < r->dim; d++)
        r->total[d] = 0.0;
    for (int64_t begin = r->base; begin < keys; begin += r->split) {
        const int64_t end = least(begin + r->split, keys);
        take_split(r, begin, end, logit);
        add_split(r, &m, begin == r->base, end == keys);
    }
    const double of_keys = m.max + log(m.sum);
    if (!sink_begins(r) || is(SINK_PER_SPLIT))
        add_sink(r, &m);
    const double top = is(SPLITS_AVERAGED) ? m.largest : m.max;
    double sum = m.sum;
    if (is(SINK))
        sum += exp(-top);
    sum += (double)m.empty;
    for (int64_t d = 0; d < r->dim; d++)
        out[d] = sum == 0.0
                     ? 0.0f
                     : (float)((r->declared->v_scaled_before_pv ? 1.0 : r->v_scale) * r->total[d] / sum);
    *lse = (float)(is(SPLIT_LSE_LARGEST) ? m.largest : is(LSE_IS_MAXIMUM) ? m.maximum : top + log(sum));
    if (is(SINK_NOT_IN_LSE) && !sink_begins(r))
        *lse = (float)of_keys;
    if (sum == 0.0)
        *lse = -INFINITY;
}

/* ---------------------------------------------------------------- a row */

static void find_arithmetic(struct row *r)
{
    const struct kvg_arithmetic *a = r->declared;
    const int64_t keys = most(r->n, 1) + 1;
    r->split = a->split_tokens > 0 && a->split_tokens < keys ? a->split_tokens : keys;
    r->tile = a->tile > 0 && a->tile < r->split ? a->tile : r->split;
    r->base = a->split_from_window ? r->first : 0;
    r->p_format = kvg_ref_format_of(a->p_format);
    r->p_offset = a->p_format == KVG_E4M3 || a->p_format == KVG_F16 ? a->p_offset_log2 : 0;
    r->row_sum_of_rounded_p = a->row_sum_of_rounded_p != is(ROW_SUM_OTHER);
    if (is(P_BF16))
        r->p_format = KVG_REF_BF16;
    if (is(P_E5M2))
        r->p_format = KVG_REF_E5M2;
    if (is(P_E4M3) && r->p_format != KVG_REF_E4M3) {
        r->p_format = KVG_REF_E4M3;
        r->p_offset = 8;
    }
    if (is(P_WITHOUT_OFFSET))
        r->p_offset = 0;
    if (is(P_UNROUNDED))
        r->p_format = KVG_REF_F32;
}

static int64_t longest_tile(const struct kvg_suppose_case *s)
{
    int64_t tile = 1;
    for (int64_t b = 0; b < s->p->problem.batch; b++) {
        const struct kvg_arithmetic *a = &s->declared[b];
        const int64_t keys = s->p->seq_lens[b] + 2;
        const int64_t split = a->split_tokens > 0 && a->split_tokens < keys ? a->split_tokens : keys;
        tile = most(tile, a->tile > 0 && a->tile < split ? a->tile : split);
    }
    return tile;
}

int kvg_suppose_room_make(const struct kvg_suppose_case *s, struct kvg_suppose_room *room)
{
    const size_t dim = (size_t)s->p->problem.head_dim;
    room->doubles = malloc((2 * dim + (size_t)longest_tile(s)) * sizeof *room->doubles);
    room->floats = malloc(4 * dim * sizeof *room->floats);
    if (room->doubles && room->floats)
        return 0;
    kvg_suppose_room_free(room);
    return -1;
}

void kvg_suppose_room_free(struct kvg_suppose_room *room)
{
    free(room->doubles);
    free(room->floats);
    room->doubles = NULL;
    room->floats = NULL;
}

/* The row that is computed and written where `at` should be. 0: no row is. */
static int find_row(struct row *r, const struct kvg_ref_row *at)
{
    const struct kvg_prepared *p = r->p;
    r->b = at->seq;
    r->i = at->q_index;
    r->h = at->q_head;
    r->token = p->cu_q_lens[r->b] + r->i;
    if (is(ROW_IS_SEQUENCE)) {
        r->b = r->token;
        r->i = 0;
    }
    if (is(ROWS_OF_LONGEST)) {
        r->b = r->token / p->problem.max_q_len;
        r->i = r->token % p->problem.max_q_len;
    }
    if (r->b >= p->problem.batch)
        return 0;
    r->q_len = p->cu_q_lens[r->b + 1] - p->cu_q_lens[r->b];
    r->n = is(LENGTH_IS_MEAN) ? p->total_kv / p->problem.batch : p->seq_lens[r->b];
    r->declared = &r->s->declared[r->b];
    return r->i < r->q_len;
}

void kvg_suppose_attend(const struct kvg_suppose_case *s, enum kvg_supposition what,
                        const struct kvg_ref_row *at, const struct kvg_suppose_room *room, float *out,
                        float *lse)
{
    const struct kvg_prepared *p = s->p;
    const int64_t dim = p->problem.head_dim;
    struct row row = {.s = s,
                      .p = p,
                      .what = what,
                      .dim = dim,
                      .acc = room->doubles,
                      .total = room->doubles + dim,
                      .q = room->floats,
                      .key = room->floats + dim,
                      .value = room->floats + 2 * dim};
    struct row *r = &row;
    if (!find_row(r, at)) {
        for (int64_t d = 0; d < dim; d++)
            out[d] = NAN;
        *lse = NAN;
        return;
    }
    find_heads(r);
    if (r->g >= p->problem.kv_heads)
        r->g = p->problem.kv_heads - 1;
    kvg_supposed_keys(r);
    find_scales(r);
    find_sink(r);
    find_arithmetic(r);
    load_query(r);
    merge(r, room->doubles + 2 * dim, out, lse);
}
