/* SPDX-License-Identifier: Apache-2.0
 *
 * execution.h: the state that the steps of the execution of one case share.
 */
#ifndef KVG_HARNESS_EXECUTION_H
#define KVG_HARNESS_EXECUTION_H

#include "harness/case/case.h"
#include "harness/prepare/prepared.h"
#include "harness/prepare/seen.h"
#include "kernels/kernel.h"
#include "results/row.h"
#include "site.h"
#include "stopwatch.h"

struct kvg_run_options;  /* options.h */
struct kvg_session;      /* session.h */
struct kvg_device_calls; /* device_calls.h */
struct kvg_outputs;      /* outputs.h */

struct kvg_execution {
    struct kvg_session *session; /* borrowed, like c, options, kernel, row and report */
    const struct kvg_case *c;
    const struct kvg_run_options *options;
    const struct kvg_kernel *kernel;
    int foreign; /* 1: the kernel is one of a plug-in */
    struct kvg_row *row;
    char **report; /* receives Google Benchmark's JSON; NULL if not wanted */
    struct kvg_stopwatch watch;
    int timed;                      /* 1: the case is to be timed after its verification */
    int profiled;                   /* 1: the kernel ran once for a profiler */
    struct kvg_prepared prepared;   /* the whole case; a frame where K and V were made on the device */
    struct kvg_prepared part;       /* of a frame: the sequences that the host verifies; else zeros */
    struct kvg_seen seen;           /* the inputs in the memory that the kernel reads */
    struct kvg_site site;           /* the memory that the kernel writes */
    struct kvg_device_calls *calls; /* state of device_calls.c */
    struct kvg_outputs *outputs;    /* state of outputs.c */
};

#endif
