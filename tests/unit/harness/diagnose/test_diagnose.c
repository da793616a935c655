/* SPDX-License-Identifier: Apache-2.0
 *
 * test_diagnose.c: the diagnosis of a wrong output names its fault. The faults come from the scalar kernel of
 * scalar_attention.h, which shares no code with the suppositions; wrong stores are made here. Also: the
 * evidence agrees with the comparison, and the block of a failed row has the promised lines.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "harness/prepare/prepare.h"
#include "harness/diagnose/diagnose.h"
#include "harness/verify/verify.h"
#include "results/failure.h"
#include "tests/unit/scalar_stub.h"

static struct kvg_case plain_case(void)
{
    struct kvg_case c;
    kvg_case_default(&c);
    strcpy(c.kernel, SCALAR_NAME);
    strcpy(c.input, "normal");
    c.scheme = KVG_PER_HEAD;
    c.batch = 3;
    c.q_len = 1;
    c.context = 300;
    c.q_heads = 8;
    c.kv_heads = 4;
    c.head_dim = 64;
    c.lengths = KVG_LENGTHS_RAGGED;
    c.threads = 1;
    c.seed = 11;
    return c;
}

struct trial {
    struct kvg_prepared p;
    struct kvg_expectation *e;
    uint16_t *out;
    float *lse;
    struct kvg_row row;
};

static void trial_make(struct trial *t, const struct kvg_case *c, const struct scalar_kernel *k)
{
    static const struct values values = {1.5, 1.0, 1.0, K_NORMAL, V_NORMAL, SCALE_ABSMAX_448};
    struct kvg_error error = {0};
    if (kvg_prepared_make(c, NULL, &t->p, &error) != 0)
        fail_msg("%s", error.text);
    give_values(&t->p, &values, c->seed);
    const size_t rows = (size_t)(t->p.total_q * c->q_heads);
    t->out = malloc(rows * (size_t)c->head_dim * sizeof *t->out);
    t->lse = malloc(rows * sizeof *t->lse);
    assert_non_null(t->out);
    assert_non_null(t->lse);
    memset(t->out, 0xff, rows * (size_t)c->head_dim * sizeof *t->out);
    memset(t->lse, 0xff, rows * sizeof *t->lse);
    scalar_attention(&t->p, k, t->out, t->lse);
    spoil(&t->p, k->fault, t->out, t->lse);
    scalar_declared = k->declared;
    assert_int_equal(kvg_row_init(&t->row), 0);
    if (kvg_expectation_make(&t->p, &scalar_stub, 0, &t->e, &error) != 0 ||
        kvg_compare_attention(t->e, t->out, t->lse, &t->row, &error) != 0)
        fail_msg("%s", error.text);
}

static void trial_free(struct trial *t)
{
    kvg_row_free(&t->row);
    kvg_expectation_free(t->e);
    free(t->out);
    free(t->lse);
    kvg_prepared_free(&t->p);
}

static struct kvg_failure failure_of(const struct trial *t)
{
    return (struct kvg_failure){.expectation = t->e, .kernel = &scalar_stub, .out = t->out, .lse = t->lse};
}

/* The harness does this where an output holds NaN: another run, with zeros in the slots that no sequence
 * owns. */
static void run_on_zeros(struct trial *t, const struct scalar_kernel *k)
{
    const int64_t slots = t->p.num_blocks * t->p.problem.block_size,
                  row = t->p.problem.kv_heads * t->p.problem.head_dim;
    char *owned = calloc((size_t)slots, 1);
    assert_non_null(owned);
    for (int64_t i = 0; i < t->p.total_kv; i++)
        owned[t->p.slot_mapping[i]] = 1;
    for (int64_t i = 0; i < slots; i++)
        for (int64_t j = i * row; j < (i + 1) * row && !owned[i]; j++)
            ((uint8_t *)t->p.k_pages.data)[j] = ((uint8_t *)t->p.v_pages.data)[j] = 0;
    free(owned);
    scalar_attention(&t->p, k, t->out, t->lse);
    spoil(&t->p, k->fault, t->out, t->lse);
}

/* ---------------------------------------------------------------- attention */

