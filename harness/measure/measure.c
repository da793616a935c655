/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.c: measures how long one call takes.
 *
 * Warm-up calls show how long a sample takes. The number of samples follows from that, and Google Benchmark
 * takes exactly that many. The clock is read directly before and after the calls of a sample, so eviction,
 * checks and the library's own work are not timed.
 */
#include "measure.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_shim.h"
#include "results/row.h"
#include "harness/machine/clock.h"

/* Seconds from a to b. Seconds are subtracted as integers, because the difference of two large doubles would
 * lose digits. */
static double seconds_between(const struct timespec *a, const struct timespec *b)
{
    return (double)(b->tv_sec - a->tv_sec) + 1e-9 * (double)(b->tv_nsec - a->tv_nsec);
}

double kvg_timer_floor(void)
{
    enum { TRIES = 1000 };
    double tries[TRIES];
    for (int i = 0; i < TRIES; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC_RAW, &a);
        clock_gettime(CLOCK_MONOTONIC_RAW, &b);
        tries[i] = seconds_between(&a, &b);
    }
    gsl_sort(tries, 1, TRIES);
    return gsl_stats_median_from_sorted_data(tries, 1, TRIES);
}

/* State of the callbacks of bench_shim.h. */
struct sampler {
    const struct kvg_measurement *m;
    int64_t batch;                    /* number of calls of a sample */
    int call_error;                   /* KVG_E* of a failed call; else 0 */
    int clock_failed;                 /* 1: the clock's start or stop failed */
    int after_failed;                 /* 1: the check after a sample failed */
    int64_t calls;                    /* number of calls so far */
    double launches[KVG_MAX_SAMPLES]; /* host seconds per call of each sample; a ring */
    double cpu[KVG_MAX_SAMPLES];      /* CPU seconds per call of each sample; a ring like `launches` */
    int64_t n_launches;               /* samples of this round; the last KVG_MAX_SAMPLES are in the rings */
};

/* CPU seconds of all threads of this process. */
static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Makes the calls of a sample. Host seconds until the last call returned, or < 0 when one failed. */
static double call_batch(struct sampler *s)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC_RAW, &start);
    for (int64_t i = 0; i < s->batch; i++) {
        int error = s->m->call(s->m->context);
        if (error) {
            s->call_error = error;
            return -1;
        }
    }
    clock_gettime(CLOCK_MONOTONIC_RAW, &end);
    return seconds_between(&start, &end);
}

static double take_sample(void *context)
{
    struct sampler *s = context;
    const struct kvg_clock *clock = s->m->clock;
    double seconds, queued;
    if (s->after_failed)
        return -1;
    if (clock && clock->start(clock->context, s->m->hold)) {
        s->clock_failed = 1;
        return -1;
    }
    const double cpu = clock ? NAN : cpu_now();
    seconds = queued = call_batch(s);
    if (queued < 0)
        return -1;
    s->cpu[s->n_launches % KVG_MAX_SAMPLES] = clock ? NAN : (cpu_now() - cpu) / (double)s->batch;
    if (clock && clock->stop(clock->context, &seconds)) {
        s->clock_failed = 1;
        return -1;
    }
    s->calls += s->batch;
    s->launches[s->n_launches++ % KVG_MAX_SAMPLES] = queued / (double)s->batch;
    return seconds / (double)s->batch;
}

static void before_sample(void *context)
{
    struct sampler *s = context;
    if (s->m->evict)
        s->m->evict(s->m->context);
}

static void after_sample(void *context)
{
    struct sampler *s = context;
    if (s->m->after && s->m->after(s->m->context))
        s->after_failed = 1;
}

static int failure(const struct sampler *s, struct kvg_error *error)
{
    if (s->after_failed)
        return kvg_fail(error, KVG_EXIT_INCORRECT, "the check after a timed call failed");
    if (s->clock_failed)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "the clock of a timed call failed (%s)", s->m->clock->name);
    if (s->call_error)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "a timed call returned error %d", s->call_error);
    return kvg_fail(error, KVG_EXIT_TROUBLE, "Google Benchmark took no samples of %s", s->m->name);
}

/* From warm-up calls: seconds of a call, and wall seconds of a sample with eviction and check. */
struct pace {
    double call, wall;
};

/* The fastest of up to three calls, or of fewer when they take longer than min_time. The fastest, because a
 * time that is too long would plan too few samples. */
static int warm_up(struct sampler *s, struct pace *pace)
{
    double begin = kvg_now();
    pace->call = INFINITY;
    pace->wall = INFINITY;
    for (int i = 0; i < 3; i++) {
        double start = kvg_now();
        before_sample(s);
        double t = take_sample(s);
        if (t < 0)
            return -1;
        after_sample(s);
        pace->call = fmin(pace->call, t);
        pace->wall = fmin(pace->wall, kvg_now() - start);
        if (s->after_failed)
            return -1;
        if (kvg_now() - begin > s->m->min_time)
            break;
    }
    return 0;
}

static int64_t plan_samples(const struct kvg_measurement *m, const struct pace *pace)
{
    double wanted = ceil(1.02 * m->min_time / fmax(pace->call, 1e-9));
    double affordable = floor(KVG_WALL_PER_MIN_TIME * m->min_time / fmax(pace->wall, 1e-9));
    double n = fmin(fmin(wanted, affordable), (double)m->max_samples);
    return n > (double)m->min_samples ? (int64_t)n : m->min_samples;
}

