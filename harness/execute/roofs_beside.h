/* SPDX-License-Identifier: Apache-2.0
 *
 * roofs_beside.h: roofs measured next to a timed case, in the columns of its row.
 */
#ifndef KVG_HARNESS_ROOFS_BESIDE_H
#define KVG_HARNESS_ROOFS_BESIDE_H

#include "execution.h"

/* Measures the roofs of where the kernel runs. Where the row has a roof already, the higher value stays. The
 * linear roofs may be as old as KVG_ROOF_AGE, unless `again`. */
void kvg_roofs_take(struct kvg_execution *x, int again);
/* On a device: reads the case's pages alone, where it has any. The highest of all measurements stays in the
 * row. */
void kvg_roofs_take_gather(struct kvg_execution *x);

#endif
