/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: stored codes that should be right bit by bit and are not. Which slots hold them, and which other
 * way of quantising gives exactly these codes?
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory/guard.h"
#include "harness/prepare/prepared.h"
#include "parts.h"
#include "ways.h"

#define MOST_SPREAD                                                                                          \
    0.7 /* standard deviation of the log of a ratio that is the same for all codes of a head */
/* Elements of a tensor that the ways are tried on, and rows that are hashed, at most. */
enum { WAYS_LOOKED_AT = 400000, MOST_HASHED = 1 << 22 };

/* ---------------------------------------------------------------- what differs */

/* Strides with which the sources may have been read. */
enum source { SOURCE_OF_SHAPE, SOURCE_TOKEN_OF_SHAPE, SOURCE_HEAD_OF_SHAPE, SOURCE_OF_K, SOURCES };

struct found {
    int64_t wrong;     /* wrong codes of tokens */
    int64_t unwritten; /* wrong codes that still are the poison */
    int64_t unowned;   /* codes that changed in slots that no token owns */
    int64_t zeros;     /* changed or wrong codes that are zero */
    int64_t rows,
        of_others; /* rows of a token and head with a wrong code; those that hold a right row of another
                                token or head */
    int64_t from[SOURCES]; /* wrong codes that are right for the value that such strides read */
    /* by tensor: codes looked at, how many of them are wrong, and how many a way does not give */
    int64_t looked_at[2], looked_wrong[2], left[2][KVG_WAYS];
    int64_t near;              /* wrong codes that are next to the right one */
    int64_t other_tensor;      /* wrong codes that are those of the other tensor at this token */
    int64_t rounded_to_fp8;    /* bf16 cache: wrong codes that are the value rounded to e4m3 */
    int64_t outside_padding;   /* wrong codes outside the first and the last slot */
    int64_t first_dim, tokens; /* smallest dim of a wrong code; tokens with a wrong code */
    int64_t in_whole_tokens;   /* wrong codes in tokens that are wrong as a whole */
    double ratio_sum, ratio_squares, ratio_count; /* of log(|value / got| / scale), of plain numbers */
    float largest;                                /* largest magnitude among the stored codes */
};

struct tensors {
    const struct kvg_prepared *p;
    const struct kvg_pages *pages[2];
    const char *got[2];
    const uint16_t *source[2];
    const float *scale[2];
    enum kvg_ref_format format;
    int64_t bytes;
    uint64_t *hashes; /* [n_hashes], or NULL */
    int64_t n_hashes;
};

static int is_poison(const struct tensors *t, const char *code)
{
    const int byte = kvg_poison_byte(t->p->problem.kv_dtype);
    for (int64_t i = 0; i < t->bytes; i++)
        if ((unsigned char)code[i] != byte)
            return 0;
    return 1;
}

/* The value of an element of the sources under other strides; NaN outside the buffer. */
static float value_from(const struct tensors *t, enum source how, int tensor, int64_t token, int64_t head,
                        int64_t dim)
{
    const struct kvg_prepared *p = t->p;
    const uint16_t *shown = tensor ? p->shown.v : p->shown.k;
    struct kvg_rows_view view = tensor ? p->views.v : p->views.k;
    if (how == SOURCE_OF_SHAPE || how == SOURCE_TOKEN_OF_SHAPE)
        view.stride_token = p->problem.kv_heads * p->problem.head_dim;
    if (how == SOURCE_OF_SHAPE || how == SOURCE_HEAD_OF_SHAPE)
        view.stride_head = p->problem.head_dim;
    if (how == SOURCE_OF_K) {
        view.stride_token = p->views.k.stride_token;
        view.stride_head = p->views.k.stride_head;
    }
    const int64_t at = view.first + token * view.stride_token + head * view.stride_head + dim;
    return at < view.elements ? kvg_ref_bf16_decode(shown[at]) : NAN;
}

static int is_code_of(const struct tensors *t, int tensor, int64_t head, float value, const char *got)
{
    if (t->format == KVG_REF_BF16) {
        const uint16_t bits = kvg_ref_bf16_encode(value);
        return memcmp(got, &bits, sizeof bits) == 0;
    }
    const float x = value / t->scale[tensor][head * t->p->scale_stride];
    return *(const uint8_t *)got == kvg_ref_fp8_encode(t->format, x);
}

static void look_at_sources(const struct tensors *t, int tensor, int64_t token, int64_t head, int64_t dim,
                            const char *got, struct found *f)
{
    if (is_poison(t, got)) /* not written, though a gap of the sources may hold the same bits */
        return;
    for (int how = 0; how < SOURCES && !t->p->views.dense; how++)
        f->from[how] +=
            is_code_of(t, tensor, head, value_from(t, (enum source)how, tensor, token, head, dim), got);
}

