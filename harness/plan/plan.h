/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: from suites and options to a list of cases.
 *
 * A suite is a YAML file: a list of sweeps, each a map from axis to a value or a list of values; the cases
 * are their product. Options on the command line override an axis in every sweep. Axis values are text and
 * parsed by the same code as the command line's.
 */
#ifndef KVG_HARNESS_PLAN_H
#define KVG_HARNESS_PLAN_H

#include <stdint.h>
#include "harness/case/case.h"

/* Values of one axis: "1k,8k,32k", "1k:128k:*2" (also +STEP), globs for kernel. NULL = as the suite says. */
struct kvg_plan_request {
    const char *suite;                /* "quick", "full", ... or a path that ends in .yaml; NULL = none */
    const char *axis[KVG_AXIS_COUNT]; /* overrides */
    const char *case_string;          /* --case: exactly this case; suite and overrides unused */
    const char *filter;               /* POSIX extended regex over case strings; leading '-' negates */
};

struct kvg_plan {
    char name[64]; /* suite name */
    struct kvg_case *cases;
    int64_t count;
};
/* Kernel names are resolved here: "best" becomes the kernel of highest rank for the case that supports it, a
 * glob every match. A case no kernel takes stays in the plan with the name as given, to be skipped with the
 * reason. An empty plan is an error (exit code 3: nothing would run). */
int kvg_plan_make(const struct kvg_plan_request *request, struct kvg_plan *plan, struct kvg_error *error);
void kvg_plan_free(struct kvg_plan *plan);

#endif
