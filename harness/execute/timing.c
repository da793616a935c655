/* SPDX-License-Identifier: Apache-2.0
 *
 * timing.c: times the calls of a case and fills the time columns of its row.
 */
#include "timing.h"

#include <math.h>
#include <stdlib.h>

#include "buffers.h"
#include "device_calls.h"
#include "harness/machine/clock.h"
#include "harness/machine/nvtx.h"
#include "options.h"
#include "roofs_beside.h"
#include "verdict.h"

static int keep_samples(struct kvg_row *row, const double *samples, int64_t n)
{
    row->time_samples = calloc((size_t)n, sizeof *row->time_samples);
    if (!row->time_samples)
        return -1;
    for (int64_t i = 0; i < n; i++)
        row->time_samples[i] = (float)samples[i];
    row->n_samples_kept = n;
    return 0;
}

void kvg_team_wake(int64_t threads)
{
    if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
        {
#pragma omp barrier
        }
    }
}

/* A row whose quartiles are further apart than this share of the median gets a remark: the machine was not
 * quiet. On a quiet machine the quartiles are a few percent of the median apart. */
#define NOISY 0.25
static void remark_noise(struct kvg_execution *x)
{
    double spread = (x->row->time_q3 - x->row->time_q1) / x->row->time_median;
    if (spread > NOISY)
        kvg_verdict_remark(
            x, "noisy: the quartiles are %.0f %% of the median apart; measure again on a quiet machine",
            100 * spread);
}

/* In a sample shorter than this many floors, most of the time is the clock's own cost. Hot samples are
 * longer, because short calls are batched until they take KVG_TRUSTED_FLOORS floors. */
#define LEAST_FLOORS 2.0
static void remark_floor(struct kvg_execution *x, const struct kvg_clock *clock, int64_t batch)
{
    if (x->row->time_median * (double)batch < LEAST_FLOORS * clock->floor)
        kvg_verdict_remark(
            x,
            "the time is not reliable: it is below %g times the %.2g us that the clock measures "
            "with no call",
            LEAST_FLOORS, 1e6 * clock->floor);
}

/* Fills the columns that only a device's clock has. */
static void tell_clock(struct kvg_execution *x, const struct kvg_clock *clock,
                       const struct kvg_measured *measured)
{
    x->row->time_floor = clock->floor;
    x->row->time_launch = measured->launch;
    remark_floor(x, clock, measured->batch);
}

/* The verdict after a measurement that failed. */
static int failed_to_time(struct kvg_execution *x, const struct kvg_error *error)
{
    const int is_check = error->exit_code == KVG_EXIT_INCORRECT;
    if (x->site.device && (x->calls->failed || x->site.device->lost))
        return kvg_verdict_of_device(x, "a timed call", NULL);
    if (x->row->status != KVG_PASSED && x->row->status != KVG_MISTRUSTED)
        return -1; /* the check after a sample has said why */
    if (x->site.device && x->site.device->error[0] && !is_check)
        return kvg_verdict(x, KVG_INCORRECT, "a timed call: %s", x->site.device->error);
    return kvg_verdict(x, KVG_INCORRECT, "%s", is_check ? KVG_TIMED_OUTPUT_DIFFERS : error->text);
}

static int tell_times(struct kvg_row *row, const double *samples, int64_t n, const char *method)
{
    struct kvg_summary summary;
    kvg_summary_make(samples, n, &summary);
    row->time_median = summary.median;
    row->time_min = summary.min;
    row->time_q1 = summary.q1;
    row->time_q3 = summary.q3;
    row->time_mad = summary.mad;
    row->n_samples = n;
    return kvg_row_set_string(&row->timing_method, method) || keep_samples(row, samples, n) ? -1 : 0;
}

/* Takes samples, with the clock of the device or CPU that runs the kernel. */
static int take_samples(struct kvg_execution *x, const struct kvg_measurement *asked)
{
    char method[256];
    double samples[KVG_MAX_SAMPLES];
    struct kvg_clock clock;
    struct kvg_measured measured = {.batch = 1, .cpu_median = NAN, .cpu_q1 = NAN, .cpu_q3 = NAN};
    struct kvg_measurement m = *asked;
    struct kvg_error error;
    int64_t n = 0;
    m.clock = kvg_calls_clock(x, &clock) ? NULL : &clock;
    m.measured = &measured;
    if (m.clock) {
        x->site.device->error[0] = '\0';
        x->site.device->ops->conditions_begin(x->site.device);
    }
    const double begin = kvg_now();
    const int failed = kvg_measure_calls_described(&m, samples, &n, method, sizeof method, &error);
    const double wall = kvg_now() - begin;
    const int told = failed ? 0 : tell_times(x->row, samples, n, method);
    if (m.clock) /* also after a failure, because this ends the observation of the device */
        kvg_calls_conditions(x, measured.calls, (double)measured.calls * x->row->time_median / wall);
    if (failed)
        return failed_to_time(x, &error);
    if (told)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for %lld samples", (long long)n);
    x->row->cpu_time_median = measured.cpu_median;
    x->row->cpu_time_q1 = measured.cpu_q1;
    x->row->cpu_time_q3 = measured.cpu_q3;
    remark_noise(x);
    if (m.clock)
        tell_clock(x, &clock, &measured);
    return 0;
}

int kvg_calls_time(struct kvg_execution *x, struct kvg_measurement *m)
{
    char name[KVG_CASE_STRING_MAX];
    kvg_case_format(x->c, name);
    m->name = name;
    m->min_time = x->options->min_time;
    m->max_samples = x->options->max_samples < KVG_MAX_SAMPLES ? x->options->max_samples : KVG_MAX_SAMPLES;
    m->min_samples = x->options->min_samples < m->max_samples ? x->options->min_samples : m->max_samples;
    m->flags = x->options->benchmark_flags;
    m->report = x->report;
    if (x->site.device && x->options->measure_roofs)
        kvg_roofs_take_gather(x); /* and again after the calls, because a disturbed roof is too low */
    kvg_nvtx_push(name);
    const int failed = take_samples(x, m);
    kvg_nvtx_pop();
    m->name = NULL;
    if (kvg_call_restore(x, "a timed call") || failed)
        return -1;
    if (x->options->measure_roofs)
        kvg_roofs_take(x, 0);
    return 0;
}

double kvg_calls_time_apart(struct kvg_execution *x, int (*call)(void *), void *context)
{
    double samples[KVG_MAX_SAMPLES];
    struct kvg_summary summary;
    struct kvg_clock clock;
    int64_t n = 0;
    struct kvg_measurement m = {.name = "apart",
                                .clock = kvg_calls_clock(x, &clock) ? NULL : &clock,
                                .call = call,
                                .context = context,
                                .batch = 1,
                                .min_time = x->options->min_time / 20,
                                .min_samples = 5,
                                .max_samples = KVG_MAX_SAMPLES};
    const enum kvg_activity before = kvg_stopwatch_turn(&x->watch, KVG_TIMING);
    const int failed = kvg_measure_calls(&m, samples, &n, NULL);
    kvg_stopwatch_turn(&x->watch, before);
    if (failed)
        return NAN;
    kvg_summary_make(samples, n, &summary);
    return summary.median;
}
