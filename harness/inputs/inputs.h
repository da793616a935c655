/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs.h: the source of Q, K and V: synthetic or captured.
 *
 * Synthetic values are counter-based: value = f(seed, tensor, sequence, token, head, dim), computed with
 * Philox4x32-10 (Random123) and a table of the inverse CDF. Only additions and multiplications that are
 * rounded separately are used (generate.h), so every machine, thread count and GPU gets the same bits. A
 * longer context, a larger batch or more heads extend a smaller tensor; the only exception is the one special
 * token of sink and needle, which depends on the context. Each (tensor, head) has a factor 2^U(-2,2), so that
 * calibrated scales differ between heads. The factor of a Q head cancels its KV head's K factor, so that the
 * logits keep their distribution (synthetic.c gives the reason).
 *
 * Captured values are read from an HDF5 file that capture.py writes (layout in README.md).
 */
#ifndef KVG_HARNESS_INPUTS_H
#define KVG_HARNESS_INPUTS_H

#include <stddef.h>
#include <stdint.h>
#include "shape.h"
#include "results/error.h"

struct kvg_input_info {
    const char *name; /* "normal", ... */
    const char *help; /* one line */
};
/* Synthetic distribution i, in the order of the documentation; NULL past the end. */
const struct kvg_input_info *kvg_input_synthetic(int64_t i);
/* 1 if `input` names a synthetic distribution ("needle" and "needle:DEPTH" both do). */
int kvg_input_is_synthetic(const char *input);
/* 0 if `input` is the name of a synthetic distribution (a depth must be from 0 to 1), "smollm2", or a path
 * that ends in .h5 (the file is not opened here). Else -1, with the valid names in the error. */
int kvg_input_check(const char *input, struct kvg_error *error);

/* Fills out[tokens, heads, head_dim] (bf16 bits) of the evaluation set of one sequence: K and V have
 * `context` tokens and kv_heads, Q has q_len tokens and q_heads. threads >= 1. Captured: sequence `seq`
 * takes the last `context` tokens of window `seq`. A window is `span` tokens long, rounded up to the file's
 * window step, so that the file has the Q of its last tokens. 0, or -1 with exit code 4 when the text is too
 * short or the file has no Q for a position. */
int kvg_input_fill(const struct kvg_input_shape *shape, enum kvg_tensor tensor, int threads, uint16_t *out,
                   struct kvg_error *error);

/* absmax[samples][heads] of a tensor over a token set: the values that an observer of calibration sees.
 * heads is q_heads for Q, kv_heads for K and V. The caller frees *absmax. `context`, `seq`, `q_len` and
 * `span` of the shape are unused. Synthetic: samples of the same distribution with seed + 1 (calibration: 64
 * samples of 128 tokens; random_tokens: 1 sample of 2048 tokens); factors, wide channels and directions
 * remain those of `seed`, as those of a model do not depend on its text. 0, or -1 with the error (and
 * *absmax NULL). */
int kvg_input_absmax(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                     float **absmax, int64_t *samples, struct kvg_error *error);

/* Fixed shape and limits of a captured input. */
struct kvg_captured_info {
    char path[1024];
    char model[128];
    int64_t layers[64]; /* model layer numbers present */
    int64_t n_layers;
    int64_t q_heads, kv_heads, head_dim;
    int64_t tokens; /* tokens of the evaluation text; K and V are present for all of them */
    /* Q is present for positions [0, q_first), for [tokens - q_last, tokens), and for the q_tail positions
     * before each multiple of window_step. The length of a window is a multiple of window_step, so decode
     * and append of up to q_tail queries work in every window. */
    int64_t q_first, q_last, q_tail, window_step;
};
/* Tokens of a window for sequences of up to `context` keys: context rounded up to a multiple of window_step,
 * at least one window_step. */
int64_t kvg_captured_window(const struct kvg_captured_info *info, int64_t context);
/* The layer numbers as "0, 10, 20, 29"; what does not fit is cut off. */
void kvg_captured_list_layers(const struct kvg_captured_info *info, char *text, size_t size);
/* Reads the file. `input` is "smollm2" (the file shipped with kvgauge) or a path that ends in .h5. 0, or -1
 * with the error. */
int kvg_captured_read_info(const char *input, struct kvg_captured_info *info, struct kvg_error *error);

#endif
