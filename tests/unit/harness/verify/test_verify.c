/* SPDX-License-Identifier: Apache-2.0
 *
 * test_verify.c: wrong outputs are caught, each by the check that is meant for it; the sample covers what it
 * promises; stores are compared bit by bit; and what cannot be told is mistrusted. The wrong outputs come
 * from the scalar kernel of scalar_attention.h with one fault each.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "harness/verify/verify.h"
#include "harness/verify/sample.h"
#include "tests/unit/scalar_attention.h"

/* ---------------------------------------------------------------- a case and its kernel */

static struct kvg_arithmetic declaration;

static void declare(const struct kvg_problem *problem, int64_t seq_len, struct kvg_arithmetic *out)
{
    (void)problem;
    (void)seq_len;
    *out = declaration;
}

static const struct kvg_kernel stub = {.name = "test/scalar", .arithmetic = declare};

static struct kvg_case plain_case(void)
{
    struct kvg_case c;
    memset(&c, 0, sizeof c);
    strcpy(c.kernel, "test/scalar");
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

static struct scalar_kernel plain_kernel(enum kvg_path path)
{
    struct scalar_kernel k;
    memset(&k, 0, sizeof k);
    const enum kvg_dtype operand = path == KVG_PATH_FP8 ? KVG_E4M3 : KVG_BF16;
    k.lanes = 16;
    k.sum_per_tile = 1;
    k.declared.qk_operand = k.declared.pv_operand = operand;
    k.declared.qk_accumulator_bits = k.declared.pv_accumulator_bits = 24;
    k.declared.exp2_rel_error = 0x1p-22;
    k.declared.p_format = path == KVG_PATH_FP8 ? KVG_E4M3 : KVG_F32;
    k.declared.p_offset_log2 = path == KVG_PATH_FP8 ? 8 : 0;
    k.declared.tile = 64;
    k.declared.deterministic = 1;
    return k;
}

struct trial {
    struct kvg_prepared p;
    uint16_t *out;
    float *lse;
    struct kvg_row row;
};

static void trial_make(struct trial *t, const struct kvg_case *c, const struct values *values)
{
    struct kvg_error error = {0};
    if (kvg_prepare(c, NULL, &t->p, &error) != 0)
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

static void trial_free(struct trial *t)
{
    kvg_row_free(&t->row);
    free(t->out);
    free(t->lse);
    kvg_prepared_free(&t->p);
}

/* Judges t->out by the declaration of `kernel`. */
static void judge(struct trial *t, const struct kvg_arithmetic *declared, int with_lse)
{
    struct kvg_error error = {0};
    struct kvg_expectation *e;
    declaration = *declared;
    if (kvg_expectation_make(&t->p, &stub, 0, &e, &error) != 0 ||
        kvg_expectation_add_unquantised(e, &error) != 0 ||
        kvg_compare_attention(e, t->out, with_lse ? t->lse : NULL, &t->row, &error) != 0)
        fail_msg("%s", error.text);
    kvg_expectation_free(e);
}

static void run_kernel(struct trial *t, const struct scalar_kernel *k)
{
    scalar_attention(&t->p, k, t->out, t->lse);
    spoil(&t->p, k->fault, t->out, t->lse);
}

static int broke(const struct kvg_row *row, const char *check)
{
    char word[32];
    snprintf(word, sizeof word, "%s: ", check);
    const char *at = strstr(row->reason, word);
    return at && (at == row->reason || at[-1] == ' ');
}

/* ---------------------------------------------------------------- faults */

/* A fault, where it shows, and the check meant for it. */
struct seeded {
    enum fault fault;
    const char *name, *check;
    enum kvg_path path;
    enum kvg_phase phase;
    enum kvg_cache_dtype dtype;
    enum k_pattern k;
    enum v_pattern v;
    int64_t window, split;
    double soft_cap;
    int without_lse; /* 1: the kernel returns no lse, so the output alone must show it */
};

#define DEQ KVG_PATH_DEQUANT
#define FP8 KVG_PATH_FP8
#define DEC KVG_PHASE_DECODE
#define APP KVG_PHASE_APPEND
#define E4 KVG_CACHE_FP8_E4M3
static const struct seeded faults[] = {
    {FAULT_ZERO, "all zero", "probable", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_ZERO, "all zero", "probable", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_NEGATED, "negated", "probable", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_NEGATED, "negated", "probable", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_HEAD0_SCALES, "scales of head 0", "probable", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_HEAD0_SCALES, "scales of head 0", "probable", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_V_SCALE_MISSING, "v_scale missing", "gain", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_V_SCALE_MISSING, "v_scale missing", "gain", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_V_SCALE_TWICE, "v_scale twice", "gain", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_K_SCALE_MISSING, "k_scale missing", "lse", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 0},
    {FAULT_K_SCALE_MISSING, "k_scale missing", "probable", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_K_SCALE_TWICE, "k_scale twice", "lse", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 0},
    {FAULT_K_SCALE_TWICE, "k_scale twice", "probable", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_Q_SCALE_MISSING, "q_scale missing", "probable", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_SOFTMAX_SCALE, "softmax scale 5 % off", "lse", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 0},
    {FAULT_SOFTMAX_SCALE, "softmax scale 5 % off", "probable", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_SOFTMAX_SCALE, "softmax scale 5 % off", "probable", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_WINDOW_ONE_MORE, "window one key too long", "lse", DEQ, APP, E4, K_NORMAL, V_NORMAL, 128, 0, 0, 0},
    {FAULT_WINDOW_ONE_MORE, "window one key too long", "lse", FP8, APP, E4, K_NORMAL, V_NORMAL, 128, 0, 0, 0},
    {FAULT_WINDOW_ONE_MORE, "window one key too long", "probable", DEQ, APP, E4, K_NORMAL, V_NORMAL, 128, 0,
     0, 1},
    {FAULT_WINDOW_ONE_MORE, "window one key too long", "probable", FP8, APP, E4, K_NORMAL, V_NORMAL, 128, 0,
     0, 1},
    {FAULT_WINDOW_ONE_LESS, "window one key too short", "lse", FP8, APP, E4, K_NORMAL, V_NORMAL, 128, 64, 0,
     0},
    {FAULT_WINDOW_ONE_LESS, "window one key too short", "probable", FP8, APP, E4, K_NORMAL, V_NORMAL, 128, 64,
     0, 1},
    {FAULT_LAST_KEY_MISSED, "last key missed", "lse", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 0},
    {FAULT_LAST_KEY_MISSED, "last key missed", "probable", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_LAST_KEY_MISSED, "last key missed", "probable", FP8, APP, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_PAGE_TAIL_READ, "one slot past the end", "nonfinite", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0,
     1},
    {FAULT_CAUSAL_TOP_LEFT, "causal mask aligned top left", "lse", DEQ, APP, E4, K_NORMAL, V_NORMAL, 0, 0, 0,
     0},
    {FAULT_CAUSAL_TOP_LEFT, "causal mask aligned top left", "probable", FP8, APP, E4, K_NORMAL, V_NORMAL, 0,
     0, 0, 1},
    {FAULT_HEADS_SWAPPED, "query heads swapped", "probable", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_HEAD_MODULO, "KV head by modulo", "probable", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_GAIN, "gain 0.99", "gain", DEQ, DEC, E4, K_NORMAL, V_NONNEG, 0, 0, 0, 1},
    {FAULT_GAIN, "gain 0.99", "gain", FP8, DEC, E4, K_NORMAL, V_NONNEG, 0, 0, 0, 1},
    {FAULT_GAIN, "gain 0.99", "gain", FP8, APP, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_OFFSET, "offset", "offset", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_NAN, "one NaN", "nonfinite", FP8, APP, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
    {FAULT_LSE_LOG2, "lse to base 2", "lse", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 0},
    {FAULT_LSE_TRANSPOSED, "lse transposed", "lse", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 0},
    {FAULT_LSE_SCALE_MISSING, "lse keeps the offset of P", "lse", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0,
     0},
    {FAULT_EMPTY_SPLIT_NAN, "merge of empty splits", "nonfinite", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 100, 64,
     0, 1},
    {FAULT_E5M2_AS_E4M3, "e5m2 read as e4m3", "probable", DEQ, DEC, KVG_CACHE_FP8_E5M2, K_NORMAL, V_NORMAL, 0,
     0, 0, 1},
    {FAULT_RESCALE_FORGOTTEN, "one rescaling forgotten", "lse", DEQ, DEC, E4, K_RISING, V_NORMAL, 0, 0, 0, 0},
    {FAULT_RESCALE_FORGOTTEN, "one rescaling forgotten", "probable", FP8, DEC, E4, K_RISING, V_NORMAL, 0, 0,
     0, 1},
    {FAULT_SOFT_CAP_MISSING, "soft cap missing", "lse", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 5.0, 0},
    {FAULT_SOFT_CAP_MISSING, "soft cap missing", "probable", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 5.0, 1},
    {FAULT_SPLIT_DROPPED, "second split dropped", "lse", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 128, 0, 0},
    {FAULT_SPLIT_DROPPED, "second split dropped", "probable", DEQ, DEC, E4, K_NORMAL, V_NORMAL, 0, 128, 0, 1},
    {FAULT_P_NOT_OFFSET, "P without its offset", "probable", FP8, DEC, E4, K_NORMAL, V_NORMAL, 0, 0, 0, 1},
};

static void trial_of(struct trial *t, const struct seeded *s, struct scalar_kernel *k)
{
    struct kvg_case c = plain_case();
    struct values values = plain_values;
    values.k_pattern = s->k;
    values.v_pattern = s->v;
    c.path = s->path;
    c.phase = s->phase;
    c.kv_cache_dtype = s->dtype;
    c.window = s->window;
    c.soft_cap = s->soft_cap;
    c.q_len = s->phase == KVG_PHASE_DECODE ? 1 : 5;
    *k = plain_kernel(s->path);
    k->declared.split_tokens = s->split;
    k->fault = s->fault;
    trial_make(t, &c, &values);
}

static void test_faults_are_caught(void **state)
{
    (void)state;
    int missed = 0;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct trial t;
        struct scalar_kernel k;
        trial_of(&t, &faults[i], &k);
        run_kernel(&t, &k);
        judge(&t, &k.declared, !faults[i].without_lse);
        if (t.row.status != KVG_INCORRECT || !broke(&t.row, faults[i].check)) {
            missed++;
            print_error("%s (path %d%s): expected %s to break, got %s: %s\n", faults[i].name, faults[i].path,
                        faults[i].without_lse ? ", no lse" : "", faults[i].check,
                        kvg_status_name((enum kvg_status)t.row.status), t.row.reason);
        }
        /* The same case without the fault. */
        k.fault = FAULT_NONE;
        run_kernel(&t, &k);
        judge(&t, &k.declared, 1);
        if (t.row.status != KVG_PASSED) {
            missed++;
            print_error("%s without the fault: %s\n", faults[i].name, t.row.reason);
        }
        trial_free(&t);
    }
    assert_int_equal(missed, 0);
}

/* Zeros and a negated output of one case, where fixed tolerances accept them. */
enum sums { SUMS_FP32, SUMS_HALF, SUMS_NARROW };
static void reject_zeros(enum kvg_path path, int64_t context, enum sums sums)
{
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(path);
    struct values values = plain_values;
    struct trial t;
    c.path = path;
    c.context = context;
    c.batch = 1;
    c.q_heads = 2;
    c.kv_heads = 1;
    values.q = 1.0;
    if (sums == SUMS_HALF)
        declare_half(&k, HALF_QK | HALF_PV, 16, c.head_dim);
    if (sums == SUMS_NARROW) {
        k.narrow = 1;
        k.declared.qk_accumulator_bits = k.declared.pv_accumulator_bits = 14;
        k.declared.pv_flush_interval = k.declared.tile;
    }
    trial_make(&t, &c, &values);
    run_kernel(&t, &k);
    judge(&t, &k.declared, 1);
    if (t.row.status != KVG_PASSED)
        fail_msg("context %lld: %s", (long long)context, t.row.reason);
    static const double least[] = {50.0, 10.0, 1.0};
    if (!(t.row.zero_ratio > least[sums]))
        fail_msg("context %lld, sums %d: zeros get %g", (long long)context, sums, t.row.zero_ratio);
    spoil(&t.p, FAULT_NEGATED, t.out, t.lse);
    judge(&t, &k.declared, 0);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    assert_true(broke(&t.row, "probable"));
    const double promised = t.row.zero_ratio;
    spoil(&t.p, FAULT_ZERO, t.out, t.lse);
    judge(&t, &k.declared, 0);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    assert_true(broke(&t.row, "probable"));
    assert_true(broke(&t.row, "gain"));
    /* zero_ratio is what an all-zero output gets. */
    assert_true(fabs(t.row.prob_ratio_max / promised - 1.0) < 1e-12);
    trial_free(&t);
}

/* At every context up to a million keys, whatever the accumulators. */
static void test_zero_at_every_context(void **state)
{
    (void)state;
    static const int64_t contexts[] = {1, 17, 128, 1024, 8192, 32768, 131072, 1 << 20};
    const int64_t most = getenv("KVG_TEST_SANITIZED") ? 5 : 8;
    for (int64_t i = 0; i < most; i++) {
        reject_zeros(KVG_PATH_DEQUANT, contexts[i], SUMS_FP32);
        reject_zeros(KVG_PATH_FP8, contexts[i], SUMS_FP32);
        reject_zeros(KVG_PATH_DEQUANT, contexts[i], SUMS_HALF);
        reject_zeros(KVG_PATH_FP8, contexts[i], SUMS_NARROW);
    }
}

/* Hopper's FP8 accumulator on V >= 0, in one chain or flushed after each tile. */
static void judge_chain(int64_t context, int flushed, int honest, struct trial *t)
{
    struct kvg_case c = plain_case();
    struct values values = plain_values;
    struct scalar_kernel k = plain_kernel(KVG_PATH_FP8);
    c.path = KVG_PATH_FP8;
    c.context = context;
    c.batch = 1;
    c.q_heads = 2;
    c.kv_heads = 1;
    values.q = 1.0;
    values.v_pattern = V_NONNEG;
    k.declared.tile = 128;
    k.sum_per_tile = 1;
    k.narrow = flushed;
    k.fault = flushed ? FAULT_NONE : FAULT_ACCUMULATOR_13;
    trial_make(t, &c, &values);
    run_kernel(t, &k);
    if (flushed || honest) {
        k.declared.pv_accumulator_bits = k.declared.qk_accumulator_bits = 14;
        k.declared.pv_flush_interval = flushed ? 128 : 0;
    }
    judge(t, &k.declared, 1);
}

/* One chain shows in the gain, whatever the kernel declares, from a thousand keys on; two levels pass. */
static void test_narrow_accumulator(void **state)
{
    (void)state;
    struct trial t;
    for (int honest = 0; honest < 2; honest++) {
        judge_chain(8192, 0, honest, &t);
        assert_int_equal(t.row.status, KVG_INCORRECT);
        assert_true(broke(&t.row, "gain"));
        /* FlashAttention-3 with one level on an H200 keeps 0.869 at this length on such input. */
        assert_true(t.row.gain_min > 0.80 && t.row.gain_max < 0.93);
        assert_true(t.row.gain_limit < 0.0125);
        trial_free(&t);
        /* And 0.984 at this one. */
        judge_chain(1024, 0, honest, &t);
        assert_int_equal(t.row.status, KVG_INCORRECT);
        assert_true(broke(&t.row, "gain"));
        assert_true(t.row.gain_min > 0.97 && t.row.gain_max < 0.9875);
        trial_free(&t);
    }
    for (int64_t context = 128; context <= 8192; context *= 8) {
        judge_chain(context, 1, 1, &t);
        if (t.row.status != KVG_PASSED)
            fail_msg("two levels, context %lld: %s", (long long)context, t.row.reason);
        if (!(t.row.gain_min > 0.995 && t.row.gain_limit < 0.02))
            fail_msg("%lld %g %g", (long long)context, t.row.gain_min, t.row.gain_limit);
        trial_free(&t);
    }
}

/* The answer to other inputs of the same shape. */
static void test_stale_output(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct trial t;
    trial_make(&t, &c, &plain_values);
    run_kernel(&t, &k);
    give_values(&t.p, &plain_values, 999);
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    assert_true(broke(&t.row, "lse") && broke(&t.row, "probable"));
    trial_free(&t);
}

/* The reason names the element. */
static void test_reason_names_the_element(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct trial t;
    char place[64];
    trial_make(&t, &c, &plain_values);
    run_kernel(&t, &k);
    const int64_t head = 5, dim = 37, at = (t.p.cu_q_lens[1] * c.q_heads + head) * c.head_dim + dim;
    t.out[at] = kvg_ref_bf16_encode(1000.0f);
    judge(&t, &k.declared, 1);
    snprintf(place, sizeof place, "sequence 1 query 0 head %lld dim %lld", (long long)head, (long long)dim);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    assert_non_null(strstr(t.row.reason, place));
    assert_non_null(strstr(t.row.reason, "got 1000"));
    assert_non_null(strstr(t.row.reason, "1 of "));
    assert_int_equal(t.row.worst_index, at);
    trial_free(&t);
}

/* ---------------------------------------------------------------- what cannot be told */

static void test_zero_reference_is_mistrusted(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct values values = plain_values;
    struct trial t;
    values.v = 0.0;
    trial_make(&t, &c, &values);
    run_kernel(&t, &k);
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_MISTRUSTED);
    assert_non_null(strstr(t.row.reason, "zero everywhere"));
    /* But a value that is not zero is wrong all the same. */
    t.out[3] = kvg_ref_bf16_encode(1e-3f);
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    trial_free(&t);
}

/* Values that cancel, v of a key against that of its opposite, under weights that are almost equal: less is
 * left than two levels of 14 bits may be off by. FP32 has no such excuse. */
static void test_undefined_is_mistrusted(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct values values = plain_values;
    c.path = KVG_PATH_FP8;
    c.batch = 1;
    c.lengths = KVG_LENGTHS_UNIFORM;
    c.context = 512;
    values.q = 1e-3;
    values.v_pattern = V_NONNEG;
    for (int narrow = 0; narrow < 2; narrow++) {
        struct scalar_kernel k = plain_kernel(KVG_PATH_FP8);
        struct trial t;
        trial_make(&t, &c, &values);
        const int64_t width = c.kv_heads * c.head_dim;
        for (int64_t i = 0; i < c.context / 2 * width; i++)
            t.p.v[(c.context - 1 - i / width) * width + i % width] = t.p.v[i] ^ 0x8000u;
        fill_cache_from(&t.p, &t.p.v_pages, t.p.v_scale, t.p.v);
        if (narrow) {
            k.narrow = 1;
            k.declared.qk_accumulator_bits = k.declared.pv_accumulator_bits = 14;
            k.declared.pv_flush_interval = k.declared.tile;
        }
        run_kernel(&t, &k);
        judge(&t, &k.declared, 1);
        assert_int_equal(t.row.status, narrow ? KVG_MISTRUSTED : KVG_PASSED);
        if (narrow)
            assert_non_null(strstr(t.row.reason, "not defined"));
        else
            assert_true(t.row.zero_ratio > 1.0);
        trial_free(&t);
    }
}

/* A kernel that declares an accumulator of 4 bits has an element bound that zeros pass; the gain has not. */
static void test_generous_declaration_does_not_help(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct trial t;
    trial_make(&t, &c, &plain_values);
    run_kernel(&t, &k);
    k.declared.pv_accumulator_bits = 4;
    judge(&t, &k.declared, 1);
    assert_true(t.row.zero_ratio < 1.0);
    assert_int_equal(t.row.status, KVG_PASSED);
    spoil(&t.p, FAULT_ZERO, t.out, t.lse);
    judge(&t, &k.declared, 0);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    assert_true(broke(&t.row, "gain"));
    /* With an exponential that is good to a factor of two, nothing is left to judge by. */
    k.declared.exp2_rel_error = 0.5;
    judge(&t, &k.declared, 0);
    assert_int_equal(t.row.status, KVG_MISTRUSTED);
    trial_free(&t);
}

static void test_nonsense_declaration(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct kvg_error error = {0};
    struct kvg_expectation *e;
    struct trial t;
    trial_make(&t, &c, &plain_values);
    declaration = k.declared;
    declaration.pv_accumulator_bits = 0;
    assert_int_equal(kvg_expectation_make(&t.p, &stub, 0, &e, &error), -1);
    assert_null(e);
    assert_non_null(strstr(error.text, "pv_accumulator_bits"));
    assert_non_null(strstr(error.text, "test/scalar"));
    declaration = k.declared;
    declaration.exp2_rel_error = NAN;
    assert_int_equal(kvg_expectation_make(&t.p, &stub, 0, &e, &error), -1);
    assert_non_null(strstr(error.text, "exp2_rel_error"));
    trial_free(&t);
}

/* ---------------------------------------------------------------- empty rows */

static void test_empty_rows(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct trial t;
    c.batch = 4; /* ragged: sequence 2 is empty and has one query */
    trial_make(&t, &c, &plain_values);
    assert_int_equal(t.p.seq_lens[2], 0);
    run_kernel(&t, &k);
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_PASSED);
    assert_int_equal(t.row.n_checked, t.row.n_total);
    const int64_t row = t.p.cu_q_lens[2] * c.q_heads;
    t.out[row * c.head_dim + 1] = kvg_ref_bf16_encode(1e-20f);
    judge(&t, &k.declared, 1);
    assert_true(broke(&t.row, "empty"));
    t.out[row * c.head_dim + 1] = 0x8000; /* -0 is zero */
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_PASSED);
    t.lse[row] = 0.0f;
    judge(&t, &k.declared, 1);
    assert_true(broke(&t.row, "empty"));
    t.lse[row] = INFINITY;
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    k.fault = FAULT_EMPTY_NOT_WRITTEN;
    memset(t.out, 0xff, (size_t)(t.p.total_q * c.q_heads * c.head_dim) * sizeof *t.out);
    run_kernel(&t, &k);
    judge(&t, &k.declared, 0);
    assert_true(broke(&t.row, "nonfinite") && broke(&t.row, "empty"));
    trial_free(&t);
}

