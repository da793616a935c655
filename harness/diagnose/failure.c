/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.c: the runs of a kernel in words, and the text of a diagnosis.
 */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

const char *kvg_run_words(enum kvg_run_kind run)
{
    static const char *const words[] = {[KVG_RUN_FIRST] = "the first run",
                                        [KVG_RUN_SECOND] = "the second run, on the same inputs",
                                        [KVG_RUN_TIMED] = "the last timed run",
                                        [KVG_RUN_REPEAT] = "one of many runs on the same inputs",
                                        [KVG_RUN_NO_LSE] = "a run without an lse",
                                        [KVG_RUN_FAR] = "a run in pages far into the cache",
                                        [KVG_RUN_RENEWED] = "a run after the inputs changed in place",
                                        [KVG_RUN_SPECIAL] = "a run on special values",
                                        [KVG_RUN_QUEUED] = "a run queued behind other work",
                                        [KVG_RUN_EDGE] = "a run whose inputs touch memory without access"};
    return words[run];
}

void kvg_diagnosis_say(struct kvg_diagnosis *d, enum kvg_fault_class suspected, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(d->why, sizeof d->why, format, args);
    va_end(args);
    d->suspected = suspected;
}
