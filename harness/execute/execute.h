/* SPDX-License-Identifier: Apache-2.0
 *
 * execute.h: the parts of one case's execution. Private to harness/execute*.c.
 */
#ifndef KVG_HARNESS_EXECUTE_H
#define KVG_HARNESS_EXECUTE_H

#include "kernels/kernel.h"
#include "harness/device/device.h"
#include "harness/prepare/seen.h"
#include "harness/diagnose/diagnose.h"
#include "harness/memory/guard.h"
#include "harness/inputs/input_cache.h"
#include "harness/measure/measure.h"
#include "harness/prepare/prepare.h"
#include "run.h"
#include "stopwatch.h"
#include "harness/verify/verify.h"
#include "harness/verify/whole.h"

/* Where a session gets its device from, and what of a case on a device the host prepares itself. */
struct kvg_device_source {
    struct kvg_device *(*open)(void *context, char *why, size_t size); /* NULL with the reason */
    void *context;
    const char *plain;    /* name of the FP32 kernel that stands for the reference in large cases */
    int64_t mirror_bytes; /* a synthetic case of several sequences whose K, V and caches take more bytes on
                             the host is made on the device */
    int64_t part_bytes;   /* of such a case the host prepares one sequence, and more while they take less */
};
/* GPU 0 of those visible; 1 GiB; 0.5 GiB. */
extern const struct kvg_device_source kvg_device_source_cuda;
/* As kvg_session_new, which takes the one above. The session opens the device for the first case that needs
 * it and closes it. */
struct kvg_session *kvg_session_new_on(const struct kvg_device_source *source);

/* Kernels, phases, paths and dtypes that were already seen to follow changed inputs. */
enum { KVG_FOLLOWERS = 256, KVG_FOLLOWED_ENOUGH = 2, KVG_RIGHT_OUTPUTS = 512 };
struct kvg_follower {
    const struct kvg_kernel *kernel;
    enum kvg_phase phase;
    enum kvg_path path;
    enum kvg_cache_dtype dtype;
    int times, again; /* renewals; rounds of further runs */
    int moved[4];     /* runs in another order, of each kind */
};

struct kvg_session {
    struct kvg_meter *meter;
    struct kvg_input_cache *inputs; /* of the last cases */
    int tainted;
    struct kvg_follower followers[KVG_FOLLOWERS];
    /* what a stale answer is known by: the first scales, and hashes of outputs that were right */
    struct kvg_past_scales past;
    uint64_t right_outputs[KVG_RIGHT_OUTPUTS];
    int64_t right_count;
    void (*tell)(void *context, int run); /* NULL, or kvg_session_announce's */
    void *tell_context;
    /* the device */
    struct kvg_device_source source;
    struct kvg_device *device; /* NULL until a case needs it, or none */
    int device_tried;
    char device_why[256];           /* why there is none */
    struct kvg_device_roofs linear; /* the last ones, taken at `linear_taken` (kvg_now) */
    double linear_taken;            /* 0 = none yet */
    struct kvg_device_roofs roofs;  /* once a session */
    int roofs_taken;
};

/* Host copies of what lies on a device. */
enum kvg_fetched { KVG_FETCHED_OUT, KVG_FETCHED_LSE, KVG_FETCHED_K, KVG_FETCHED_V, KVG_FETCHED_COUNT };