static const struct seeded {
    enum fault fault;
    enum kvg_fault_class named;
    enum kvg_phase phase;
    enum kvg_cache_dtype dtype;
    int64_t window, split;
    double soft_cap;
} faults[] = {
#define DEC KVG_PHASE_DECODE
#define APP KVG_PHASE_APPEND
#define E4 KVG_CACHE_FP8_E4M3
    {FAULT_ZERO, KVG_FAULT_GROSS, DEC, E4, 0, 0, 0},
    {FAULT_NEGATED, KVG_FAULT_GROSS, DEC, E4, 0, 0, 0},
    {FAULT_NAN, KVG_FAULT_GROSS, APP, E4, 0, 0, 0},
    {FAULT_HEAD0_SCALES, KVG_FAULT_SCALE_MISAPPLIED, DEC, E4, 0, 0, 0},
    {FAULT_V_SCALE_MISSING, KVG_FAULT_SCALE_DROPPED, DEC, E4, 0, 0, 0},
    {FAULT_V_SCALE_TWICE, KVG_FAULT_SCALE_MISAPPLIED, APP, E4, 0, 0, 0},
    {FAULT_K_SCALE_MISSING, KVG_FAULT_SCALE_DROPPED, APP, E4, 0, 0, 0},
    {FAULT_K_SCALE_TWICE, KVG_FAULT_SCALE_MISAPPLIED, DEC, E4, 0, 0, 0},
    {FAULT_SOFTMAX_SCALE, KVG_FAULT_SCALE_MISAPPLIED, DEC, E4, 0, 0,
     0}, /* 5 % too large: no supposition has that */
    {FAULT_WINDOW_ONE_MORE, KVG_FAULT_MASK, APP, E4, 40, 0, 0},
    {FAULT_WINDOW_ONE_LESS, KVG_FAULT_MASK, DEC, E4, 40, 0, 0},
    {FAULT_LAST_KEY_MISSED, KVG_FAULT_MASK, DEC, E4, 0, 0, 0},
    {FAULT_CAUSAL_TOP_LEFT, KVG_FAULT_MASK, APP, E4, 0, 0, 0},
    {FAULT_PAGE_TAIL_READ, KVG_FAULT_PAGE_TAIL, DEC, E4, 0, 0, 0},
    {FAULT_HEADS_SWAPPED, KVG_FAULT_HEAD_MAPPING, DEC, E4, 0, 0, 0},
    {FAULT_HEAD_MODULO, KVG_FAULT_HEAD_MAPPING, APP, E4, 0, 0, 0},
    {FAULT_GAIN, KVG_FAULT_ACCUMULATION, DEC, E4, 0, 0, 0},
    {FAULT_ACCUMULATOR_13, KVG_FAULT_ACCUMULATION, DEC, E4, 0, 0, 0},
    {FAULT_RESCALE_FORGOTTEN, KVG_FAULT_ACCUMULATION, DEC, E4, 0, 0, 0},
    {FAULT_LSE_LOG2, KVG_FAULT_CAP_OR_LSE, DEC, E4, 0, 0, 0},
    {FAULT_LSE_TRANSPOSED, KVG_FAULT_CAP_OR_LSE, APP, E4, 0, 0, 0},
    {FAULT_LSE_SCALE_MISSING, KVG_FAULT_CAP_OR_LSE, DEC, E4, 0, 0, 0},
    {FAULT_SOFT_CAP_MISSING, KVG_FAULT_CAP_OR_LSE, DEC, E4, 0, 0, 2.0},
    {FAULT_EMPTY_SPLIT_NAN, KVG_FAULT_SPLIT, DEC, E4, 40, 64, 0},
    {FAULT_E5M2_AS_E4M3, KVG_FAULT_ENCODING, DEC, KVG_CACHE_FP8_E5M2, 0, 0, 0},
};

