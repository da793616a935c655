/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: the two halves of inputs.h (synthetic.c, captured.c), and the generator that a GPU fill needs too.
 */
#ifndef KVG_HARNESS_INPUTS_PARTS_H
#define KVG_HARNESS_INPUTS_PARTS_H

#include "generate.h"
#include "inputs.h"

/* Tokens of one calibration sample, samples of the calibration set, tokens of the random-token batch. */
#define KVG_SYNTHETIC_SAMPLE_TOKENS 128
#define KVG_SYNTHETIC_SAMPLES 64
#define KVG_SYNTHETIC_RANDOM_TOKENS 2048

/* The generator of one tensor of one sequence of a set. Allocates its vectors in one block at
 * generator->multiply; free with kvg_generator_free. Sets other than evaluation use seed + 1 for values. */
int kvg_generator_make(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                       struct kvg_generator *generator, struct kvg_error *error);
void kvg_generator_free(struct kvg_generator *generator);
/* Tokens first .. first + tokens - 1 to out[tokens, heads, head_dim] (bf16 bits). */
void kvg_generator_fill(const struct kvg_generator *generator, int64_t first, int64_t tokens, int threads,
                        uint16_t *out);
/* Largest |x| (rounded to bf16) per head over tokens 0 .. tokens - 1, to absmax[heads]. */
void kvg_generator_absmax(const struct kvg_generator *generator, int64_t tokens, float *absmax);

int kvg_synthetic_fill(const struct kvg_input_shape *shape, enum kvg_tensor tensor, int threads,
                       uint16_t *out, struct kvg_error *error);
int kvg_synthetic_absmax(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                         float **absmax, int64_t *samples, struct kvg_error *error);
/* Depth of "needle" or "needle:DEPTH": 0 and *depth, or -1 with the error. */
int kvg_needle_depth(const char *input, double *depth, struct kvg_error *error);

/* The captured half (captured.c). */
int kvg_captured_fill(const struct kvg_input_shape *shape, enum kvg_tensor tensor, uint16_t *out,
                      struct kvg_error *error);
int kvg_captured_absmax(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                        float **absmax, int64_t *samples, struct kvg_error *error);
/* captured_probe.c: 1 if a child process that does look(path) lives through it, 0 if it crashes or takes
 * seconds. Files that passed are not looked at twice in a row. */
int kvg_captured_survives(const char *path, void (*look)(const char *path));

#endif