/* ---------------------------------------------------------------- the sample */

static void check_sample(const struct kvg_case *c, int64_t rows_limit, double cost_limit, int every_q_head)
{
    struct kvg_error error = {0};
    struct kvg_prepared p;
    struct kvg_sample sample;
    struct kvg_sample_marks marks[8] = {{0, 0}};
    if (kvg_prepare(c, NULL, &p, &error) != 0)
        fail_msg("%s", error.text);
    for (int64_t b = 0; b < c->batch; b++)
        marks[b].tile = 128;
    assert_int_equal(kvg_sample_rows(&p, marks, rows_limit, cost_limit, &sample), 0);
    const int64_t group = c->q_heads / c->kv_heads;
    int kv_seen[8][16] = {{0}}, q_seen[64] = {0};
    for (int64_t i = 0; i < sample.count; i++) {
        const struct kvg_ref_row *at = &sample.rows[i], *before = at - 1;
        assert_in_range(at->seq, 0, c->batch - 1);
        assert_true(at->q_index >= 0 && at->q_index < p.cu_q_lens[at->seq + 1] - p.cu_q_lens[at->seq]);
        assert_in_range(at->q_head, 0, c->q_heads - 1);
        assert_true(kvg_sample_visible(&p, at->seq, at->q_index) > 0);
        kv_seen[at->seq][at->q_head / group] = 1;
        q_seen[at->q_head] = 1;
        if (i > 0) /* sorted, no row twice */
            assert_true(at->seq > before->seq ||
                        (at->seq == before->seq &&
                         (at->q_head / group > before->q_head / group ||
                          (at->q_head / group == before->q_head / group &&
                           (at->q_index > before->q_index ||
                            (at->q_index == before->q_index && at->q_head > before->q_head))))));
    }
    int64_t guaranteed = 0;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t g = 0; g < c->kv_heads && p.seq_lens[b] > 0; g++, guaranteed++)
            assert_true(kv_seen[b][g]);
    for (int64_t h = 0; h < c->q_heads && every_q_head; h++)
        assert_true(q_seen[h]);
    if (rows_limit > 0)
        assert_true(sample.count <= (rows_limit > guaranteed ? rows_limit : guaranteed));
    kvg_sample_free(&sample);
    kvg_prepared_free(&p);
}

