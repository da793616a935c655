/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_loopback.c: the harness on a device, without one. Kernels of the CPU run in the memory of a
 * loopback device (loopback_device.h), whose addresses end a program that touches them by itself; right
 * kernels pass in every phase, whether the host or the device made the case, and kernels with one fault each
 * are found out by what should find them.
 */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../harness/execute.h"
#include "../../kernels/registry.h"
#include "loopback_device.h"

extern const struct kvg_kernel kvg_cpu_store_scalar, kvg_cpu_dequant_scalar, kvg_cpu_fp8_scalar;

static struct loopback device;

/* ---------------------------------------------------------------- kernels in the device's memory */

#define IN(pointer) loopback_inside(&device, pointer)

static struct kvg_scales scales_inside(struct kvg_scales s)
{
    return (struct kvg_scales){IN(s.q), IN(s.k), IN(s.v), s.stride};
}

static int overtakes; /* the kernel that runs does not wait for its stream */

/* The arguments with addresses that a CPU kernel can use. */
static struct kvg_attention_args inside(const struct kvg_attention_args *args)
{
    struct kvg_attention_args a = *args;
    assert_ptr_equal(a.stream, &device);
    if (!overtakes)
        loopback_drain(&device); /* it waits for its stream */
    a.q = IN(a.q);
    a.k_cache.data = IN(a.k_cache.data);
    a.v_cache.data = IN(a.v_cache.data);
    a.block_table = IN(a.block_table);
    a.seq_lens = IN(a.seq_lens);
    a.cu_q_lens = IN(a.cu_q_lens);
    a.scales = scales_inside(a.scales);
    a.out = IN(a.out);
    a.lse = IN(a.lse);
    a.workspace = IN(a.workspace);
    a.stream = NULL;
    return a;
}

static int dequant(const struct kvg_attention_args *args)
{
    const struct kvg_attention_args a = inside(args);
    return kvg_cpu_dequant_scalar.attention(
        &a); /* with the threads of the problem, which sized the workspace */
}

/* On a stream of its own. */
static int own_stream(const struct kvg_attention_args *args)
{
    overtakes = 1;
    const int code = dequant(args);
    overtakes = 0;
    return code;
}

static int fp8(const struct kvg_attention_args *args)
{
    const struct kvg_attention_args a = inside(args);
    return kvg_cpu_fp8_scalar.attention(&a);
}

static int store(const struct kvg_store_args *args)
{
    struct kvg_store_args a = *args;
    assert_ptr_equal(a.stream, &device);
    a.k = IN(a.k);
    a.v = IN(a.v);
    a.slot_mapping = IN(a.slot_mapping);
    a.k_cache.data = IN(a.k_cache.data);
    a.v_cache.data = IN(a.v_cache.data);
    a.scales = scales_inside(a.scales);
    a.workspace = IN(a.workspace);
    a.stream = NULL;
    return kvg_cpu_store_scalar.store(&a);
}

static int quantize_q(const struct kvg_quantize_q_args *args)
{
    struct kvg_quantize_q_args a = *args;
    assert_ptr_equal(a.stream, &device);
    a.q = IN(a.q);
    a.q8 = IN(a.q8);
    a.scales = scales_inside(a.scales);
    a.stream = NULL;
    return kvg_cpu_store_scalar.quantize_q(&a);
}

/* ---- the plain kernel: textbook attention in double, float or bf16 out ---- */

static double element(const struct kvg_attention_args *a, const struct kvg_pages *pages, int64_t b, int64_t t,
                      int64_t head, int64_t d)
{
    const struct kvg_problem *p = a->problem;
    const int64_t block = a->block_table[b * a->block_table_stride + t / p->block_size];
    return (double)kvg_ref_load(kvg_ref_format_of(p->kv_dtype), pages->data,
                                block * pages->stride_block + t % p->block_size * pages->stride_slot +
                                    head * pages->stride_head + d);
}

