/* SPDX-License-Identifier: Apache-2.0
 *
 * test_faults.c: wrong outputs are caught, each by the check that is meant for it, whatever the context and
 * the declared accumulators. The wrong outputs come from the kernel of scalar_attention.h with one fault
 * each.
 */
#include "tests/unit/verify_trial.h"

/* ---------------------------------------------------------------- faults */

/* A fault, the case that shows it, and the check meant for it. */
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

/* Zeros and a negated output are rejected in a case where fixed tolerances would accept them. */
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
    /* zero_ratio is the ratio that an all-zero output gets. */
    assert_true(fabs(t.row.prob_ratio_max / promised - 1.0) < 1e-12);
    trial_free(&t);
}

/* At every context, whatever the accumulators. A million keys take a minute: with KVG_TEST_LONG=1 (make nightly). */
static void test_zero_at_every_context(void **state)
{
    (void)state;
    static const int64_t contexts[] = {1, 17, 128, 1024, 8192, 32768, 131072, 1 << 20};
    const int64_t most = getenv("KVG_TEST_SANITIZED") ? 5 : getenv("KVG_TEST_LONG") ? 8 : 7;
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

/* From 1000 keys on, a single chain breaks the gain, whatever the kernel declares. Two levels pass. */
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

/* The output for other inputs of the same shape is rejected. */
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

/* A kernel that declares an accumulator of 4 bits has element bounds that zeros pass. The gain rejects them.
 * */
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
    /* With an exponential that may be off by a factor of two, no check can tell zeros from the right output.
     * */
    k.declared.exp2_rel_error = 0.5;
    judge(&t, &k.declared, 0);
    assert_int_equal(t.row.status, KVG_MISTRUSTED);
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
        cmocka_unit_test(test_generous_declaration_does_not_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
