/* SPDX-License-Identifier: Apache-2.0
 *
 * execute_rates.c: from samples to times, rates, and what they are worth against the roofs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execute.h"
#include "harness/machine/nvtx.h"

void kvg_count_work(struct kvg_execution *x)
{
    const struct kvg_prepared *p = &x->prepared;
    if (x->c->phase != KVG_PHASE_STORE) {
        x->row->bytes_moved = kvg_visible_kv_bytes(p);
        x->row->flops = kvg_visible_flops(p);
        return;
    }
    int64_t tokens = 0;
    for (int64_t i = 0; i < p->store_tokens; i++)
        tokens += p->slot_mapping[i] >= 0;
    int64_t element = kvg_dtype_bytes(p->problem.q_dtype) + kvg_dtype_bytes(p->problem.kv_dtype);
    x->row->bytes_moved = 2 * tokens * p->problem.kv_heads * p->problem.head_dim * element;
}

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

static double larger(double a, double b)
{
    return fmax(a, b); /* of a NaN and a number, the number */
}

/* The roofs next to the case; measured again, the higher of both counts. */
static void take_roofs(struct kvg_execution *x, int again)
{
    struct kvg_row *row = x->row;
    if (x->device) {
        kvg_device_roofs(x, again);
        return;
    }
    int64_t threads = x->prepared.problem.threads;
    if (again)
        kvg_meter_forget(x->session->meter);
    const struct kvg_roofs *roofs = kvg_meter_roofs(x->session->meter, threads);
    row->read_roof = larger(row->read_roof, roofs->read);
    row->copy_roof = larger(row->copy_roof, roofs->copy);
    row->cache_roof = larger(row->cache_roof, roofs->cache);
    row->flop_roof = larger(row->flop_roof, roofs->flops);
    if (x->c->phase != KVG_PHASE_STORE)
        row->gather_roof = larger(row->gather_roof, kvg_measure_gather_roof(&x->prepared, threads));
}

void kvg_wake_team(int64_t threads)
{
    if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
        {
#pragma omp barrier
        }
    }
}

/* Samples that scatter like this say more about the machine than about the kernel. The spread between the
 * quartiles of quiet runs is a few percent of the median. */
#define NOISY 0.25
static void remark_noise(struct kvg_execution *x)
{
    double spread = (x->row->time_q3 - x->row->time_q1) / x->row->time_median;
    if (spread > NOISY)
        kvg_remark(
            x, "noisy: half of the samples lie %.0f %% of the median apart; measure again on a quiet machine",
            100 * spread);
}

/* Below this many floors the clock's own cost is most of what it shows. A hot sample never is: short calls
 * are batched until they last KVG_TRUSTED_FLOORS. */
#define LEAST_FLOORS 2.0
static void remark_floor(struct kvg_execution *x, const struct kvg_clock *clock, int64_t batch)
{
    if (x->row->time_median * (double)batch < LEAST_FLOORS * clock->floor)
        kvg_remark(x,
                   "the time is not to be trusted: it is below %g times the %.2g us that the clock measures "
                   "around nothing",
                   LEAST_FLOORS, 1e6 * clock->floor);
}

/* What the clock of a device adds to a row. */
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
    if (x->device && (x->device_failed || x->device->lost))
        return kvg_verdict_of_device(x, "a timed call", NULL);
    if (x->row->status != KVG_PASSED && x->row->status != KVG_MISTRUSTED)
        return -1; /* the check after a sample has said why */
    if (x->device && x->device->error[0] && !is_check)
        return kvg_verdict(x, KVG_INCORRECT, "a timed call: %s", x->device->error);
    return kvg_verdict(x, KVG_INCORRECT, "%s", is_check ? KVG_TIMED_OUTPUT_DIFFERS : error->text);
}

static int tell_times(struct kvg_row *row, const double *samples, int64_t n, const char *method)
{
    struct kvg_summary summary;
    kvg_summarise(samples, n, &summary);
    row->time_median = summary.median;
    row->time_min = summary.min;
    row->time_q1 = summary.q1;
    row->time_q3 = summary.q3;
    row->time_mad = summary.mad;
    row->n_samples = n;
    return kvg_row_set_string(&row->timing_method, method) || keep_samples(row, samples, n) ? -1 : 0;
}

