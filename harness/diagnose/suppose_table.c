/* SPDX-License-Identifier: Apache-2.0
 *
 * suppose_table.c: names of suppositions and kinds of fault, and which suppositions change the output of a
 * case.
 */
#include "suppose.h"

#include <math.h>
#include <string.h>

enum suppose_needs {
    NEEDS_V_SCALE = 1 << 0, /* V has a scale other than 1 */
    NEEDS_K_SCALE = 1 << 1,
    NEEDS_Q_SCALE = 1 << 2,
    NEEDS_HEAD_SCALES = 1 << 3, /* a scale for each of several heads */
    NEEDS_OTHER_DIM = 1 << 4,   /* head_dim is not 128 */
    NEEDS_PAST = 1 << 5,        /* an earlier case had other scales */
    NEEDS_E5M2 = 1 << 6,
    NEEDS_E4M3 = 1 << 7,
    NEEDS_FNUZ = 1 << 8,
    NEEDS_FP8 = 1 << 9,
    NEEDS_BATCH = 1 << 10,         /* several sequences */
    NEEDS_WINDOW = 1 << 11,        /* a sliding window */
    NEEDS_QUERIES = 1 << 12,       /* several queries in a sequence */
    NEEDS_HEADS = 1 << 13,         /* several KV heads */
    NEEDS_SPLITS = 1 << 14,        /* more keys than a split has */
    NEEDS_CAP = 1 << 15,           /* a soft cap */
    NEEDS_P_OFFSET = 1 << 16,      /* P is declared e4m3 */
    NEEDS_TILES = 1 << 17,         /* more keys than a tile has */
    NEEDS_ODD_DIM = 1 << 18,       /* head_dim is above 64 and not a multiple of it */
    NEEDS_FACTOR = 1 << 19,        /* a factor on the logits is tried */
    NEEDS_VIEWS = 1 << 20,         /* tensors are views */
    NEEDS_UNEQUAL = 1 << 21,       /* sequences with unlike numbers of queries */
    NEEDS_FULL_MASK = 1 << 22,     /* no causal mask, and several queries */
    NEEDS_OTHER_SCALE = 1 << 23,   /* softmax_scale is not 1 / sqrt(head_dim) */
    NEEDS_UNLIKE_SCALES = 1 << 24, /* K and V have other scales */
    NEEDS_SMALL_PAGES = 1 << 25,
    NEEDS_SHARED_PAGES = 1 << 26,
    NEEDS_CHUNKS = 1 << 27, /* a chunked mask */
    NEEDS_PREFIX = 1 << 28, /* a prefix mask */
    NEEDS_SINKS = 1 << 29   /* attention sinks */
};

static const struct {
    enum kvg_fault_class fault;
    unsigned needs;
    const char *words;
} suppositions[KVG_SUPPOSITIONS] = {
#define SUPPOSE(id, fault, needs, words) {KVG_FAULT_##fault, needs, words},
#include "suppositions.def"
#include "harness/prepare/prepared.h"
#undef SUPPOSE
};

enum kvg_fault_class kvg_supposition_class(enum kvg_supposition s)
{
    return suppositions[s].fault;
}

const char *kvg_supposition_words(enum kvg_supposition s)
{
    return suppositions[s].words;
}

const char *kvg_fault_class_name(enum kvg_fault_class fault)
{
    static const char *const names[KVG_FAULT_CLASSES] = {
        [KVG_FAULT_UNKNOWN] = "",
        [KVG_FAULT_SCALE_DROPPED] = "scale dropped",
        [KVG_FAULT_SCALE_MISAPPLIED] = "scale misapplied",
        [KVG_FAULT_STALE_STATE] = "stale state",
        [KVG_FAULT_ENCODING] = "encoding",
        [KVG_FAULT_PAGE_TAIL] = "page tail",
        [KVG_FAULT_NARROW_OFFSET] = "32-bit offset",
        [KVG_FAULT_LAYOUT] = "layout",
        [KVG_FAULT_SPLIT] = "empty or split",
        [KVG_FAULT_MASK] = "mask",
        [KVG_FAULT_CAP_OR_LSE] = "soft cap or lse",
        [KVG_FAULT_HEAD_MAPPING] = "head mapping",
        [KVG_FAULT_HEAD_DIM] = "head dim",
        [KVG_FAULT_ACCUMULATION] = "accumulation",
        [KVG_FAULT_RACE] = "race or leftover",
        [KVG_FAULT_MEMORY] = "memory overwritten",
        [KVG_FAULT_NOT_WRITTEN] = "not written",
        [KVG_FAULT_REFUSED] = "refused",
        [KVG_FAULT_GROSS] = "gross",
        [KVG_FAULT_TIMING] = "timing",
    };
    return (int)fault >= 0 && fault < KVG_FAULT_CLASSES ? names[fault] : "";
}

/* ---------------------------------------------------------------- earlier scales */

int64_t kvg_past_kept(const struct kvg_past *past)
{
    return past->count < KVG_PAST_CALLS ? past->count : KVG_PAST_CALLS;
}

