/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: the default options of a run.
 */
#include "options.h"

#include "reference/scales.h"
#include "results/row.h"

void kvg_run_options_default(struct kvg_run_options *options)
{
    *options = (struct kvg_run_options){
        .min_time = 0.2,
        .min_samples = 15,
        .max_samples = KVG_MAX_SAMPLES,
        .timeout = 120,
        .measure_roofs = 1,
        .random_tokens_q = KVG_REF_RANDOM_TOKENS_Q_CONSTANT,
        .random_tokens_k = KVG_REF_RANDOM_TOKENS_K_CONSTANT,
        .random_tokens_v = KVG_REF_RANDOM_TOKENS_V_CONSTANT,
    };
}