/* One case under way. */
struct kvg_execution {
    struct kvg_session *session;
    const struct kvg_case *c;
    const struct kvg_run_options *options;
    const struct kvg_kernel *kernel;
    struct kvg_row *row;
    char **report; /* Google Benchmark's JSON, or NULL */
    struct kvg_stopwatch watch;
    struct kvg_prepared prepared;  /* the whole case; a frame where it was made on the device */
    struct kvg_seen seen;          /* its inputs as the kernel sees them */
    struct kvg_guard_list *guards; /* outputs and workspace of a kernel on the CPU */
    void *workspace;
    int64_t workspace_bytes;
    int timed;           /* the case asks for times */
    int clear_workspace; /* kvg_call_attention fills the workspace with zeros instead of poison */
    /* what kvg_compare_outputs last held to an expectation: rows of kvg_verified, on the host */
    const uint16_t *compared_out;
    const float *compared_lse; /* NULL where none was asked for */
    int whole_failed;          /* those held, but others of the whole case did not */
    /* on a device */
    struct kvg_device *device;        /* NULL: the kernel runs on the CPU, and nothing below is used */
    struct kvg_device_memory *memory; /* inputs, outputs and workspace */
    int device_failed;                /* an operation failed where no verdict could be given */
    void *fetched[KVG_FETCHED_COUNT]; /* [fetched_bytes], owned */
    int64_t fetched_bytes[KVG_FETCHED_COUNT];
    void *recording;                    /* what a timed call replays; NULL: it calls the kernel */
    struct kvg_attention_args gathered; /* whose pages the gather roof reads */
    /* of a case made on the device */
    struct kvg_prepared part; /* what the host verifies */
    uint16_t *part_out;       /* its rows of the output, owned */
    float *part_lse;
    struct kvg_plain plain; /* empty where the plain kernel did not run */
    char plain_why[256];    /* why not */
    int plain_wrong;        /* it ran, and is itself wrong */
};

/* What the host verifies of the case: all of it, or a part. */
const struct kvg_prepared *kvg_verified(const struct kvg_execution *x);

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

/* ---- execute_memory.c: buffers of the kernel, wherever they lie. All give -1 (or NULL) with the verdict. */

/* A buffer with guard regions; `name` must outlive the case. */
void *kvg_place(struct kvg_execution *x, const char *name, int64_t bytes);
/* All bytes of a buffer; 0xff is NaN in every format that a kernel may write. */
int kvg_fill_bytes(struct kvg_execution *x, void *data, int byte, int64_t bytes);
int kvg_poison(struct kvg_execution *x, void *data, int64_t bytes);
int kvg_digest(struct kvg_execution *x, const void *data, int64_t bytes, uint64_t *hash);
/* Where the host may read (and change) it: the buffer itself, or a copy that lives until the same slot is
 * fetched again. */
void *kvg_fetch(struct kvg_execution *x, enum kvg_fetched slot, void *data, int64_t bytes);
int kvg_send(struct kvg_execution *x, void *to, const void *from, int64_t bytes);
/* Outputs, workspace and inputs after calls: nothing written outside, no input changed. Else the row is
 * incorrect and the session tainted. */
int kvg_check_memory(struct kvg_execution *x);
/* The same and what of the inputs the kernel is never shown: before they change, and at the end. */
int kvg_check_all_memory(struct kvg_execution *x);
/* After an entry point returned `code`: waits for what it queued. */
int kvg_called(struct kvg_execution *x, const char *what, int code);

/* ---- execute_device.c */

/* The session's device, for a kernel that runs on one. -1 with the verdict: skipped, and why. */
int kvg_use_device(struct kvg_execution *x);
/* Verdict after an operation of the device failed; `what` says at what. A lost device taints the session. */
int kvg_verdict_of_device(struct kvg_execution *x, const char *what, const struct kvg_error *error);
/* Prepares the case, on the host and, for a device, there. Renews it. */
int kvg_prepare_inputs(struct kvg_execution *x);
int kvg_renew_inputs(struct kvg_execution *x, uint64_t seed);
/* Records call(context) once, where the run asks for it: timed calls then replay it. kvg_forget ends that. */
int kvg_record(struct kvg_execution *x, int (*call)(void *), void *context);
void kvg_forget(struct kvg_execution *x);
/* The recording, queued: 0 or KVG_EDEVICE. */
int kvg_replay(struct kvg_execution *x);
/* The device's clock; 0, or -1 where the kernel runs on the CPU (CLOCK_MONOTONIC_RAW then). */
int kvg_device_clock(struct kvg_execution *x, struct kvg_clock *clock);
/* Before a cold sample. Failures are kept in x->device_failed. */
void kvg_device_flush(struct kvg_execution *x);
void kvg_device_roofs(struct kvg_execution *x, int again);
/* Reading the case's pages alone, where it has any to read: the highest of all measurements stays in the row.
 */
void kvg_device_gather_roof(struct kvg_execution *x);
/* Energy of one of `calls` calls that filled the share `busy` of the time in which `energy` J were drawn; NaN
 * below KVG_ENERGY_SHARE, where much of it went into flushes and pauses. */