static void test_sample(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    c.batch = 5;
    check_sample(&c, 0, 1e9, 1);
    check_sample(&c, 1, 1e9, 0);
    check_sample(&c, 0, 1.0, 0);
    check_sample(&c, 25, 1e9, 0);
    c.phase = KVG_PHASE_PREFILL;
    c.q_len = c.context;
    c.q_heads = 16;
    c.kv_heads = 2;
    for (int64_t limit = 1; limit < 5000;
         limit = limit * 3 + 1) /* heads take turns: 8 of a group in 8 rows */
        check_sample(&c, limit, 1e12, limit > 5 * 2 * 8 * 2);
    check_sample(&c, 0, 1e7, 1);
}

/* First, last and boundary queries of a prefill are in; a small case is checked whole. */
static void test_sample_positions(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct kvg_error error = {0};
    struct kvg_prepared p;
    struct kvg_sample sample;
    const struct kvg_sample_marks marks[1] = {{128, 0}};
    int seen[4096] = {0};
    c.phase = KVG_PHASE_PREFILL;
    c.batch = 1;
    c.context = c.q_len = 4000;
    assert_int_equal(kvg_prepare(&c, NULL, &p, &error), 0);
    assert_int_equal(kvg_sample_rows(&p, marks, 40 * 8, 1e12, &sample), 0);
    assert_int_equal(sample.count, 40 * 8);
    for (int64_t i = 0; i < sample.count; i++)
        seen[sample.rows[i].q_index] = 1;
    /* keys 15, 16, 17 and 127, 128, 129 in number; likewise at the last boundary of both */
    static const int must[] = {0, 3999, 14, 15, 16, 126, 127, 128, 3998, 3966, 3967, 3968};
    for (size_t i = 0; i < sizeof must / sizeof must[0]; i++)
        assert_true(seen[must[i]]);
    kvg_sample_free(&sample);
    kvg_prepared_free(&p);
    c.context = c.q_len = 60;
    assert_int_equal(kvg_prepare(&c, NULL, &p, &error), 0);
    assert_int_equal(kvg_sample_rows(&p, marks, 0, 1e9, &sample), 0);
    assert_int_equal(sample.count, 60 * 8);
    kvg_sample_free(&sample);
    kvg_prepared_free(&p);
}

