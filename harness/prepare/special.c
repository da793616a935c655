/* SPDX-License-Identifier: Apache-2.0
 *
 * special.c: lists of values under which faults of rounding show.
 *
 * A list goes over the bf16 values whose quotients lie in the range of the format, and a binade beyond it on
 * both sides. Values that another rounding would send to another code come first.
 */
#include "special.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fp8.h"
#include "parts.h"
#include "prepared.h"

enum { RANKS = 3, LIST_MOST = 16384 };
#define BF16_LARGEST 0x7f7fu
#define BF16_INFINITY 0x7f80u
#define BF16_NAN 0x7fc0u

float kvg_scale_with_ties(enum kvg_ref_format format, int64_t nth)
{
    const int first = 2 << kvg_ref_format_get_info(format)->mantissa_bits; /* codes here are 2 apart */
    for (int x = 129; x < 256; x += 2)
        for (int m = first + 1; m < 2 * first; m += 2) {
            const float value = (float)x, scale = value / (float)m;
            if (kvg_ref_round(format, value / scale) != kvg_ref_round(format, value * (1.0f / scale)) &&
                nth-- == 0)
                return scale;
        }
    return 1.0f;
}

/* ---------------------------------------------------------------- scales */

static float quotient_of(enum kvg_special_rule rule, float value, float scale)
{
    return rule == KVG_SPECIAL_DIVIDE ? value / scale : value * (1.0f / scale);
}

/* Magnitude code of the largest finite value. */
static int last_code(enum kvg_ref_format format)
{
    return format == KVG_REF_E5M2 ? 0x7b : format == KVG_REF_E4M3 ? 0x7e : 0x7f;
}

/* The midpoint between a magnitude code and the next one. Exact in FP32. After the last code: the value that
 * would be the midpoint if the codes went on. */
static float midpoint_after(enum kvg_ref_format format, int code)
{
    const int last = last_code(format), lower = code < last ? code : last - 1;
    const float a = kvg_ref_fp8_decode(format, (uint8_t)lower),
                b = kvg_ref_fp8_decode(format, (uint8_t)(lower + 1));
    return code < last ? (a + b) / 2.0f : b + (b - a) / 2.0f;
}

/* Number of midpoints for which some bf16 value has a quotient `bits` last bits from the midpoint. */
static int count_hits(enum kvg_ref_format format, enum kvg_special_rule rule, float scale, int bits)
{
    int hits = 0;
    for (int code = 0; code < last_code(format); code++) {
        const float m = midpoint_after(format, code);
        const float quotient = quotient_of(rule, kvg_ref_round(KVG_REF_BF16, m * scale), scale);
        hits += kvg_f32_bits(quotient) == kvg_f32_bits(m) + (uint32_t)bits;
    }
    return hits;
}

/* The nth (or else the last) of the scales near 1, 1.25, 1.5 and 1.75 that have the most such hits, times
 * 2^(-6 nth). The product of each of these four and a midpoint, which has 5 significant bits, is a bf16
 * value. */
static float scale_with_hits(enum kvg_ref_format format, enum kvg_special_rule rule, int bits, int nth)
{
    enum { NEAR = 4, OFFSETS = 2 * NEAR + 1, CANDIDATES = 4 * OFFSETS };
    float candidates[CANDIDATES], best = 1.0f;
    int hits[CANDIDATES], most = 0, found = 0;
    for (int i = 0; i < CANDIDATES; i++) {
        const float base = 1.0f + 0.25f * (float)(i / OFFSETS);
        candidates[i] = kvg_f32_from_bits(kvg_f32_bits(base) + (uint32_t)(i % OFFSETS - NEAR));
        hits[i] = count_hits(format, rule, candidates[i], bits);
        most = hits[i] > most ? hits[i] : most;
    }
    for (int i = 0; i < CANDIDATES; i++)
        if (hits[i] == most) {
            best = ldexpf(candidates[i], -6 * found);
            if (found++ == nth)
                break;
        }
    return best;
}

