/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: stored codes that should be right bit by bit and are not. Which slots hold them, and which other
 * way of quantising gives exactly these codes?
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "harness/prepare/prepared.h"

/* ---------------------------------------------------------------- other ways to quantise */

enum { WAYS_LOOKED_AT = 400000 };
enum way {
    WAY_RECIPROCAL,
    WAY_SCALE_1,
    WAY_SCALE_OF_HEAD_0,
    WAY_SCALE_OF_NEXT_HEAD,
    WAY_SCALE_OF_OTHER_TENSOR,
    WAY_SCALE_TWICE,
    WAY_SCALE_INVERTED,
    WAY_SCALE_0,
    WAY_TRUNCATED,
    WAY_TIES_AWAY,
    WAY_ROUNDED_TWICE,
    WAY_OVERFLOW_NAN,
    WAY_SATURATED_240,
    WAY_CLIPPED,
    WAY_SUBNORMALS_LOST,
    WAY_NEGATIVE_ZERO_LOST,
    WAY_NAN_ZERO,
    WAY_INFINITY_NAN,
    WAY_AS_E4M3,
    WAY_AS_E5M2,
    WAYS
};
static const struct {
    enum kvg_fault_class fault;
    const char *words;
} ways[WAYS] = {
    [WAY_RECIPROCAL] = {KVG_FAULT_ENCODING, "multiplied by the reciprocal of the scale instead of divided"},
    [WAY_SCALE_1] = {KVG_FAULT_SCALE_DROPPED, "quantised with scale 1"},
    [WAY_SCALE_OF_HEAD_0] = {KVG_FAULT_SCALE_MISAPPLIED, "quantised with the scale of head 0"},
    [WAY_SCALE_OF_NEXT_HEAD] = {KVG_FAULT_SCALE_MISAPPLIED, "quantised with the scale of the next head"},
    [WAY_SCALE_OF_OTHER_TENSOR] = {KVG_FAULT_SCALE_MISAPPLIED, "K quantised with v_scale, V with k_scale"},
    [WAY_SCALE_TWICE] = {KVG_FAULT_SCALE_MISAPPLIED, "divided by the scale twice"},
    [WAY_SCALE_INVERTED] = {KVG_FAULT_SCALE_MISAPPLIED, "multiplied by the scale"},
    [WAY_SCALE_0] = {KVG_FAULT_SCALE_MISAPPLIED, "divided by a scale of zero"},
    [WAY_TRUNCATED] = {KVG_FAULT_ENCODING, "rounded towards zero"},
    [WAY_TIES_AWAY] = {KVG_FAULT_ENCODING, "ties rounded away from zero"},
    [WAY_ROUNDED_TWICE] = {KVG_FAULT_ENCODING, "rounded to bf16 before it is rounded to FP8"},
    [WAY_OVERFLOW_NAN] = {KVG_FAULT_ENCODING, "NaN instead of the largest finite value"},
    [WAY_SATURATED_240] = {KVG_FAULT_ENCODING, "saturated at 240"},
    [WAY_CLIPPED] = {KVG_FAULT_ENCODING, "clipped below the largest finite value"},
    [WAY_SUBNORMALS_LOST] = {KVG_FAULT_ENCODING, "subnormal codes stored as zero"},
    [WAY_NEGATIVE_ZERO_LOST] = {KVG_FAULT_ENCODING, "minus zero stored as plus zero"},
    [WAY_NAN_ZERO] = {KVG_FAULT_ENCODING, "NaN stored as zero"},
    [WAY_INFINITY_NAN] = {KVG_FAULT_ENCODING, "an infinity stored as NaN"},
    [WAY_AS_E4M3] = {KVG_FAULT_ENCODING, "stored as e4m3, whatever the cache's dtype"},
    [WAY_AS_E5M2] = {KVG_FAULT_ENCODING, "stored as e5m2, whatever the cache's dtype"},
};

