/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_fixture.h: a small ragged case, and the bf16 decoder of the tests of prepared cases.
 */
#ifndef KVG_TESTS_PREPARE_FIXTURE_H
#define KVG_TESTS_PREPARE_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "harness/prepare/prepare.h"

static inline struct kvg_case small_case(void)
{
    struct kvg_case c;
    memset(&c, 0, sizeof c);
    strcpy(c.kernel, "best");
    strcpy(c.input, "normal");
    c.phase = KVG_PHASE_DECODE;
    c.path = KVG_PATH_DEQUANT;
    c.kv_cache_dtype = KVG_CACHE_FP8_E4M3;
    c.scheme = KVG_PER_HEAD;
    c.calibration = KVG_CALIBRATION_DATASET;
    c.layer = -1;
    c.batch = 6;
    c.q_len = 1;
    c.context = 300;
    c.q_heads = 8;
    c.kv_heads = 4;
    c.head_dim = 64;
    c.block_size = 16;
    c.lengths = KVG_LENGTHS_RAGGED;
    c.threads = 2;
    c.seed = 7;
    return c;
}

static inline void prepare(const struct kvg_case *c, struct kvg_prepared *p)
{
    struct kvg_error error = {0};
    if (kvg_prepared_make(c, NULL, p, &error))
        fail_msg("%s", error.text);
}

static inline float bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
}

#endif