static double sum(const double *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

/* Takes rounds of samples until one has enough of them. Earlier rounds are dropped, as Google Benchmark drops
 * its calibration. */
static int take_rounds(struct sampler *s, struct pace *pace, double *samples, int64_t *n,
                       struct kvg_error *error)
{
    const struct kvg_measurement *m = s->m;
    enum { ROUNDS = 3 };
    for (int round = 1;; round++) {
        char *report = NULL;
        s->n_launches = 0;
        struct kvg_bench bench = {.name = m->name,
                                  .samples = plan_samples(m, pace),
                                  .sample = take_sample,
                                  .before = before_sample,
                                  .after = after_sample,
                                  .context = s};
        int failed = kvg_bench_run(&bench, m->flags, samples, n, m->report ? &report : NULL);
        if (failed || s->after_failed) {
            free(report);
            return failure(s, error);
        }
        double mean = sum(samples, *n) / (double)*n;
        struct pace seen = {mean, fmax(pace->wall, mean)};
        int enough = plan_samples(m, &seen) <= *n || round == ROUNDS;
        if (enough) {
            if (m->report)
                *m->report = report;
            return 0;
        }
        free(report);
        *pace = seen;
    }
}

static void describe(const struct sampler *s, double floor_seconds, double median, char *method, size_t size)
{
    const struct kvg_clock *clock = s->m->clock;
    int length =
        snprintf(method, size, "%s (%s: %.0f ns), %lld call%s per sample",
                 clock ? clock->name : "CLOCK_MONOTONIC_RAW", clock ? "with no call" : "cost of reading it",
                 1e9 * floor_seconds, (long long)s->batch, s->batch == 1 ? "" : "s");
    double share = floor_seconds / (median * (double)s->batch);
    if (share * KVG_TRUSTED_FLOORS > 1 && length > 0 && (size_t)length < size)
        snprintf(method + length, size - (size_t)length, "; up to %.1f %% of the time is the clock's own",
                 100 * share);
}

static void tell(struct sampler *s)
{
    struct kvg_measured *out = s->m->measured;
    const int64_t n = s->n_launches < KVG_MAX_SAMPLES ? s->n_launches : KVG_MAX_SAMPLES;
    if (!out)
        return;
    struct kvg_summary cpu;
    kvg_summary_make(s->cpu, s->m->clock ? 0 : n, &cpu);
    *out = (struct kvg_measured){.calls = s->calls,
                                 .batch = s->batch,
                                 .launch = NAN,
                                 .cpu_median = cpu.median,
                                 .cpu_q1 = cpu.q1,
                                 .cpu_q3 = cpu.q3};
    if (s->m->clock && n > 0) {
        gsl_sort(s->launches, 1, (size_t)n);
        out->launch = gsl_stats_median_from_sorted_data(s->launches, 1, (size_t)n);
    }
}

int kvg_measure_calls_described(const struct kvg_measurement *m, double *samples, int64_t *n, char *method,
                                size_t size, struct kvg_error *error)
{
    struct sampler s = {.m = m, .batch = 1};
    struct pace pace;
    double clock_floor = m->clock ? m->clock->floor : kvg_timer_floor();
    *n = 0;
    if (m->report)
        *m->report = NULL;
    if (m->min_samples < 1 || m->max_samples < m->min_samples)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "min_samples %lld, max_samples %lld: min_samples must be at least 1, and "
                        "max_samples not less than min_samples",
                        (long long)m->min_samples, (long long)m->max_samples);
    if (warm_up(&s, &pace))
        return failure(&s, error);
    if (m->batch && pace.call < KVG_TRUSTED_FLOORS * clock_floor) {
        s.batch = (int64_t)ceil(2 * KVG_TRUSTED_FLOORS * clock_floor / fmax(pace.call, 1e-9));
        pace.wall = fmax(pace.wall, pace.call * (double)s.batch);
    }
    if (take_rounds(&s, &pace, samples, n, error))
        return -1;
    struct kvg_summary summary;
    kvg_summary_make(samples, *n, &summary);
    describe(&s, clock_floor, summary.median, method, size);
    tell(&s);
    return 0;
}

int kvg_measure_calls(const struct kvg_measurement *m, double *samples, int64_t *n, struct kvg_error *error)
{
    char method[160];
    return kvg_measure_calls_described(m, samples, n, method, sizeof method, error);
}

void kvg_summary_make(const double *samples, int64_t n, struct kvg_summary *out)
{
    *out = (struct kvg_summary){NAN, NAN, NAN, NAN, NAN};
    double *sorted = n > 0 ? malloc((size_t)n * 2 * sizeof *sorted) : NULL;
    if (!sorted)
        return;
    memcpy(sorted, samples, (size_t)n * sizeof *sorted);
    gsl_sort(sorted, 1, (size_t)n);
    out->median = gsl_stats_median_from_sorted_data(sorted, 1, (size_t)n);
    out->min = sorted[0];
    out->q1 = gsl_stats_quantile_from_sorted_data(sorted, 1, (size_t)n, 0.25);
    out->q3 = gsl_stats_quantile_from_sorted_data(sorted, 1, (size_t)n, 0.75);
    out->mad = gsl_stats_mad0(sorted, 1, (size_t)n, sorted + n); /* without the factor 1.4826 */
    free(sorted);
}
