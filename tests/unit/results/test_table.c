/* SPDX-License-Identifier: Apache-2.0
 *
 * test_table.c: the table of runs whose numbers are chosen by hand, so that the expected sentences follow by
 * simple arithmetic.
 */
#include "results/group.h"
#include "results/table.h"
#include "tests/unit/results_sample.h"

static void facts(struct kvg_results *results, int64_t capacity, double complete)
{
    memset(results, 0, sizeof(*results));
    results->rows = calloc((size_t)capacity, sizeof(*results->rows));
    assert_non_null(results->rows);
    assert_int_equal(kvg_facts_set_number(&results->run, "complete", complete), 0);
}

static struct kvg_row *add(struct kvg_results *results, const char *dtype, const char *scheme,
                           const char *calibration, int64_t layer, int64_t context)
{
    struct kvg_row *row = &results->rows[results->count++];
    char id[17];
    assert_int_equal(kvg_row_init(row), 0);
    snprintf(id, sizeof(id), "%08x00000000", (unsigned)results->count);
    int failed = kvg_row_set_string(&row->case_id, id) | kvg_row_set_string(&row->kernel, "cpu/x") |
                 kvg_row_set_string(&row->phase, "decode") | kvg_row_set_string(&row->path, "dequant") |
                 kvg_row_set_string(&row->kv_cache_dtype, dtype) | kvg_row_set_string(&row->scheme, scheme) |
                 kvg_row_set_string(&row->calibration, calibration) |
                 kvg_row_set_string(&row->input, layer < 0 ? "normal" : "model") |
                 kvg_row_set_string(&row->layout, "NHD") | kvg_row_set_string(&row->cache_state, "cold");
    assert_int_equal(failed, 0);
    row->status = KVG_PASSED;
    row->layer = layer;
    row->context = context;
    row->attempt = row->batch = row->threads = 1;
    row->q_heads = 32;
    row->kv_heads = 8;
    row->head_dim = 128;
    row->block_size = 16;
    return row;
}

static char *print_wide(const struct kvg_results *results, int all, int colour, int width)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    const struct kvg_table_options options = {.path = "f.h5", .all = all, .colour = colour, .width = width};
    assert_int_equal(kvg_table_print(out, results, &options), 0);
    assert_int_equal(fclose(out), 0);
    return text;
}

static char *print(const struct kvg_results *results, int all, int colour)
{
    return print_wide(results, all, colour, 0);
}

/* The text must hold `part`, line breaks counting as blanks. */
static void expect(const char *text, const char *part)
{
    char *flat = strdup(text);
    assert_non_null(flat);
    for (char *c = flat; (c = strstr(c, "\n  ")) != NULL;)
        memmove(c + 1, c + 3, strlen(c + 3) + 1), *c = ' ';
    if (!strstr(flat, part))
        fail_msg("'%s' is not in:\n%s", part, text);
    free(flat);
}

static void expect_not(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("'%s' is in:\n%s", part, text);
}

static void verdict_counts_what_ran(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 8, 1);
    char *text = print(&results, 0, 0);
    expect(text, "Nothing ran.");
    free(text);
    add(&results, "auto", "per_tensor", "none", -1, 1024)->status = KVG_SKIPPED;
    text = print(&results, 0, 0);
    expect(text, "Nothing ran. 1 skipped.");
    free(text);
    add(&results, "auto", "per_tensor", "none", -1, 1024);
    text = print(&results, 0, 0);
    expect(text, "The one row that ran passed. 1 skipped.");
    free(text);
    add(&results, "auto", "per_tensor", "none", -1, 1024)->status = KVG_TIMEOUT;
    add(&results, "auto", "per_tensor", "none", -1, 1024)->status = KVG_MISTRUSTED;
    add(&results, "auto", "per_tensor", "none", -1, 1024)->status = 99;
    text = print(&results, 0, 0);
    expect(text, "3 of 4 rows did not pass: 1 mistrusted, 1 timeout, 1 unknown. 1 passed. 1 skipped.");
    expect_not(text, "interrupted");
    free(text);
    assert_int_equal(kvg_facts_set_number(&results.run, "complete", 0), 0);
    text = print(&results, 0, 0);
    expect(text, "The run was interrupted");
    free(text);
    kvg_results_free(&results);
}

