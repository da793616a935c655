/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: from suites and options to a list of cases.
 *
 * A suite is a list of sweeps (suite.h); the cases of a sweep are the product of its values. Options on the
 * command line override an axis in every sweep. Values of suites and of the command line are text and are
 * parsed by the same code.
 */
#ifndef KVG_HARNESS_PLAN_H
#define KVG_HARNESS_PLAN_H

#include <stdint.h>
#include "harness/case/case.h"

#define KVG_MORE_FILTERS 15
/* What to plan. */
struct kvg_plan_request {
    const char *suite;                /* name of a shipped suite, or a path that ends in .yaml; NULL = none */
    const char *axis[KVG_AXIS_COUNT]; /* overrides, as "1k,8k,32k" or "1k:128k:*2" (also +STEP), globs for
                                         kernel; NULL = as the suite says */
    const char *case_string;          /* --case: exactly this case; suite and overrides unused. NULL = none */
    const char *filter; /* POSIX extended regex over case strings; a leading '-' negates it. NULL
                                         = none */
    const char *more_filters[KVG_MORE_FILTERS]; /* further ones, up to the first NULL: a case must pass all */
};

struct kvg_plan {
    char name[64]; /* of the suite; "case" for --case, "options" for axes without a suite */
    struct kvg_case *cases;
    int64_t count;
};
/* Makes complete cases, each once, in the order of order.h. Kernel names are resolved: "best" becomes the
 * kernel of the highest rank that takes the case, a glob becomes every match that takes it. A case that no
 * kernel takes stays in the plan with the name as given; its row is skipped with the reason. 0, or -1 with
 * the error and nothing to free; a plan without cases is an error (exit code 3: nothing would run). */
int kvg_plan_make(const struct kvg_plan_request *request, struct kvg_plan *plan, struct kvg_error *error);
void kvg_plan_free(struct kvg_plan *plan);

#endif
