/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs.c: the names of the inputs, and the choice between synthetic.c and captured.c.
 */
#include "inputs.h"

#include <string.h>
#include "parts.h"

static const struct kvg_input_info synthetic_inputs[] = {
    {"normal", "N(0,1)"},
    {"outlier", "N(0,1), plus N(0,100) (variance) for one element in a thousand"},
    {"channel_outlier", "N(0,1), one K channel in 32 is 20 times larger, as in real models"},
    {"sink", "N(0,1), the first token gets about 80% of the attention and has a small V"},
    {"v_nonneg", "V = |N(0,1)|: shows accumulation faults that a mean of zero hides"},
    {"v_shift", "V = N(1,1): as v_nonneg, weaker"},
    {"v_small", "V = N(0,1) times 2^-9: scale 1.0 loses most of V in e4m3"},
    {"k_wide", "one K channel in 32 has sigma 512 or more: scale 1.0 clips K in e4m3"},
    {"q_wide", "one Q channel in 32 has sigma 512 or more: scale 1.0 clips Q in e4m3"},
    {"far_logits", "all logits of a row near -5.6e4, or +5.6e4 in odd KV heads"},
    {"faint", "one key with V = 0 matches every query; all others weigh about 2^-15, subnormal P in e4m3"},
    {"needle",
     "one key matches every query, so the output is about its V; needle:DEPTH, 0 to 1, default 0.5"},
};

const struct kvg_input_info *kvg_input_synthetic(int64_t i)
{
    int64_t count = (int64_t)(sizeof synthetic_inputs / sizeof synthetic_inputs[0]);
    return i >= 0 && i < count ? &synthetic_inputs[i] : NULL;
}

int kvg_input_is_synthetic(const char *input)
{
    for (int64_t i = 0; kvg_input_synthetic(i); i++)
        if (!strcmp(input, kvg_input_synthetic(i)->name))
            return 1;
    return !strncmp(input, "needle:", 7);
}

static int is_captured(const char *input)
{
    size_t length = strlen(input);
    return !strcmp(input, "smollm2") || (length > 3 && !strcmp(input + length - 3, ".h5"));
}

int kvg_input_check(const char *input, struct kvg_error *error)
{
    double depth;
    if (!strncmp(input, "needle", 6) && kvg_input_is_synthetic(input))
        return kvg_needle_depth(input, &depth, error);
    if (kvg_input_is_synthetic(input) || is_captured(input))
        return 0;
    char names[256] = "";
    for (int64_t i = 0; kvg_input_synthetic(i); i++) {
        strncat(names, kvg_input_synthetic(i)->name, sizeof names - strlen(names) - 1);
        strncat(names, ", ", sizeof names - strlen(names) - 1);
    }
    return kvg_fail(
        error, KVG_EXIT_USAGE,
        "input %s is not known; it can be %sneedle:DEPTH, smollm2 or a captured file that ends in .h5", input,
        names);
}

int kvg_input_fill(const struct kvg_input_shape *shape, enum kvg_tensor tensor, int threads, uint16_t *out,
                   struct kvg_error *error)
{
    if (kvg_input_check(shape->input, error))
        return -1;
    return kvg_input_is_synthetic(shape->input) ? kvg_synthetic_fill(shape, tensor, threads, out, error)
                                                : kvg_captured_fill(shape, tensor, out, error);
}

int kvg_input_absmax(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                     float **absmax, int64_t *samples, struct kvg_error *error)
{
    *absmax = NULL;
    *samples = 0;
    if (kvg_input_check(shape->input, error))
        return -1;
    if (set == KVG_SET_EVALUATION)
        return kvg_fail(error, KVG_EXIT_USAGE, "input %s: scales are not measured on the evaluation set",
                        shape->input);
    return kvg_input_is_synthetic(shape->input)
               ? kvg_synthetic_absmax(shape, tensor, set, absmax, samples, error)
               : kvg_captured_absmax(shape, tensor, set, absmax, samples, error);
}