static void a_later_attempt_replaces_an_earlier_one(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 4, 1);
    add(&results, "auto", "per_tensor", "none", -1, 1024)->status = KVG_CRASHED;
    struct kvg_row *again = add(&results, "auto", "per_tensor", "none", -1, 1024);
    kvg_row_set_string(&again->case_id, results.rows[0].case_id);
    again->attempt = 2;
    char *text = print(&results, 0, 0);
    expect(text, "The one row that ran passed. 1 earlier attempt is not counted.");
    expect_not(text, "crashed");
    free(text);
    kvg_results_free(&results);
}

/* Layers 0 and 1 with errors a and 4a: geometric mean 2a. */
static void add_pair(struct kvg_results *results, const char *dtype, const char *scheme,
                     const char *calibration, double error)
{
    add(results, dtype, scheme, calibration, 0, 4096)->quant_rel_l2 = error / 2;
    add(results, dtype, scheme, calibration, 1, 4096)->quant_rel_l2 = error * 2;
    add(results, dtype, scheme, calibration, 1, 512)->quant_rel_l2 = 100; /* a shorter context is not shown */
}

static void close_calibrations_are_called_close(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 40, 1);
    add_pair(&results, "fp8_e4m3", "per_tensor", "none", 0.030);
    add_pair(&results, "fp8_e4m3", "per_tensor", "dataset", 0.0309);
    add_pair(&results, "fp8_e4m3", "per_head", "dataset", 0.01545);
    add_pair(&results, "fp8_e5m2", "per_tensor", "none", 0.060);
    results.rows[0].k_saturated = results.rows[0].v_saturated = 0.0;
    char *text = print(&results, 0, 0);
    expect(text, "input model, context 4096");
    expect(text, "fp8_e4m3     per_tensor none            1.50    6.00      3.00");
    expect(text, "geometric mean over 2 layers, from 8 rows");
    expect(text, "The calibrations of a dtype and scheme differ by at most 3.0 %:");
    expect(text, "per_head has 0.500 times the error of per_tensor, geometric mean of 1 pair of lines.");
    expect(text, "fp8_e5m2 has 2.00 times the error of fp8_e4m3, geometric mean of 1 pair of lines.");
    expect(text, "Scale 1.0 (calibration none) clips no value of K or V.");
    free(text);
    kvg_results_free(&results);
}

static void calibrations_apart_are_called_apart(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 40, 1);
    add_pair(&results, "fp8_e4m3", "per_tensor", "none", 0.3);
    add_pair(&results, "fp8_e4m3", "per_tensor", "random_tokens", 0.031);
    add_pair(&results, "fp8_e4m3", "per_tensor", "dataset", 0.03);
    results.rows[1].k_saturated = 0.125;
    char *text = print(&results, 0, 0);
    expect(text, "fp8_e4m3 per_tensor: dataset has the smallest error (3.00 %), none the largest (30.0 %, "
                 "10.0 times as "
                 "large).");
    expect_not(text, "hardly matters");
    expect(text, "clips up to 12 % of the values of K and 0 % of V.");
    free(text);
    kvg_results_free(&results);
}

static void only_passed_rows_count(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 40, 1);
    add_pair(&results, "fp8_e4m3", "per_tensor", "none", 0.03);
    for (int64_t i = 0; i < results.count; i++)
        results.rows[i].status = KVG_INCORRECT;
    char *text = print(&results, 0, 0);
    expect_not(text, "Quantisation error on real tensors");
    free(text);
    kvg_results_free(&results);
}

static void timed(struct kvg_row *row, double seconds)
{
    row->time_median = seconds;
    row->kv_bytes_per_second = 1e9 / seconds;
    row->pct_gather_roof = 80;
    row->pct_read_roof = 60;
    row->time_q1 = 0.995 * seconds;
    row->time_q3 = 1.005 * seconds;
    double samples[15]; /* their median is `seconds`, the second smallest and largest are 0.6 % from it */
    for (int i = 0; i < 15; i++)
        samples[i] = seconds * (1 + 0.001 * (i - 7));
    assert_int_equal(kvg_row_set_samples(row, samples, 15), 0);
}

