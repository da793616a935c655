/* SPDX-License-Identifier: Apache-2.0
 *
 * slow.c: the right kernel, followed by a wait for a share of the time that it took.
 */
#include <stdint.h>
#include <time.h>

#include "mutant.h"

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* In seconds. A call that begins sooner after the last one was not preceded by an eviction of the caches. */
#define AT_ONCE 20e-6

int mutant_slow_attention(enum mutant_slow slow, const struct kvg_attention_args *a)
{
    static const struct mutant right = {FAULT_none_attention, WHERE_BOTH};
    static double last_end;
    static int64_t calls[SLOW_COUNT];
    const double begin = seconds_now();
    const int code = mutant_attention(&right, a), at_once = begin - last_end < AT_ONCE;
    const double took = seconds_now() - begin;
    double share = 0.0;
    calls[slow]++;
    if (slow == SLOW_slow_odd_lengths && a->problem->max_seq_len % 2)
        share = 0.1;
    if (slow == SLOW_slow_when_hot && at_once)
        share = 0.3;
    if (slow == SLOW_slow_one_in_20 && calls[slow] % 20 == 0)
        share = 2.0;
    if (slow == SLOW_slow_ever_more)
        share = 1e-3 * (double)calls[slow];
    while (seconds_now() < begin + (1.0 + share) * took)
        ;
    last_end = seconds_now();
    return code;
}
