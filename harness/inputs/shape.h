/* SPDX-License-Identifier: Apache-2.0
 *
 * shape.h: identifies a tensor of a sequence: everything that its values depend on.
 */
#ifndef KVG_HARNESS_INPUTS_SHAPE_H
#define KVG_HARNESS_INPUTS_SHAPE_H

#include <stdint.h>

enum kvg_tensor { KVG_TENSOR_Q = 0, KVG_TENSOR_K = 1, KVG_TENSOR_V = 2 };

/* Sets of tokens. Scales are measured on one of the first two and applied to the third. */
enum kvg_token_set { KVG_SET_RANDOM_TOKENS = 0, KVG_SET_CALIBRATION, KVG_SET_EVALUATION };

struct kvg_input_shape {
    const char *input; /* a name that kvg_input_check accepts */
    uint64_t seed;     /* synthetic only */
    int64_t layer;     /* captured only */
    int64_t seq;       /* number of the sequence in the batch, from 0 */
    int64_t context;   /* keys of this sequence */
    int64_t q_len;     /* queries of this sequence: the last q_len positions */
    int64_t q_heads, kv_heads, head_dim;
    int64_t
        span; /* captured only: longest context of the batch, so that the sequences of a ragged batch do not
                     share windows; 0 = context */
};

#endif
