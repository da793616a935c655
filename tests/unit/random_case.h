/* SPDX-License-Identifier: Apache-2.0
 *
 * random_case.h: cases for tests of case strings: random ones, the same in every run, and the case of a text.
 */
#ifndef KVG_TESTS_RANDOM_CASE_H
#define KVG_TESTS_RANDOM_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/case/case.h"

static uint64_t random_state = 20260729;
static inline uint64_t random_next(void) /* xorshift64* */
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * UINT64_C(2685821657736338717);
}
static inline int64_t random_between(int64_t low, int64_t high)
{
    return low + (int64_t)(random_next() % (uint64_t)(high - low + 1));
}

/* Any values, contradictory ones included: formatting and parsing accept them. */
static inline void random_case(struct kvg_case *c)
{
    static const char *const kernels[] = {"best", "cpu/*", "cpu/dequant_avx2", "a=b", "x"};
    static const char *const inputs[] = {"normal",  "needle:0.125",  "smollm2",
                                         "v_small", "dir/my=own.h5", "needle"};
    static const double caps[] = {0, 30, 50, 0.1f, 1e-7f, 12345.678f};
    memset(c, 0, sizeof *c);
    strcpy(c->kernel, kernels[random_between(0, 4)]);
    strcpy(c->input, inputs[random_between(0, 5)]);
    c->phase = (enum kvg_phase)random_between(0, 3);
    c->path = (enum kvg_path)random_between(0, 2);
    c->kv_cache_dtype = (enum kvg_cache_dtype)random_between(0, 3);
    c->scheme = (enum kvg_scheme)random_between(0, 1);
    c->calibration = (enum kvg_calibration)random_between(0, 2);
    c->observer = (enum kvg_ref_observer)random_between(0, 2);
    c->layer = random_between(-1, 40);
    c->batch = random_between(1, 300);
    c->context = random_between(1, 1 << 20);
    c->q_len = random_between(0, 1)           ? random_between(1, 4000)
               : c->phase == KVG_PHASE_APPEND ? 0
               : c->phase == KVG_PHASE_DECODE ? 1
                                              : c->context;
    c->kv_heads = random_between(1, 16);
    c->q_heads = random_between(1, 64);
    c->head_dim = random_between(1, 512);
    c->block_size = random_between(1, 256);
    c->shared_pages = random_between(0, 3) ? 0 : random_between(1, 99);
    c->layout = (enum kvg_layout)random_between(0, 1);
    c->views = (enum kvg_views_kind)random_between(0, 4);
    c->lengths = (enum kvg_lengths)random_between(0, 3);
    if (c->lengths == KVG_LENGTHS_LIST)
        strcpy(c->list, random_between(0, 1) ? "1x4096+512x8192" : "300*1x77+0x5+3x3");
    c->mask = (enum kvg_mask)random_between(0, 3);
    c->chunk = c->mask == KVG_MASK_CHUNKED ? random_between(1, 10000) : 0;
    c->prefix = c->mask == KVG_MASK_PREFIX ? random_between(1, 10000) : 0;
    c->window = random_between(0, 1) ? 0 : random_between(1, 5000);
    c->soft_cap = caps[random_between(0, 5)];
    c->softmax_scale = random_between(0, 2) ? 0 : (double)(float)(0.001 * (double)random_between(1, 999));
    c->sinks = (enum kvg_sinks)random_between(0, 2);
    c->accumulate = (enum kvg_accumulate)random_between(0, 2);
    c->flush_tiles = c->accumulate == KVG_ACCUMULATE_HOPPER_TWO_LEVEL ? random_between(1, 9) : 0;
    c->threads = random_between(0, 64);
    c->seed = random_between(0, 2) ? (uint64_t)random_between(0, 5) : random_next() >> 1;
    c->cache_state = (enum kvg_cache_state)random_between(0, 2);
}

static inline int same_case(const struct kvg_case *a, const struct kvg_case *b)
{
    return !strcmp(a->kernel, b->kernel) && !strcmp(a->input, b->input) && a->phase == b->phase &&
           a->path == b->path && a->kv_cache_dtype == b->kv_cache_dtype && a->scheme == b->scheme &&
           a->calibration == b->calibration && a->observer == b->observer && a->layer == b->layer &&
           a->batch == b->batch && a->q_len == b->q_len && a->context == b->context &&
           a->q_heads == b->q_heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
           a->block_size == b->block_size && a->layout == b->layout && a->lengths == b->lengths &&
           !strcmp(a->list, b->list) && a->shared_pages == b->shared_pages && a->views == b->views &&
           a->mask == b->mask && a->window == b->window && a->soft_cap == b->soft_cap &&
           a->softmax_scale == b->softmax_scale && a->threads == b->threads &&
           a->accumulate == b->accumulate && a->flush_tiles == b->flush_tiles && a->seed == b->seed &&
           a->sinks == b->sinks && a->cache_state == b->cache_state && a->chunk == b->chunk &&
           a->prefix == b->prefix;
}

/* The complete case of a text. 0, or -1 with the contradiction in error. */
static inline int complete_case(const char *text, struct kvg_case *c, struct kvg_error *error)
{
    if (kvg_case_parse(text, c, error))
        fail_msg("%s: %s", text, error->text);
    return kvg_case_complete(c, error);
}

#endif