static float scale_number(enum kvg_ref_format format, enum kvg_special_rule rule, int i)
{
    switch (i) {
    case 0:
        return kvg_scale_with_ties(format, 0);
    case 1:
        return scale_with_hits(format, rule, 0, 0);
    case 2:
        return scale_with_hits(format, rule, -1, 0);
    case 3:
        return scale_with_hits(format, rule, 1, 0);
    case 4:
        return kvg_scale_with_ties(format, 1);
    case 5:
        return scale_with_hits(format, rule, 0, 1);
    case 6:
        return scale_with_hits(format, rule, 1, 1);
    default:
        return scale_with_hits(format, rule, -1, 1);
    }
}

/* ---------------------------------------------------------------- lists */

/* 1 if the quotient lies within two bits of FP32 of a midpoint. */
static int is_near_midpoint(enum kvg_ref_format format, float quotient)
{
    const int code = kvg_ref_fp8_encode(format, quotient) & 0x7f;
    for (int c = code > 0 ? code - 1 : 0; c <= code; c++) {
        const int64_t bits =
            (int64_t)kvg_f32_bits(quotient) - (int64_t)kvg_f32_bits(midpoint_after(format, c));
        if (bits >= -2 && bits <= 2)
            return 1;
    }
    return 0;
}

/* 0 if the quotient lies near a midpoint or another rounding at hand sends it to another code. 1 if it is the
 * first one with its code, or near the largest code. 2 otherwise. `other` is the quotient by the other rule,
 * `code` and `before` the rounded quotients of this value and of the value before it. */
static int rank_of(enum kvg_ref_format format, float quotient, float other, float code, float before)
{
    const float largest = (float)kvg_ref_format_get_info(format)->max;
    const float half = kvg_ref_round(KVG_REF_F16, quotient), bf16 = kvg_ref_round(KVG_REF_BF16, quotient);
    if (is_near_midpoint(format, quotient) || kvg_ref_round(format, half) != code ||
        kvg_ref_round(format, bf16) != code || kvg_ref_round(format, other) != code)
        return 0;
    return code != before || (quotient > 0.98f * largest && quotient < 1.1f * largest) ? 1 : 2;
}

/* Fills a list. Returns its length, and in *telling the number of values of the ranks 0 and 1. */
static int64_t list_values(enum kvg_ref_format format, enum kvg_special_rule rule, float scale,
                           uint16_t *list, int64_t *telling)
{
    static const uint16_t edges[] = {0x0000u,  0x8000u, BF16_INFINITY, BF16_INFINITY | 0x8000u,
                                     BF16_NAN, 0x0001u, BF16_LARGEST,  BF16_LARGEST | 0x8000u};
    const struct kvg_ref_format_info *info = kvg_ref_format_get_info(format);
    const enum kvg_special_rule other =
        rule == KVG_SPECIAL_DIVIDE ? KVG_SPECIAL_RECIPROCAL : KVG_SPECIAL_DIVIDE;
    const float low = 0.25f * ldexpf(1.0f, info->min_exponent - info->mantissa_bits) * scale,
                high = 2.0f * (float)info->max * scale;
    const uint32_t from = kvg_bf16_encode(low), to = kvg_bf16_encode(high);
    uint8_t ranks[LIST_MOST] = {0};
    int64_t n = sizeof edges / sizeof edges[0];
    float before = -1.0f;
    memcpy(list, edges, sizeof edges);
    for (uint32_t bits = from; bits <= to && bits - from < LIST_MOST; bits++) {
        const float x = kvg_bf16_decode((uint16_t)bits), quotient = quotient_of(rule, x, scale);
        const float code = kvg_ref_round(format, quotient);
        ranks[bits - from] = (uint8_t)rank_of(format, quotient, quotient_of(other, x, scale), code, before);
        before = code;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        for (uint32_t bits = from; bits <= to && bits - from < LIST_MOST && n < LIST_MOST; bits++)
            if (ranks[bits - from] == rank) {
                /* Signs in pairs: neighbouring midpoints have an even and an odd code below them in turn. */
                list[n] = (uint16_t)(bits | (n / 2 % 2 ? 0x8000u : 0u));
                n++;
            }
        if (rank == 1)
            *telling = n;
    }
    return n;
}