static float scale_by(enum way way, const float *scale, const float *other, int64_t head, int64_t heads,
                      int64_t stride)
{
    const float own = scale[head * stride];
    switch (way) {
    case WAY_SCALE_1:
        return 1.0f;
    case WAY_SCALE_OF_HEAD_0:
        return scale[0];
    case WAY_SCALE_OF_NEXT_HEAD:
        return scale[(head + 1) % heads * stride];
    case WAY_SCALE_OF_OTHER_TENSOR:
        return other[head * stride];
    case WAY_SCALE_TWICE:
        return own * own;
    case WAY_SCALE_INVERTED:
        return 1.0f / own;
    case WAY_SCALE_0:
        return 0.0f;
    default:
        return own;
    }
}

/* The code of a value, quantised in that way. clip: the bound of WAY_CLIPPED. */
static uint8_t code_by(enum way way, enum kvg_ref_format format, float value, float scale, float clip)
{
    float x = way == WAY_RECIPROCAL ? value * (1.0f / scale) : value / scale;
    const float largest = (float)kvg_ref_format_get_info(format)->max;
    const float smallest = ldexpf(1.0f, kvg_ref_format_get_info(format)->min_exponent);
    if (way == WAY_AS_E4M3 || way == WAY_AS_E5M2)
        format = way == WAY_AS_E4M3 ? KVG_REF_E4M3 : KVG_REF_E5M2;
    if (way == WAY_ROUNDED_TWICE)
        x = kvg_ref_round(KVG_REF_BF16, x);
    if ((way == WAY_OVERFLOW_NAN && fabsf(x) > largest) || (way == WAY_INFINITY_NAN && isinf(x)))
        x = NAN;
    if (way == WAY_SATURATED_240 && !isnan(x))
        x = fminf(fmaxf(x, -240.0f), 240.0f);
    if (way == WAY_CLIPPED && !isnan(x))
        x = fminf(fmaxf(x, -clip), clip);
    if (way == WAY_NAN_ZERO && isnan(x))
        x = 0.0f;
    uint8_t code = kvg_ref_fp8_encode(format, x);
    const float back = kvg_ref_fp8_decode(format, code);
    if (way == WAY_TRUNCATED && fabsf(back) > fabsf(x))
        code--;
    if (way == WAY_TIES_AWAY && fabsf(back) < fabsf(x) &&
        fabsf(kvg_ref_fp8_decode(format, (uint8_t)(code + 1))) - fabsf(x) == fabsf(x) - fabsf(back))
        code++;
    if (way == WAY_SUBNORMALS_LOST && fabsf(back) < smallest)
        code &= 0x80;
    if (way == WAY_NEGATIVE_ZERO_LOST && code == 0x80)
        code = 0;
    return code;
}

/* ---------------------------------------------------------------- what differs */

struct found {
    int64_t wrong;     /* wrong codes of tokens */
    int64_t unwritten; /* wrong codes that still are the poison */
    int64_t unowned;   /* codes that changed in slots that no token owns */
    /* by tensor: codes looked at, how many of them are wrong, and how many a way does not give */
    int64_t looked_at[2], looked_wrong[2], left[2][WAYS];
    int64_t other_tensor;          /* wrong codes that are those of the other tensor at this token */
    int64_t rounded_to_fp8;        /* bf16 cache: wrong codes that are the value rounded to e4m3 */
    int64_t outside_padding;       /* wrong codes outside the first and the last slot */
    int64_t first_dim, tokens;     /* smallest dim of a wrong code; tokens with a wrong code */
    int64_t in_whole_tokens;       /* wrong codes in tokens that are wrong as a whole */
    double ratio_sum, ratio_count; /* sum and number of log(|value / got| / scale), of plain numbers */
    float largest;                 /* largest magnitude among the stored codes */
};

struct tensors {
    const struct kvg_prepared *p;
    const struct kvg_pages *pages[2];
    const char *got[2];
    const uint16_t *source[2];
    const float *scale[2];
    enum kvg_ref_format format;
    int64_t bytes;
};

static int is_poison(const struct tensors *t, const char *code)
{
    const int byte = kvg_poison_byte(t->p->problem.kv_dtype);
    for (int64_t i = 0; i < t->bytes; i++)
        if ((unsigned char)code[i] != byte)
            return 0;
    return 1;
}