static void attend(const struct kvg_attention_args *a, int64_t b, int64_t i, int64_t h, float *out,
                   float *lse)
{
    const struct kvg_problem *p = a->problem;
    const int64_t g = h / (p->q_heads / p->kv_heads), n = a->seq_lens[b], row = a->cu_q_lens[b] + i,
                  q_len = a->cu_q_lens[b + 1] - a->cu_q_lens[b];
    int64_t first, last;
    kvg_ref_visible(n, q_len, i, p->window, p->causal, &first, &last);
    double *s = malloc((size_t)(n + 1) * sizeof *s), top = -INFINITY, sum = 0;
    double scale = (double)a->softmax_scale;
    scale *= a->scales.q ? (double)a->scales.q[g * a->scales.stride] : 1;
    scale *= a->scales.k ? (double)a->scales.k[g * a->scales.stride] : 1;
    assert_non_null(s);
    for (int64_t t = first; t <= last; t++) {
        s[t] = 0;
        for (int64_t d = 0; d < p->head_dim; d++)
            s[t] += (double)kvg_ref_load(kvg_ref_format_of(p->q_dtype), a->q,
                                         row * a->q_stride_token + h * a->q_stride_head + d) *
                    element(a, &a->k_cache, b, t, g, d);
        s[t] *= scale;
        if (p->soft_cap > 0)
            s[t] = (double)p->soft_cap * tanh(s[t] / (double)p->soft_cap);
        top = fmax(top, s[t]);
    }
    for (int64_t t = first; t <= last; t++)
        sum += s[t] = exp(s[t] - top);
    for (int64_t d = 0; d < p->head_dim; d++) {
        double o = 0;
        for (int64_t t = first; t <= last; t++)
            o += s[t] * element(a, &a->v_cache, b, t, g, d);
        out[d] = last < first
                     ? 0.0f
                     : (float)(o / sum * (a->scales.v ? (double)a->scales.v[g * a->scales.stride] : 1));
    }
    *lse = last < first ? -INFINITY : (float)(top + log(sum));
    free(s);
}

static int64_t plain_calls;

static int plain(const struct kvg_attention_args *args)
{
    const struct kvg_attention_args a = inside(args);
    const struct kvg_problem *p = a.problem;
    plain_calls++;
    assert_int_equal(p->out_dtype, KVG_F32);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < a.cu_q_lens[b + 1] - a.cu_q_lens[b]; i++)
            for (int64_t h = 0; h < p->q_heads; h++) {
                const int64_t row = a.cu_q_lens[b] + i;
                attend(&a, b, i, h, (float *)a.out + row * a.out_stride_token + h * a.out_stride_head,
                       &a.lse[row * a.lse_stride_token + h]);
            }
    return KVG_OK;
}

/* A thousandth too large in head 1. */
static int plain_wrong(const struct kvg_attention_args *args)
{
    const int code = plain(args);
    const struct kvg_attention_args a = inside(args);
    for (int64_t row = 0; row < a.problem->total_q; row++)
        for (int64_t d = 0; d < a.problem->head_dim; d++)
            ((float *)a.out)[row * a.out_stride_token + a.out_stride_head + d] *= 1.001f;
    return code;
}

/* ---- one fault each ---- */

static int past_end(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    ((uint8_t *)a.out)[a.problem->total_q * a.out_stride_token * 2] = 1;
    return code;
}

static int changes_input(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    ((uint8_t *)a.k_cache.data)[0] ^= 1;
    return code;
}

static uint16_t *remembered;
static float *remembered_lse;

/* Answers with its first answer. */
static int stale(const struct kvg_attention_args *args)
{
    const struct kvg_attention_args a = inside(args);
    const size_t rows = (size_t)(a.problem->total_q * a.problem->q_heads);
    const size_t elements = rows * (size_t)a.problem->head_dim;
    int code = KVG_OK;
    if (!remembered) {
        code = dequant(args);
        remembered = malloc(elements * sizeof *remembered);
        remembered_lse = malloc(rows * sizeof *remembered_lse);
        memcpy(remembered, a.out, elements * sizeof *remembered);
        memcpy(remembered_lse, a.lse, rows * sizeof *remembered_lse);
    }
    memcpy(a.out, remembered, elements * sizeof *remembered);
    if (a.lse)
        memcpy(a.lse, remembered_lse, rows * sizeof *remembered_lse);
    return code;
}

/* Sequence 3, head 5 is 2 % too large. */
static int one_sequence(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    uint16_t *out = (uint16_t *)a.out + a.cu_q_lens[3] * a.out_stride_token + 5 * a.out_stride_head;
    for (int64_t d = 0; d < a.problem->head_dim; d++)
        out[d] = kvg_ref_bf16_encode(1.02f * kvg_ref_bf16_decode(out[d]));
    return code;
}

/* The log-sum-exp of sequence 3, head 5 is off by a thousandth. */
static int one_lse(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    if (a.lse)
        a.lse[a.cu_q_lens[3] * a.lse_stride_token + 5] += 1e-3f;
    return code;
}

/* A query of an empty sequence gets a one instead of zeros; sequence 2 of a ragged batch is empty. */
static int empty_row(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    ((uint16_t *)a.out)[a.cu_q_lens[2] * a.out_stride_token] = 0x3f80;
    return code;
}

static int loses_device(const struct kvg_attention_args *args)
{
    (void)args;
    device.lose_next_finish = 1;
    return KVG_OK;
}

static int fails_to_launch(const struct kvg_attention_args *args)
{
    (void)args;
    device.fail_next_finish = 1;
    return KVG_EDEVICE;
}

/* Right until it is timed: then the launch fails. */
static int fails_when_timed(const struct kvg_attention_args *args)
{
    device.fail_next_finish = device.starts > 0;
    return dequant(args);
}

