/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: what inputs.c calls: one function of synthetic.c and one of captured.c for each function of
 * inputs.h. Private to harness/inputs/. Arguments and results are those of inputs.h.
 */
#ifndef KVG_HARNESS_INPUTS_PARTS_H
#define KVG_HARNESS_INPUTS_PARTS_H

#include "shape.h"
#include "results/error.h"

/* ---- synthetic.c ---- */
int kvg_synthetic_fill(const struct kvg_input_shape *shape, enum kvg_tensor tensor, int threads,
                       uint16_t *out, struct kvg_error *error);
int kvg_synthetic_absmax(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                         float **absmax, int64_t *samples, struct kvg_error *error);
/* Depth of "needle" (0.5) or "needle:DEPTH": 0 and *depth, or -1 with the error. */
int kvg_needle_depth(const char *input, double *depth, struct kvg_error *error);

/* ---- captured.c ---- */
int kvg_captured_fill(const struct kvg_input_shape *shape, enum kvg_tensor tensor, uint16_t *out,
                      struct kvg_error *error);
int kvg_captured_absmax(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                        float **absmax, int64_t *samples, struct kvg_error *error);

/* ---- captured_probe.c ---- */
/* Calls look(path) in a child process. 1 if the child returns from it, 0 if it crashes or takes more than 3
 * s of CPU time. A file that passed is not tried again while it is the last one that was asked for and has
 * not changed. */
int kvg_captured_survives(const char *path, void (*look)(const char *path));

#endif