void kvg_past_add(struct kvg_past *past, const struct kvg_prepared *p)
{
    const int64_t heads = p->problem.kv_heads;
    struct kvg_past_scales now = {.kv_heads = heads};
    if (heads > KVG_PAST_HEADS)
        return;
    for (int64_t g = 0; g < heads; g++) {
        now.q[g] = p->q8 ? p->q_scale[g * p->scale_stride] : 1.0f;
        now.k[g] = p->k_scale[g * p->scale_stride];
        now.v[g] = p->v_scale[g * p->scale_stride];
    }
    for (int64_t i = 0; i < kvg_past_kept(past); i++)
        if (memcmp(&past->scales[i], &now, sizeof now) == 0)
            return;
    const int64_t n = past->count++;
    past->scales[n < KVG_PAST_CALLS ? n : 1 + (n - 1) % (KVG_PAST_CALLS - 1)] = now;
}

/* ---------------------------------------------------------------- which suppositions fit a case */

static int all_one(const float *scale, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (scale[i] != 1.0f)
            return 0;
    return 1;
}

static int unlike(const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (a[i] != b[i])
            return 1;
    return 0;
}

static int past_differs(const struct kvg_suppose_case *s)
{
    const struct kvg_prepared *p = s->p;
    const struct kvg_past_scales *past = s->past;
    if (!past || p->problem.kv_heads > KVG_PAST_HEADS)
        return 0;
    for (int64_t g = 0; g < p->problem.kv_heads; g++)
        if (past->k[g] != p->k_scale[g * p->scale_stride] || past->v[g] != p->v_scale[g * p->scale_stride])
            return 1;
    return 0;
}

static unsigned had_by(const struct kvg_suppose_case *s)
{
    const struct kvg_prepared *p = s->p;
    const struct kvg_problem *problem = &p->problem;
    const struct kvg_arithmetic *a = &s->declared[0];
    const int64_t scales = p->scale_stride ? problem->kv_heads : 1;
    unsigned has = 0;
    has |= !all_one(p->v_scale, scales) ? NEEDS_V_SCALE : 0;
    has |= !all_one(p->k_scale, scales) ? NEEDS_K_SCALE : 0;
    has |= unlike(p->k_scale, p->v_scale, scales) ? NEEDS_UNLIKE_SCALES : 0;
    has |= p->q8 && !all_one(p->q_scale, scales) ? NEEDS_Q_SCALE : 0;
    has |= scales > 1 ? NEEDS_HEAD_SCALES : 0;
    has |= problem->head_dim != 128 ? NEEDS_OTHER_DIM : 0;
    has |= past_differs(s) ? NEEDS_PAST : 0;
    has |= problem->kv_dtype == KVG_E5M2 ? NEEDS_E5M2 : 0;
    has |= problem->kv_dtype == KVG_E4M3 ? NEEDS_E4M3 : 0;
    has |= problem->kv_dtype == KVG_E4M3FNUZ ? NEEDS_FNUZ : 0;
    has |= problem->kv_dtype != KVG_BF16 ? NEEDS_FP8 : 0;
    has |= problem->batch > 1 ? NEEDS_BATCH : 0;
    has |= problem->features & KVG_FEATURE_SMALL_PAGES ? NEEDS_SMALL_PAGES : 0;
    has |= problem->features & KVG_FEATURE_SHARED_PAGES ? NEEDS_SHARED_PAGES : 0;
    has |= problem->window > 0 ? NEEDS_WINDOW : 0;
    has |= problem->max_q_len > 1 ? NEEDS_QUERIES : 0;
    has |= problem->kv_heads > 1 ? NEEDS_HEADS : 0;
    has |= problem->soft_cap > 0.0f ? NEEDS_CAP : 0;
    has |= a->p_format == KVG_E4M3 ? NEEDS_P_OFFSET : 0;
    has |= problem->head_dim > 64 && problem->head_dim % 64 ? NEEDS_ODD_DIM : 0;
    has |= s->factor > 0.0 ? NEEDS_FACTOR : 0;
    has |= !p->views.dense ? NEEDS_VIEWS : 0;
    has |= p->total_q != problem->batch * problem->max_q_len ? NEEDS_UNEQUAL : 0;
    has |= problem->mask == KVG_MASK_CHUNKED ? NEEDS_CHUNKS : 0;
    has |= problem->mask == KVG_MASK_PREFIX ? NEEDS_PREFIX : 0;
    has |= problem->mask == KVG_MASK_FULL && problem->max_q_len > 1 ? NEEDS_FULL_MASK : 0;
    has |=
        fabs((double)p->softmax_scale * sqrt((double)problem->head_dim) - 1.0) > 1e-6 ? NEEDS_OTHER_SCALE : 0;
    has |= p->sinks ? NEEDS_SINKS : 0;
    for (int64_t b = 0; b < problem->batch; b++) {
        has |= s->declared[b].split_tokens > 0 && s->declared[b].split_tokens < p->seq_lens[b] ? NEEDS_SPLITS
                                                                                               : 0;
        has |= s->declared[b].tile > 0 && s->declared[b].tile < p->seq_lens[b] ? NEEDS_TILES : 0;
    }
    return has;
}

int kvg_supposition_fits(const struct kvg_suppose_case *s, enum kvg_supposition what)
{
    const unsigned needs = suppositions[what].needs;
    return (had_by(s) & needs) == needs;
}