static void speed_is_held_against_auto(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 16, 1);
    timed(add(&results, "auto", "per_tensor", "none", -1, 1024), 0.001);
    timed(add(&results, "auto", "per_tensor", "none", -1, 2048), 0.002);
    timed(add(&results, "auto", "per_tensor", "none", -1, 4096), 0.004);
    timed(add(&results, "fp8_e4m3", "per_tensor", "none", -1, 1024), 0.0011);
    timed(add(&results, "fp8_e4m3", "per_tensor", "none", -1, 2048), 0.0016);
    timed(add(&results, "fp8_e4m3", "per_tensor", "none", -1, 4096), 0.002);
    timed(add(&results, "fp8_e4m3", "per_tensor", "dataset", -1, 4096), 0.0025); /* slower: not shown */
    timed(add(&results, "fp8_e5m2", "per_tensor", "none", -1, 4096), 0.008);
    struct kvg_row *fast = add(&results, "auto", "per_tensor", "none", -1, 8192);
    timed(fast, 1e-9);
    fast->status = KVG_SUSPECT;
    char *text = print(&results, 0, 0);
    expect(
        text,
        "fp8_e4m3 on path dequant is faster than auto (bf16) from context 2048 on, 2.00 times at 4096 (99 % "
        "interval 1.98 to 2.02).");
    expect(text,
           "fp8_e5m2 on path dequant is not faster than auto (bf16) at context 4096: 0.50 times as fast "
           "(99 % interval 0.49 to 0.51).");
    expect(text, "2.00 ms");
    expect_not(text, "2.50 ms");
    expect(text, "1.00 ns       -        -      -      -? 00000009"); /* suspect: a time but no throughput */
    free(text);
    kvg_results_free(&results);
}

/* 1.01 times is within what runs differ by; with noise, even 1.2 times is. */
static void a_gain_that_noise_can_make_is_not_known(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 8, 1);
    timed(add(&results, "auto", "per_tensor", "none", -1, 1024), 0.00200);
    timed(add(&results, "fp8_e4m3", "per_tensor", "none", -1, 1024), 0.00196);
    timed(add(&results, "fp8_e5m2", "per_tensor", "none", -1, 1024), 0.00160);
    struct kvg_row *noisy = &results.rows[2];
    noisy->time_q3 = 1.3 * noisy->time_median;
    char *text = print(&results, 0, 0);
    expect(text,
           "Not known whether fp8_e4m3 on path dequant is faster than auto (bf16) at context 1024: 1.02 "
           "times as fast (99 % interval 1.01 to 1.03), and runs on a quiet machine differ by 2 %.");
    expect(text,
           "Not known whether fp8_e5m2 on path dequant is faster than auto (bf16) at context 1024: 1.25 "
           "times as fast (99 % interval 1.24 to 1.27), and runs as noisy as these differ by 30 %.");
    expect(text, "Steadiest here: the minimum (column time_min).");
    free(text);
    timed(&results.rows[1], 0.002); /* the interval holds 1, but noise hides whether both are equally fast */
    results.rows[1].time_q3 = 0.003;
    text = print(&results, 0, 0);
    expect(text,
           "Not known whether fp8_e4m3 on path dequant is faster than auto (bf16) at context 1024: 1.00 "
           "times as fast (99 % interval 0.99 to 1.01).");
    free(text);
    timed(&results.rows[1], 0.00196);
    free(results.rows[1].time_samples);
    results.rows[1].time_samples = NULL;
    results.rows[1].n_samples_kept = 0;
    text = print(&results, 0, 0);
    expect(text, "1.02 times as fast, but the rows keep too few samples to tell.");
    free(text);
    kvg_results_free(&results);
}

static void every_kernel_has_a_line(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 8, 1);
    timed(add(&results, "auto", "per_tensor", "none", -1, 1024), 0.002);
    struct kvg_row *slow = add(&results, "auto", "per_tensor", "none", -1, 1024);
    timed(slow, 0.008);
    assert_int_equal(kvg_row_set_string(&slow->kernel, "cpu/slow"), 0);
    timed(add(&results, "fp8_e4m3", "per_tensor", "none", -1, 1024), 0.001);
    slow = add(&results, "fp8_e4m3", "per_tensor", "none", -1, 1024);
    timed(slow, 0.004);
    assert_int_equal(kvg_row_set_string(&slow->kernel, "cpu/slow"), 0);
    char *text = print(&results, 0, 0);
    expect(text, "auto     dequant cpu/x                   2.00 ms     500       80     60   1.00  00000001");
    expect(text, "auto     dequant cpu/slow                8.00 ms     125       80     60   0.25  00000002");
    expect(text, "fp8_e4m3 dequant cpu/slow                4.00 ms     250       80     60   0.50  00000004");
    expect(text, "fp8_e4m3 on path dequant is faster than auto (bf16) from context 1024 on, 2.00 times");
    expect(text, "Several kernels: x auto and the sentences compare with the fastest kernel of auto");
    free(text);
    kvg_results_free(&results);
}

