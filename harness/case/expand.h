/* SPDX-License-Identifier: Apache-2.0
 *
 * expand.h: the values in the text of one axis: "1k,8k,32k", "1k:128k:*2", "16:64:+16".
 */
#ifndef KVG_HARNESS_EXPAND_H
#define KVG_HARNESS_EXPAND_H

#include <stdint.h>
#include "case.h"

/* Values in the order written; strings and array are owned. */
struct kvg_values {
    char **text;
    int64_t count;
};
void kvg_values_free(struct kvg_values *values);
/* Appends a copy of text[0..length). -1 on out of memory. */
int kvg_values_add(struct kvg_values *values, const char *text, int64_t length);

/* Appends the values of `text` to *values, which the caller has set to zero or filled before. Commas
 * separate; blanks around a value are dropped. An axis of whole numbers also takes FIRST:LAST:*FACTOR and
 * FIRST:LAST:+STEP, which count up from FIRST and stop at LAST or short of it. Every value is tried on the
 * axis (kvg_case_set). On failure *values keeps what it had gained so far. */
int kvg_values_expand(enum kvg_axis axis, const char *text, struct kvg_values *values,
                      struct kvg_error *error);

#endif
