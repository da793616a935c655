/* SPDX-License-Identifier: Apache-2.0
 *
 * check_missing.h: what the cases of a run leave at values that hide faults.
 */
#ifndef KVG_HARNESS_PLAN_CHECK_MISSING_H
#define KVG_HARNESS_PLAN_CHECK_MISSING_H

#include <stddef.h>
#include "harness/case/case.h"

/* Names what the cases [count] of one kernel leave out: "batch above 1, HND, ...". Only what the kernel
 * takes is named. What does not fit into `size` is counted: "..., and 3 more". Empty text if nothing is left
 * out. 0, or -1 on out of memory. */
int kvg_check_missing(const char *kernel, const struct kvg_case *cases, int64_t count, char *text,
                      size_t size, struct kvg_error *error);

#endif