static void look_at_wrong(const struct tensors *t, int tensor, float value, int64_t head, const char *got,
                          const char *other, struct found *f)
{
    const struct kvg_prepared *p = t->p;
    f->wrong++;
    f->unwritten += is_poison(t, got);
    f->other_tensor += memcmp(got, other, (size_t)t->bytes) == 0;
    const float back = kvg_ref_load(t->format, got, 0);
    if (t->format == KVG_REF_BF16) {
        f->rounded_to_fp8 += back == kvg_ref_round(KVG_REF_E4M3, value);
        return;
    }
    const float own = t->scale[tensor][head * p->scale_stride];
    if (isfinite(back) && back != 0.0f && isfinite(value) && value != 0.0f) {
        f->ratio_sum += log(fabs((double)value / (double)back / (double)own));
        f->ratio_count += 1.0;
    }
}

/* Counts the codes that each way does not give. A way that explains the store must give its right codes too.
 * */
static void look_at_ways(const struct tensors *t, int tensor, float value, int64_t head, uint8_t got,
                         int wrong, struct found *f)
{
    const struct kvg_prepared *p = t->p;
    const int nan = isnan(kvg_ref_fp8_decode(t->format, got));
    f->looked_at[tensor]++;
    f->looked_wrong[tensor] += wrong;
    for (int w = 0; w < WAYS; w++) {
        const float scale = scale_by((enum way)w, t->scale[tensor], t->scale[1 - tensor], head,
                                     p->problem.kv_heads, p->scale_stride);
        const uint8_t code = code_by((enum way)w, t->format, value, scale, f->largest);
        f->left[tensor][w] += code != got && !(nan && isnan(kvg_ref_fp8_decode(t->format, code)));
    }
}

static void look_at_token(const struct tensors *t, int64_t token, struct found *f)
{
    const struct kvg_prepared *p = t->p;
    const int64_t dim = p->problem.head_dim, heads = p->problem.kv_heads, slot = p->slot_mapping[token];
    const int64_t before = f->wrong;
    const int first_or_last = slot == 0 || slot == p->num_blocks * p->problem.block_size - 1;
    if (slot < 0)
        return;
    for (int tensor = 0; tensor < 2; tensor++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t size = p->problem.block_size,
                          at = kvg_slot_place(t->pages[tensor], size, slot, h) * t->bytes,
                          there = kvg_slot_place(t->pages[1 - tensor], size, slot, h) * t->bytes;
            const char *want = (const char *)t->pages[tensor]->data + at, *got = t->got[tensor] + at;
            const char *other = (const char *)t->pages[1 - tensor]->data + there;
            for (int64_t d = 0; d < dim; d++) {
                const int wrong = memcmp(want + d * t->bytes, got + d * t->bytes, (size_t)t->bytes) != 0;
                const float value = kvg_ref_bf16_decode(t->source[tensor][(token * heads + h) * dim + d]);
                if (t->bytes == 1 && (wrong || token % 8 == 0) && f->looked_at[tensor] < WAYS_LOOKED_AT)
                    look_at_ways(t, tensor, value, h, *(const uint8_t *)(got + d), wrong, f);
                if (!wrong)
                    continue;
                look_at_wrong(t, tensor, value, h, got + d * t->bytes, other + d * t->bytes, f);
                f->first_dim = d < f->first_dim ? d : f->first_dim;
                f->outside_padding += !first_or_last;
            }
        }
    f->tokens += f->wrong > before;
    /* In a token that is wrong as a whole a code of each head may be right by chance. */
    if (f->wrong - before >= 2 * heads * dim - 2 * heads)
        f->in_whole_tokens += f->wrong - before;
}

