/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict.h: sets the verdict of a case in its row: status, reason and suspected kind of fault.
 *
 * The functions that return int always return -1, so that a caller can return their value.
 */
#ifndef KVG_HARNESS_VERDICT_H
#define KVG_HARNESS_VERDICT_H

#include "execution.h"
#include "harness/diagnose/diagnose.h"

/* Status and reason (copied). The last call wins. */
int kvg_verdict(struct kvg_execution *x, enum kvg_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a remark to the reason. The status stays. */
void kvg_verdict_remark(struct kvg_execution *x, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The suspected kind of fault, and the evidence for it. The last call wins. */
void kvg_verdict_suspect(struct kvg_execution *x, enum kvg_fault_class suspected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Verdict and suspicion for a row alone. */
void kvg_row_verdict(struct kvg_row *row, enum kvg_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void kvg_row_suspect(struct kvg_row *row, enum kvg_fault_class suspected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Verdict for an error of prepare, expect or compare, by its exit code. */
int kvg_verdict_of_error(struct kvg_execution *x, const struct kvg_error *error);
/* Verdict for a kernel's return value that is not 0. `what` is the name of the entry point. */
int kvg_verdict_of_call(struct kvg_execution *x, const char *what, int code);
/* Verdict for an error of site.h. A stray write and a failed device taint the session. */
int kvg_verdict_of_site(struct kvg_execution *x, const struct kvg_error *error);
/* Verdict after a failed operation of the device. `what` names the operation. error may be NULL. */
int kvg_verdict_of_device(struct kvg_execution *x, const char *what, const struct kvg_error *error);

#endif
