/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: inputs of kvg_prepared_make besides the case.
 */
#ifndef KVG_HARNESS_PREPARE_OPTIONS_H
#define KVG_HARNESS_PREPARE_OPTIONS_H

struct kvg_input_cache;

struct kvg_prepare_options {
    float q_constant, k_constant, v_constant; /* random_tokens: scale = absmax / constant */
    struct kvg_input_cache *cache; /* keeps inputs from case to case; borrowed; NULL: none are kept */
};

/* Greatest number of sequences of a part (kvg_prepared_make_part). */
enum { KVG_PART_MOST = 4 };

#endif
