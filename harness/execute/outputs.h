/* SPDX-License-Identifier: Apache-2.0
 *
 * outputs.h: compares an output of attention with its expectation.
 */
#ifndef KVG_HARNESS_EXECUTE_OUTPUTS_H
#define KVG_HARNESS_EXECUTE_OUTPUTS_H

#include "execution.h"
#include "harness/verify/verify.h"
#include "harness/verify/whole.h"

struct kvg_outputs {
    struct kvg_plain plain; /* the plain kernel's output; empty if it did not run or is wrong */
    char plain_why[256];    /* why the plain kernel did not run, or why it is wrong */
    int plain_wrong;        /* 1: the plain kernel ran, and is itself wrong */
    uint16_t *part_out;     /* rows of the part, copied from the last output; owned */
    float *part_lse;
    uint16_t *dense_out; /* the last output as a dense tensor, where views are not dense; owned */
    float *dense_lse;
    /* What kvg_outputs_compare compared last: the rows of kvg_inputs_verified, on the host. */
    const uint16_t *compared_out;
    const float *compared_lse; /* NULL if the call took no lse */
    int whole_failed;          /* 1: those rows are right, and other rows of the case are wrong */
};

/* Makes the expectation of the rows that the host verifies, unquantised reference included. -1 with the
 * verdict.
 */
int kvg_outputs_expect(struct kvg_execution *x, struct kvg_expectation **out);
/* Runs the plain kernel on the whole case if the case is a frame. If it cannot run or is wrong,
 * outputs->plain stays empty, and plain_why has the reason. -1 with the verdict when the device failed. */
int kvg_outputs_make_plain(struct kvg_execution *x, const struct kvg_attention_args *args,
                           const struct kvg_expectation *e);
/* The outputs of the last call as dense tensors in host memory, valid until the next call; *lse is NULL if
 * the call took none. -1 with the verdict, also if the gaps of the outputs were written. */
int kvg_outputs_bring(struct kvg_execution *x, const struct kvg_attention_args *args, const uint16_t **out,
                      const float **lse);
/* Compares an output with the expectation and, with `whole`, with the plain kernel's output. Fills the error
 * columns, status and reason of `row`. -1 with the verdict if the output could not be compared. */
int kvg_outputs_compare(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e, int whole, struct kvg_row *row);
/* Adds a remark to the row if only a part of the case was verified. */
void kvg_outputs_remark(struct kvg_execution *x);
void kvg_outputs_free(struct kvg_outputs *outputs);

#endif
