/* SPDX-License-Identifier: Apache-2.0
 *
 * dtypes.h: the dtypes of the kernel ABI as formats of reference/, their size, and their NaN.
 */
#ifndef KVG_HARNESS_PREPARE_DTYPES_H
#define KVG_HARNESS_PREPARE_DTYPES_H

#include <stdint.h>

#include "kernels/kernel.h"
#include "reference/formats.h"

/* Format of reference/ for a dtype of the ABI. */
enum kvg_ref_format kvg_ref_format_of(enum kvg_dtype dtype);
/* Bytes of an element of a dtype of the ABI. */
int64_t kvg_dtype_bytes(enum kvg_dtype dtype);
/* The byte whose repetition is NaN in a dtype: 0x7f for e4m3 and e5m2, 0x80 for e4m3fnuz, else 0xff. */
int kvg_poison_byte(enum kvg_dtype dtype);
/* Fills a cache of `elements` elements with NaN of its dtype. */
void kvg_poison_cache(enum kvg_dtype dtype, void *cache, int64_t elements);

#endif