static void look_at_wrong(const struct tensors *t, int tensor, float value, int64_t head, const char *got,
                          const char *want, const char *other, struct found *f)
{
    const struct kvg_prepared *p = t->p;
    f->wrong++;
    f->near += t->bytes == 1 && abs((int)*(const uint8_t *)got - (int)*(const uint8_t *)want) == 1;
    f->unwritten += is_poison(t, got);
    f->other_tensor += memcmp(got, other, (size_t)t->bytes) == 0;
    const float back = kvg_ref_load(t->format, got, 0);
    if (t->format == KVG_REF_BF16) {
        f->rounded_to_fp8 += back == kvg_ref_round(KVG_REF_E4M3, value);
        return;
    }
    const float own = t->scale[tensor][head * p->scale_stride];
    if (isfinite(back) && back != 0.0f && isfinite(value) && value != 0.0f) {
        const double ratio = log(fabs((double)value / (double)back / (double)own));
        f->ratio_sum += ratio;
        f->ratio_squares += ratio * ratio;
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
    for (int w = 0; w < KVG_WAYS; w++) {
        const float scale = kvg_way_scale((enum kvg_way)w, t->scale[tensor], t->scale[1 - tensor], head,
                                          p->problem.kv_heads, p->scale_stride);
        const uint8_t code = kvg_way_code((enum kvg_way)w, t->format, value, scale, f->largest);
        f->left[tensor][w] += code != got && !(nan && isnan(kvg_ref_fp8_decode(t->format, code)));
    }
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Hashes of the right rows of all tokens and heads, sorted. They are few enough, or there are none. */
static void hash_right_rows(struct tensors *t)
{
    const struct kvg_prepared *p = t->p;
    const int64_t rows = 2 * p->total_kv * p->problem.kv_heads, bytes = p->problem.head_dim * t->bytes;
    t->hashes = rows <= MOST_HASHED ? malloc((size_t)rows * sizeof *t->hashes + 1) : NULL;
    for (int64_t i = 0; i < p->total_kv && t->hashes; i++)
        for (int tensor = 0; tensor < 2; tensor++)
            for (int64_t h = 0; h < p->problem.kv_heads && p->slot_mapping[i] >= 0; h++) {
                const int64_t at =
                    kvg_slot_place(t->pages[tensor], p->problem.block_size, p->slot_mapping[i], h);
                t->hashes[t->n_hashes++] =
                    kvg_hash_bytes((const char *)t->pages[tensor]->data + at * t->bytes, bytes);
            }
    if (t->hashes)
        qsort(t->hashes, (size_t)t->n_hashes, sizeof *t->hashes, by_number);
}

static int is_right_row(const struct tensors *t, const char *got)
{
    const uint64_t hash = kvg_hash_bytes(got, t->p->problem.head_dim * t->bytes);
    return t->hashes && bsearch(&hash, t->hashes, (size_t)t->n_hashes, sizeof hash, by_number) != NULL;
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
            if (memcmp(want, got, (size_t)(dim * t->bytes)) != 0) {
                f->rows++;
                f->of_others += is_right_row(t, got);
            }
            for (int64_t d = 0; d < dim; d++) {
                const int wrong = memcmp(want + d * t->bytes, got + d * t->bytes, (size_t)t->bytes) != 0;
                const float value = kvg_ref_bf16_decode(t->source[tensor][(token * heads + h) * dim + d]);
                if (t->bytes == 1 && (wrong || token % 8 == 0) && f->looked_at[tensor] < WAYS_LOOKED_AT)
                    look_at_ways(t, tensor, value, h, *(const uint8_t *)(got + d), wrong, f);
                if (!wrong)
                    continue;
                look_at_wrong(t, tensor, value, h, got + d * t->bytes, want + d * t->bytes,
                              other + d * t->bytes, f);
                look_at_sources(t, tensor, token, h, d, got + d * t->bytes, f);
                f->first_dim = d < f->first_dim ? d : f->first_dim;
                f->outside_padding += !first_or_last;
            }
        }
    f->tokens += f->wrong > before;
    /* In a token that is wrong as a whole a code of each head may be right by chance. */
    if (f->wrong - before >= 2 * heads * dim - 2 * heads)
        f->in_whole_tokens += f->wrong - before;
}

static int count(struct tensors *t, struct found *f)
{
    const struct kvg_prepared *p = t->p;
    int64_t differs = 0;
    *f = (struct found){.first_dim = p->problem.head_dim};
    hash_right_rows(t);
    for (int tensor = 0; tensor < 2; tensor++)
        for (int64_t i = 0; i < p->cache_elements; i++) {
            const char *code = t->got[tensor] + i * t->bytes;
            const float x = fabsf(kvg_ref_load(t->format, code, 0));
            f->largest = isfinite(x) && x > f->largest ? x : f->largest;
            if (memcmp(code, (const char *)t->pages[tensor]->data + i * t->bytes, (size_t)t->bytes) == 0)
                continue;
            differs++;
            f->zeros += x == 0.0f;
        }
    for (int64_t i = 0; i < p->total_kv; i++)
        look_at_token(t, i, f);
    f->unowned = differs - f->wrong;
    return differs > 0;
}

/* ---------------------------------------------------------------- the diagnosis */

static int has_padding(const struct kvg_prepared *p)
{
    for (int64_t i = 0; i < p->store_tokens; i++)
        if (p->slot_mapping[i] < 0)
            return 1;
    return 0;
}

/* Codes that are right for other values, read with strides that are not those of the call. */
static int by_source(const struct found *f, struct kvg_diagnosis *d)
{
    static const char *const words[SOURCES] = {
        [SOURCE_OF_SHAPE] = "with strides of the sources that are computed from the shape",
        [SOURCE_TOKEN_OF_SHAPE] = "with a token stride of the sources that is computed from the shape",
        [SOURCE_HEAD_OF_SHAPE] = "with a head stride of the sources that is computed from the shape",
        [SOURCE_OF_K] = "with V read with the strides of K"};
    for (int how = 0; how < SOURCES; how++)
        if (f->wrong > 0 && f->from[how] > f->wrong - f->wrong / 20) {
            kvg_diagnosis_say(d, KVG_FAULT_LAYOUT, "stored %s: that gives %lld of %lld wrong codes",
                              words[how], (long long)f->from[how], (long long)f->wrong);
            return 1;
        }
    return 0;
}

static int by_place(const struct tensors *t, const struct found *f, struct kvg_diagnosis *d)
{
    const struct kvg_prepared *p = t->p;
    const int64_t dim = p->problem.head_dim;
    if (f->wrong == 0)
        kvg_diagnosis_say(d, KVG_FAULT_PAGE_TAIL,
                          "every token is stored right, but %lld codes changed in slots that no token owns",
                          (long long)f->unowned);
    else if (f->unowned == 0 && has_padding(p) && f->outside_padding == 0 && f->in_whole_tokens > 0)
        kvg_diagnosis_say(
            d, KVG_FAULT_PAGE_TAIL,
            "a padding token (a slot below 0) is stored over a real one, in the first or last slot");
    else if (f->zeros == f->wrong + f->unowned && f->unowned > 0)
        kvg_diagnosis_say(d, KVG_FAULT_PAGE_TAIL,
                          "zeros are written behind tokens: %lld codes in slots that no token owns",
                          (long long)f->unowned);
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
    int64_t looked_at = 0, wrong = 0, left[KVG_WAYS] = {0};
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
        for (int w = 0; w < KVG_WAYS; w++)
            left[w] += f->left[tensor][w];
    }
    for (int w = 1; w < KVG_WAYS; w++)
        best = left[w] < left[best] ? w : best;
    if ((double)left[best] > most_left * (double)wrong)
        return 0;
    kvg_diagnosis_say(d, kvg_way_class((enum kvg_way)best),
                      "%s: that gives %lld of %lld codes looked at, of which %lld are wrong",
                      kvg_way_words((enum kvg_way)best), (long long)(looked_at - left[best]),
                      (long long)looked_at, (long long)wrong);
    return 1;
}

