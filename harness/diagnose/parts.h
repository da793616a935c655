/* SPDX-License-Identifier: Apache-2.0
 *
 * diagnose_parts.h: what the files of the diagnosis share. Private to harness/diagnose*.c.
 */
#ifndef KVG_HARNESS_DIAGNOSE_PARTS_H
#define KVG_HARNESS_DIAGNOSE_PARTS_H

#include "diagnose.h"

void kvg_diagnosis_say(struct kvg_diagnosis *d, enum kvg_fault_class suspected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Both: 1 when that is what is wrong, and *d says so. */
int kvg_diagnose_missing(const struct kvg_failure *f, struct kvg_diagnosis *d); /* elements not written */
/* Rows that see no key are zero with an lse of -infinity, and only they are wrong. */
int kvg_diagnose_empty(const struct kvg_failure *f, const struct kvg_check *checks, struct kvg_diagnosis *d);

#endif
