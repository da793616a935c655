/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: a monotonic clock in seconds, and the date. Kernels are timed in measure.c, by a clock that keeps
 * more digits than a double of seconds.
 */
#ifndef KVG_HARNESS_CLOCK_H
#define KVG_HARNESS_CLOCK_H

/* Seconds of CLOCK_MONOTONIC_RAW since an arbitrary start. */
double kvg_now(void);

/* Date and time in UTC as ISO 8601: "2026-11-29T17:20:05Z". "" when the system time cannot be converted. */
#define KVG_UTC_MAX 32
void kvg_utc_now(char text[KVG_UTC_MAX]);

#endif
