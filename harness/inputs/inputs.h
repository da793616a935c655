/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs.h: where Q, K and V come from.
 *
 * Synthetic values are counter-based: value = f(seed, tensor, sequence, token, head, dim) with Philox4x32-10
 * (Random123) and an inverse-CDF table evaluated with separately rounded + and * alone (generate.h), so that
 * every machine, thread count and GPU gets the same bits, and a longer context, a larger batch or more heads
 * extend a smaller one (but for the one special token of sink and needle, which depends on the context).
 * Each (tensor, head) carries a factor 2^U(-2,2), so that calibrated scales differ between heads; that of a Q
 * head undoes its KV head's K factor, so that the logits keep their distribution (synthetic.c says why).
 *
 * Captured values are read from an HDF5 file written by capture.py (layout in inputs/README.md).
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
/* Synthetic distributions, in the order of the documentation; NULL past the end. */
const struct kvg_input_info *kvg_input_synthetic(int64_t i);
/* 1 if `input` names a synthetic distribution ("needle" and "needle:DEPTH" both do). */
int kvg_input_is_synthetic(const char *input);
/* 0 if `input` is a synthetic distribution (with a depth of 0 to 1, where it has one) or may be a captured
 * one
 * ("smollm2" or a path that ends in .h5, not opened here); else -1, with the names there are. */
int kvg_input_check(const char *input, struct kvg_error *error);

/* Fill out[tokens, heads, head_dim] (bf16 bits) of the evaluation set of one sequence: K and V have
 * `context` tokens and kv_heads, Q has q_len tokens and q_heads. threads >= 1. Captured: sequence `seq` is
 * the last `context` tokens before the end of window `seq`; windows are `span` tokens long, rounded up to the
 * file's window step, so that the Q of each window's last tokens is in the file. Exit code 4 when the text is
 * too short or the file holds no Q for a position. */
int kvg_input_fill(const struct kvg_input_shape *shape, enum kvg_tensor tensor, int threads, uint16_t *out,
                   struct kvg_error *error);

/* absmax[samples][heads] of a tensor over a token set, as an observer sees it. Synthetic: samples of the same
 * distribution with seed + 1 (calibration: 64 samples of 128 tokens; random_tokens: 1 sample of 2048 tokens);
 * factors, wide channels and directions stay those of `seed`, as a model's stay its own. `context`, `seq` and
 * `q_len` of the shape are unused. *samples and the
 * malloc'ed *absmax are the caller's. heads = q_heads for Q, kv_heads for K and V. */
int kvg_input_absmax(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                     float **absmax, int64_t *samples, struct kvg_error *error);

/* Captured input: its fixed shape and limits. */
struct kvg_captured_info {
    char path[1024];
    char model[128];
    int64_t layers[64]; /* model layer numbers present */
    int64_t n_layers;
    int64_t q_heads, kv_heads, head_dim;
    int64_t tokens;  /* of the evaluation text: K and V */
    int64_t q_first; /* Q is present for positions [0, q_first) and [tokens - q_last, tokens) */
    int64_t q_last;
    int64_t
        window_step; /* windows are a multiple of this; Q is also present for the q_tail positions before */
    int64_t q_tail;  /* each multiple of window_step, so decode and short append work in every window */
};
/* Tokens of a window for sequences of up to `context` keys: context rounded up to a multiple of window_step,
 * at least one window_step. */
int64_t kvg_captured_window(const struct kvg_captured_info *info, int64_t context);
/* The layer numbers as "0, 10, 20, 29"; what does not fit is cut off. */
void kvg_captured_list_layers(const struct kvg_captured_info *info, char *text, size_t size);
/* `input` is "smollm2" (the file shipped with kvgauge) or a path that ends in .h5. */
int kvg_captured_read_info(const char *input, struct kvg_captured_info *info, struct kvg_error *error);

#endif