/* The row says how much was looked at, and unsampled rows may not be NaN either. */
static void test_counts_and_unsampled_nan(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct kvg_error error = {0};
    struct kvg_expectation *e;
    struct trial t;
    c.phase = KVG_PHASE_APPEND;
    c.batch = 1;
    c.q_len = 100;
    trial_make(&t, &c, &plain_values);
    run_kernel(&t, &k);
    declaration = k.declared;
    assert_int_equal(kvg_expectation_make(&t.p, &stub, 16, &e, &error), 0);
    assert_int_equal(kvg_compare_attention(e, t.out, t.lse, &t.row, &error), 0);
    assert_int_equal(t.row.status, KVG_PASSED);
    assert_int_equal(t.row.n_checked, 16 * 64);
    assert_int_equal(t.row.n_total, 100 * 8 * 64);
    for (int64_t i = 0; i < t.row.n_total; i += 997) {
        const uint16_t was = t.out[i];
        t.out[i] = 0x7f80; /* infinity */
        assert_int_equal(kvg_compare_attention(e, t.out, t.lse, &t.row, &error), 0);
        assert_int_equal(t.row.status, KVG_INCORRECT);
        assert_int_equal(t.row.nonfinite, 1);
        t.out[i] = was;
    }
    kvg_expectation_free(e);
    trial_free(&t);
}

