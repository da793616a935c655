/* SPDX-License-Identifier: Apache-2.0
 *
 * generator.h: the generator (generate.h) of a synthetic tensor: how it is made, and a fast evaluation on
 * the CPU.
 */
#ifndef KVG_HARNESS_INPUTS_GENERATOR_H
#define KVG_HARNESS_INPUTS_GENERATOR_H

#include "generate.h"
#include "shape.h"
#include "results/error.h"

/* Makes the generator of one tensor of one sequence (synthetic.c). Its vectors lie in one allocation at
 * generator->multiply; free it with kvg_generator_free. Sets other than evaluation take their values from
 * seed + 1. 0, or -1 with the error. */
int kvg_generator_make(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                       struct kvg_generator *generator, struct kvg_error *error);
void kvg_generator_free(struct kvg_generator *generator);
/* Tokens first .. first + tokens - 1 to out[tokens, heads, head_dim] (bf16 bits). threads >= 1. */
void kvg_generator_fill(const struct kvg_generator *generator, int64_t first, int64_t tokens, int threads,
                        uint16_t *out);
/* Largest |x| (rounded to bf16) of each head over tokens 0 .. tokens - 1, to absmax[heads]. */
void kvg_generator_absmax(const struct kvg_generator *generator, int64_t tokens, float *absmax);

#endif