/* Each fault, on both paths where it exists on both. */
static void test_faults_are_named(void **state)
{
    (void)state;
    int wrong = 0, asked = 0;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        for (int path = KVG_PATH_DEQUANT; path <= KVG_PATH_FP8; path++) {
            const struct seeded *s = &faults[i];
            struct kvg_case c = plain_case();
            struct scalar_kernel k = plain_kernel((enum kvg_path)path);
            struct trial t;
            struct kvg_diagnosis d;
            if (path == KVG_PATH_FP8 && s->dtype != E4)
                continue;
            c.path = (enum kvg_path)path;
            c.phase = s->phase;
            c.kv_cache_dtype = s->dtype;
            c.window = s->window;
            c.soft_cap = s->soft_cap;
            c.q_len = s->phase == DEC ? 1 : 5;
            k.declared.split_tokens = s->split;
            k.fault = s->fault;
            trial_make(&t, &c, &k);
            if (t.row.status == KVG_INCORRECT) {
                const struct kvg_failure f = failure_of(&t);
                if (t.row.nonfinite > 0)
                    run_on_zeros(&t, &k);
                kvg_diagnose_attention(&f, &d);
                asked++;
                if (d.suspected != s->named || !d.why[0]) {
                    wrong++;
                    print_error("fault %d, path %d: expected '%s', got '%s': %s\n", (int)s->fault, path,
                                kvg_fault_class_name(s->named), kvg_fault_class_name(d.suspected), d.why);
                }
            }
            trial_free(&t);
        }
    assert_true(asked >= 45);
    assert_int_equal(wrong, 0);
}

/* Facts that only the caller knows. */
static void test_facts_of_the_run(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct trial t;
    struct kvg_diagnosis d;
    k.fault = FAULT_OFFSET;
    trial_make(&t, &c, &k);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    struct kvg_failure f = failure_of(&t);
    f.unstable = 1;
    kvg_diagnose_attention(&f, &d);
    assert_int_equal(d.suspected, KVG_FAULT_RACE);
    f.unstable = 0;
    f.run = KVG_RUN_FAR;
    kvg_diagnose_attention(&f, &d);
    assert_int_equal(d.suspected, KVG_FAULT_NARROW_OFFSET);
    f.run = KVG_RUN_RENEWED;
    kvg_diagnose_attention(&f, &d);
    assert_int_equal(d.suspected, KVG_FAULT_STALE_STATE);
    f.run = KVG_RUN_FIRST;
    f.old_output = 1;
    kvg_diagnose_attention(&f, &d);
    assert_int_equal(d.suspected, KVG_FAULT_STALE_STATE);
    /* Elements that are not written hold what the harness put there. */
    f.old_output = 0;
    memset(t.out + 5 * c.head_dim, 0xff, (size_t)c.head_dim * sizeof *t.out);
    kvg_diagnose_attention(&f, &d);
    assert_int_equal(d.suspected, KVG_FAULT_NOT_WRITTEN);
    assert_non_null(strstr(d.why, "1 of 24 rows"));
    trial_free(&t);
}

/* ---------------------------------------------------------------- evidence */

static void test_evidence_says_what_the_row_says(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct kvg_evidence *e = malloc(sizeof *e), *back = malloc(sizeof *back);
    struct trial t;
    c.phase = KVG_PHASE_APPEND;
    c.q_len = 5;
    trial_make(&t, &c, &k);
    assert_int_equal(t.row.status, KVG_PASSED);
    /* sequence 1, query 2, head 6, dim 9 is 100; sequence 0, query 0, head 3, dim 1 is NaN */
    const int64_t place = (t.p.cu_q_lens[1] + 2) * c.q_heads + 6;
    struct kvg_error error = {0};
    t.out[place * c.head_dim + 9] = 0x42c8u; /* 100 */
    t.out[3 * c.head_dim + 1] = 0x7fc0u;
    assert_int_equal(kvg_compare_attention(t.e, t.out, t.lse, &t.row, &error), 0);
    const struct kvg_failure f = failure_of(&t);
    kvg_evidence_attention(&f, e);
    assert_int_equal(e->checks[0].failed, t.row.nonfinite);
    for (int i = 0; i < e->n_checks; i++) {
        char word[32];
        snprintf(word, sizeof word, "%s: ", e->checks[i].name);
        assert_non_null(strstr(t.row.reason, word));
    }
    assert_int_equal(e->n_worst, 2);
    assert_true(isnan(e->worst[0].got) && e->worst[0].at.head == 3 && e->worst[0].at.dim == 1);
    assert_true(e->worst[1].got == 100.0 && e->worst[1].at.sequence == 1 && e->worst[1].at.query == 2 &&
                e->worst[1].at.head == 6 && e->worst[1].at.dim == 9);
    assert_int_equal(e->heat.heads, c.q_heads);
    assert_int_equal(e->heat.cell[3][0], 'N');
    assert_int_equal(e->heat.cell[6][t.p.cu_q_lens[1] + 2], '9');
    assert_int_equal(e->heat.cell[0][0], '0');
    /* There and back. */
    char *text = kvg_evidence_to_text(e);
    assert_non_null(text);
    assert_int_equal(kvg_evidence_from_text(text, back), 0);
    assert_int_equal(back->n_checks, e->n_checks);
    assert_string_equal(back->checks[1].name, e->checks[1].name);
    assert_true(fabs(back->worst[1].ratio / e->worst[1].ratio - 1.0) < 1e-6);
    assert_true(isnan(back->worst[0].got));
    assert_string_equal(back->heat.cell[6], e->heat.cell[6]);
    free(text);
    assert_int_equal(kvg_evidence_from_text("", back), -1);
    assert_int_equal(kvg_evidence_from_text("[1]", back), -1);
    assert_int_equal(
        kvg_evidence_from_text("{\"checks\":[{}],\"worst\":[3,[]],\"heat\":{\"cells\":[1,\"0\"]}}", back), 0);
    trial_free(&t);
    free(e);
    free(back);
}

