/* SPDX-License-Identifier: Apache-2.0
 *
 * check_rules.h: cases that a check leaves out, beside those without meaning (harness/case/meaning.c). Both
 * functions return the reason as a sentence without a full stop, or NULL. The case is complete.
 */
#ifndef KVG_HARNESS_PLAN_CHECK_RULES_H
#define KVG_HARNESS_PLAN_CHECK_RULES_H

#include "harness/case/case.h"

/* Values that say nothing together. */
const char *kvg_check_conflict(const struct kvg_case *c);
/* Cases that are too large, or in which the errors that the kernel declares would hide zeros as output. */
const char *kvg_check_unfit(const struct kvg_kernel *kernel, const struct kvg_case *c);

#endif
