/* SPDX-License-Identifier: Apache-2.0
 *
 * rates.h: from a median time to rates and shares of the roofs.
 */
#ifndef KVG_HARNESS_RATES_H
#define KVG_HARNESS_RATES_H

#include "harness/case/case.h"
#include "results/row.h"

/* Where the rates of a row come from. */
struct kvg_rating {
    const struct kvg_case *c;
    struct kvg_row *row; /* has time_median, bytes_moved, flops and the roofs */
    int on_device;
    int64_t cache_bytes; /* of the cache that a hot case may fit */
    /* Measures the roofs once more, linear ones too with `again`; NULL: no roofs were measured, and no time
     * is judged by them. */
    void (*take_roofs)(void *context, int again);
    void *context;
};

/* Fills rates and shares of roofs. A time that is shorter than the roofs allow makes the row suspect, after
 * the roofs were measured again. Only a passed row gets a throughput. */
void kvg_rates_fill(const struct kvg_rating *r);

#endif