/* ---------------------------------------------------------------- errors as numbers */

/* rel L2 figures against sums formed here from the FP64 oracle. */
static void test_error_columns(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_FP8);
    struct trial t;
    c.path = KVG_PATH_FP8;
    trial_make(&t, &c, &plain_values);
    run_kernel(&t, &k);
    judge(&t, &k.declared, 1);
    const int64_t rows = t.p.total_q * c.q_heads, d = c.head_dim;
    struct kvg_ref_row list[64];
    double *exact = malloc((size_t)(rows * d) * sizeof *exact),
           *plain = malloc((size_t)(rows * d) * sizeof *plain);
    struct kvg_ref_attention a;
    assert_non_null(exact);
    assert_non_null(plain);
    for (int64_t i = 0; i < rows; i++)
        list[i] = (struct kvg_ref_row){(int32_t)(i / c.q_heads), 0, (int32_t)(i % c.q_heads)};
    kvg_prepared_dequantised(&t.p, &a);
    assert_int_equal(kvg_ref_attention_f64(&a, list, rows, exact, NULL), 0);
    kvg_prepared_unquantised(&t.p, &a);
    assert_int_equal(kvg_ref_attention_f64(&a, list, rows, plain, NULL), 0);
    double kernel = 0, quant = 0, total = 0, exact_sq = 0, plain_sq = 0, most = 0;
    for (int64_t i = 0; i < rows * d; i++) {
        const double y = (double)kvg_ref_bf16_decode(t.out[i]);
        kernel += (y - exact[i]) * (y - exact[i]);
        quant += (exact[i] - plain[i]) * (exact[i] - plain[i]);
        total += (y - plain[i]) * (y - plain[i]);
        exact_sq += exact[i] * exact[i];
        plain_sq += plain[i] * plain[i];
        most = fmax(most, fabs(y - exact[i]));
    }
    assert_true(fabs(t.row.kernel_rel_l2 / sqrt(kernel / exact_sq) - 1) < 1e-4);
    assert_true(fabs(t.row.quant_rel_l2 / sqrt(quant / plain_sq) - 1) < 1e-4);
    assert_true(fabs(t.row.total_rel_l2 / sqrt(total / plain_sq) - 1) < 1e-4);
    assert_true(fabs(t.row.kernel_max_abs / most - 1) < 1e-4);
    assert_true(t.row.lse_max_abs < 1e-5);
    free(exact);
    free(plain);
    trial_free(&t);
}