/* Right as long as nobody has recorded it: a replay comes without the plan that the call had. */
static int wrong_when_replayed(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    if (device.replays > 3)
        ((uint16_t *)a.out)[0] ^= 0x0040;
    return code;
}

/* Offsets of 32 bits: what lies further than 2^32 elements into the cache is looked for at its beginning. */
static int narrow_offsets(const struct kvg_attention_args *args)
{
    struct kvg_attention_args a = inside(args);
    const struct kvg_problem *p = a.problem;
    const int64_t entries = p->batch * a.block_table_stride;
    int32_t *table = malloc((size_t)entries * sizeof *table);
    for (int64_t i = 0; i < entries; i++)
        table[i] = (int32_t)((uint32_t)((uint64_t)a.block_table[i] * (uint64_t)a.k_cache.stride_block) /
                             (uint64_t)a.k_cache.stride_block);
    a.block_table = table;
    const int code = kvg_cpu_dequant_scalar.attention(&a);
    free(table);
    return code;
}

static int quantize_by_division(const struct kvg_quantize_q_args *args)
{
    const struct kvg_problem *p = args->problem;
    kvg_ref_quantize_q(KVG_REF_E4M3, KVG_REF_DIVIDE, KVG_REF_BF16, IN(args->q), p->total_q, p->q_heads,
                       p->kv_heads, p->head_dim, IN(args->scales.q), args->scales.stride, IN(args->q8));
    return KVG_OK;
}

/* The last token goes nowhere. */
static int store_forgets(const struct kvg_store_args *args)
{
    struct kvg_store_args a = *args;
    a.tokens -= 4; /* three padding tokens, and one */
    return store(&a);
}

/* Quotients by a product with the reciprocal. */
static int store_by_reciprocal(const struct kvg_store_args *args)
{
    const struct kvg_problem *p = args->problem;
    const int64_t *slots = IN(args->slot_mapping);
    const enum kvg_ref_format format = kvg_ref_format_of(p->kv_dtype);
    const struct kvg_pages *pages[2] = {&args->k_cache, &args->v_cache};
    const void *sources[2] = {IN(args->k), IN(args->v)};
    const float *scales[2] = {IN(args->scales.k), IN(args->scales.v)};
    for (int tensor = 0; tensor < 2; tensor++)
        for (int64_t t = 0; t < args->tokens; t++)
            for (int64_t i = 0; slots[t] >= 0 && i < p->kv_heads * p->head_dim; i++) {
                const int64_t head = i / p->head_dim;
                const float x =
                    kvg_ref_load(KVG_REF_BF16, sources[tensor], t * p->kv_heads * p->head_dim + i) *
                    (1.0f / scales[tensor][head * args->scales.stride]);
                kvg_ref_store_row(format, IN(pages[tensor]->data),
                                  slots[t] / p->block_size * pages[tensor]->stride_block +
                                      slots[t] % p->block_size * pages[tensor]->stride_slot +
                                      head * pages[tensor]->stride_head + i % p->head_dim,
                                  1, &x);
            }
    return KVG_OK;
}

/* ---- registered ---- */

static int supports_dequant(const struct kvg_problem *p, char *why, size_t size)
{
    return kvg_cpu_dequant_scalar.supports(p, why, size);
}

static int supports_fp8(const struct kvg_problem *p, char *why, size_t size)
{
    return kvg_cpu_fp8_scalar.supports(p, why, size);
}

static int supports_store(const struct kvg_problem *p, char *why, size_t size)
{
    return kvg_cpu_store_scalar.supports(p, why, size);
}

static int supports_plain(const struct kvg_problem *p, char *why, size_t size)
{
    if (p->phase != KVG_PHASE_STORE && p->out_dtype == KVG_F32)
        return 1;
    snprintf(why, size, "attention with float output");
    return 0;
}

static int64_t workspace_dequant(const struct kvg_problem *p)
{
    return kvg_cpu_dequant_scalar.workspace_bytes(p);
}

static int64_t workspace_fp8(const struct kvg_problem *p)
{
    return kvg_cpu_fp8_scalar.workspace_bytes(p);
}

static void arithmetic_dequant(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    kvg_cpu_dequant_scalar.arithmetic(p, seq_len, out);
}

static void arithmetic_fp8(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    kvg_cpu_fp8_scalar.arithmetic(p, seq_len, out);
}

static void arithmetic_loose(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    arithmetic_dequant(p, seq_len, out);
    out->deterministic = 0;
}

#define HEAD(kernel_name)                                                                                    \
    .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel),                         \
    .name = "cuda/loop_" kernel_name, .summary = "for a test", .device = KVG_DEVICE_CUDA
