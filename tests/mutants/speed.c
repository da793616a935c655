/* SPDX-License-Identifier: Apache-2.0
 *
 * speed.c: see speed.h. The order is right kernel, mutant, right kernel. The ratio is to the mean of the two
 * right ones, so that a machine that changes its speed does not look like a slow kernel.
 */
#include "speed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/execute/execute.h"
#include "harness/execute/options.h"
#include "mutant.h"

static const struct {
    const char *name, *words;
} slow[] = {
#define SLOW(name, words) {#name, words},
#include "slow.def"
#undef SLOW
};

static const struct {
    const char *words;
    int64_t context;
    enum kvg_cache_state state;
} columns[] = {{"cold 1024", 1024, KVG_STATE_COLD},
               {"cold 1023", 1023, KVG_STATE_COLD},
               {"hot 1024", 1024, KVG_STATE_HOT},
               {"hot 1023", 1023, KVG_STATE_HOT}};

struct timing {
    double median, late; /* late: median of the second half of the samples over that of the first half */
    double slowest;      /* mean of the slowest tenth of the samples */
    int status;
};

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median(float *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n > 0 ? (double)x[n / 2] : NAN;
}

static struct timing time_kernel(struct kvg_session *session, const char *name, int column)
{
    struct kvg_run_options options;
    struct kvg_case c;
    struct kvg_row row;
    struct timing t = {NAN, NAN, NAN, KVG_SKIPPED};
    kvg_run_options_default(&options);
    options.min_time = 0.05;
    options.min_samples = 60;
    options.measure_roofs = 0;
    kvg_case_default(&c);
    snprintf(c.kernel, sizeof c.kernel, "mutant/%s", name);
    c.context = columns[column].context;
    c.cache_state = columns[column].state;
    c.q_heads = 4;
    c.kv_heads = 2;
    c.head_dim = 64;
    c.threads = 1;
    if (kvg_row_init(&row))
        return t;
    kvg_execute_in(session, &c, &options, &row, NULL);
    const int64_t n = row.n_samples_kept, half = n / 2, tenth = n / 10;
    t.status = (int)row.status;
    if (row.time_samples && tenth > 0) {
        const double first = median(row.time_samples, half);
        t.late = median(row.time_samples + half, n - half) / first;
        t.median = median(row.time_samples, n);
        t.slowest = 0.0;
        for (int64_t i = n - tenth; i < n; i++)
            t.slowest += (double)row.time_samples[i] / (double)tenth;
    }
    kvg_row_free(&row);
    return t;
}

void speed_report(void)
{
    enum { COLUMNS = sizeof columns / sizeof columns[0], MUTANTS = sizeof slow / sizeof slow[0] };
    struct kvg_session *session = kvg_session_new();
    puts("right but slow, not judged: time over that of the right kernel (median; slowest tenth; second half "
         "of the samples over the first)");
    printf("%-20s", "");
    for (int c = 0; c < COLUMNS; c++)
        printf(" %-18s", columns[c].words);
    putchar('\n');
    for (int m = 0; m < MUTANTS && session; m++) {
        printf("%-20s", slow[m].name);
        for (int c = 0; c < COLUMNS; c++) {
            const struct timing before = time_kernel(session, "none_attention", c);
            const struct timing t = time_kernel(session, slow[m].name, c);
            const struct timing after = time_kernel(session, "none_attention", c);
            if (t.status != KVG_PASSED && t.status != KVG_SUSPECT)
                printf(" %-18s", kvg_status_name((enum kvg_status)t.status));
            else
                printf(" %5.2f %5.2f %5.2f ", 2.0 * t.median / (before.median + after.median),
                       2.0 * t.slowest / (before.slowest + after.slowest), t.late);
            fflush(stdout);
        }
        printf(" %s\n", slow[m].words);
    }
    putchar('\n');
    kvg_session_free(session);
}