static void test_heat_levels(void **state)
{
    (void)state;
    assert_int_equal(kvg_heat_level(0.0), '0');
    assert_int_equal(kvg_heat_level(1.0), '0');
    assert_int_equal(kvg_heat_level(1.5), '1');
    assert_int_equal(kvg_heat_level(2.0), '2');
    assert_int_equal(kvg_heat_level(255.0), '8');
    assert_int_equal(kvg_heat_level(256.0), '9');
    assert_int_equal(kvg_heat_level(1e30), '9');
    assert_int_equal(kvg_heat_level(INFINITY), 'N');
    assert_int_equal(kvg_heat_level(NAN), 'N');
}

static void test_block(void **state)
{
    (void)state;
    struct kvg_row row;
    struct kvg_evidence *e = calloc(1, sizeof *e);
    char *text = NULL, *printed = NULL;
    size_t size;
    assert_int_equal(kvg_row_init(&row), 0);
    strcpy(e->run, "the first run");
    strcpy(e->checks[0].name, "bound");
    e->n_checks = e->n_worst = 1;
    e->checks[0].failed = 3;
    e->checks[0].of = 512;
    e->checks[0].at = e->worst[0].at = (struct kvg_evidence_place){1, 0, 5, 17};
    e->checks[0].got = e->worst[0].got = 0.5;
    e->checks[0].reference = e->worst[0].reference = 0.25;
    e->checks[0].allowed = e->worst[0].allowed = 0.125;
    e->checks[0].ratio = e->worst[0].ratio = 2.0;
    e->heat.down = 2;
    e->heat.across = 3;
    e->heat.heads = 8;
    strcpy(e->heat.across_words, "3 sequences");
    strcpy(e->heat.cell[0], "0-0");
    strcpy(e->heat.cell[1], "02N");
    text = kvg_evidence_to_text(e);
    kvg_row_set_string(&row.evidence, text);
    kvg_row_set_string(&row.suspected, "mask");
    kvg_row_set_string(&row.suspicion, "the window is ignored");
    for (int unicode = 0; unicode < 2; unicode++) {
        const struct kvg_failure_style style = {.colour = 0, .unicode = unicode};
        FILE *out = open_memstream(&printed, &size);
        kvg_failure_print(out, &row, &style);
        fclose(out);
        assert_non_null(strstr(printed, "bound     3 of 512, worst: 0.5, reference 0.25 +- 0.125\n"));
        assert_non_null(strstr(printed, "2 times the allowed error, at sequence 1 query 0 head 5 dim 17\n"));
        assert_non_null(strstr(printed, "map of 8 heads (down) and 3 sequences (across)\n"));
        assert_non_null(strstr(printed, unicode ? "0-3  \u00b7 \u00b7\n" : "0-3  . .\n"));
        assert_non_null(strstr(printed, unicode ? "4-7  \u00b7\u2582N\n" : "4-7  .2N\n"));
        assert_non_null(strstr(printed, "suspected mask: the window is ignored\n"));
        assert_null(strchr(printed, '\033'));
        free(printed);
    }
    free(text);
    free(e);
    kvg_row_free(&row);
}

/* ---------------------------------------------------------------- store */