double kvg_energy_of_call(double energy, int64_t calls, double busy);
#define KVG_ENERGY_SHARE 0.8
/* Tells of the conditions since conditions_begin; calls and busy as above. */
void kvg_conditions(struct kvg_execution *x, int64_t calls, double busy);
/* Bytes of the cache that a hot case may fit. */
int64_t kvg_last_cache_bytes(const struct kvg_execution *x);

/* ---- execute_whole.c: a case of which the host verifies a part */

/* The plain kernel's output for all of it. Where that is not to be had x->plain stays empty and
 * x->plain_why says why. -1 with the verdict when the device failed. */
int kvg_make_plain(struct kvg_execution *x, const struct kvg_attention_args *args,
                   const struct kvg_expectation *e);
/* An output against the expectation; with `whole` also against the plain kernel's. Fills error columns,
 * status and reason of `row`. -1 with the verdict when that could not be done. */
int kvg_compare_outputs(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e, int whole, struct kvg_row *row);
/* What is expected of an output of what the host verifies, the unquantised reference included. -1 with the
 * verdict. */
int kvg_expect_all(struct kvg_execution *x, struct kvg_expectation **out);
/* What the row must say about how much was checked. */
void kvg_remark_whole(struct kvg_execution *x);
void kvg_whole_free(struct kvg_execution *x);

/* What the session knows of the case's kernel, phase, path and dtype; NULL when there is no room for more. */
struct kvg_follower *kvg_follower_of(struct kvg_execution *x);
/* Shall the inputs of this case change in place once more? Always where it is timed; else twice for each
 * kernel, phase, path and dtype: an answer that is remembered buys nothing where no clock runs, and would be
 * wrong in the next case that finds its buffers at the same place. */
int kvg_wants_renewal(struct kvg_execution *x);
/* The same for further runs (below): twice for each kernel, phase, path and dtype, timed or not. */
int kvg_wants_again(struct kvg_execution *x);
/* ---- execute_failure.c: what a row says of a failure beside its reason ---- */

/* The kind of fault and what speaks for it, in the row; the last call wins. */
void kvg_suspect(struct kvg_execution *x, enum kvg_fault_class suspected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The output that kvg_compare_outputs last compared did not hold: evidence and suspicion. The kernel
 * is called again, with `args`. The verdict stays what it is. */
void kvg_explain_attention(struct kvg_execution *x, const struct kvg_attention_args *args,
                           const struct kvg_expectation *e, enum kvg_run_kind run);
/* The output that was last compared held: it will be known again. */
void kvg_remember_output(struct kvg_execution *x);
/* The next run is of this kind: should it end the process, that says something. */
void kvg_announce(const struct kvg_execution *x, enum kvg_run_kind run);
/* Caches (host copies) that a store left wrong, and a Q quantised wrong. */
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
/* The same work in other orders (execute_permute.c): each kind twice for each kernel, phase, path and dtype,
 * where the case has something to rearrange and its cache is not too large. For a kernel that was seen to
 * follow changed inputs. Leaves other outputs behind than the verified ones. -1 with the verdict. */
int kvg_attend_permuted(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e);
/* The same in pages far into the cache. For a kernel that was seen to follow changed pages: one that does not
 * would fail here with the wrong words. */
int kvg_attend_far(struct kvg_execution *x, const struct kvg_attention_args *args,
                   const struct kvg_expectation *e);

/* Caches whose page numbers start so high that number times stride takes more than 32 bits. On the host only
 * the last cache_elements take memory, the rest is address space; on a device all of it does. */
struct kvg_far_cache {
    void *mapping[2]; /* of K and V, or the device's buffers */
    size_t mapping_bytes;
    int64_t first_block; /* added to every block number */
    struct kvg_pages pages[2];
    void *filled[2]; /* first byte of block first_block */
    int64_t bytes;   /* of each cache behind it */
};
/* 0, or -1 where there is no room for such a thing (nothing to free then). */
int kvg_far_cache(struct kvg_execution *x, struct kvg_far_cache *far);
void kvg_far_cache_free(struct kvg_execution *x, struct kvg_far_cache *far);

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
