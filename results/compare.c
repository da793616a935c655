/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.c: see compare.h.
 */
#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int kvg_is_noisy(const struct kvg_row *row)
{
    return (row->time_q3 - row->time_q1) / row->time_median > KVG_NOISY;
}

double kvg_whole_time(const struct kvg_row *row)
{
    const int apart = strcmp(row->path, "fp8") == 0 && isfinite(row->time_quantize_q);
    return row->time_median + (apart ? row->time_quantize_q : 0.0);
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median_of(const float *sorted, int64_t n)
{
    return n % 2 ? sorted[n / 2] : ((double)sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* The largest r for which the r smallest and the r largest of n samples may be left out: the median of the
 * distribution lies outside the rest with a probability of at most `risk`. -1 if there is none. Each end is
 * missed when at most r of n fair coins fall on one side. */
static int64_t ranks_left_out(int64_t n, double risk)
{
    double term = -(double)n * log(2.0), sum = 0; /* logarithm of the probability of i heads */
    for (int64_t i = 0; i <= n; i++) {
        sum += exp(term);
        if (2 * sum > risk)
            return i - 1;
        term += log((double)(n - i) / (double)(i + 1));
    }
    return -1;
}

/* Ends of the interval of the median; NaN with too few samples. */
static int median_interval(const struct kvg_row *row, double risk, double ends[2])
{
    const int64_t n = row->time_samples ? row->n_samples_kept : 0;
    const int64_t out = n > 0 ? ranks_left_out(n, risk) : -1;
    ends[0] = ends[1] = NAN;
    if (out < 0)
        return 0;
    float *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted)
        return -1;
    memcpy(sorted, row->time_samples, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    const double more = kvg_whole_time(row) - row->time_median;
    ends[0] = sorted[out] + more;
    ends[1] = sorted[n - 1 - out] + more;
    free(sorted);
    return 0;
}

int kvg_ratio_make(const struct kvg_row *slow, const struct kvg_row *fast, struct kvg_ratio *out)
{
    /* Half of the risk for each of the two medians. */
    const double risk = (1 - KVG_CONFIDENCE) / 2;
    double a[2], b[2];
    if (median_interval(slow, risk, a) || median_interval(fast, risk, b))
        return -1;
    out->times = kvg_whole_time(slow) / kvg_whole_time(fast);
    out->low = a[0] / b[1];
    out->high = a[1] / b[0];
    out->margin = kvg_is_noisy(slow) || kvg_is_noisy(fast) ? KVG_NOISY_MARGIN : KVG_QUIET_MARGIN;
    return 0;
}

enum kvg_than kvg_ratio_says(const struct kvg_ratio *ratio)
{
    if (ratio->low > 1 + ratio->margin)
        return KVG_FASTER;
    if (ratio->high < 1 / (1 + ratio->margin))
        return KVG_SLOWER;
    const int close = ratio->low >= 1 / (1 + KVG_QUIET_MARGIN) && ratio->high <= 1 + KVG_QUIET_MARGIN;
    return close && ratio->margin <= KVG_QUIET_MARGIN ? KVG_EQUALLY_FAST : KVG_NOT_KNOWN;
}

enum { QUARTERS = 4 };

static double moves(const struct kvg_row *row, int minimum)
{
    const int64_t n = row->time_samples ? row->n_samples_kept : 0;
    double least = INFINITY, most = 0;
    if (n < 2 * QUARTERS || n > KVG_MAX_SAMPLES)
        return NAN;
    for (int q = 0; q < QUARTERS; q++) {
        float part[KVG_MAX_SAMPLES];
        const int64_t begin = n * q / QUARTERS, length = n * (q + 1) / QUARTERS - begin;
        memcpy(part, row->time_samples + begin, (size_t)length * sizeof *part);
        qsort(part, (size_t)length, sizeof *part, by_value);
        const double value = minimum ? part[0] : median_of(part, length);
        least = fmin(least, value);
        most = fmax(most, value);
    }
    return (most - least) / least;
}

double kvg_median_moves(const struct kvg_row *row)
{
    return moves(row, 0);
}

double kvg_minimum_moves(const struct kvg_row *row)
{
    return moves(row, 1);
}