/* Quantising Q makes 1.0 ms out of 0.8 ms: a little slower than path dequant, as fast as half of bf16. */
static void quantising_q_counts(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 8, 1);
    timed(add(&results, "auto", "per_tensor", "none", -1, 1024), 0.002);
    struct kvg_row *row = add(&results, "fp8_e4m3", "per_tensor", "none", -1, 1024);
    timed(row, 0.0008);
    row->time_quantize_q = 0.0002;
    assert_int_equal(kvg_row_set_string(&row->path, "fp8"), 0);
    char *text = print(&results, 0, 0);
    expect(text, "time   with Q");
    expect(text, "  800 us  1.00 ms");
    expect(text, "  2.00  00000002");
    expect(text, "fp8_e4m3 on path fp8 is faster than auto (bf16) from context 1024 on, 2.00 times");
    free(text);
    text = print_wide(&results, 0, 0, 80);
    expect(text, "time + Q"); /* no room for two columns: the sum alone */
    expect(text, "cpu/x               1.00 ms");
    expect_not(text, "800 us");
    free(text);
    kvg_results_free(&results);
}

/* A ratio of seven characters fills its column. */
static void cells_are_never_glued(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 4, 1);
    struct kvg_row *row = add(&results, "fp8_e4m3", "per_tensor", "dataset", -1, 1024);
    row->n_checked = 1;
    row->bound_ratio_max = 0.00999;
    row->prob_ratio_max = 0.000123;
    char *text = print(&results, 0, 0);
    expect(text, "1      1 0.00999 0.000123");
    free(text);
    kvg_results_free(&results);
}

static void one_calibration_is_shown_too(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 4, 1);
    add(&results, "fp8_e4m3", "per_tensor", "dataset", -1, 1024)->quant_rel_l2 = 0.0255;
    char *text = print(&results, 0, 0);
    expect(text, "1. Quantisation error on synthetic inputs");
    expect(text,
           "normal                       -              -      2.55          -       -         -       -");
    expect_not(text, "Scale 1.0 loses");
    free(text);
    kvg_results_free(&results);
}

/* Four threads that two CPUs share. */
static void more_threads_than_cpus_are_marked(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 4, 1);
    assert_int_equal(kvg_facts_set_number(&results.machine, "cpus_allowed", 2), 0);
    struct kvg_row *row = add(&results, "auto", "per_tensor", "none", -1, 1024);
    timed(row, 0.001);
    row->threads = 2;
    char *text = print(&results, 0, 0);
    expect_not(text, "wait for each other");
    free(text);
    row->threads = 4;
    text = print(&results, 0, 0);
    expect(text, "! 4 threads on 2 CPUs: they wait for each other");
    free(text);
    kvg_results_free(&results);
}

static void predict(struct kvg_results *results, const char *accumulate, int64_t context, double low,
                    double high, double error)
{
    struct kvg_row *row = add(results, "fp8_e4m3", "per_tensor", "dataset", -1, context);
    assert_int_equal(kvg_row_set_string(&row->accumulate, accumulate), 0);
    assert_int_equal(kvg_row_set_string(&row->kernel, "predict/x"), 0);
    row->prediction = 1;
    row->n_checked = 8;
    row->gain_min = low;
    row->gain_max = high;
    row->kernel_rel_l2 = error;
}

/* One line per accumulator: one chain first, then by interval. The table shows the nine longest contexts and
 * the worst row of each cell. Predictions are not in the part about the kernels. */
