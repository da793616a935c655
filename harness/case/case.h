/* SPDX-License-Identifier: Apache-2.0
 *
 * case.h: one point of a sweep.
 *
 * A case has one canonical string, "axis=value axis=value ...", in the order of enum kvg_axis. The string
 * names the case, selects it (--filter) and reproduces it (kvgauge run --case 'STRING'). An axis at its
 * default is left out when axes.def marks it as optional, so that strings stay short and a new axis changes
 * no existing name.
 *
 * A case is complete after kvg_case_complete; before that some fields have the values marked "before
 * completion".
 */
#ifndef KVG_HARNESS_CASE_H
#define KVG_HARNESS_CASE_H

#include <stdint.h>
#include "kernels/kernel.h"
#include "lengths.h"
#include "reference/scales.h"
#include "results/error.h"
#include "results/row.h"

enum kvg_cache_dtype { KVG_CACHE_AUTO = 0, KVG_CACHE_FP8_E4M3, KVG_CACHE_FP8_E5M2, KVG_CACHE_FP8_E4M3FNUZ };
enum kvg_calibration { KVG_CALIBRATION_NONE = 0, KVG_CALIBRATION_RANDOM_TOKENS, KVG_CALIBRATION_DATASET };
enum kvg_lengths { KVG_LENGTHS_UNIFORM = 0, KVG_LENGTHS_RAGGED, KVG_LENGTHS_GAPS, KVG_LENGTHS_LIST };
/* Bytes of the value of any axis as text. */
#define KVG_CASE_VALUE_MAX KVG_LIST_MAX
/* How the tensors and caches of a call lie in memory (harness/prepare/views.h). */
enum kvg_views_kind {
    KVG_VIEWS_DENSE = 0,
    KVG_VIEWS_PADDED,
    KVG_VIEWS_FUSED,
    KVG_VIEWS_PAIRED,
    KVG_VIEWS_HEAD_MAJOR
};
enum kvg_sinks { KVG_SINKS_OFF = 0, KVG_SINKS_NORMAL, KVG_SINKS_LARGE };
enum kvg_cache_state { KVG_STATE_NONE = 0, KVG_STATE_COLD, KVG_STATE_HOT }; /* none: verified, not timed */

/* How the fp8 path accumulates P V. All values but FP32 are predictions: no kernel runs, and
 * reference/attention_predict.h computes the output on a model of Hopper's wgmma instruction. */
enum kvg_accumulate { KVG_ACCUMULATE_FP32 = 0, KVG_ACCUMULATE_HOPPER, KVG_ACCUMULATE_HOPPER_TWO_LEVEL };

enum kvg_axis {
    KVG_AXIS_KERNEL,
    KVG_AXIS_PHASE,
    KVG_AXIS_PATH,
    KVG_AXIS_KV_CACHE_DTYPE,
    KVG_AXIS_SCHEME,
    KVG_AXIS_CALIBRATION,
    KVG_AXIS_OBSERVER,
    KVG_AXIS_INPUT,
    KVG_AXIS_LAYER,
    KVG_AXIS_BATCH,
    KVG_AXIS_Q_LEN,
    KVG_AXIS_CONTEXT,
    KVG_AXIS_HEADS,
    KVG_AXIS_HEAD_DIM,
    KVG_AXIS_BLOCK_SIZE,
    KVG_AXIS_SHARED_PAGES,
    KVG_AXIS_LAYOUT,
    KVG_AXIS_VIEWS,
    KVG_AXIS_LENGTHS,
    KVG_AXIS_MASK,
    KVG_AXIS_WINDOW,
    KVG_AXIS_SOFT_CAP,
    KVG_AXIS_SOFTMAX_SCALE,
    KVG_AXIS_SINKS,
    KVG_AXIS_ACCUMULATE,
    KVG_AXIS_THREADS,
    KVG_AXIS_SEED,
    KVG_AXIS_CACHE_STATE,
    KVG_AXIS_COUNT
};

struct kvg_case {
    char kernel[64]; /* a registry name; before planning also "best" or a glob */
    enum kvg_phase phase;
    enum kvg_path path;
    enum kvg_cache_dtype kv_cache_dtype;
    enum kvg_scheme scheme;
    enum kvg_calibration calibration;
    enum kvg_ref_observer observer; /* used when calibration is dataset */
    char input[64];                 /* "normal", ..., "needle:0.5" (depth 0 to 1), "smollm2" or a file */
    /* Layer number of a captured input; before completion -1: the first one. -1 for synthetic input. */
    int64_t layer;
    int64_t batch;
    /* Queries per sequence: 1 for decode; context for prefill, and for store, which does not use it. Before
     * completion 0: follows from the phase (append: 16). */
    int64_t q_len;
    int64_t context; /* keys per sequence (of the longest, when ragged), the queries' own tokens included */
    int64_t q_heads, kv_heads, head_dim, block_size;
    /* The first pages of all sequences are the same pages: this many, or as many as a sequence fills whole. */
    int64_t shared_pages;
    enum kvg_layout layout;
    enum kvg_views_kind views;
    enum kvg_lengths lengths;
    char list[KVG_LIST_MAX]; /* LIST: canonical text (lengths.h); else "" */
    enum kvg_mask mask;
    int64_t window;
    double soft_cap;
    double softmax_scale; /* 0: 1 / sqrt(head_dim) */
    enum kvg_sinks sinks;
    enum kvg_accumulate accumulate;
    int64_t flush_tiles; /* two_level: tiles between two flushes, 1 by default; else 0 */
    int64_t threads;     /* CPU threads; before completion 0: all CPUs that this process may use */
    uint64_t seed;
    enum kvg_cache_state cache_state;
    int64_t chunk; /* mask chunked: keys of a chunk, >= 1; else 0 */
    /* mask prefix: keys of a whole prefix, >= 1; else 0. Before completion 0 is a quarter of the context. What
     * each sequence has follows from it: kvg_layout_prefix in harness/prepare/parts.h. */
    int64_t prefix;
};