int kvg_special_make(enum kvg_ref_format format, enum kvg_special_rule rule, struct kvg_special *special)
{
    *special = (struct kvg_special){.format = format};
    for (int i = 0; i < KVG_SPECIAL_SCALES; i++) {
        int64_t telling = 0;
        special->values[i] = malloc(LIST_MOST * sizeof *special->values[i]);
        if (!special->values[i]) {
            kvg_special_free(special);
            return -1;
        }
        special->scale[i] = scale_number(format, rule, i);
        special->count[i] = list_values(format, rule, special->scale[i], special->values[i], &telling);
        special->telling = telling > special->telling ? telling : special->telling;
    }
    return 0;
}

void kvg_special_free(struct kvg_special *special)
{
    for (int i = 0; i < KVG_SPECIAL_SCALES; i++)
        free(special->values[i]);
    *special = (struct kvg_special){0};
}

uint16_t kvg_special_value(const struct kvg_special *special, int64_t scale, int64_t i)
{
    const int64_t list = scale % KVG_SPECIAL_SCALES, after = i - special->count[list];
    /* An odd factor visits all 65536 values, in an order unrelated to heads and dims. */
    return after < 0 ? special->values[list][i] : (uint16_t)(after * 40503);
}

/* Number of tokens that get special values. */
static int64_t count_tokens(const struct kvg_special_shape *s)
{
    int64_t n = 0;
    for (int64_t t = 0; t < s->tokens; t++)
        n += !s->slots || s->slots[t] >= 0;
    return n;
}

/* Number of elements of a token that share a scale. */
static int64_t sharing_of(const struct kvg_special_shape *s)
{
    return (s->scale_stride ? s->group : s->heads) * s->dim;
}

int64_t kvg_special_tokens(const struct kvg_special *special, const struct kvg_special_shape *shape)
{
    const int64_t sharing = sharing_of(shape);
    int64_t longest = 0;
    for (int i = 0; i < KVG_SPECIAL_SCALES; i++)
        longest = special->count[i] > longest ? special->count[i] : longest;
    return (longest + sharing - 1) / sharing;
}

int64_t kvg_special_rounds(const struct kvg_special *special, const struct kvg_special_shape *shape)
{
    const int64_t elements = count_tokens(shape) * sharing_of(shape);
    return elements < 1 ? 0 : KVG_SPECIAL_SCALES * ((special->telling + elements - 1) / elements);
}

void kvg_special_fill(const struct kvg_special *special, const struct kvg_special_shape *shape, int64_t round,
                      uint16_t *values, float *scale)
{
    const int64_t dim = shape->dim, group = shape->scale_stride ? shape->group : shape->heads,
                  sharing = sharing_of(shape);
    int64_t first = round / KVG_SPECIAL_SCALES * count_tokens(shape) * sharing; /* of the list */
    for (int64_t g = 0; g < shape->heads / group; g++)
        scale[g] = special->scale[(round + g) % KVG_SPECIAL_SCALES];
    for (int64_t t = 0; t < shape->tokens; t++) {
        if (shape->slots && shape->slots[t] < 0)
            continue;
        for (int64_t h = 0; h < shape->heads; h++)
            for (int64_t d = 0; d < dim; d++)
                values[(t * shape->heads + h) * dim + d] =
                    kvg_special_value(special, round + h / group, first + h % group * dim + d);
        first += sharing;
    }
}

/* ---------------------------------------------------------------- a prepared case */

static void fill_with_all(const struct kvg_prepared *p)
{
    const int64_t n = p->total_kv * p->c.kv_heads * p->c.head_dim;
    for (int64_t i = 0; i < n; i++) {
        p->k[i] = (uint16_t)(i * 40503);
        p->v[i] = (uint16_t)(i * 40503 + 32768);
    }
}

static struct kvg_special_shape shape_of(const struct kvg_prepared *p)
{
    return (struct kvg_special_shape){.tokens = p->total_kv,
                                      .heads = p->c.kv_heads,
                                      .dim = p->c.head_dim,
                                      .group = 1,
                                      .scale_stride = p->scale_stride,
                                      .slots = p->slot_mapping};
}

