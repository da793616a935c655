/* SPDX-License-Identifier: Apache-2.0
 *
 * rates.c: computes rates and shares of the roofs from the median time of a row.
 */
#include "rates.h"

#include <math.h>

#include "verdict.h"

/* A row is suspect above this many times the highest roof. The margin covers the scatter of the roofs. */
#define SUSPECT_ABOVE 1.05
enum { ROOF_TRIES = 3 };

/* The highest rate at which the bytes of the case can arrive. A hot case may come from the cache; a cold case
 * and a store come from memory. */
static double highest_byte_roof(const struct kvg_rating *r)
{
    const struct kvg_row *row = r->row;
    if (r->c->cache_state == KVG_STATE_HOT)
        return fmax(row->cache_roof, fmax(row->read_roof, row->gather_roof));
    if (r->c->phase == KVG_PHASE_STORE)
        return fmax(row->read_roof, row->copy_roof);
    return fmax(row->read_roof, row->gather_roof);
}

/* A bf16 dot product does twice the work of an FP32 FMA of the same width. */
static double highest_flop_roof(const struct kvg_rating *r)
{
#if defined(__x86_64__)
    if (!r->on_device && __builtin_cpu_supports("avx512bf16"))
        return 2 * r->row->flop_roof;
#endif
    return r->row->flop_roof;
}

/* Rate of the median over the highest roof. More than 1 is impossible for a right measurement. NaN if
 * unknown. */
static double excess(const struct kvg_rating *r, const char **which)
{
    const struct kvg_row *row = r->row;
    double bytes = (double)row->bytes_moved / row->time_median / highest_byte_roof(r);
    double flops = row->flops > 0 ? (double)row->flops / row->time_median / highest_flop_roof(r) : NAN;
    *which = bytes >= flops || isnan(flops) ? "bytes" : "flops";
    return fmax(bytes, flops);
}

/* 1 if a cold case is faster than the gather roof. Then the roof was measured while the machine was slow. */
static int beats_gather_roof(const struct kvg_rating *r)
{
    const struct kvg_row *row = r->row;
    return r->c->cache_state == KVG_STATE_COLD &&
           (double)row->bytes_moved / row->time_median > row->gather_roof;
}

/* Makes a row suspect whose rate is above the roofs. Other programs may have slowed down the measurement of
 * the roofs, so they are measured again first. */
static void judge_speed(const struct kvg_rating *r)
{
    const char *which = "";
    double ratio = excess(r, &which);
    for (int i = 1; i < ROOF_TRIES && (ratio > SUSPECT_ABOVE || beats_gather_roof(r)); i++) {
        r->take_roofs(r->context, ratio > SUSPECT_ABOVE);
        ratio = excess(r, &which);
    }
    if (!(ratio > SUSPECT_ABOVE))
        return;
    kvg_row_verdict(r->row, KVG_SUSPECT,
                    "%.2f times the highest roof for %s measured next to it, which is not possible", ratio,
                    which);
    kvg_row_suspect(r->row, KVG_FAULT_TIMING, "%s, or a kernel that leaves out work in timed calls",
                    r->c->cache_state == KVG_STATE_COLD
                        ? "inputs that stay in a cache although they were evicted"
                        : "a clock that does not wait for the end of the work");
}

/* The shortest time that the roofline model allows, in seconds. */
static double least_time(const struct kvg_rating *r)
{
    const struct kvg_row *row = r->row;
    double roof = row->read_roof;
    if (r->c->phase == KVG_PHASE_STORE)
        roof = row->copy_roof;
    if (r->c->cache_state == KVG_STATE_HOT && row->bytes_moved <= r->cache_bytes)
        roof = row->cache_roof;
    double bytes = (double)row->bytes_moved / roof;
    return row->flops > 0 ? fmax(bytes, (double)row->flops / row->flop_roof) : bytes;
}

static void throughput(const struct kvg_rating *r)
{
    struct kvg_row *row = r->row;
    int attention = r->c->phase != KVG_PHASE_STORE, cold = r->c->cache_state == KVG_STATE_COLD;
    row->kv_bytes_per_second = (double)row->bytes_moved / row->time_median;
    if (attention && row->flops > 0) {
        row->flops_per_second = (double)row->flops / row->time_median;
        row->pct_flop_roof = 100 * row->flops_per_second / row->flop_roof;
    }
    /* The read roofs do not limit a store, which also writes, nor a hot case, which reads the cache. */
    if (attention && cold) {
        row->pct_read_roof = 100 * row->kv_bytes_per_second / row->read_roof;
        row->pct_gather_roof = 100 * row->kv_bytes_per_second / row->gather_roof;
    }
    row->pct_roofline = 100 * least_time(r) / row->time_median;
}

void kvg_rates_fill(const struct kvg_rating *r)
{
    struct kvg_row *row = r->row;
    if (isnan(row->time_median) || row->time_median <= 0)
        return;
    if (r->take_roofs && row->status == KVG_PASSED)
        judge_speed(r);
    if (row->status == KVG_PASSED)
        throughput(r);
}