#define DEQUANT(kernel_name, function)                                                                       \
    {                                                                                                        \
        HEAD(kernel_name), .supports = supports_dequant, .arithmetic = arithmetic_dequant,                   \
                           .workspace_bytes = workspace_dequant, .attention = function                       \
    }
#define STORE(kernel_name, store_function, quantize_function)                                                \
    {                                                                                                        \
        HEAD(kernel_name), .supports = supports_store, .store = store_function,                              \
                           .quantize_q = quantize_function                                                   \
    }

static const struct kvg_kernel kernels[] = {
    DEQUANT("dequant", dequant),
    DEQUANT("own_stream", own_stream),
    DEQUANT("past_end", past_end),
    DEQUANT("changes_input", changes_input),
    DEQUANT("stale", stale),
    DEQUANT("one_sequence", one_sequence),
    DEQUANT("one_lse", one_lse),
    DEQUANT("empty_row", empty_row),
    DEQUANT("loses_device", loses_device),
    DEQUANT("fails_to_launch", fails_to_launch),
    DEQUANT("fails_when_timed", fails_when_timed),
    DEQUANT("wrong_when_replayed", wrong_when_replayed),
    DEQUANT("narrow_offsets", narrow_offsets),
    {HEAD("loose"), .supports = supports_dequant, .arithmetic = arithmetic_loose,
     .workspace_bytes = workspace_dequant, .attention = dequant},
    {HEAD("fp8"), .supports = supports_fp8, .arithmetic = arithmetic_fp8, .workspace_bytes = workspace_fp8,
     .quantize_q = quantize_q, .attention = fp8},
    {HEAD("fp8_dividing"), .supports = supports_fp8, .arithmetic = arithmetic_fp8,
     .workspace_bytes = workspace_fp8, .quantize_q = quantize_by_division, .attention = fp8},
    {HEAD("plain"), .supports = supports_plain, .arithmetic = arithmetic_dequant, .attention = plain},
    {HEAD("plain_wrong"), .supports = supports_plain, .arithmetic = arithmetic_dequant,
     .attention = plain_wrong},
    STORE("store", store, quantize_q),
    STORE("store_forgets", store_forgets, quantize_q),
    STORE("store_by_reciprocal", store_by_reciprocal, quantize_q),
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

/* ---------------------------------------------------------------- one case */

#define CAPACITY (INT64_C(40) << 30)

static int set_up(void **state)
{
    static const struct kvg_kernel *list[KERNELS];
    char why[256];
    cpu_set_t one;
    (void)state;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one)) /* teams of threads would only wait for each other here */
        return -1;
    for (int i = 0; i < KERNELS; i++)
        list[i] = &kernels[i];
    if (kvg_registry_add("this test", list, KERNELS, why, sizeof why)) {
        print_error("%s\n", why);
        return -1;
    }
    return loopback_make(&device, CAPACITY);
}

/* What a case runs with. */
struct setting {
    struct kvg_session *session;
    struct kvg_device_source source;
    struct kvg_run_options options;
};

static void begin(struct setting *s)
{
    loopback_reset(&device);
    device.capacity = CAPACITY;
    plain_calls = 0;
    free(remembered);
    free(remembered_lse);
    remembered = NULL;
    remembered_lse = NULL;
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

/* Cases are made on the device from now on. */
static void make_there(struct setting *s)
{
    s->source.mirror_bytes = 0;
}

static void end(struct setting *s)
{
    kvg_session_free(s->session);
    s->session = NULL;
    assert_int_equal(device.used, 0);
}

/* `rest` is what differs from a small decode; axes given twice count the last time. */
static void run(struct setting *s, const char *kernel, const char *rest, struct kvg_row *row)
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

static void expect_row(const struct kvg_row *row, enum kvg_status status, const char *reason)
{
    if (row->status != status || !strstr(row->reason, reason))
        fail_msg("%s: %s, '%s'; wanted %s, '%s'", row->case_string,
                 kvg_status_name((enum kvg_status)row->status), row->reason, kvg_status_name(status), reason);
}

static void expect(struct setting *s, const char *kernel, const char *rest, enum kvg_status status,
                   const char *reason)
{
    struct kvg_row row;
    run(s, kernel, rest, &row);
    expect_row(&row, status, reason);
    kvg_row_free(&row);
}

/* ---------------------------------------------------------------- right kernels */

static const char *const attention_cases[][2] = {
    {"dequant", "kv_cache_dtype=fp8_e4m3"},
    {"dequant", "kv_cache_dtype=fp8_e5m2 scheme=per_tensor layout=HND"},
    {"dequant", "kv_cache_dtype=auto scheme=per_tensor calibration=none lengths=ragged"},
    {"dequant", "phase=append q_len=5 lengths=ragged window=40"},
    {"dequant", "phase=prefill context=40 soft_cap=20 batch=3"},
    {"dequant", "input=v_nonneg lengths=ragged block_size=32"},
    {"fp8", "path=fp8"},
    {"fp8", "path=fp8 scheme=per_tensor phase=append q_len=3 lengths=ragged"},
    {"loose", ""},
};

static void right_kernels_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof attention_cases / sizeof attention_cases[0]; i++) {
        struct setting s;
        struct kvg_row row;
        begin(&s);
        run(&s, attention_cases[i][0], attention_cases[i][1], &row);
        expect_row(&row, KVG_PASSED, "");
        assert_string_equal(row.reason, "");
        assert_string_equal(row.device, "Loopback 1");
        assert_true(row.device_bytes >= row.kv_cache_bytes + 8 * 2 * KVG_GUARD_BYTES);
        assert_int_equal(row.n_device_checked, -1);
        assert_true(isnan(row.device_rel_l2) && isnan(row.time_floor) && isnan(row.sm_clock));
        assert_int_equal(plain_calls, 0);
        assert_int_equal(device.generated, 0);
        kvg_row_free(&row);
        end(&s);
    }
}

