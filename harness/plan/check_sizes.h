/* SPDX-License-Identifier: Apache-2.0
 *
 * check_sizes.h: sizes that need more than 8 or 16 bits, for `kvgauge check`: keys of a sequence, sequences,
 * heads, tokens of a store. A kernel that keeps one in a narrow integer, or in an array of fixed
 * size, is right on all small cases. Each case is large in one size and small in the others.
 */
#ifndef KVG_HARNESS_PLAN_CHECK_SIZES_H
#define KVG_HARNESS_PLAN_CHECK_SIZES_H

#include "harness/case/case.h"

/* Changes *c, a case that the kernel takes, to case number `i`. `given` holds the axes that the command line
 * restricts (text or NULL). Returns 1; 0 where such an axis would change; -1 past the last. */
int kvg_check_size(int i, const char *const given[KVG_AXIS_COUNT], struct kvg_case *c);

#endif