/* Samples on the clock of where the kernel runs. */
static int take_samples(struct kvg_execution *x, const struct kvg_measurement *asked)
{
    char method[256];
    double samples[KVG_MAX_SAMPLES];
    struct kvg_clock clock;
    struct kvg_measured measured = {.batch = 1};
    struct kvg_measurement m = *asked;
    struct kvg_error error;
    int64_t n = 0;
    m.clock = kvg_device_clock(x, &clock) ? NULL : &clock;
    m.measured = &measured;
    if (m.clock) {
        x->device->error[0] = '\0';
        x->device->ops->conditions_begin(x->device);
    }
    const double begin = kvg_now();
    const int failed = kvg_measure_described(&m, samples, &n, method, sizeof method, &error);
    const double wall = kvg_now() - begin;
    const int told = failed ? 0 : tell_times(x->row, samples, n, method);
    if (m.clock) /* whatever happened: the device's observer has to end */
        kvg_conditions(x, measured.calls, (double)measured.calls * x->row->time_median / wall);
    if (failed)
        return failed_to_time(x, &error);
    if (told)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for %lld samples", (long long)n);
    remark_noise(x);
    if (m.clock)
        tell_clock(x, &clock, &measured);
    return 0;
}

int kvg_time(struct kvg_execution *x, struct kvg_measurement *m)
{
    char name[KVG_CASE_STRING_MAX];
    kvg_case_format(x->c, name);
    m->name = name;
    m->min_time = x->options->min_time;
    m->max_samples = x->options->max_samples < KVG_MAX_SAMPLES ? x->options->max_samples : KVG_MAX_SAMPLES;
    m->min_samples = x->options->min_samples < m->max_samples ? x->options->min_samples : m->max_samples;
    m->flags = x->options->benchmark_flags;
    m->report = x->report;
    if (x->device && x->options->measure_roofs)
        kvg_device_gather_roof(x); /* and once more after: a roof measured in a bad moment is too low */
    kvg_nvtx_push(name);
    const int failed = take_samples(x, m);
    kvg_nvtx_pop();
    m->name = NULL;
    if (failed)
        return -1;
    if (x->options->measure_roofs)
        take_roofs(x, 0);
    return 0;
}

double kvg_time_apart(struct kvg_execution *x, int (*call)(void *), void *context)
{
    double samples[KVG_MAX_SAMPLES];
    struct kvg_summary summary;
    struct kvg_clock clock;
    int64_t n = 0;
    struct kvg_measurement m = {.name = "apart",
                                .clock = kvg_device_clock(x, &clock) ? NULL : &clock,
                                .call = call,
                                .context = context,
                                .batch = 1,
                                .min_time = x->options->min_time / 20,
                                .min_samples = 5,
                                .max_samples = KVG_MAX_SAMPLES};
    const enum kvg_activity before = kvg_stopwatch_turn(&x->watch, KVG_TIMING);
    const int failed = kvg_measure(&m, samples, &n, NULL);
    kvg_stopwatch_turn(&x->watch, before);
    if (failed)
        return NAN;
    kvg_summarise(samples, n, &summary);
    return summary.median;
}

static int fits_cache(const struct kvg_execution *x)
{
    return x->row->bytes_moved <= kvg_last_cache_bytes(x);
}

/* The highest rate at which the bytes of the case can come: beyond it a result is no result. A hot case that
 * fits the cache is held against the cache; a cold one, or one that is larger, against the memory. */
static double highest_byte_roof(const struct kvg_execution *x)
{
    const struct kvg_row *row = x->row;
    if (x->c->cache_state == KVG_STATE_HOT)
        return larger(row->cache_roof, larger(row->read_roof, row->gather_roof));
    if (x->c->phase == KVG_PHASE_STORE)
        return larger(row->read_roof, row->copy_roof);
    return larger(row->read_roof, row->gather_roof);
}