/* The whole output is compared, a part of it by the host. */
static void right_kernels_pass_where_the_device_makes_the_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof attention_cases / sizeof attention_cases[0]; i++) {
        struct setting s;
        struct kvg_row row;
        begin(&s);
        make_there(&s);
        s.source.part_bytes = 0; /* one sequence */
        run(&s, attention_cases[i][0], attention_cases[i][1], &row);
        expect_row(&row, KVG_PASSED, "");
        assert_string_equal(row.reason, "");
        assert_true(plain_calls == 1 && device.generated >= 4);
        const int64_t tokens = strstr(attention_cases[i][1], "ragged") ? -1 : row.n_total;
        if (tokens >= 0)
            assert_int_equal(row.n_device_checked, row.n_total);
        assert_true(row.n_device_checked > row.n_checked && row.n_device_checked <= row.n_total);
        assert_true(row.n_checked > 0 && row.n_checked < row.n_total);
        assert_true(row.device_rel_l2 > 0 && row.device_rel_l2 < 0.1);
        assert_true(row.k_saturated >= 0 && row.k_flushed >= 0);
        kvg_row_free(&row);
        end(&s);
    }
}

/* Whatever the values look like, one verified sequence of few keys is enough to judge the others by: no
 * alarm. With the smallest part the allowances have the least to go by. */
static void right_kernels_raise_no_alarm(void **state)
{
    static const char *const inputs[] = {"normal",  "outlier", "channel_outlier", "sink",  "v_nonneg",
                                         "v_shift", "v_small", "k_wide",          "needle"};
    struct setting s;
    (void)state;
    begin(&s);
    make_there(&s);
    s.source.part_bytes = 0;
    s.options.verify_rows = 2; /* one query head of each KV head */
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        for (int seed = 0; seed < 2; seed++)
            for (int on_fp8 = 0; on_fp8 < 2; on_fp8++) {
                struct kvg_row row;
                char text[200];
                snprintf(text, sizeof text,
                         "input=%s seed=%d lengths=ragged batch=12 context=%d head_dim=%d%s", inputs[i],
                         1000 * (int)i + seed, seed ? 700 : 60, i % 2 ? 128 : 64, on_fp8 ? " path=fp8" : "");
                run(&s, on_fp8 ? "fp8" : "dequant", text, &row);
                if (row.status != KVG_PASSED && row.status != KVG_MISTRUSTED)
                    fail_msg("%s: %s", row.case_string, row.reason);
                assert_true(row.n_device_checked > row.n_checked);
                kvg_row_free(&row);
            }
    end(&s);
}

/* Numbers of output elements, counted by hand: six sequences of one query, eight heads of 64. The part is
 * sequences 1 (seed mod 6), 0, 5 (the last of equals) and 4. */
static void elements_are_counted(void **state)
{
    struct setting s;
    struct kvg_row row;
    (void)state;
    begin(&s);
    make_there(&s);
    run(&s, "dequant", "", &row);
    expect_row(&row, KVG_PASSED, "");
    assert_int_equal(row.n_total, 6 * 8 * 64);
    assert_int_equal(row.n_device_checked, 6 * 8 * 64);
    assert_int_equal(row.n_checked, 4 * 8 * 64);
    assert_true(row.worst_index >= 0 && row.worst_index < row.n_total);
    const int64_t seq = row.worst_index / (8 * 64);
    assert_true(seq == 0 || seq == 1 || seq == 4 || seq == 5);
    kvg_row_free(&row);
    end(&s);
}

