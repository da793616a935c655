/* SPDX-License-Identifier: Apache-2.0
 *
 * roofs_beside.h: measures the roofs next to a timed case and fills their columns of the row.
 */
#ifndef KVG_HARNESS_ROOFS_BESIDE_H
#define KVG_HARNESS_ROOFS_BESIDE_H

#include "execution.h"

/* Measures the roofs of the CPU or device that runs the kernel. If the row already has a roof, the higher
 * value stays. With `again` the linear roofs are measured now; otherwise they may be KVG_ROOF_AGE seconds
 * old. */
void kvg_roofs_take(struct kvg_execution *x, int again);
/* On a device: measures only the gather roof, if the case reads pages. The higher value stays. */
void kvg_roofs_take_gather(struct kvg_execution *x);

#endif
