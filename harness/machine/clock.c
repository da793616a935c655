/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.c: a monotonic clock in seconds, and the date.
 */
#include "clock.h"

#include <time.h>

double kvg_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void kvg_utc_now(char text[KVG_UTC_MAX])
{
    time_t now = time(NULL);
    struct tm utc;
    text[0] = '\0';
    if (gmtime_r(&now, &utc))
        strftime(text, KVG_UTC_MAX, "%Y-%m-%dT%H:%M:%SZ", &utc);
}