static void store_case(struct kvg_prepared *p, enum kvg_layout layout)
{
    static const struct values values = {1.5, 1.0, 1.0, K_NORMAL, V_NORMAL, SCALE_ABSMAX_448};
    struct kvg_case c = plain_case();
    struct kvg_error error = {0};
    c.phase = KVG_PHASE_STORE;
    c.path = KVG_PATH_NONE;
    c.layout = layout;
    c.q_len = c.context;
    if (kvg_prepared_make(&c, NULL, p, &error) != 0)
        fail_msg("%s", error.text);
    give_values(p, &values, 7);
}

static enum kvg_fault_class named(const struct kvg_prepared *p, const uint8_t *k, const uint8_t *v)
{
    struct kvg_diagnosis d;
    kvg_diagnose_store(p, k, v, KVG_RUN_FIRST, &d);
    return d.suspected;
}

/* Wrong stores, made from the right one. */
static void test_stores_are_named(void **state)
{
    (void)state;
    struct kvg_prepared p;
    store_case(&p, KVG_NHD);
    const size_t bytes = (size_t)p.cache_elements;
    const int64_t dim = p.problem.head_dim, heads = p.problem.kv_heads;
    uint8_t *k = malloc(bytes), *v = malloc(bytes);
    const uint8_t *right_k = p.k_pages.data, *right_v = p.v_pages.data;
    assert_non_null(k);
    assert_non_null(v);
    assert_int_equal(named(&p, right_k, right_v), KVG_FAULT_UNKNOWN);
    assert_int_equal(named(&p, right_v, right_k), KVG_FAULT_LAYOUT);
    /* scale 1 */
    memcpy(k, right_k, bytes);
    memcpy(v, right_v, bytes);
    for (int64_t i = 0; i < p.total_kv; i++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t d = 0; d < dim; d++)
                v[(p.slot_mapping[i] * heads + h) * dim + d] =
                    kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_bf16_decode(p.v[(i * heads + h) * dim + d]));
    assert_int_equal(named(&p, k, v), KVG_FAULT_SCALE_DROPPED);
    /* rounded towards zero: one code less where the right code is above the quotient */
    memcpy(v, right_v, bytes);
    for (int64_t i = 0; i < p.total_kv; i++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t d = 0; d < dim; d++) {
                uint8_t *code = &v[(p.slot_mapping[i] * heads + h) * dim + d];
                const float x = kvg_ref_bf16_decode(p.v[(i * heads + h) * dim + d]) / p.v_scale[h];
                *code -= fabsf(kvg_ref_fp8_decode(KVG_REF_E4M3, *code)) > fabsf(x);
            }
    assert_int_equal(named(&p, k, v), KVG_FAULT_ENCODING);
    /* the last token is not stored, then one dim of all tokens */
    memcpy(v, right_v, bytes);
    memset(v + p.slot_mapping[p.total_kv - 1] * heads * dim, 0x7f, (size_t)(heads * dim));
    memset(k + p.slot_mapping[p.total_kv - 1] * heads * dim, 0x7f, (size_t)(heads * dim));
    assert_int_equal(named(&p, k, v), KVG_FAULT_NOT_WRITTEN);
    memcpy(k, right_k, bytes);
    memcpy(v, right_v, bytes);
    for (int64_t i = 0; i < p.total_kv * heads; i++)
        k[(p.slot_mapping[i / heads] * heads + i % heads) * dim + dim - 1] = 0x7f;
    assert_int_equal(named(&p, k, v), KVG_FAULT_HEAD_DIM);
    /* a slot that no token owns */
    memcpy(k, right_k, bytes);
    char *owned = calloc((size_t)(p.num_blocks * p.problem.block_size), 1);
    int64_t free_slot = 0;
    for (int64_t i = 0; i < p.total_kv; i++)
        owned[p.slot_mapping[i]] = 1;
    while (owned[free_slot])
        free_slot++;
    free(owned);
    k[free_slot * heads * dim + 3] = 0;
    assert_int_equal(named(&p, k, v), KVG_FAULT_PAGE_TAIL);
    free(k);
    free(v);
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_are_named),
        cmocka_unit_test(test_facts_of_the_run),
        cmocka_unit_test(test_heat_levels),
        cmocka_unit_test(test_evidence_says_what_the_row_says),
        cmocka_unit_test(test_block),
        cmocka_unit_test(test_stores_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