static void stores_pass(void **state)
{
    static const char *const cases[] = {"kv_cache_dtype=fp8_e4m3", "kv_cache_dtype=fp8_e5m2 layout=HND",
                                        "kv_cache_dtype=auto scheme=per_tensor calibration=none",
                                        "lengths=ragged scheme=per_tensor"};
    (void)state;
    for (int there = 0; there < 2; there++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct setting s;
            struct kvg_row row;
            char text[256];
            begin(&s);
            if (there)
                make_there(&s);
            snprintf(text, sizeof text, "phase=store path=none %s", cases[i]);
            run(&s, "store", text, &row);
            expect_row(&row, KVG_PASSED, "");
            assert_int_equal(row.n_device_checked, there ? row.n_total : -1);
            assert_true(there ? row.n_checked < row.n_total : row.n_checked == row.n_total);
            kvg_row_free(&row);
            end(&s);
        }
}

static void captured_input_is_mirrored(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    make_there(&s);
    expect(&s, "dequant", "input=smollm2 layer=0 heads=9/3 batch=2", KVG_PASSED, "");
    assert_int_equal(device.generated, 0);
    end(&s);
}

/* ---------------------------------------------------------------- times */

static void timed(struct setting *s, const char *kernel, const char *rest, const char *method)
{
    struct kvg_row row;
    run(s, kernel, rest, &row);
    expect_row(&row, KVG_PASSED, "");
    assert_true(row.time_median > 0 && row.n_samples >= 3 && row.kv_bytes_per_second > 0);
    assert_non_null(strstr(row.timing_method, method));
    assert_true(row.time_launch > 0 && row.time_launch <= 2 * row.time_q3);
    assert_true(row.time_floor == LOOPBACK_FLOOR);
    assert_true(row.read_roof == 4e12 && row.copy_roof == 3e12 && row.cache_roof == 9e12);
    assert_true(row.matrix_bf16_roof == 8e14 && row.matrix_bf16_sustained_roof == 6e14);
    assert_true(row.matrix_fp8_roof == 16e14 && row.matrix_fp8_sustained_roof == 12e14);
    assert_true(row.matrix_fp8_promoted_roof == 13e14);
    assert_true(row.flop_roof == (strcmp(row.path, "fp8") == 0 ? 16e14 : 8e14));
    assert_true(row.sm_clock == 1.98e9 && row.memory_clock == 3.2e9 && row.power == 450);
    assert_true(row.temperature == 41 && strcmp(row.throttle, "none") == 0);
    assert_true(isnan(row.energy_per_call) || (row.energy_per_call > 0 && row.energy_per_call <= 12.0 / 3));
    if (strcmp(row.phase, "store") != 0)
        assert_true(row.gather_roof == 3.5e12);
    else
        assert_true(isnan(row.gather_roof));
    kvg_row_free(&row);
}

static void energy_belongs_to_calls(void **state)
{
    (void)state;
    assert_true(kvg_energy_of_call(12, 3, 1) == 4);
    assert_true(kvg_energy_of_call(12, 3, KVG_ENERGY_SHARE) == 4);
    assert_true(isnan(kvg_energy_of_call(12, 3, 0.79))); /* most of it may be the flushes' */
    assert_true(isnan(kvg_energy_of_call(12, 3, NAN)));
    assert_true(isnan(kvg_energy_of_call(12, 0, 1)));
    assert_true(isnan(kvg_energy_of_call(NAN, 3, 1)));
}

static void timed_rows_are_complete(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    timed(&s, "dequant", "cache_state=cold", "loopback clock (");
    assert_true(device.flushes >= 3 && device.starts >= device.flushes);
    const int64_t flushes = device.flushes;
    timed(&s, "dequant", "cache_state=hot", "loopback clock (");
    assert_true(device.flushes == flushes && device.holds >= 3);
    timed(&s, "fp8", "path=fp8 cache_state=cold window=32", "loopback clock (");
    timed(&s, "store", "phase=store path=none cache_state=cold", "loopback clock (");
    timed(&s, "store", "phase=store path=none cache_state=hot", "loopback clock (");
    assert_int_equal(device.roofs, 1); /* the slow ones, once a session */
    assert_int_equal(device.replays, 0);
    make_there(&s);
    end(&s);
    assert_int_equal(device.bad_gather, 0);
    begin(&s);
    make_there(&s);
    timed(&s, "dequant", "cache_state=cold", "loopback clock (");
    timed(&s, "fp8", "path=fp8 cache_state=hot phase=append q_len=4", "loopback clock (");
    timed(&s, "store", "phase=store path=none cache_state=cold", "loopback clock (");
    end(&s);
    assert_int_equal(device.bad_gather, 0);
}

static void calls_are_recorded_and_replayed(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    s.options.graph = 1;
    timed(&s, "dequant", "cache_state=cold", "loopback clock around a replayed graph");
    assert_true(device.records == 1 && device.replays >= 3);
    timed(&s, "store", "phase=store path=none cache_state=hot", "loopback clock around a replayed graph");
    assert_int_equal(device.records, 2);
    device.replays = 0;
    expect(&s, "wrong_when_replayed", "cache_state=cold", KVG_INCORRECT, KVG_TIMED_OUTPUT_DIFFERS);
    device.refuse_record = 1;
    expect(&s, "dequant", "cache_state=cold", KVG_INCORRECT,
           "cannot be recorded for replay: operation not permitted");
    end(&s);
}

