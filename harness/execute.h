/* SPDX-License-Identifier: Apache-2.0
 *
 * execute.h: the parts of one case's execution. Private to harness/execute*.c.
 */
#ifndef KVG_HARNESS_EXECUTE_H
#define KVG_HARNESS_EXECUTE_H

#include "../kernels/kernel.h"
#include "diagnose.h"
#include "guard.h"
#include "measure.h"
#include "prepare.h"
#include "run.h"
#include "verify.h"

/* Kernels, phases, paths and dtypes that were already seen to follow changed inputs. */
enum { KVG_FOLLOWERS = 256, KVG_FOLLOWED_ENOUGH = 2, KVG_RIGHT_OUTPUTS = 512 };
struct kvg_follower {
    const struct kvg_kernel *kernel;
    enum kvg_phase phase;
    enum kvg_path path;
    enum kvg_cache_dtype dtype;
    int times, again; /* renewals; rounds of further runs */
};

struct kvg_session {
    struct kvg_meter *meter;
    int tainted;
    struct kvg_follower followers[KVG_FOLLOWERS];
    /* what a stale answer is known by: the first scales, and hashes of outputs that were right */
    struct kvg_past_scales past;
    uint64_t right_outputs[KVG_RIGHT_OUTPUTS];
    int64_t right_count;
    void (*tell)(void *context, int run); /* NULL, or kvg_session_announce's */
    void *tell_context;
};

/* One case under way. */
struct kvg_execution {
    struct kvg_session *session;
    const struct kvg_case *c;
    const struct kvg_run_options *options;
    const struct kvg_kernel *kernel;
    struct kvg_row *row;
    char **report; /* Google Benchmark's JSON, or NULL */
    struct kvg_prepared prepared;
    struct kvg_guard_list *guards; /* outputs and workspace */
    void *workspace;
    int64_t workspace_bytes;
    int timed;           /* the case asks for times */
    int clear_workspace; /* kvg_call_attention fills the workspace with zeros instead of poison */
};

/* The verdict so far, with its reason (copied). Always returns -1, so that a caller can return it. */
int kvg_verdict(struct kvg_execution *x, enum kvg_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a remark to the reason without touching the status. */
void kvg_remark(struct kvg_execution *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Verdict for an error of prepare, expect or compare, by its exit code. */
int kvg_verdict_of_error(struct kvg_execution *x, const struct kvg_error *error);
/* Verdict for a kernel's return value that is not 0. `what` is the entry point. */
int kvg_verdict_of_call(struct kvg_execution *x, const char *what, int code);

/* Before a timed call: a sleeping OpenMP team takes long to wake; in an engine it would be awake. */
void kvg_wake_team(int64_t threads);

/* Outputs, workspace and inputs after calls: nothing written outside, no input changed. Else the row is
 * incorrect, the session tainted, and -1 comes back. */
int kvg_check_memory(struct kvg_execution *x);
/* Shall the inputs of this case change in place once more? Always where it is timed; else twice for each
 * kernel, phase, path and dtype: an answer that is remembered buys nothing where no clock runs, and would be
 * wrong in the next case that finds its buffers at the same place. */
int kvg_wants_renewal(struct kvg_execution *x);
/* The same for further runs (below): twice for each kernel, phase, path and dtype, timed or not. */
int kvg_wants_again(struct kvg_execution *x);
/* NaN in every format that a kernel may write: all bits set. */
void kvg_poison(void *data, int64_t bytes);

/* ---- execute_failure.c: what a row says of a failure beside its reason ---- */

/* The kind of fault and what speaks for it, in the row; the last call wins. */
void kvg_suspect(struct kvg_execution *x, enum kvg_fault_class suspected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* An output that did not hold (host copies; lse NULL where none was asked for): evidence and suspicion. A
 * kernel on the CPU is called again, with `args`. The verdict stays what it is. */
void kvg_explain_attention(struct kvg_execution *x, const struct kvg_attention_args *args,
                           const struct kvg_expectation *e, const uint16_t *out, const float *lse,
                           enum kvg_run_kind run);
/* An output that held: it will be known again. */
void kvg_remember_output(struct kvg_execution *x, uint64_t hash);
/* The next run is of this kind: should it end the process, that says something. */
void kvg_announce(const struct kvg_execution *x, enum kvg_run_kind run);
/* Caches that a store left wrong, and a Q quantised wrong. */
void kvg_explain_store(struct kvg_execution *x, const void *k_cache, const void *v_cache,
                       enum kvg_run_kind run);
void kvg_explain_quantize_q(struct kvg_execution *x, const uint8_t *q8);

/* The three that execute a case once it is prepared. */
void kvg_execute_attention(struct kvg_execution *x);
void kvg_execute_store(struct kvg_execution *x);
/* Attention on the model of a tensor core: error columns and gains, and no verdict. The stand-in for its
 * kernel has a name and a declared arithmetic, that of FlashAttention-3's fp8 path with FP32 sums, and no
 * code. */
void kvg_execute_prediction(struct kvg_execution *x);
extern const struct kvg_kernel kvg_prediction;

/* One call of attention on poisoned outputs and workspace, planned before, and a look at the memory after. -1
 * with the verdict. args->lse may be NULL. */
int kvg_call_attention(struct kvg_execution *x, const struct kvg_attention_args *args);
/* Further runs of a right kernel: many repeats, and one without an lse. `args` as for the run before, whose
 * outputs still stand. -1 with the verdict. */
int kvg_attend_again(struct kvg_execution *x, const struct kvg_attention_args *args,
                     const struct kvg_expectation *e, int deterministic);
/* The same in pages far into the cache. For a kernel that was seen to follow changed pages: one that does not
 * would fail here with the wrong words. */
int kvg_attend_far(struct kvg_execution *x, const struct kvg_attention_args *args,
                   const struct kvg_expectation *e);

/* Address space for caches whose page numbers start so high that number times stride takes more than 32 bits.
 * Only the last cache_elements take memory. */
struct kvg_far_cache {
    void *mapping[2]; /* of K and V */
    size_t mapping_bytes;
    int64_t first_block; /* added to every block number */
    struct kvg_pages pages[2];
    void *filled[2]; /* first byte of block first_block */
    int64_t bytes;   /* of each cache behind it */
};
/* 0, or -1 where there is no such address space (nothing to free then). */
int kvg_far_cache(const struct kvg_prepared *p, struct kvg_far_cache *far);
void kvg_far_cache_free(struct kvg_far_cache *far);

/* The least work of the case, in row->bytes_moved and row->flops. */
void kvg_count_work(struct kvg_execution *x);
/* Takes the samples of m (its budget, flags and report are filled in here) and fills the time columns. -1
 * with the verdict when a call failed. */
int kvg_time(struct kvg_execution *x, struct kvg_measurement *m);
#define KVG_TIMED_OUTPUT_DIFFERS "the output of a timed call differs from the verified one"
/* A few samples of something timed apart: the median, or NaN. */
double kvg_time_apart(struct kvg_execution *x, int (*call)(void *), void *context);
/* Rates, roofs and shares of them; the row may become suspect. Throughput stays blank unless it is passed. */
void kvg_rate(struct kvg_execution *x);

/* Quantises Q with the store kernel that belongs to this one: bit-exact or the row is incorrect; timed apart.
 */
void kvg_quantize_q(struct kvg_execution *x);

#endif