static void by_rest(const struct tensors *t, const struct found *f, struct kvg_diagnosis *d)
{
    const double mean = f->ratio_sum / f->ratio_count, ratio = f->ratio_count > 0.0 ? exp(mean) : NAN;
    const double spread = sqrt(fmax(0.0, f->ratio_squares / f->ratio_count - mean * mean));
    if (f->of_others > f->rows / 2)
        kvg_diagnosis_say(d, KVG_FAULT_LAYOUT,
                          "rows hold the codes of other tokens or heads: %lld of %lld wrong rows",
                          (long long)f->of_others, (long long)f->rows);
    else if (t->format != KVG_REF_BF16 && fabs(mean) > 0.2 && spread < MOST_SPREAD &&
             f->ratio_count > 0.5 * (double)f->wrong)
        kvg_diagnosis_say(d, KVG_FAULT_SCALE_MISAPPLIED,
                          "quantised as if the scale were about %.3g times as large", ratio);
    else if (f->near > f->wrong - f->wrong / 20)
        kvg_diagnosis_say(d, KVG_FAULT_ENCODING, "the codes are next to the right ones: rounding");
    else
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "no other way of storing gives these codes");
}

void kvg_diagnose_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache,
                        enum kvg_run_kind run, struct kvg_diagnosis *d)
{
    struct found f;
    struct tensors t = {.p = p,
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
    else if (by_value(&t, &f, 0.0, d) || by_source(&f, d) || by_place(&t, &f, d) || by_value(&t, &f, 0.05, d))
        ;
    else if (run == KVG_RUN_RENEWED)
        kvg_diagnosis_say(
            d, KVG_FAULT_STALE_STATE,
            "the store was right until other values lay in the same buffers: the kernel keeps something "
            "from an earlier call");
    else
        by_rest(&t, &f, d);
    free(t.hashes);
}