/* A rate that no memory has: 6 * 150 keys in no time at all would be one; here the roofs are set so low that
 * any time is too short. */
static void a_time_below_the_floor_is_remarked(void **state)
{
    struct setting s;
    struct kvg_row row;
    (void)state;
    begin(&s);
    s.options.measure_roofs = 0;
    s.session = kvg_session_new_on(&s.source);
    s.session->linear = (struct kvg_device_roofs){.floor = 3600};
    s.session->linear_taken = kvg_now();
    run(&s, "dequant", "cache_state=cold", &row);
    expect_row(&row, KVG_PASSED, "the time is not to be trusted");
    assert_true(row.time_floor == 3600 && isnan(row.read_roof));
    kvg_row_free(&row);
    end(&s);
}

/* ---------------------------------------------------------------- faults */

static void stray_writes_are_found(void **state)
{
    struct setting s;
    (void)state;
    for (int there = 0; there < 2; there++) {
        begin(&s);
        if (there)
            make_there(&s);
        expect(&s, "past_end", "", KVG_INCORRECT, "out (6144 bytes) was written 0 bytes past its end");
        assert_int_equal(kvg_session_tainted(s.session), 1);
        end(&s);
        begin(&s);
        if (there)
            make_there(&s);
        expect(&s, "changes_input", "", KVG_INCORRECT, "k_cache");
        assert_int_equal(kvg_session_tainted(s.session), 1);
        end(&s);
    }
}

/* Right until its stream is busy. */
static void a_stream_of_its_own_is_found(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    expect(&s, "own_stream", "", KVG_INCORRECT, "queued behind other work on its stream: nonfinite: ");
    end(&s);
}

static void remembered_answers_are_found(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    expect(&s, "stale", "", KVG_INCORRECT, "after its inputs changed in place");
    end(&s);
    begin(&s);
    make_there(&s);
    expect(&s, "stale", "cache_state=hot", KVG_INCORRECT, "after its inputs changed in place");
    end(&s);
}

static void narrow_offsets_are_found(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    expect(&s, "narrow_offsets", "", KVG_INCORRECT, "in pages far into the cache");
    end(&s);
    begin(&s);
    device.capacity = INT64_C(1) << 30; /* no room for such a cache: then it is not tried */
    expect(&s, "narrow_offsets", "", KVG_PASSED, "");
    end(&s);
}

/* Sequence 3 is not in the part: only the plain kernel has looked at it. */
static void a_fault_in_one_sequence_is_found(void **state)
{
    struct setting s;
    struct kvg_row row;
    (void)state;
    begin(&s);
    make_there(&s);
    expect(&s, "one_sequence", "", KVG_INCORRECT,
           "whole: 2 faults in 48 (sequence, head) groups, worst at sequence 3 head 5");
    expect(&s, "one_lse", "", KVG_INCORRECT, "worst at sequence 3 head 5: lse error");
    expect(&s, "empty_row", "lengths=ragged", KVG_INCORRECT,
           "sequence 2 head 0: a row without a visible key");
    end(&s);
    begin(&s);
    make_there(&s);
    s.source.plain = "cuda/loop_absent"; /* nobody looks: the row says so */
    run(&s, "one_sequence", "", &row);
    expect_row(&row, KVG_PASSED, "4 of 6 sequences checked: there is no kernel 'cuda/loop_absent'");
    assert_int_equal(row.n_device_checked, -1);
    kvg_row_free(&row);
    end(&s);
    begin(&s);
    expect(&s, "one_sequence", "", KVG_INCORRECT,
           "sequence 3"); /* mirrored: the references look everywhere */
    end(&s);
}

static void a_wrong_plain_kernel_is_not_believed(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    make_there(&s);
    s.source.plain = "cuda/loop_plain_wrong";
    expect(&s, "dequant", "", KVG_MISTRUSTED, "cuda/loop_plain_wrong is itself wrong: sequence 1 head 1");
    end(&s);
}

/* One value of one sequence. The part has sequences 1, 0, 5, 4: one of them is found by the pages, another by
 * nobody, for kernel and plain kernel agree on what lies there. */
static void a_case_made_wrong_is_found(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    make_there(&s);
    device.spoil_sequence = 4;
    expect(&s, "dequant", "", KVG_MISTRUSTED,
           "whatever the kernel does: K cache made on the device: sequence 4 token 75 dim 0");
    end(&s);
    begin(&s);
    make_there(&s);
    device.spoil_sequence = 0;
    expect(&s, "store", "phase=store path=none", KVG_MISTRUSTED, "sequence 0 token 75 dim 0");
    end(&s);
}

