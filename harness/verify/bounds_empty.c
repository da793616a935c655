/* SPDX-License-Identifier: Apache-2.0
 *
 * bounds_empty.c: the lse of a row without a visible key.
 */
#include "bounds.h"

#include <math.h>

/* A kernel may have the sink in units of log2: a product with log2(e) and one with ln(2), each of a rounded
 * constant. */
#define SINK_ROUNDINGS 4.0

double kvg_bound_lse_empty(double sink)
{
    return isinf(sink) ? 0.0 : SINK_ROUNDINGS * KVG_U_F32 * (fabs(sink) + 1.0);
}

double kvg_bound_empty_ratio(double lse, double sink)
{
    if (isinf(sink))
        return lse == sink ? 0.0 : INFINITY;
    return kvg_bound_ratio(lse, sink, kvg_bound_lse_empty(sink));
}
