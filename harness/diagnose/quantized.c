/* SPDX-License-Identifier: Apache-2.0
 *
 * quantized.c: codes of Q that should be right bit by bit and are not.
 */
#include "diagnose.h"
#include "harness/prepare/prepared.h"
#include "ways.h"

/* What differs, over all elements. A way that explains Q gives its right codes too. */
struct found {
    int64_t wrong, divided, from_shape, to_shape;
    int64_t left[KVG_WAYS]; /* codes that a way does not give */
};

/* 1 if `got` is the code of the value that strides of the shape read for element i. */
static int is_from_shape(const struct kvg_prepared *p, int64_t i, float scale, uint8_t got)
{
    const int64_t at = p->views.q.first + i;
    const uint16_t *shown = p->shown.q;
    return !p->views.dense && at < p->views.q.elements &&
           got == kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_bf16_decode(shown[at]) * (1.0f / scale));
}

/* 1 if `got` is the code that strides of the shape write to the place of element i. */
static int is_to_shape(const struct kvg_prepared *p, int64_t i, uint8_t got)
{
    const int64_t dim = p->problem.head_dim, row = i / dim, heads = p->problem.q_heads;
    const int64_t at =
        row / heads * p->views.q8.stride_token + row % heads * p->views.q8.stride_head + i % dim;
    return !p->views.dense && at < p->total_q * heads * dim && got == p->q8[at];
}

static void look_at(const struct kvg_prepared *p, int64_t i, uint8_t got, struct found *f)
{
    const int64_t heads = p->problem.q_heads, kv_heads = p->problem.kv_heads;
    const int64_t g = i / p->problem.head_dim % heads / (heads / kv_heads);
    const float value = kvg_ref_bf16_decode(p->q[i]), own = p->q_scale[g * p->scale_stride];
    if (got != p->q8[i]) {
        f->wrong++;
        f->divided += got == kvg_ref_fp8_encode(KVG_REF_E4M3, value / own);
        f->from_shape += is_from_shape(p, i, own, got);
        f->to_shape += is_to_shape(p, i, got);
    }
    for (int w = 0; w < KVG_WAYS; w++) {
        const float scale =
            kvg_way_scale((enum kvg_way)w, p->q_scale, p->k_scale, g, kv_heads, p->scale_stride);
        f->left[w] += got != kvg_way_code((enum kvg_way)w, KVG_REF_E4M3, value, scale, 448.0f);
    }
}

void kvg_diagnose_quantize_q(const struct kvg_prepared *p, const uint8_t *q8, struct kvg_diagnosis *d)
{
    const int64_t n = p->total_q * p->problem.q_heads * p->problem.head_dim;
    struct found f = {0};
    int best = KVG_WAY_SCALE_1;
    *d = (struct kvg_diagnosis){0};
    for (int64_t i = 0; i < n; i++)
        look_at(p, i, q8[i], &f);
    for (int w = KVG_WAY_SCALE_1; w < KVG_WAYS; w++)
        best = f.left[w] < f.left[best] ? w : best;
    if (f.wrong == 0)
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "no code of Q differs any more");
    else if (f.divided == f.wrong)
        kvg_diagnosis_say(d, KVG_FAULT_ENCODING,
                          "Q is divided by its scale instead of multiplied by the reciprocal");
    else if (f.left[best] <= f.wrong / 20)
        kvg_diagnosis_say(d, kvg_way_class((enum kvg_way)best),
                          "Q is %s: that gives all but %lld of %lld codes, of which %lld are wrong",
                          kvg_way_words((enum kvg_way)best), (long long)f.left[best], (long long)n,
                          (long long)f.wrong);
    else if (f.from_shape > f.wrong - f.wrong / 20)
        kvg_diagnosis_say(d, KVG_FAULT_LAYOUT, "Q is read with strides that are computed from the shape");
    else if (f.to_shape > f.wrong - f.wrong / 20)
        kvg_diagnosis_say(d, KVG_FAULT_LAYOUT,
                          "the codes are written with strides that are computed from the shape");
    else
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "no other way of quantising gives these codes of Q");
}