/* ---------------------------------------------------------------- bit by bit */

static void test_store_bits(void **state)
{
    (void)state;
    static const enum kvg_cache_dtype dtypes[] = {KVG_CACHE_AUTO, KVG_CACHE_FP8_E4M3, KVG_CACHE_FP8_E5M2};
    for (int i = 0; i < 6; i++) {
        struct kvg_case c = plain_case();
        struct kvg_error error = {0};
        struct trial t;
        char words[160];
        c.kv_cache_dtype = dtypes[i % 3];
        c.scheme = KVG_PER_TENSOR;
        c.layout = i < 3 ? KVG_NHD : KVG_HND;
        trial_make(&t, &c, &plain_values);
        const int64_t bytes = kvg_dtype_bytes(t.p.problem.kv_dtype), n = t.p.cache_elements * bytes;
        uint8_t *k = malloc((size_t)n), *v = malloc((size_t)n);
        assert_non_null(k);
        assert_non_null(v);
        memcpy(k, t.p.k_cache, (size_t)n);
        memcpy(v, t.p.v_cache, (size_t)n);
        assert_int_equal(kvg_compare_store(&t.p, k, v, &t.row, &error), 0);
        assert_int_equal(t.row.status, KVG_PASSED);
        assert_int_equal(t.row.n_checked, 2 * t.p.cache_elements);
        /* Sequence 1, token 3, head 2, dim 9 of V, found through the block table. */
        const int64_t block = t.p.block_table[t.p.block_table_stride];
        const int64_t at =
            block * t.p.v_pages.stride_block + 3 * t.p.v_pages.stride_slot + 2 * t.p.v_pages.stride_head + 9;
        v[at * bytes] ^= 1;
        assert_int_equal(kvg_compare_store(&t.p, k, v, &t.row, &error), 0);
        snprintf(words, sizeof words,
                 "1 of %lld V codes differ, first at block %lld slot 3 (sequence 1 token 3) "
                 "head 2 dim 9",
                 (long long)t.p.cache_elements, (long long)block);
        assert_int_equal(t.row.status, KVG_INCORRECT);
        if (!strstr(t.row.reason, words))
            fail_msg("%s", t.row.reason);
        v[at * bytes] ^= 1;
        /* A slot past the end of sequence 0 must keep its poison. */
        const int64_t last = t.p.seq_lens[0], page = t.p.block_table[last / c.block_size];
        assert_true(last % c.block_size != 0);
        k[(page * t.p.k_pages.stride_block + last % c.block_size * t.p.k_pages.stride_slot) * bytes] = 0;
        assert_int_equal(kvg_compare_store(&t.p, k, v, &t.row, &error), 0);
        assert_int_equal(t.row.status, KVG_INCORRECT);
        assert_non_null(strstr(t.row.reason, "a slot that no token owns"));
        free(k);
        free(v);
        trial_free(&t);
    }
}

