/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict.c: sets the verdict of a case and its reason in the row.
 */
#include "verdict.h"

#include <stdarg.h>
#include <stdio.h>

#include "session_state.h"

enum { TEXT = 1024 }; /* bytes of a reason, a remark or a suspicion; longer ones are cut */

static void set_verdict(struct kvg_row *row, enum kvg_status status, const char *format, va_list args)
{
    char reason[TEXT];
    vsnprintf(reason, sizeof reason, format, args);
    row->status = status;
    kvg_row_set_string(&row->reason, reason);
}

static void add_remark(struct kvg_row *row, const char *format, va_list args)
{
    char remark[TEXT], reason[2 * TEXT];
    vsnprintf(remark, sizeof remark, format, args);
    snprintf(reason, sizeof reason, "%s%s%s", row->reason, row->reason[0] ? "; " : "", remark);
    kvg_row_set_string(&row->reason, reason);
}

static void set_suspicion(struct kvg_row *row, enum kvg_fault_class suspected, const char *format,
                          va_list args)
{
    char why[TEXT];
    vsnprintf(why, sizeof why, format, args);
    kvg_row_set_string(&row->suspected, kvg_fault_class_name(suspected));
    kvg_row_set_string(&row->suspicion, why);
}

int kvg_verdict(struct kvg_execution *x, enum kvg_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_verdict(x->row, status, format, args);
    va_end(args);
    return -1;
}

void kvg_verdict_remark(struct kvg_execution *x, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_remark(x->row, format, args);
    va_end(args);
}

void kvg_verdict_suspect(struct kvg_execution *x, enum kvg_fault_class suspected, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_suspicion(x->row, suspected, format, args);
    va_end(args);
}

void kvg_row_verdict(struct kvg_row *row, enum kvg_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_verdict(row, status, format, args);
    va_end(args);
}

void kvg_row_suspect(struct kvg_row *row, enum kvg_fault_class suspected, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_suspicion(row, suspected, format, args);
    va_end(args);
}

int kvg_verdict_of_error(struct kvg_execution *x, const struct kvg_error *error)
{
    enum kvg_status status = error->exit_code == KVG_EXIT_USAGE       ? KVG_INVALID
                             : error->exit_code == KVG_EXIT_INCORRECT ? KVG_INCORRECT
                                                                      : KVG_OUT_OF_MEMORY;
    return kvg_verdict(x, status, "%s", error->text);
}

int kvg_verdict_of_call(struct kvg_execution *x, const char *what, int code)
{
    static const char *const names[] = {"KVG_OK", "KVG_EINVAL", "KVG_EUNSUPPORTED", "KVG_ENOMEM",
                                        "KVG_EDEVICE"};
    if (code == KVG_EUNSUPPORTED && x->c->views != KVG_VIEWS_DENSE)
        return kvg_verdict(x, KVG_SKIPPED, "%s refuses these strides or their alignment (KVG_EUNSUPPORTED)",
                           what);
    const char *name = code <= 0 && code >= -4 ? names[-code] : "no KVG_E* code";
    kvg_verdict_suspect(x, KVG_FAULT_REFUSED, "supports() takes the case, %s() does not", what);
    if (code == KVG_ENOMEM)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "%s returned %s (%d)", what, name, code);
    return kvg_verdict(x, KVG_INCORRECT, "%s returned %s (%d), although the kernel says it supports the case",
                       what, name, code);
}

int kvg_verdict_of_site(struct kvg_execution *x, const struct kvg_error *error)
{
    const struct kvg_device *d = x->site.device;
    if (error->exit_code == KVG_EXIT_INCORRECT) { /* a stray write may have damaged other buffers too */
        x->session->tainted = 1;
        kvg_verdict_suspect(x, KVG_FAULT_MEMORY, "bytes changed that a kernel must leave alone");
        return kvg_verdict(x, KVG_INCORRECT, "%s", error->text);
    }
    if (!d || (!d->lost && !d->error[0]))
        return kvg_verdict_of_error(x, error);
    x->session->tainted = 1; /* later operations of the device may fail as well */
    return kvg_verdict(x, KVG_CRASHED, "%s", error->text);
}

int kvg_verdict_of_device(struct kvg_execution *x, const char *what, const struct kvg_error *error)
{
    const struct kvg_device *d = x->site.device;
    if (error && (error->exit_code == KVG_EXIT_INCORRECT || (!d->lost && !d->error[0])))
        return kvg_verdict_of_site(x, error);
    x->session->tainted = 1;
    return kvg_verdict(x, KVG_CRASHED, "%s%s%s", what ? what : "", what ? ": " : "",
                       d->error[0] ? d->error : "the device is lost");
}
