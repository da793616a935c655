/* SPDX-License-Identifier: Apache-2.0
 *
 * expand.h: the list of values in the text of an axis: "1k,8k,32k", "1k:128k:*2", "16:64:+16".
 */
#ifndef KVG_HARNESS_EXPAND_H
#define KVG_HARNESS_EXPAND_H

#include <stdint.h>
#include "case.h"

/* Values in the order written. The struct owns the array and its strings. */
struct kvg_values {
    char **text;
    int64_t count;
};
void kvg_values_free(struct kvg_values *values);
/* Appends a copy of text[0..length). -1 on out of memory. */
int kvg_values_add(struct kvg_values *values, const char *text, int64_t length);

/* Appends the values in `text` to *values, which is zero or holds values already. Commas separate values;
 * blanks around a value are dropped. An axis of whole numbers also takes the ranges FIRST:LAST:*FACTOR and
 * FIRST:LAST:+STEP, which start at FIRST and do not exceed LAST. Every value is checked with kvg_case_set.
 * 0, or -1 with the error; *values then keeps the values before the wrong one. */
int kvg_values_expand(enum kvg_axis axis, const char *text, struct kvg_values *values,
                      struct kvg_error *error);

#endif
