/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: the two clocks of the harness. Times of kernels are taken with neither alone: see measure.h.
 */
#ifndef KVG_HARNESS_CLOCK_H
#define KVG_HARNESS_CLOCK_H

/* Seconds of CLOCK_MONOTONIC_RAW since an arbitrary start. */
double kvg_now(void);

/* The date, as ISO 8601 in UTC with a Z: "2026-11-29T17:20:05Z". "" when the system has no date. */
#define KVG_UTC_MAX 32
void kvg_utc_now(char text[KVG_UTC_MAX]);

#endif
