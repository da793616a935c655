/* SPDX-License-Identifier: Apache-2.0
 *
 * check_space.h: the values of the axes that `kvgauge check` tries, and which of them a kernel takes.
 *
 * All cases are small, so that a plain C kernel computes one in milliseconds. The list of axes is
 * check_axes in check_space.c: a new axis or value is one line there.
 */
#ifndef KVG_HARNESS_PLAN_CHECK_SPACE_H
#define KVG_HARNESS_PLAN_CHECK_SPACE_H

#include "harness/case/case.h"
#include "harness/case/expand.h"
#include "cover.h"
#include "plan.h"

enum { KVG_CHECK_AXES = 22, KVG_CHECK_WORD = 64 };

struct kvg_check_axis {
    enum kvg_axis axis;
    struct kvg_values values; /* those that the kernel takes in some case */
};

/* A value, or a pair of values of two axes, that no case has. */
struct kvg_check_refusal {
    int n; /* 1: a value, 2: a pair */
    enum kvg_axis axis[2];
    char value[2][KVG_CHECK_WORD];
    int by_kernel; /* 1: `why` is a sentence of `supports`; 0: such a case has no meaning or is too large */
    char why[256];
};

/* What `check` runs for one kernel. */
struct kvg_check_space {
    struct kvg_check_axis axes[KVG_CHECK_AXES];
    int n;
    struct kvg_check_refusal
        *refusals; /* values in the order of the axes, then pairs that the kernel refuses */
    int64_t n_refusals;
    struct kvg_cover cover; /* over axes[].values; no combinations if the kernel takes nothing */
    struct kvg_case *cases; /* those of cover.combinations, then boundary cases, then large sizes */
    int64_t count, n_pairs; /* cases; the first n_pairs of them are the combinations */
    int64_t n_lengths;      /* boundary cases */
};

/* Asks the kernel of the registry with this name. `request` may restrict axes (its axis[] texts); its other
 * fields are not used. 0 with the space, which may have no cases; -1 with the error and nothing to free. */
int kvg_check_space_make(const char *kernel, const struct kvg_plan_request *request,
                         struct kvg_check_space *space, struct kvg_error *error);
void kvg_check_space_free(struct kvg_check_space *space);

#endif