static int count(const struct tensors *t, struct found *f)
{
    const struct kvg_prepared *p = t->p;
    int64_t differs = 0;
    *f = (struct found){.first_dim = p->problem.head_dim};
    for (int tensor = 0; tensor < 2; tensor++)
        for (int64_t i = 0; i < p->cache_elements; i++) {
            const char *code = t->got[tensor] + i * t->bytes;
            const float x = fabsf(kvg_ref_load(t->format, code, 0));
            f->largest = isfinite(x) && x > f->largest ? x : f->largest;
            differs +=
                memcmp(code, (const char *)t->pages[tensor]->data + i * t->bytes, (size_t)t->bytes) != 0;
        }
    for (int64_t i = 0; i < p->total_kv; i++)
        look_at_token(t, i, f);
    f->unowned = differs - f->wrong;
    return differs > 0;
}

/* ---------------------------------------------------------------- the diagnosis */

static int by_place(const struct tensors *t, const struct found *f, struct kvg_diagnosis *d)
{
    const struct kvg_prepared *p = t->p;
    const int64_t dim = p->problem.head_dim;
    if (f->wrong == 0)
        kvg_diagnosis_say(d, KVG_FAULT_PAGE_TAIL,
                          "every token is stored right, but %lld codes changed in slots that no token owns",
                          (long long)f->unowned);
    else if (f->unwritten == f->wrong && f->unowned == 0 && p->store_tokens > p->total_kv &&
             f->outside_padding == 0)
        kvg_diagnosis_say(d, KVG_FAULT_PAGE_TAIL,
                          "a padding token (slot -1) is stored over a real one, in the first or last slot");
    else if (f->unwritten == f->wrong && f->unowned == 0 && f->first_dim > 0)
        kvg_diagnosis_say(d, KVG_FAULT_HEAD_DIM, "dims from %lld of %lld on are not stored",
                          (long long)f->first_dim, (long long)dim);
    else if (f->unwritten == f->wrong && f->unowned == 0)
        kvg_diagnosis_say(d, KVG_FAULT_NOT_WRITTEN, "%lld of %lld tokens are not stored",
                          (long long)f->tokens, (long long)p->total_kv);
    else if (f->other_tensor > f->wrong - f->wrong / 10)
        kvg_diagnosis_say(d, KVG_FAULT_LAYOUT, "the K cache holds V and the V cache K");
    else if (f->unwritten + f->unowned > f->wrong / 20)
        kvg_diagnosis_say(
            d, KVG_FAULT_LAYOUT,
            "tokens are stored at the wrong place: %lld codes in slots that no token owns, %lld places "
            "not written",
            (long long)f->unowned, (long long)f->unwritten);
    else
        return 0;
    return 1;
}

/* 1 when a way leaves at most the share `most_left` of the wrong codes unexplained. A tensor without a wrong
 * code is ignored. */
static int by_value(const struct tensors *t, const struct found *f, double most_left, struct kvg_diagnosis *d)
{
    int64_t looked_at = 0, wrong = 0, left[WAYS] = {0};
    int best = 0;
    if (f->wrong == 0)
        return 0;
    if (t->format == KVG_REF_BF16) {
        if (f->rounded_to_fp8 < f->wrong)
            return 0;
        kvg_diagnosis_say(d, KVG_FAULT_ENCODING, "a bf16 cache holds values rounded to e4m3");
        return 1;
    }
    for (int tensor = 0; tensor < 2; tensor++) {
        if (f->looked_wrong[tensor] == 0)
            continue;
        looked_at += f->looked_at[tensor];
        wrong += f->looked_wrong[tensor];
        for (int w = 0; w < WAYS; w++)
            left[w] += f->left[tensor][w];
    }
    for (int w = 1; w < WAYS; w++)
        best = left[w] < left[best] ? w : best;
    if ((double)left[best] > most_left * (double)wrong)
        return 0;
    kvg_diagnosis_say(
        d, ways[best].fault, "%s: that gives %lld of %lld codes looked at, of which %lld are wrong",
        ways[best].words, (long long)(looked_at - left[best]), (long long)looked_at, (long long)wrong);
    return 1;
}

