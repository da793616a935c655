/* SPDX-License-Identifier: Apache-2.0
 *
 * test_diagnose_codes.c: wrong codes of a store and of Q in views, with padding tokens and scales. The codes
 * are made here, with strides that are written down here.
 */
#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "harness/diagnose/diagnose.h"
#include "harness/prepare/prepare.h"

enum { HEADS = 2, DIM = 16 };

static void prepare(enum kvg_phase phase, enum kvg_views_kind views, struct kvg_prepared *p)
{
    struct kvg_case c;
    struct kvg_error error = {0};
    kvg_case_default(&c);
    strcpy(c.input, "normal");
    c.phase = phase;
    c.path = phase == KVG_PHASE_STORE ? KVG_PATH_NONE : KVG_PATH_FP8;
    c.scheme = KVG_PER_HEAD;
    c.calibration = KVG_CALIBRATION_RANDOM_TOKENS;
    c.batch = 3;
    c.context = 40;
    c.q_len = phase == KVG_PHASE_STORE ? c.context : 3;
    c.q_heads = 6;
    c.kv_heads = HEADS;
    c.head_dim = DIM;
    c.lengths = KVG_LENGTHS_GAPS;
    c.views = views;
    c.threads = 1;
    if (kvg_prepared_make(&c, NULL, p, &error) != 0)
        fail_msg("%s", error.text);
}

/* Copies of the right caches, to be spoilt. */
struct stored {
    struct kvg_prepared p;
    uint8_t *k, *v;
};

static void store(enum kvg_views_kind views, struct stored *s)
{
    prepare(KVG_PHASE_STORE, views, &s->p);
    const size_t bytes = (size_t)s->p.cache_elements;
    s->k = malloc(bytes);
    s->v = malloc(bytes);
    assert_non_null(s->k);
    assert_non_null(s->v);
    memcpy(s->k, s->p.k_pages.data, bytes);
    memcpy(s->v, s->p.v_pages.data, bytes);
}

static void expect_stored(struct stored *s, enum kvg_fault_class wanted)
{
    struct kvg_diagnosis d;
    kvg_diagnose_store(&s->p, s->k, s->v, KVG_RUN_FIRST, &d);
    if (d.suspected != wanted)
        fail_msg("expected '%s', got '%s': %s", kvg_fault_class_name(wanted),
                 kvg_fault_class_name(d.suspected), d.why);
    free(s->k);
    free(s->v);
    kvg_prepared_free(&s->p);
}

/* K and V read with the strides of dense sources. */
static void sources_taken_as_dense(void **state)
{
    (void)state;
    static const enum kvg_views_kind kinds[] = {KVG_VIEWS_PADDED, KVG_VIEWS_FUSED, KVG_VIEWS_PAIRED,
                                                KVG_VIEWS_HEAD_MAJOR};
    for (int kind = 0; kind < 4; kind++) {
        struct stored s;
        store(kinds[kind], &s);
        const struct kvg_prepared *p = &s.p;
        for (int64_t i = 0; i < p->total_kv; i++)
            for (int64_t j = 0; j < HEADS * DIM && p->slot_mapping[i] >= 0; j++) {
                const int64_t to = p->slot_mapping[i] * HEADS * DIM + j, from = i * HEADS * DIM + j;
                const uint16_t *k = (const uint16_t *)p->shown.k + p->views.k.first,
                               *v = (const uint16_t *)p->shown.v + p->views.v.first;
                s.k[to] =
                    kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_bf16_decode(k[from]) / p->k_scale[j / DIM]);
                s.v[to] =
                    kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_bf16_decode(v[from]) / p->v_scale[j / DIM]);
            }
        expect_stored(&s, KVG_FAULT_LAYOUT);
    }
}

/* A padding token overwrites the token in slot 0. */
static void padding_stored_in_slot_0(void **state)
{
    (void)state;
    struct stored s;
    store(KVG_VIEWS_DENSE, &s);
    const struct kvg_prepared *p = &s.p;
    int64_t padding = 0, owner = -1;
    while (p->slot_mapping[padding] >= 0)
        padding++;
    for (int64_t i = 0; i < p->total_kv; i++)
        owner = p->slot_mapping[i] == 0 ? i : owner;
    for (int64_t j = 0; j < HEADS * DIM; j++) {
        const int64_t from = padding * HEADS * DIM + j;
        s.k[j] = kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_bf16_decode(p->k[from]) / p->k_scale[j / DIM]);
        s.v[j] = kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_bf16_decode(p->v[from]) / p->v_scale[j / DIM]);
    }
    assert_true(padding < p->store_tokens);
    (void)owner; /* whether slot 0 has an owner or not, the class is the same */
    expect_stored(&s, KVG_FAULT_PAGE_TAIL);
}