int64_t kvg_prepared_special_rounds(const struct kvg_prepared *p, const struct kvg_special *special)
{
    const struct kvg_special_shape shape = shape_of(p);
    return kvg_special_rounds(special, &shape);
}

/* Stores no more tokens than the lists need, because a round on a large case would take long. */
static void trim_slots(struct kvg_prepared *p, const struct kvg_special *special)
{
    const struct kvg_special_shape shape = shape_of(p);
    const int64_t needed = kvg_special_tokens(special, &shape);
    int64_t stored = 0;
    for (int64_t t = 0; t < p->total_kv; t++)
        if (p->slot_mapping[t] >= 0 && stored++ >= needed)
            p->slot_mapping[t] = -1;
}

void kvg_prepared_special(struct kvg_prepared *p, const struct kvg_special *special, int64_t round)
{
    if (special) {
        /* V has other scales than K, and values from the same place in their lists. */
        const int64_t pass = round / KVG_SPECIAL_SCALES * KVG_SPECIAL_SCALES,
                      other = (round + KVG_SPECIAL_SCALES / 2) % KVG_SPECIAL_SCALES;
        const struct kvg_special_shape shape = shape_of(p);
        trim_slots(p, special);
        kvg_special_fill(special, &shape, round, p->k, p->k_scale);
        kvg_special_fill(special, &shape, pass + other, p->v, p->v_scale);
    } else
        fill_with_all(p);
    kvg_prepared_fill_caches(p);
    const void *changed[] = {p->k, p->v, p->k_scale, p->v_scale, p->k_cache, p->v_cache, p->slot_mapping};
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
        kvg_guard_seal(p->own->guards, changed[i]);
    kvg_shown_fill(p);
}

/* ---------------------------------------------------------------- codes */

enum {
    CODES = 8,
    CODES_OF_K = 4,
    LARGEST = 5
};                                  /* K takes the first codes and one of the two from LARGEST on */
enum { EVERY = 4, EVERY_OF_K = 1 }; /* K of every fourth key, from the last but one on */
#define LOGIT_DEVIATION 1.5

/* Magnitude code of the smallest normal. The codes below it are subnormal. */
static uint8_t smallest_normal(enum kvg_dtype dtype)
{
    return dtype == KVG_E5M2 ? 4 : 8;
}

/* fnuz has no negative zero: 0x80 is NaN. */
static uint8_t negative_zero(enum kvg_dtype dtype)
{
    return dtype == KVG_E4M3FNUZ ? 0x00 : 0x80;
}

static void list_codes(enum kvg_dtype dtype, uint8_t codes[CODES])
{
    const uint8_t normal = smallest_normal(dtype), largest = (uint8_t)last_code(kvg_ref_format_of(dtype));
    const uint8_t all[CODES] = {
        negative_zero(dtype),  0x01, 0x81, (uint8_t)(normal - 1), normal, largest, (uint8_t)(largest | 0x80),
        (uint8_t)(largest - 1)};
    memcpy(codes, all, sizeof all);
}

static uint8_t *row_of(const struct kvg_prepared *p, const struct kvg_pages *pages, int64_t seq, int64_t key,
                       int64_t head)
{
    const int64_t size = p->problem.block_size,
                  page = p->block_table[seq * p->block_table_stride + key / size];
    return (uint8_t *)pages->data + page * pages->stride_block + key % size * pages->stride_slot +
           head * pages->stride_head;
}

/* 0 for a token of a shared page that an earlier sequence writes. */
static int is_holder(const struct kvg_prepared *p, int64_t seq, int64_t key)
{
    return p->slot_mapping[p->cu_kv_lens[seq] + key] >= 0;
}

