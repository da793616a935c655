/* SPDX-License-Identifier: Apache-2.0
 *
 * diagnose.c: from a wrong output of attention to a kind of fault.
 */
#include "diagnose.h"

#include <stdlib.h>

#include "look.h"

/* ---------------------------------------------------------------- facts of the run */

static int by_the_run(const struct kvg_failure *f, struct kvg_diagnosis *d)
{
    if (f->workspace)
        kvg_diagnosis_say(d, KVG_FAULT_RACE,
                          "the output is right when the workspace is zero before the call: the kernel reads "
                          "workspace that it has not written");
    else if (f->tail)
        kvg_diagnosis_say(d, KVG_FAULT_PAGE_TAIL,
                          "the output is right when slots that no sequence owns, and gaps between rows, hold "
                          "zeros instead of NaN: the kernel reads them");
    else if (f->unstable)
        kvg_diagnosis_say(d, KVG_FAULT_RACE, "a repeated call on the same inputs gives other bits");
    else if (f->run == KVG_RUN_FAR)
        kvg_diagnosis_say(
            d, KVG_FAULT_NARROW_OFFSET,
            "the output is right in low pages and wrong in pages whose number needs more than 16 "
            "bits, and whose offset needs more than 32");
    else if (f->run == KVG_RUN_REPEAT || f->run == KVG_RUN_SECOND)
        kvg_diagnosis_say(d, KVG_FAULT_RACE,
                          "an earlier run on the same inputs was right, this one is wrong");
    else
        return 0;
    return 1;
}

/* ---------------------------------------------------------------- the steps */

static void by_computing(struct kvg_look *k, struct kvg_diagnosis *d)
{
    kvg_look_at_errors(k);
    if (!k->too_long && kvg_look_suppose(k, 0)) {
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "out of memory for the diagnosis");
        return;
    }
    if (!k->too_long && kvg_diagnose_by_supposition(k, KVG_EXPLAINED, d))
        return;
    /* After the suppositions: a kernel that ignores the window may give the output of an earlier case. */
    if (k->f->old_output)
        kvg_diagnosis_say(d, KVG_FAULT_STALE_STATE,
                          "the output is, bit by bit, that of an earlier call with other inputs");
    else if (k->f->run == KVG_RUN_RENEWED && kvg_look_is_far_off(k))
        kvg_diagnosis_say(d, KVG_FAULT_STALE_STATE,
                          "the output was right until other values lay in the same buffers: the kernel keeps "
                          "something from an earlier call");
    else if (k->too_long || !kvg_diagnose_by_supposition(k, KVG_RESEMBLES, d))
        kvg_diagnose_by_shape(k, d);
}

/* Elements that hold what lay there before the call may have been written to other places. */
static int by_places(struct kvg_look *k, struct kvg_diagnosis *d)
{
    struct kvg_diagnosis unused = {0};
    if (k->too_long || !kvg_diagnose_missing(k->f, &unused) || kvg_look_suppose(k, 1))
        return 0;
    return kvg_diagnose_by_supposition(k, KVG_EXPLAINED, d);
}

static struct kvg_arithmetic *declarations(const struct kvg_failure *f)
{
    const struct kvg_prepared *p = f->expectation->p;
    struct kvg_arithmetic *declared = calloc((size_t)p->problem.batch, sizeof *declared);
    for (int64_t b = 0; declared && b < p->problem.batch; b++)
        f->kernel->arithmetic(p->part_of ? &p->whole : &p->problem, p->seq_lens[b], &declared[b]);
    return declared;
}

void kvg_diagnose_attention(const struct kvg_failure *f, struct kvg_diagnosis *d)
{
    struct kvg_look k = {.f = f, .p = f->expectation->p, .dim = f->expectation->p->problem.head_dim};
    struct kvg_check checks[KVG_CHECKS];
    *d = (struct kvg_diagnosis){0};
    kvg_compare_checks(f->expectation, f->out, f->lse, checks);
    if (by_the_run(f, d))
        return;
    k.declared = declarations(f);
    if (!k.declared || kvg_look_choose(&k))
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "out of memory for the diagnosis");
    else if (by_places(&k, d) || kvg_diagnose_missing(f, d) || kvg_diagnose_empty(f, checks, d))
        ; /* nothing more to find out */
    else
        by_computing(&k, d);
    free(k.declared);
}