static void wrong_stores_are_found(void **state)
{
    struct setting s;
    (void)state;
    for (int there = 0; there < 2; there++) {
        begin(&s);
        if (there)
            make_there(&s);
        expect(&s, "store_forgets", "phase=store path=none", KVG_INCORRECT, "(sequence 5 token 149)");
        end(&s);
    }
    begin(&s); /* a scale of a power of two makes both rules alike; special values do not */
    expect(&s, "store_by_reciprocal", "phase=store path=none calibration=none scheme=per_tensor",
           KVG_INCORRECT, "with special values");
    expect(&s, "fp8_dividing", "path=fp8 calibration=none scheme=per_tensor", KVG_INCORRECT,
           "a Q whose quotients tie");
    end(&s);
}

/* ---------------------------------------------------------------- the device fails */

static void a_lost_device_costs_a_row(void **state)
{
    struct setting s;
    (void)state;
    for (int there = 0; there < 2; there++) {
        begin(&s);
        if (there)
            make_there(&s);
        expect(&s, "loses_device", "", KVG_CRASHED, "attention: an illegal memory access was encountered");
        assert_int_equal(kvg_session_tainted(s.session), 1);
        end(&s);
    }
    begin(&s);
    expect(&s, "fails_to_launch", "", KVG_INCORRECT,
           "KVG_EDEVICE (-4), although the kernel says it supports the case; invalid configuration argument");
    assert_int_equal(kvg_session_tainted(s.session), 0);
    expect(&s, "fails_when_timed", "cache_state=cold", KVG_INCORRECT,
           "a timed call: invalid configuration argument");
    expect(&s, "dequant", "", KVG_PASSED, "");
    end(&s);
}

static void a_full_device_costs_a_row(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    device.capacity = 3 << 20;
    expect(&s, "dequant", "context=20000", KVG_OUT_OF_MEMORY, "cache: cannot allocate");
    expect(&s, "dequant", "", KVG_PASSED, "");
    assert_int_equal(kvg_session_tainted(s.session), 0);
    end(&s);
    begin(&s);
    make_there(&s);
    device.capacity = 3 << 20;
    expect(&s, "dequant", "context=20000", KVG_OUT_OF_MEMORY, "on Loopback 1");
    end(&s);
}

static void without_a_device_rows_are_skipped(void **state)
{
    struct setting s;
    struct kvg_row row;
    (void)state;
    begin(&s);
    device.no_device = 1;
    expect(&s, "dequant", "", KVG_SKIPPED, "no NVIDIA driver is loaded");
    expect(&s, "unknown", "", KVG_SKIPPED, "no NVIDIA driver is loaded");
    run(&s, "store", "phase=store path=none", &row);
    expect_row(&row, KVG_SKIPPED, "no NVIDIA driver is loaded");
    assert_string_equal(row.device, "");
    kvg_row_free(&row);
    end(&s);
}

static void a_profiled_kernel_runs_once(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    s.options.profile = 1;
    expect(&s, "dequant", "", KVG_SKIPPED, "profiled: run once");
    make_there(&s);
    end(&s);
    begin(&s);
    s.options.profile = 1;
    make_there(&s);
    expect(&s, "dequant", "", KVG_SKIPPED, "profiled: run once");
    assert_int_equal(plain_calls, 0);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_pass),
        cmocka_unit_test(right_kernels_pass_where_the_device_makes_the_case),
        cmocka_unit_test(right_kernels_raise_no_alarm),
        cmocka_unit_test(elements_are_counted),
        cmocka_unit_test(stores_pass),
        cmocka_unit_test(captured_input_is_mirrored),
        cmocka_unit_test(energy_belongs_to_calls),
        cmocka_unit_test(timed_rows_are_complete),
        cmocka_unit_test(calls_are_recorded_and_replayed),
        cmocka_unit_test(a_time_below_the_floor_is_remarked),
        cmocka_unit_test(stray_writes_are_found),
        cmocka_unit_test(a_stream_of_its_own_is_found),
        cmocka_unit_test(remembered_answers_are_found),
        cmocka_unit_test(narrow_offsets_are_found),
        cmocka_unit_test(a_fault_in_one_sequence_is_found),
        cmocka_unit_test(a_wrong_plain_kernel_is_not_believed),
        cmocka_unit_test(a_case_made_wrong_is_found),
        cmocka_unit_test(wrong_stores_are_found),
        cmocka_unit_test(a_lost_device_costs_a_row),
        cmocka_unit_test(a_full_device_costs_a_row),
        cmocka_unit_test(without_a_device_rows_are_skipped),
        cmocka_unit_test(a_profiled_kernel_runs_once),
    };
    return cmocka_run_group_tests_name("device loopback", tests, set_up, NULL);
}
