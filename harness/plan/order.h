/* SPDX-License-Identifier: Apache-2.0
 *
 * order.h: the order in which the cases of a plan run.
 */
#ifndef KVG_HARNESS_PLAN_ORDER_H
#define KVG_HARNESS_PLAN_ORDER_H

#include <stdint.h>
#include "harness/case/case.h"

/* Sorts the cases in place, so that the tensors generated for one case serve the next. Cases with the same K
 * and V become neighbours, and among them those with the same Q. A group stands where its first case stood;
 * the order within a group stays. 0, or -1 on out of memory with the cases unchanged. */
int kvg_plan_order_cases(struct kvg_case *cases, int64_t count);

#endif