/* V has a code in the same dims of all keys, so a V that is read wrong shows whatever the weights are. */
static void write_largest(const struct kvg_prepared *p)
{
    const int64_t dim = p->problem.head_dim;
    uint8_t codes[CODES];
    list_codes(p->problem.kv_dtype, codes);
    for (int64_t b = 0; b < p->problem.batch; b++)
        for (int64_t last = p->seq_lens[b] - 1, t = last; t >= 0; t--)
            for (int64_t h = 0; h < p->problem.kv_heads && is_holder(p, b, t); h++) {
                const int64_t back = last - t;
                uint8_t *k = row_of(p, &p->k_pages, b, t, h), *v = row_of(p, &p->v_pages, b, t, h);
                for (int64_t d = 0; d < dim; d++)
                    v[d] = codes[d % CODES];
                if (back % EVERY != EVERY_OF_K)
                    continue;
                for (int64_t d = 0; d < dim; d++)
                    k[d] = codes[d % CODES_OF_K];
                k[h % dim] = codes[LARGEST + back / EVERY % 2]; /* of both signs in turn */
            }
}

/* Subnormal codes and zeros, as good as random. */
static void write_subnormals_row(enum kvg_dtype dtype, uint32_t *random, uint8_t *row, int64_t dim)
{
    const uint8_t normal = smallest_normal(dtype), zero = negative_zero(dtype);
    for (int64_t d = 0; d < dim; d++) {
        *random = *random * 1664525u + 1013904223u;
        const uint8_t code = (uint8_t)(*random >> 24 & 0x80u) | (uint8_t)((*random >> 24) % normal);
        row[d] = code == 0x80 ? zero : code;
    }
}

/* k_scale for which q . k has the wanted deviation: over the heads [first, first + heads) of Q. Keeps the
 * scale if Q is zero there or not finite. */
static float scale_of_subnormals(const struct kvg_prepared *p, int64_t first, int64_t heads, float scale)
{
    const int64_t dim = p->problem.head_dim, normal = smallest_normal(p->problem.kv_dtype);
    double squares = 0.0, codes = 0.0;
    for (int64_t t = 0; t < p->total_q; t++)
        for (int64_t i = 0; i < heads * dim; i++) {
            const double q = (double)kvg_bf16_decode(p->q[(t * p->problem.q_heads + first) * dim + i]);
            squares += q * q;
        }
    for (int64_t c = 0; c < normal; c++) {
        const double value = (double)kvg_ref_fp8_decode(kvg_ref_format_of(p->problem.kv_dtype), (uint8_t)c);
        codes += value * value / (double)normal;
    }
    const double deviation = (double)p->softmax_scale * sqrt(squares / (double)(p->total_q * heads) * codes);
    const float wanted = (float)(LOGIT_DEVIATION / deviation);
    return deviation > 0.0 && isfinite(wanted) && wanted > 0.0f ? wanted : scale;
}

static void write_subnormals(struct kvg_prepared *p)
{
    const struct kvg_problem *problem = &p->problem;
    const int64_t group = problem->q_heads / problem->kv_heads;
    uint32_t random = 1;
    for (int64_t b = 0; b < problem->batch; b++)
        for (int64_t t = 0; t < p->seq_lens[b]; t++)
            for (int64_t h = 0; h < problem->kv_heads && is_holder(p, b, t); h++) {
                write_subnormals_row(problem->kv_dtype, &random, row_of(p, &p->k_pages, b, t, h),
                                     problem->head_dim);
                write_subnormals_row(problem->kv_dtype, &random, row_of(p, &p->v_pages, b, t, h),
                                     problem->head_dim);
            }
    if (p->scale_stride == 0)
        p->k_scale[0] = scale_of_subnormals(p, 0, problem->q_heads, p->k_scale[0]);
    else
        for (int64_t g = 0; g < problem->kv_heads; g++)
            p->k_scale[g] = scale_of_subnormals(p, g * group, group, p->k_scale[g]);
}

void kvg_prepared_special_codes(struct kvg_prepared *p, enum kvg_special_codes which)
{
    if (which == KVG_CODES_LARGEST)
        write_largest(p);
    else
        write_subnormals(p);
    kvg_guard_seal(p->own->guards, p->k_cache);
    kvg_guard_seal(p->own->guards, p->v_cache);
    kvg_guard_seal(p->own->guards, p->k_scale);
    kvg_shown_fill(p);
}