static void by_rest(const struct tensors *t, const struct found *f, struct kvg_diagnosis *d)
{
    const double ratio = f->ratio_count > 0.0 ? exp(f->ratio_sum / f->ratio_count) : NAN;
    if (t->format != KVG_REF_BF16 && fabs(log(ratio)) > 0.2 && f->ratio_count > 0.5 * (double)f->wrong)
        kvg_diagnosis_say(d, KVG_FAULT_SCALE_MISAPPLIED,
                          "quantised as if the scale were about %.3g times as large", ratio);
    else if (f->in_whole_tokens > f->wrong / 2)
        kvg_diagnosis_say(d, KVG_FAULT_LAYOUT,
                          "whole tokens are wrong: they may hold the codes of other tokens");
    else
        kvg_diagnosis_say(d, KVG_FAULT_ENCODING, "the codes are wrong, at the right places");
}

void kvg_diagnose_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache,
                        enum kvg_run_kind run, struct kvg_diagnosis *d)
{
    struct found f;
    const struct tensors t = {.p = p,
                              .pages = {&p->k_pages, &p->v_pages},
                              .got = {k_cache, v_cache},
                              .source = {p->k, p->v},
                              .scale = {p->k_scale, p->v_scale},
                              .format = kvg_ref_format_of(p->problem.kv_dtype),
                              .bytes = kvg_dtype_bytes(p->problem.kv_dtype)};
    *d = (struct kvg_diagnosis){0};
    if (run == KVG_RUN_SECOND || run == KVG_RUN_REPEAT)
        kvg_diagnosis_say(d, KVG_FAULT_RACE, "two stores of the same tokens leave different bits");
    else if (run == KVG_RUN_FAR)
        kvg_diagnosis_say(
            d, KVG_FAULT_NARROW_OFFSET,
            "the store is right in low slots and wrong where slot times stride needs more than 32 bits");
    else if (!count(&t, &f))
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "no code differs any more");
    else if (by_value(&t, &f, 0.0, d) || by_place(&t, &f, d) || by_value(&t, &f, 0.05, d))
        return;
    else if (run == KVG_RUN_RENEWED)
        kvg_diagnosis_say(
            d, KVG_FAULT_STALE_STATE,
            "the store was right until other values lay in the same buffers: the kernel keeps something "
            "from an earlier call");
    else
        by_rest(&t, &f, d);
}

void kvg_diagnose_quantize_q(const struct kvg_prepared *p, const uint8_t *q8, struct kvg_diagnosis *d)
{
    const int64_t dim = p->problem.head_dim, heads = p->problem.q_heads, n = p->total_q * heads * dim;
    const int64_t group = heads / p->problem.kv_heads;
    int64_t wrong = 0, divided = 0, left[WAYS] = {0};
    int best = WAY_SCALE_1;
    *d = (struct kvg_diagnosis){0};
    for (int64_t i = 0; i < n; i++) {
        const float value = kvg_ref_bf16_decode(p->q[i]);
        const int64_t g = i / dim % heads / group;
        if (q8[i] == p->q8[i])
            continue;
        wrong++;
        divided += q8[i] == kvg_ref_fp8_encode(KVG_REF_E4M3, value / p->q_scale[g * p->scale_stride]);
        for (int w = 0; w < WAYS; w++) {
            const float scale =
                scale_by((enum way)w, p->q_scale, p->k_scale, g, p->problem.kv_heads, p->scale_stride);
            left[w] += q8[i] != code_by((enum way)w, KVG_REF_E4M3, value, scale, 448.0f);
        }
    }
    for (int w = WAY_SCALE_1; w < WAYS; w++)
        best = left[w] < left[best] ? w : best;
    if (wrong == 0)
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "no code of Q differs any more");
    else if (divided == wrong)
        kvg_diagnosis_say(d, KVG_FAULT_ENCODING,
                          "Q is divided by its scale instead of multiplied by the reciprocal");
    else if (left[best] <= wrong / 20)
        kvg_diagnosis_say(d, ways[best].fault, "Q is %s: that gives %lld of %lld wrong codes",
                          ways[best].words, (long long)(wrong - left[best]), (long long)wrong);
    else
        kvg_diagnosis_say(d, KVG_FAULT_ENCODING, "the codes of Q are wrong");
}
