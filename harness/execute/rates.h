/* SPDX-License-Identifier: Apache-2.0
 *
 * rates.h: computes rates and shares of the roofs from the median time of a row.
 */
#ifndef KVG_HARNESS_RATES_H
#define KVG_HARNESS_RATES_H

#include "harness/case/case.h"
#include "results/row.h"

/* The inputs of the rates of a row. */
struct kvg_rating {
    const struct kvg_case *c;
    struct kvg_row *row; /* has time_median, bytes_moved, flops and the roofs */
    int on_device;       /* 1: the kernel ran on a device; 0: on the CPU */
    int64_t cache_bytes; /* bytes of the cache that can hold a hot case */
    /* Measures the roofs again; with `again`, the linear roofs too. NULL: no roofs were measured, and the row
     * cannot become suspect. */
    void (*take_roofs)(void *context, int again);
    void *context; /* passed to take_roofs */
};

/* Fills rates and shares of roofs, for a passed row only. If the time is shorter than the roofs allow, and
 * still is after the roofs were measured again, the row becomes suspect. */
void kvg_rates_fill(const struct kvg_rating *r);

#endif
