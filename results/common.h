/* SPDX-License-Identifier: Apache-2.0
 *
 * common.h: what the failed rows of a kernel have in common and its right rows have not.
 */
#ifndef KVG_RESULTS_COMMON_H
#define KVG_RESULTS_COMMON_H

#include "journal.h"

/* "layout=HND", or two conditions that hold together in every incorrect row of `kernel` and together in no
 * passed one: "path=fp8 and soft_cap>0". 0 where there is none, or where one of the sides has no row. */
int kvg_common_of_failures(const struct kvg_results *results, const char *kernel, char *text, size_t size);

#endif