/* Each row is stored one slot too far within its page, over its neighbour. */
static void rows_of_other_tokens(void **state)
{
    (void)state;
    struct stored s;
    store(KVG_VIEWS_DENSE, &s);
    const struct kvg_prepared *p = &s.p;
    const int64_t row = HEADS * DIM, size = p->problem.block_size;
    for (int64_t i = 0; i < p->total_kv; i++) {
        const int64_t slot = p->slot_mapping[i], other = slot ^ 1;
        int owned = 0;
        for (int64_t j = 0; j < p->total_kv && slot >= 0; j++)
            owned |= p->slot_mapping[j] == other;
        if (slot < 0 || !owned || slot / size != other / size)
            continue;
        memcpy(s.k + slot * row, (const uint8_t *)p->k_pages.data + other * row, (size_t)row);
        memcpy(s.v + slot * row, (const uint8_t *)p->v_pages.data + other * row, (size_t)row);
    }
    expect_stored(&s, KVG_FAULT_LAYOUT);
}

/* Codes without any rule: no suspicion. */
static void no_rule(void **state)
{
    (void)state;
    struct stored s;
    store(KVG_VIEWS_DENSE, &s);
    const struct kvg_prepared *p = &s.p;
    for (int64_t i = 0; i < p->total_kv; i++)
        for (int64_t j = 0; j < HEADS * DIM && p->slot_mapping[i] >= 0; j++)
            s.v[p->slot_mapping[i] * HEADS * DIM + j] =
                (uint8_t)((i * 37 + j * 11) % 127 + (j % 2 ? 128 : 0));
    expect_stored(&s, KVG_FAULT_UNKNOWN);
}

/* ---------------------------------------------------------------- Q */

static void expect_q(const struct kvg_prepared *p, const uint8_t *q8, enum kvg_fault_class wanted)
{
    struct kvg_diagnosis d;
    kvg_diagnose_quantize_q(p, q8, &d);
    if (d.suspected != wanted)
        fail_msg("expected '%s', got '%s': %s", kvg_fault_class_name(wanted),
                 kvg_fault_class_name(d.suspected), d.why);
}

static uint8_t code_of(const struct kvg_prepared *p, uint16_t value, int64_t row)
{
    return kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_bf16_decode(value) * (1.0f / p->q_scale[row % 6 / 3]));
}

static void codes_of_q(void **state)
{
    (void)state;
    struct kvg_prepared p;
    prepare(KVG_PHASE_APPEND, KVG_VIEWS_PADDED, &p);
    const int64_t n = p.total_q * 6 * DIM;
    uint8_t *q8 = malloc((size_t)n);
    assert_non_null(q8);
    const uint16_t *shown = (const uint16_t *)p.shown.q + p.views.q.first;
    for (int64_t i = 0; i < n; i++)
        q8[i] = code_of(&p, shown[i], i / DIM);
    expect_q(&p, q8, KVG_FAULT_LAYOUT);
    /* rounded towards zero */
    for (int64_t i = 0; i < n; i++) {
        const float x = kvg_ref_bf16_decode(p.q[i]) * (1.0f / p.q_scale[i / DIM % 6 / 3]);
        q8[i] = (uint8_t)(p.q8[i] - (fabsf(kvg_ref_fp8_decode(KVG_REF_E4M3, p.q8[i])) > fabsf(x)));
    }
    expect_q(&p, q8, KVG_FAULT_ENCODING);
    for (int64_t i = 0; i < n; i++)
        q8[i] = kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_bf16_decode(p.q[i]));
    expect_q(&p, q8, KVG_FAULT_SCALE_DROPPED);
    for (int64_t i = 0; i < n; i++)
        q8[i] = (uint8_t)(i * 37 % 127);
    expect_q(&p, q8, KVG_FAULT_UNKNOWN);
    free(q8);
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_taken_as_dense), cmocka_unit_test(padding_stored_in_slot_0),
        cmocka_unit_test(rows_of_other_tokens), cmocka_unit_test(no_rule), cmocka_unit_test(codes_of_q)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
