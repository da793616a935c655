/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_trial.h: a small case, the output that the kernel of scalar_attention.h gives it, with a fault or
 * without, and the verdict on that output.
 */
#ifndef KVG_TESTS_VERIFY_TRIAL_H
#define KVG_TESTS_VERIFY_TRIAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "harness/prepare/prepare.h"
#include "harness/verify/verify.h"
#include "scalar_stub.h"

static inline struct kvg_case plain_case(void)
{
    struct kvg_case c;
    memset(&c, 0, sizeof c);
    strcpy(c.kernel, SCALAR_NAME);
    strcpy(c.input, "normal");
    c.phase = KVG_PHASE_DECODE;
    c.path = KVG_PATH_DEQUANT;
    c.kv_cache_dtype = KVG_CACHE_FP8_E4M3;
    c.scheme = KVG_PER_HEAD;
    c.calibration = KVG_CALIBRATION_NONE;
    c.layer = -1;
    c.batch = 2;
    c.q_len = 1;
    c.context = 515;
    c.q_heads = 8;
    c.kv_heads = 4;
    c.head_dim = 64;
    c.block_size = 16;
    c.lengths = KVG_LENGTHS_RAGGED;
    c.threads = 1;
    c.seed = 11;
    return c;
}

static const struct values plain_values = {1.5, 1.0, 1.0, K_NORMAL, V_NORMAL, SCALE_ABSMAX_448};

struct trial {
    struct kvg_prepared p;
    uint16_t *out;
    float *lse;
    struct kvg_row row;
};

static inline void trial_make(struct trial *t, const struct kvg_case *c, const struct values *values)
{
    struct kvg_error error = {0};
    if (kvg_prepared_make(c, NULL, &t->p, &error) != 0)
        fail_msg("%s", error.text);
    if (values)
        give_values(&t->p, values, c->seed);
    const int64_t rows = t->p.total_q * c->q_heads;
    t->out = malloc((size_t)(rows * c->head_dim + 1) * sizeof *t->out);
    t->lse = malloc((size_t)(rows + 1) * sizeof *t->lse);
    assert_non_null(t->out);
    assert_non_null(t->lse);
    memset(t->out, 0xff, (size_t)(rows * c->head_dim) * sizeof *t->out); /* NaN, as the harness does */
    memset(t->lse, 0xff, (size_t)rows * sizeof *t->lse);
    assert_int_equal(kvg_row_init(&t->row), 0);
}

static inline void trial_free(struct trial *t)
{
    kvg_row_free(&t->row);
    free(t->out);
    free(t->lse);
    kvg_prepared_free(&t->p);
}

/* Judges t->out by the declaration of `kernel`. */
static inline void judge(struct trial *t, const struct kvg_arithmetic *declared, int with_lse)
{
    struct kvg_error error = {0};
    struct kvg_expectation *e;
    scalar_declared = *declared;
    if (kvg_expectation_make(&t->p, &scalar_stub, 0, &e, &error) != 0 ||
        kvg_expectation_add_unquantised(e, &error) != 0 ||
        kvg_compare_attention(e, t->out, with_lse ? t->lse : NULL, &t->row, &error) != 0)
        fail_msg("%s", error.text);
    kvg_expectation_free(e);
}

static inline void run_kernel(struct trial *t, const struct scalar_kernel *k)
{
    scalar_attention(&t->p, k, t->out, t->lse);
    spoil(&t->p, k->fault, t->out, t->lse);
}

static inline int broke(const struct kvg_row *row, const char *check)
{
    char word[32];
    snprintf(word, sizeof word, "%s: ", check);
    const char *at = strstr(row->reason, word);
    return at && (at == row->reason || at[-1] == ' ');
}

#endif
