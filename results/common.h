/* SPDX-License-Identifier: Apache-2.0
 *
 * common.h: what the incorrect rows of a kernel have in common and its passed rows do not have.
 */
#ifndef KVG_RESULTS_COMMON_H
#define KVG_RESULTS_COMMON_H

#include "results.h"

/* Writes a condition that every incorrect row of `kernel` meets and no passed row meets: "layout=HND", or two
 * conditions that hold together, "path=fp8 and soft_cap>0". Returns 1; or 0 with an empty text where there is
 * no such condition, or where the kernel has no incorrect or no passed row. */
int kvg_common_of_failures(const struct kvg_results *results, const char *kernel, char *text, size_t size);

#endif