/* An axis in the command line, in YAML and in case strings (axes.def). */
struct kvg_axis_info {
    const char *name;     /* column and option name: "kv_cache_dtype" (option --kv-cache-dtype) */
    const char *fallback; /* default value, as text */
    const char *help;     /* one line, with the valid values */
    int optional;         /* 1: left out of the canonical string at `fallback` */
};
const struct kvg_axis_info *kvg_axis_get_info(enum kvg_axis axis);
/* 1 if the axis holds whole numbers, so that ranges make sense. */
int kvg_axis_is_integer(enum kvg_axis axis);
/* Word i of an axis whose values are words; NULL past the end and for other axes. */
const char *kvg_axis_word(enum kvg_axis axis, int64_t i);
/* Axis by name; letter case does not matter, '-' equals '_'. -1 if unknown, with the nearest name in the
 * error. */
int kvg_axis_find(const char *name, struct kvg_error *error);

void kvg_case_default(struct kvg_case *c);
/* Sets one axis from text; the error names the axis, the value and the valid values. Numbers may end in k or
 * M (1k = 1024, 1M = 1024k). "fp8" means fp8_e4m3. A value of heads looks like "32/8". 0, or -1 and *c is
 * unchanged. */
int kvg_case_set(struct kvg_case *c, enum kvg_axis axis, const char *value, struct kvg_error *error);
void kvg_case_get(const struct kvg_case *c, enum kvg_axis axis, char *text, size_t size);
/* Canonical strings. Formatting never fails: the longest string fits in KVG_CASE_STRING_MAX bytes. */
#define KVG_CASE_STRING_MAX 2048
void kvg_case_format(const struct kvg_case *c, char text[KVG_CASE_STRING_MAX]);
int kvg_case_parse(const char *text, struct kvg_case *c, struct kvg_error *error);
/* The same, and sets bit `1 << axis` of *given for each axis in the text. */
int kvg_case_parse_given(const char *text, struct kvg_case *c, uint32_t *given, struct kvg_error *error);
/* The P of mask=prefix without a number: a quarter of the context, at least 1, so that a prefix begins and ends
 * within a sequence. */
int64_t kvg_case_usual_prefix(int64_t context);
void kvg_case_id(const struct kvg_case *c, char id[17]); /* FNV-1a 64 of the canonical string */
uint64_t kvg_fnv1a(const char *text);
/* Sets the fields that follow from others (prefill: q_len = context; decode: q_len = 1; captured input:
 * heads and head_dim; a list of lengths: phase, batch, q_len and context; dtype auto: per_tensor, none), then checks for contradictions (q_heads % kv_heads,
 * q_len > context, ...). 0, or -1 with the error. */
int kvg_case_complete(struct kvg_case *c, struct kvg_error *error);

/* 1 if the kernel's name says that it runs on a GPU ("cuda/..."). The number of CPU threads does not
 * matter then: it is all CPUs and is not in the string, so that hosts of different size give a case the
 * same name. */
int kvg_case_on_gpu(const struct kvg_case *c);

/* The factor of the logits that a kernel is given. */
float kvg_case_softmax_scale(const struct kvg_case *c);

/* 1 if the case is a prediction and runs no kernel. kvg_case_complete sets its kernel to "predict/" and the
 * value of accumulate. A prediction is never timed. */
int kvg_case_predicts(const struct kvg_case *c);

/* 1 if vLLM offers this combination of dtype, scheme, calibration and path; meaning.c cites its sources. */
int kvg_case_offered_by_vllm(const struct kvg_case *c);
/* 1 if the combination has no meaning (for example e5m2 on the fp8 path), with the reason in why. */
int kvg_case_without_meaning(const struct kvg_case *c, char *why, size_t size);
/* The case as a problem of the kernel ABI. Totals are those of a list of lengths, or of uniform lengths, the
 * largest that a ragged batch can have; harness/prepare/ sets the actual ones. */
void kvg_case_problem(const struct kvg_case *c, struct kvg_problem *problem);
/* Fills the axis columns of a row. 0, or -1 on out of memory. */
int kvg_case_to_row(const struct kvg_case *c, struct kvg_row *row);

#endif
