/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_order.h: the order in which a plan's cases run.
 */
#ifndef KVG_HARNESS_PLAN_ORDER_H
#define KVG_HARNESS_PLAN_ORDER_H

#include "plan.h"

/* Cases with the same K and V become neighbours, and among them those with the same Q. Groups stand where
 * their first case stood; within a group the order stays. -1 on out of memory, the plan unchanged. */
int kvg_plan_group(struct kvg_plan *plan);

#endif
