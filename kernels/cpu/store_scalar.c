/* SPDX-License-Identifier: Apache-2.0
 *
 * store_scalar.c: converts rows one element at a time, with the codecs of fp8.h.
 */
#include "store_rows.h"

static inline void convert_row(enum kvg_dtype from, enum kvg_dtype to, enum kvg_scale_rule rule,
                               const void *source, int64_t count, float scale, void *destination)
{
    convert_scalar(from, to, rule, source, 0, count, scale, 1.0f / scale, destination);
}

const struct kvg_store_ops kvg_store_scalar = {.isa = KVG_ISA_SCALAR, .convert = convert};
