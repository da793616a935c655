/* SPDX-License-Identifier: Apache-2.0
 *
 * loopback_case.h: executes one case on a loopback device: a small decode, or a variation of it, run by a
 * kernel of loopback_kernels.h or of the test, and checks its row.
 */
#ifndef KVG_TESTS_LOOPBACK_CASE_H
#define KVG_TESTS_LOOPBACK_CASE_H

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "harness/execute/execute.h"
#include "loopback_kernels.h"
#include "harness/execute/options.h"
#include "harness/execute/session.h"

#define CAPACITY (INT64_C(40) << 30)

static inline int loopback_register(const struct kvg_kernel *kernels, int count)
{
    const struct kvg_kernel **list = malloc((size_t)count * sizeof(struct kvg_kernel *));
    char why[256];
    if (!list)
        return -1;
    for (int i = 0; i < count; i++)
        list[i] = &kernels[i];
    const int failed = kvg_registry_add("this test", list, count, why, sizeof why);
    if (failed)
        print_error("%s\n", why);
    free(list);
    return failed;
}

/* Makes the device and registers the right kernels and `count` more (NULL and 0: none). 0, or -1; the reason
 * is printed. */
static inline int loopback_set_up(const struct kvg_kernel *more, int count)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one)) /* on one CPU; more threads would only wait for each other */
        return -1;
    if (loopback_register(loopback_right, LOOPBACK_RIGHT) || (count && loopback_register(more, count)))
        return -1;
    return loopback_make(&device, CAPACITY);
}

/* Session, device and options that a case runs with. */
struct setting {
    struct kvg_session *session;
    struct kvg_device_source source;
    struct kvg_run_options options;
};

static inline void begin(struct setting *s)
{
    loopback_reset(&device);
    device.capacity = CAPACITY;
    plain_calls = 0;
    memset(s, 0, sizeof *s);
    s->source = (struct kvg_device_source){.open = loopback_open,
                                           .context = &device,
                                           .plain = "cuda/loop_plain",
                                           .mirror_bytes = INT64_C(1) << 30,
                                           .part_bytes = INT64_C(1) << 20};
    kvg_run_options_default(&s->options);
    s->options.min_time = 0.002;
    s->options.min_samples = 3;
    s->options.max_samples = 8;
}

/* From now on inputs are made on the device. */
static inline void make_there(struct setting *s)
{
    s->source.mirror_bytes = 0;
}

/* begin; there = 1: inputs are made on the device. */
static inline void begin_where(struct setting *s, int there)
{
    begin(s);
    if (there)
        make_there(s);
}

static inline void end(struct setting *s)
{
    kvg_session_free(s->session);
    s->session = NULL;
    assert_int_equal(device.used, 0);
}

/* Executes a small decode. `rest` has the axes that differ from it, separated by blanks. */
static inline void run(struct setting *s, const char *kernel, const char *rest, struct kvg_row *row)
{
    static const char *const usual[][2] = {{"phase", "decode"},
                                           {"path", "dequant"},
                                           {"kv_cache_dtype", "fp8_e4m3"},
                                           {"scheme", "per_head"},
                                           {"calibration", "dataset"},
                                           {"input", "normal"},
                                           {"batch", "6"},
                                           {"context", "150"},
                                           {"heads", "8/2"},
                                           {"head_dim", "64"},
                                           {"block_size", "16"},
                                           {"layout", "NHD"},
                                           {"lengths", "uniform"},
                                           {"seed", "1"},
                                           {"cache_state", "none"}};
    char text[KVG_CASE_STRING_MAX], padded[KVG_CASE_STRING_MAX];
    struct kvg_case c;
    struct kvg_error error;
    size_t used = (size_t)snprintf(text, sizeof text, "kernel=cuda/loop_%s", kernel);
    snprintf(padded, sizeof padded, " %s", rest);
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        char axis[40];
        snprintf(axis, sizeof axis, " %s=", usual[i][0]);
        if (!strstr(padded, axis))
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", axis, usual[i][1]);
    }
    snprintf(text + used, sizeof text - used, "%s", rest[0] ? padded : "");
    if (kvg_case_parse(text, &c, &error) || kvg_case_complete(&c, &error))
        fail_msg("%s: %s", text, error.text);
    if (!s->session)
        s->session = kvg_session_new_on(&s->source);
    assert_non_null(s->session);
    assert_int_equal(kvg_row_init(row), 0);
    kvg_execute_in(s->session, &c, &s->options, row, NULL);
}

static inline void expect_row(const struct kvg_row *row, enum kvg_status status, const char *reason)
{
    if (row->status != status || !strstr(row->reason, reason))
        fail_msg("%s: %s, '%s'; wanted %s, '%s'", row->case_string,
                 kvg_status_name((enum kvg_status)row->status), row->reason, kvg_status_name(status), reason);
}

static inline void expect(struct setting *s, const char *kernel, const char *rest, enum kvg_status status,
                          const char *reason)
{
    struct kvg_row row;
    run(s, kernel, rest, &row);
    expect_row(&row, status, reason);
    kvg_row_free(&row);
}

#endif