static void test_quantize_q_bits(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct kvg_error error = {0};
    struct trial t;
    c.path = KVG_PATH_FP8;
    c.phase = KVG_PHASE_APPEND;
    c.q_len = 3;
    trial_make(&t, &c, &plain_values);
    const int64_t n = t.p.total_q * c.q_heads * c.head_dim;
    uint8_t *q8 = malloc((size_t)n);
    assert_non_null(q8);
    memcpy(q8, t.p.q8, (size_t)n);
    assert_int_equal(kvg_compare_quantize_q(&t.p, q8, &t.row, &error), 0);
    assert_int_equal(t.row.status, KVG_PASSED);
    q8[((t.p.cu_q_lens[1] + 2) * c.q_heads + 5) * c.head_dim + 7] ^= 0x80;
    q8[n - 1] ^= 1;
    assert_int_equal(kvg_compare_quantize_q(&t.p, q8, &t.row, &error), 0);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    assert_non_null(strstr(t.row.reason, "2 of "));
    assert_non_null(strstr(t.row.reason, "sequence 1 query 2 head 5 dim 7"));
    free(q8);
    trial_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_are_caught),
        cmocka_unit_test(test_zero_at_every_context),
        cmocka_unit_test(test_narrow_accumulator),
        cmocka_unit_test(test_stale_output),
        cmocka_unit_test(test_reason_names_the_element),
        cmocka_unit_test(test_zero_reference_is_mistrusted),
        cmocka_unit_test(test_undefined_is_mistrusted),
        cmocka_unit_test(test_generous_declaration_does_not_help),
        cmocka_unit_test(test_nonsense_declaration),
        cmocka_unit_test(test_empty_rows),
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_sample_positions),
        cmocka_unit_test(test_counts_and_unsampled_nan),
        cmocka_unit_test(test_error_columns),
        cmocka_unit_test(test_store_bits),
        cmocka_unit_test(test_quantize_q_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