static void predictions_have_a_part_of_their_own(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 20, 1);
    predict(&results, "hopper_two_level:16", 8192, 0.976, 0.978, 0.024);
    predict(&results, "hopper_two_level", 8192, 0.9991, 1.0004, 0.0017);
    predict(&results, "hopper", 131072, 0.35, 0.49, 0.58);
    predict(&results, "hopper", 131072, 0.40, 0.41, 0.61);
    for (int64_t context = 1024; context <= 1024 << 8; context *= 2)
        predict(&results, "hopper", context, 0.999, 1.25, 0.25);
    predict(&results, "hopper", 1000, 0.9, 0.9, 0.1);
    char *text = print_wide(&results, 0, 0, 120);
    expect(text, "1. Predicted, not measured");
    expect_not(text, "Correctness");
    expect(text,
           "gain                       1k      2k      4k      8k     16k     32k     64k    128k    256k");
    expect(text,
           "hopper                  1.250   1.250   1.250   1.250   1.250   1.250   1.250   0.350   1.250");
    expect(text,
           "hopper                   25.0    25.0    25.0    25.0    25.0    25.0    25.0    61.0    25.0");
    expect(text, "hopper_two_level            -       -       -   0.999       -");
    expect(text, "hopper_two_level:16         -       -       -   0.976       -");
    assert_true(strstr(text, "hopper_two_level  ") < strstr(text, "hopper_two_level:16"));
    expect(text, "Only the 9 longest contexts are shown.");
    free(text);
    text = print_wide(&results, 0, 0, 80); /* 47 columns before the contexts, 8 for each */
    expect(text, "gain                      32k     64k    128k    256k");
    expect(text, "Only the 4 longest contexts are shown; a wider terminal shows more.");
    free(text);
    kvg_results_free(&results);
}

static void problems_come_with_their_command(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 8, 1);
    for (int i = 0; i < 5; i++) {
        struct kvg_row *row = add(&results, "auto", "per_tensor", "none", -1, 1024);
        row->status = i < 3 ? KVG_SKIPPED : KVG_CRASHED;
        kvg_row_set_string(&row->reason, i < 3 ? "no such thing" : "signal 11");
        kvg_row_set_string(&row->repro, "kvgauge run --case 'x'");
    }
    char *text = print(&results, 0, 0);
    expect(text, "00000004 crashed: signal 11   kvgauge run --case 'x'");
    expect(text, "00000005 crashed: signal 11");
    expect(text, "00000001 skipped (3 rows): no such thing");
    expect_not(text, "00000002");
    free(text);
    text = print(&results, 1, 0);
    expect(text, "00000002 skipped: no such thing");
    expect(text, "Every row");
    free(text);
    kvg_results_free(&results);
}

/* Activities without a time are left out; without any time there is no line. */
static void the_last_line_says_where_time_went(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 4, 1);
    struct kvg_row *a = add(&results, "auto", "per_tensor", "none", -1, 1024);
    char *text = print(&results, 0, 0);
    expect_not(text, "preparing");
    free(text);
    struct kvg_row *b = add(&results, "auto", "per_tensor", "none", -1, 2048);
    add(&results, "auto", "per_tensor", "none", -1, 4096)->status = KVG_SKIPPED;
    a->seconds_prepare = 1.5;
    a->seconds_verify = 20;
    a->seconds_timing = 36.5;
    b->seconds_prepare = 12;
    b->seconds_verify = 0.5;
    text = print(&results, 1, 0);
    const char *last = "\nTime spent on 2 rows: 13.5 s preparing, 20.5 s verifying, 36.5 s timing\n";
    assert_true(strlen(text) > strlen(last));
    assert_string_equal(text + strlen(text) - strlen(last), last);
    free(text);
    a->seconds_quantise = 0.0042;
    text = print(&results, 0, 0);
    expect(text, "20.5 s verifying, 4.20 ms quantisation error, 36.5 s timing");
    free(text);
    kvg_results_free(&results);
}

static void colour_only_where_asked(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 4, 1);
    add(&results, "auto", "per_tensor", "none", -1, 1024);
    char *text = print(&results, 0, -1); /* a memory stream is no terminal */
    expect_not(text, "\033");
    free(text);
    text = print(&results, 0, 1);
    expect(text, "\033[1;32mThe one row that ran passed.\033[0m");
    free(text);
    kvg_results_free(&results);
}

/* Windowed and chunked rows have lines of their own, which say so, unless there are plain rows. */
static void memory_names_windows_and_masks(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 4, 1);
    for (int i = 0; i < 3; i++) {
        struct kvg_row *row = add(&results, "auto", "per_tensor", "none", -1, 32768);
        row->bytes_per_token = 4096;
        row->window = i == 2 ? 0 : 1024;
        assert_int_equal(kvg_row_set_string(&row->mask, i == 0 ? "causal" : "chunked:512"), 0);
    }
    char *text = print(&results, 0, 0);
    expect(text, "00000001  window 1024 ");
    expect(text, "00000002  window 1024  mask chunked:512 ");
    expect(text, "00000003  mask chunked:512 ");
    free(text);
    struct kvg_row *plain = add(&results, "auto", "per_tensor", "none", -1, 32768);
    plain->bytes_per_token = 4096;
    text = print(&results, 0, 0);
    expect_not(text, "  window 1024");
    free(text);
    kvg_results_free(&results);
}

