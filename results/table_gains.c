/* SPDX-License-Identifier: Apache-2.0
 *
 * table_gains.c: the sentences below a speed table: from which context on each dtype and path is faster than
 * bf16. Said only where the samples show it (compare.h).
 */
#include <math.h>
#include <string.h>

#include "compare.h"
#include "table_parts.h"

int kvg_gains_note(struct kvg_gains *gains, const struct kvg_row *bf16, const struct kvg_row *row)
{
    struct kvg_gain *g = gains->list;
    char name[48];
    if (strcmp(row->phase, "store") == 0)
        snprintf(name, sizeof(name), "%.16s", row->kv_cache_dtype);
    else
        snprintf(name, sizeof(name), "%.16s on path %.12s", row->kv_cache_dtype, row->path);
    while (g < gains->list + gains->count && strcmp(g->name, name) != 0)
        g++;
    if (g == gains->list + KVG_MAX_GAINS)
        return 0;
    if (g == gains->list + gains->count) {
        memset(g, 0, sizeof(*g));
        snprintf(g->name, sizeof(g->name), "%s", name);
        g->faster_from = -1;
        gains->count++;
    }
    if (kvg_ratio_make(bf16, row, &g->ratio))
        return -1;
    const enum kvg_than says = kvg_ratio_says(&g->ratio);
    if (says != KVG_FASTER)
        g->faster_from = -1;
    else if (g->faster_from < 0)
        g->faster_from = row->context;
    g->longest = row->context;
    return 0;
}

static void say_not_known(struct kvg_table *t, const struct kvg_gain *g, const char *times,
                          const char *interval)
{
    if (!isfinite(g->ratio.low))
        kvg_table_say(
            t,
            "Not known whether %s is faster than auto (bf16) at context %lld: %s times as fast, but "
            "the rows keep too few samples to tell.",
            g->name, (long long)g->longest, times);
    else if (g->ratio.low < 1 && g->ratio.high > 1)
        kvg_table_say(t,
                      "Not known whether %s is faster than auto (bf16) at context %lld: %s times as fast%s.",
                      g->name, (long long)g->longest, times, interval);
    else
        kvg_table_say(t,
                      "Not known whether %s is faster than auto (bf16) at context %lld: %s times as fast%s, "
                      "and runs %s differ by %.0f %%.",
                      g->name, (long long)g->longest, times, interval,
                      g->ratio.margin > KVG_QUIET_MARGIN ? "as noisy as these" : "on a quiet machine",
                      100 * g->ratio.margin);
}

void kvg_gains_say(struct kvg_table *t, const struct kvg_gains *gains)
{
    for (int i = 0; i < gains->count; i++) {
        const struct kvg_gain *g = &gains->list[i];
        char c[3][KVG_CELL], interval[64];
        kvg_cell_fixed(g->ratio.times, 2, c[0]);
        snprintf(interval, sizeof(interval), " (99 %% interval %s to %s)",
                 kvg_cell_fixed(g->ratio.low, 2, c[1]), kvg_cell_fixed(g->ratio.high, 2, c[2]));
        switch (kvg_ratio_says(&g->ratio)) {
        case KVG_FASTER:
            kvg_table_say(t, "%s is faster than auto (bf16) from context %lld on, %s times at %lld%s.",
                          g->name, (long long)g->faster_from, c[0], (long long)g->longest, interval);
            break;
        case KVG_SLOWER:
            kvg_table_say(t, "%s is not faster than auto (bf16) at context %lld: %s times as fast%s.",
                          g->name, (long long)g->longest, c[0], interval);
            break;
        case KVG_EQUALLY_FAST:
            kvg_table_say(t, "%s is as fast as auto (bf16) at context %lld: %s times%s.", g->name,
                          (long long)g->longest, c[0], interval);
            break;
        case KVG_NOT_KNOWN:
            say_not_known(t, g, c[0], interval);
            break;
        }
    }
}

/* Which figure of the timed rows moves least between the quarters of their samples, as means over the rows. For
 * the CPU time there are quartiles only, which lie farther apart than medians of quarters do. */
void kvg_advise_figure(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    double median = 0, minimum = 0, cpu = 0;
    int64_t n = 0, with_cpu = 0;
    for (int64_t p = begin; p < end; p++) {
        const struct kvg_row *row = picks->picks[p].row;
        if (!isfinite(kvg_median_moves(row)))
            continue;
        median += kvg_median_moves(row);
        minimum += kvg_minimum_moves(row);
        n++;
        if (isfinite(row->cpu_time_median) && row->cpu_time_median > 0) {
            cpu += (row->cpu_time_q3 - row->cpu_time_q1) / row->cpu_time_median;
            with_cpu++;
        }
    }
    if (n == 0)
        return;
    char c[3][KVG_CELL];
    median *= 100 / (double)n;
    minimum *= 100 / (double)n;
    cpu = with_cpu == n ? 100 * cpu / (double)n : INFINITY;
    if (cpu < minimum && cpu < median)
        kvg_table_say(t,
                      "Steadiest here: the CPU time (column cpu_time_median; its quartiles are %s %% apart). "
                      "Between quarters of the samples the minimum moves by %s %%, the median by %s %%.",
                      kvg_cell_digits(cpu, 2, c[0]), kvg_cell_digits(minimum, 2, c[1]),
                      kvg_cell_digits(median, 2, c[2]));
    else
        kvg_table_say(t,
                      "Steadiest here: the %s. Between quarters of the samples the minimum moves by %s %%, "
                      "the median by %s %%.",
                      minimum < median ? "minimum (column time_min)" : "median",
                      kvg_cell_digits(minimum, 2, c[0]), kvg_cell_digits(median, 2, c[1]));
}
