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

float kvg_special_scale(enum kvg_ref_format format, int64_t i)
{
    switch (i % KVG_SPECIAL_SCALES) {
    case 0:
        return kvg_scale_with_ties(format, 0);
    case 1:
        return 1.0f;
    case 2:
        return nextafterf(kvg_scale_with_ties(format, 1), 2.0f);
    case 3:
        return nextafterf(1.0f, 0.0f);
    case 4:
        return kvg_scale_with_ties(format, 1);
    case 5:
        return nextafterf(1.0f, 2.0f);
    case 6:
        return nextafterf(kvg_scale_with_ties(format, 0), 0.0f);
    default:
        return kvg_scale_with_ties(format, 2);
    }
}

/* ---------------------------------------------------------------- lists */

/* 0 if some rounding at hand sends the quotient to another code, 1 if the code is subnormal or near the largest,
 * 2 for all others. */
static int rank_of(enum kvg_ref_format format, float quotient, float other)
{
    const struct kvg_ref_format_info *info = kvg_ref_format_get_info(format);
    const float code = kvg_ref_round(format, quotient);
    const float half = kvg_ref_round(KVG_REF_F16, quotient), bf16 = kvg_ref_round(KVG_REF_BF16, quotient);
    if (kvg_ref_round(format, half) != code || kvg_ref_round(format, bf16) != code ||
        kvg_ref_round(format, other) != code ||
        kvg_ref_round(format, nextafterf(quotient, INFINITY)) != code ||
        kvg_ref_round(format, nextafterf(quotient, 0.0f)) != code)
        return 0;
    return (code != 0.0f && code < ldexpf(1.0f, info->min_exponent)) ||
                   (quotient > 0.9f * (float)info->max && quotient < 1.2f * (float)info->max)
               ? 1
               : 2;
}

static int64_t list_values(enum kvg_ref_format format, enum kvg_special_rule rule, float scale,
                           uint16_t *list)
{
    static const uint16_t edges[] = {0x0000u,  0x8000u, BF16_INFINITY, BF16_INFINITY | 0x8000u,
                                     BF16_NAN, 0x0001u};
    const struct kvg_ref_format_info *info = kvg_ref_format_get_info(format);
    const float low = 0.25f * ldexpf(1.0f, info->min_exponent - info->mantissa_bits) * scale,
                high = 2.0f * (float)info->max * scale;
    int64_t n = 0;
    memcpy(list, edges, sizeof edges);
    n += (int64_t)(sizeof edges / sizeof edges[0]);
    for (int rank = 0; rank < RANKS; rank++)
        for (uint32_t code = kvg_bf16_encode(low); code <= kvg_bf16_encode(high) && n < LIST_MOST; code++) {
            const float x = kvg_bf16_decode((uint16_t)code), divided = x / scale,
                        multiplied = x * (1.0f / scale);
            const int divides = rule == KVG_SPECIAL_DIVIDE;
            if (rank_of(format, divides ? divided : multiplied, divides ? multiplied : divided) == rank) {
                list[n] = (uint16_t)(code | (n % 2 ? 0x8000u : 0u)); /* both signs */
                n++;
            }
        }
    return n;
}

int kvg_special_make(enum kvg_ref_format format, enum kvg_special_rule rule, struct kvg_special *special)
{
    *special = (struct kvg_special){.format = format};
    for (int i = 0; i < KVG_SPECIAL_SCALES; i++) {
        special->values[i] = malloc(LIST_MOST * sizeof *special->values[i]);
        if (!special->values[i]) {
            kvg_special_free(special);
            return -1;
        }
        special->count[i] = list_values(format, rule, kvg_special_scale(format, i), special->values[i]);
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

void kvg_special_fill(const struct kvg_special *special, int64_t round, int64_t tokens, int64_t heads,
                      int64_t group, int64_t dim, int64_t scale_stride, uint16_t *values, float *scale)
{
    for (int64_t g = 0; g < (scale_stride ? heads / group : 1); g++)
        scale[g] = kvg_special_scale(special->format, round + g);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t g = scale_stride ? h / group : 0, sharing = scale_stride ? group : heads;
            const int64_t first = (t * sharing + h % sharing) * dim; /* of the values of this scale */
            for (int64_t d = 0; d < dim; d++)
                values[(t * heads + h) * dim + d] = kvg_special_value(special, round + g, first + d);
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

void kvg_prepared_special(struct kvg_prepared *p, const struct kvg_special *special, int64_t round)
{
    const struct kvg_case *c = &p->c;
    if (special) {
        kvg_special_fill(special, round, p->total_kv, c->kv_heads, 1, c->head_dim, p->scale_stride, p->k,
                         p->k_scale);
        kvg_special_fill(special, round + KVG_SPECIAL_SCALES / 2, p->total_kv, c->kv_heads, 1, c->head_dim,
                         p->scale_stride, p->v, p->v_scale);
    } else
        fill_with_all(p);
    kvg_prepared_fill_caches(p);
    const void *changed[] = {p->k, p->v, p->k_scale, p->v_scale, p->k_cache, p->v_cache};
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
        kvg_guard_seal(p->own->guards, changed[i]);
    kvg_shown_fill(p);
}

/* ---------------------------------------------------------------- codes */

enum { CODES = 8, CODES_OF_K = 4 };

static void list_codes(enum kvg_dtype dtype, uint8_t codes[CODES])
{
    const uint8_t mantissa = dtype == KVG_E5M2 ? 2 : 3,
                  largest = dtype == KVG_E5M2       ? 0x7b
                            : dtype == KVG_E4M3FNUZ ? 0x7f
                                                    : 0x7e,
                  zero = dtype == KVG_E4M3FNUZ ? 0x00 : 0x80; /* fnuz has no negative zero: 0x80 is NaN */
    const uint8_t subnormal = (uint8_t)((1 << mantissa) - 1);
    const uint8_t all[CODES] = {zero,
                                0x01,
                                0x81,
                                subnormal,
                                (uint8_t)(1 << mantissa),
                                largest,
                                (uint8_t)(largest | 0x80),
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

void kvg_prepared_special_codes(struct kvg_prepared *p)
{
    uint8_t codes[CODES];
    list_codes(p->problem.kv_dtype, codes);
    for (int64_t b = 0; b < p->problem.batch; b++) {
        const int64_t q_len = p->cu_q_lens[b + 1] - p->cu_q_lens[b];
        int64_t first, last;
        if (q_len < 1 || p->seq_lens[b] < 1)
            continue;
        kvg_ref_visible(p->seq_lens[b], q_len, q_len - 1, p->problem.window, p->problem.causal, &first,
                        &last);
        const int64_t before = last > (first < 0 ? 0 : first) ? last - 1 : last;
        for (int64_t h = 0; h < p->problem.kv_heads; h++) {
            uint8_t *k = row_of(p, &p->k_pages, b, before, h), *v = row_of(p, &p->v_pages, b, last, h);
            for (int64_t d = 0; d < p->problem.head_dim; d++) {
                k[d] = codes[d % CODES_OF_K];
                v[d] = codes[d % CODES];
            }
        }
    }
    kvg_guard_seal(p->own->guards, p->k_cache);
    kvg_guard_seal(p->own->guards, p->v_cache);
    kvg_shown_fill(p);
}