/* Rows with awkward values do not crash the table. */
static void any_rows_can_be_printed(void **state)
{
    (void)state;
    struct kvg_results results;
    sample_results(&results, 60);
    char *text = print(&results, 1, 0);
    assert_true(strlen(text) > 0);
    free(text);
    kvg_results_free(&results);
}

static void filter_keeps_matches(void **state)
{
    (void)state;
    static const struct {
        const char *filter;
        int64_t left;
    } cases[] = {{"context=[12]", 2}, {"-context=[12]", 1}, {"^a", 3}, {"0000000200000000", 1},
                 {"-00000003", 2},    {"00000001", 1},      {"xyz", 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kvg_results results;
        struct kvg_error error = {0};
        facts(&results, 4, 1);
        for (int c = 1; c <= 3; c++) {
            char text[32];
            snprintf(text, sizeof(text), "a=b context=%d", c);
            kvg_row_set_string(&add(&results, "auto", "per_tensor", "none", -1, c)->case_string, text);
        }
        assert_int_equal(kvg_results_filter(&results, cases[i].filter, &error), 0);
        assert_int_equal(results.count, cases[i].left);
        assert_int_equal(kvg_results_filter(&results, "[", &error), -1);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        kvg_results_free(&results);
    }
}

static struct kvg_row *checked(struct kvg_results *results, const char *kernel, const char *same_bits)
{
    struct kvg_row *row = add(results, "fp8_e4m3", "per_tensor", "none", -1, 1024);
    row->n_checked = 128;
    assert_int_equal(kvg_row_set_string(&row->kernel, kernel), 0);
    assert_int_equal(kvg_row_set_string(&row->same_bits, same_bits), 0);
    return row;
}

/* Without the column nothing is said. One row with other bits decides for its kernel. */
static void bits_of_batches_and_chunks(void **state)
{
    (void)state;
    struct kvg_results results;
    facts(&results, 8, 1);
    checked(&results, "cpu/a", "");
    checked(&results, "cpu/b", "pages=differ heads=held");
    char *text = print(&results, 0, 0);
    expect_not(text, "bits");
    free(text);
    checked(&results, "cpu/a", "pages=held batch=held chunks=same");
    checked(&results, "cpu/b", "batch=same chunks=held");
    checked(&results, "cpu/c", "pages=held batch=broken");
    checked(&results, "cpu/b", "pages=held batch=differ chunks=same");
    text = print(&results, 0, 0);
    expect(text, "The same bits for a sequence alone and among others (column same_bits): cpu/a.");
    expect(text, "The bits of a sequence depend on the other sequences of the batch: cpu/b, cpu/c.");
    expect(text, "The same bits for query rows in one call and in two: cpu/a, cpu/b.");
    expect_not(text, "The bits of a query row");
    free(text);
    kvg_results_free(&results);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdict_counts_what_ran),
        cmocka_unit_test(a_later_attempt_replaces_an_earlier_one),
        cmocka_unit_test(bits_of_batches_and_chunks),
        cmocka_unit_test(close_calibrations_are_called_close),
        cmocka_unit_test(calibrations_apart_are_called_apart),
        cmocka_unit_test(only_passed_rows_count),
        cmocka_unit_test(speed_is_held_against_auto),
        cmocka_unit_test(a_gain_that_noise_can_make_is_not_known),
        cmocka_unit_test(every_kernel_has_a_line),
        cmocka_unit_test(quantising_q_counts),
        cmocka_unit_test(cells_are_never_glued),
        cmocka_unit_test(one_calibration_is_shown_too),
        cmocka_unit_test(more_threads_than_cpus_are_marked),
        cmocka_unit_test(predictions_have_a_part_of_their_own),
        cmocka_unit_test(problems_come_with_their_command),
        cmocka_unit_test(colour_only_where_asked),
        cmocka_unit_test(the_last_line_says_where_time_went),
        cmocka_unit_test(memory_names_windows_and_masks),
        cmocka_unit_test(any_rows_can_be_printed),
        cmocka_unit_test(filter_keeps_matches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