/* A bf16 dot product does twice the work of an FP32 FMA of the same width. */
static double highest_flop_roof(const struct kvg_execution *x)
{
#if defined(__x86_64__)
    if (!x->device && __builtin_cpu_supports("avx512bf16"))
        return 2 * x->row->flop_roof;
#endif
    return x->row->flop_roof;
}

/* How far beyond what the machine can do the median is: above 1 is impossible, NaN unknown. */
static double excess(const struct kvg_execution *x, const char **which)
{
    const struct kvg_row *row = x->row;
    double bytes = (double)row->bytes_moved / row->time_median / highest_byte_roof(x);
    double flops = row->flops > 0 ? (double)row->flops / row->time_median / highest_flop_roof(x) : NAN;
    *which = bytes >= flops || isnan(flops) ? "bytes" : "flops";
    return larger(bytes, flops);
}

#define SUSPECT_ABOVE 1.05
enum { ROOF_TRIES = 3 };

/* A roof that the case itself has passed was measured in a bad moment. */
static int beats_gather_roof(const struct kvg_execution *x)
{
    const struct kvg_row *row = x->row;
    return x->c->cache_state == KVG_STATE_COLD &&
           (double)row->bytes_moved / row->time_median > row->gather_roof;
}

/* A machine with neighbours may have been slower while the roofs were measured: only what stays beyond roofs
 * measured again is suspect. */
static void judge_speed(struct kvg_execution *x)
{
    const char *which = "";
    double ratio = excess(x, &which);
    for (int i = 1; i < ROOF_TRIES && (ratio > SUSPECT_ABOVE || beats_gather_roof(x)); i++) {
        take_roofs(x, ratio > SUSPECT_ABOVE);
        ratio = excess(x, &which);
    }
    if (!(ratio > SUSPECT_ABOVE))
        return;
    kvg_verdict(x, KVG_SUSPECT,
                "%.2f times the highest roof for %s measured next to it: faster than the machine can be",
                ratio, which);
    kvg_suspect(x, KVG_FAULT_TIMING, "%s, or work left out while it is timed",
                x->c->cache_state == KVG_STATE_COLD ? "inputs that stay in a cache although they were evicted"
                                                    : "a clock that does not wait for the end");
}

/* The time the roofline allows, in seconds. */
static double least_time(const struct kvg_execution *x)
{
    const struct kvg_row *row = x->row;
    double roof = row->read_roof;
    if (x->c->phase == KVG_PHASE_STORE)
        roof = row->copy_roof;
    if (x->c->cache_state == KVG_STATE_HOT && fits_cache(x))
        roof = row->cache_roof;
    double bytes = (double)row->bytes_moved / roof;
    return row->flops > 0 ? larger(bytes, (double)row->flops / row->flop_roof) : bytes;
}

static void throughput(struct kvg_execution *x)
{
    struct kvg_row *row = x->row;
    int attention = x->c->phase != KVG_PHASE_STORE, cold = x->c->cache_state == KVG_STATE_COLD;
    row->kv_bytes_per_second = (double)row->bytes_moved / row->time_median;
    if (attention && row->flops > 0) {
        row->flops_per_second = (double)row->flops / row->time_median;
        row->pct_flop_roof = 100 * row->flops_per_second / row->flop_roof;
    }
    /* A store reads and writes: the read roofs are not its limit. From the cache neither is the memory. */
    if (attention && cold) {
        row->pct_read_roof = 100 * row->kv_bytes_per_second / row->read_roof;
        row->pct_gather_roof = 100 * row->kv_bytes_per_second / row->gather_roof;
    }
    row->pct_roofline = 100 * least_time(x) / row->time_median;
}

void kvg_rate(struct kvg_execution *x)
{
    struct kvg_row *row = x->row;
    if (isnan(row->time_median) || row->time_median <= 0)
        return;
    if (x->options->measure_roofs && row->status == KVG_PASSED)
        judge_speed(x);
    if (row->status == KVG_PASSED)
        throughput(x);
}
