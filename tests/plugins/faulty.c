/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty.c: a plug-in for the tests of kvgauge. Its kernels are right except for one fault each, which is the
 * kernel's name. All share one plain attention in double precision.
 *
 *   gcc -shared -fPIC -I kernels -o faulty.so tests/plugins/faulty.c -lm
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel.h"

static float e4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    float magnitude = exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
    if ((code & 0x7f) == 0x7f)
        magnitude = NAN;
    return code & 0x80 ? -magnitude : magnitude;
}

static float bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

static uint16_t to_bf16(float x)
{
    uint32_t wide;
    memcpy(&wide, &x, sizeof wide);
    return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

static float element(const struct kvg_problem *p, const struct kvg_pages *pages, const float *scale,
                     int64_t stride, int64_t block, int64_t slot, int64_t head, int64_t d)
{
    int64_t i = block * pages->stride_block + slot * pages->stride_slot + head * pages->stride_head + d;
    if (p->kv_dtype == KVG_BF16)
        return bf16(((const uint16_t *)pages->data)[i]);
    return e4m3(((const uint8_t *)pages->data)[i]) * (scale ? scale[head * stride] : 1);
}

/* One row: query token `row` of sequence b, head h. */
static void attend(const struct kvg_attention_args *a, int64_t b, int64_t row, int64_t h)
{
    const struct kvg_problem *p = a->problem;
    int64_t g = h / (p->q_heads / p->kv_heads), dim = p->head_dim, n = a->seq_lens[b];
    int64_t q_len = a->cu_q_lens[b + 1] - a->cu_q_lens[b], i = row - a->cu_q_lens[b];
    int64_t last = p->mask == KVG_MASK_FULL ? n - 1 : n - q_len + i, first = 0;
    const uint16_t *q = (const uint16_t *)a->q + row * a->q_stride_token + h * a->q_stride_head;
    double sum = 0, top = -INFINITY, out[512] = {0};
    if (p->window > 0 && last - p->window + 1 > 0)
        first = last - p->window + 1;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t t = first; t <= last; t++) {
            int64_t block = a->block_table[b * a->block_table_stride + t / p->block_size],
                    slot = t % p->block_size;
            double s = 0;
            for (int64_t d = 0; d < dim; d++)
                s += (double)bf16(q[d]) *
                     element(p, &a->k_cache, a->scales.k.data, a->scales.k.stride_head, block, slot, g, d);
            s *= a->softmax_scale;
            if (p->soft_cap > 0)
                s = p->soft_cap * tanh(s / p->soft_cap);
            if (pass == 0) {
                top = s > top ? s : top;
                continue;
            }
            double w = exp(s - top);
            sum += w;
            for (int64_t d = 0; d < dim; d++)
                out[d] +=
                    w * element(p, &a->v_cache, a->scales.v.data, a->scales.v.stride_head, block, slot, g, d);
        }
    }
    uint16_t *o = (uint16_t *)a->out + row * a->out_stride_token + h * a->out_stride_head;
    for (int64_t d = 0; d < dim; d++)
        o[d] = to_bf16(last < first ? 0 : (float)(out[d] / sum));
    if (a->lse)
        a->lse[row * a->lse_stride_token + h] = last < first ? -INFINITY : (float)(top + log(sum));
}

static int right(const struct kvg_attention_args *a)
{
    for (int64_t b = 0; b < a->problem->batch; b++)
        for (int64_t row = a->cu_q_lens[b]; row < a->cu_q_lens[b + 1]; row++)
            for (int64_t h = 0; h < a->problem->q_heads; h++)
                attend(a, b, row, h);
    return KVG_OK;
}

static int supports(const struct kvg_problem *p, char *why, size_t size)
{
    if (p->phase != KVG_PHASE_STORE && p->path == KVG_PATH_DEQUANT && p->head_dim <= 512 &&
        (p->kv_dtype == KVG_E4M3 || p->kv_dtype == KVG_BF16))
        return 1;
    snprintf(why, size, "this plug-in takes attention on path dequant with an e4m3 or bf16 cache");
    return 0;
}

static int supports_nothing(const struct kvg_problem *p, char *why, size_t size)
{
    (void)p;
    snprintf(why, size, "takes nothing at all");
    return 0;
}

static void arithmetic(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    (void)p;
    memset(out, 0, sizeof *out);
    out->qk_operand = KVG_F32;
    out->k_scaled_before_qk = 1;
    out->qk_accumulator_bits = 24;
    out->exp2_rel_error = 1e-7;
    out->p_format = KVG_F32;
    out->pv_operand = KVG_F32;
    out->v_scaled_before_pv = 1;
    out->pv_accumulator_bits = 24;
    out->tile = seq_len > 0 ? seq_len : 1;
    out->deterministic = 1;
}

static void arithmetic_loose(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    arithmetic(p, seq_len, out);
    out->deterministic = 0;
}

static void arithmetic_anywhere(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    arithmetic(p, seq_len, out);
    out->same_bits_under = KVG_MOVE_PAGES | KVG_MOVE_HEADS | KVG_MOVE_SEQUENCES | KVG_MOVE_WORK |
                           KVG_MOVE_COMPANY | KVG_MOVE_CHUNKS;
}

static int64_t workspace(const struct kvg_problem *p)
{
    (void)p;
    return 1000;
}

/* ---- the faults ---- */

static int crashes(const struct kvg_attention_args *a)
{
    (void)a;
    fprintf(stderr, "first line\nabout to touch address 8\n");
    volatile uintptr_t address = 8; /* volatile: the compiler must not see the invalid address */
    *(volatile int *)address = 1;
    return KVG_OK;
}

static int aborts(const struct kvg_attention_args *a)
{
    (void)a;
    abort();
}

static int hangs(const struct kvg_attention_args *a)
{
    (void)a;
    while (pause() != 0)
        ;
    return KVG_OK;
}

/* Right. With more than 128 keys it first waits for the file that the environment variable KVG_FAULTY_GATE
 * names. */
static int waits(const struct kvg_attention_args *a)
{
    const char *gate = getenv("KVG_FAULTY_GATE");
    while (gate && a->problem->max_seq_len > 128 && access(gate, F_OK) != 0)
        usleep(10000);
    return right(a);
}

static int exits(const struct kvg_attention_args *a)
{
    (void)a;
    _exit(7);
}

static int killed(const struct kvg_attention_args *a)
{
    (void)a;
    return kill(getpid(), SIGKILL);
}

/* Right, but prints many lines. */
static int talks(const struct kvg_attention_args *a)
{
    for (int i = 0; i < 20000; i++) {
        printf("R{this is no row} and this line is one of many on stdout\n");
        fprintf(stderr, "and one of as many on stderr\n");
    }
    fflush(stdout);
    return right(a);
}

/* Allocates and touches memory until there is no more. The test sets a limit before it starts the worker. */
static int hungry(const struct kvg_attention_args *a)
{
    size_t piece = (size_t)16 << 20;
    (void)a;
    for (;;) {
        void *p = malloc(piece);
        if (!p)
            return KVG_ENOMEM;
        memset(p, 1, piece);
    }
}

static int refuses(const struct kvg_attention_args *a)
{
    (void)a;
    return KVG_EDEVICE;
}

static int writes_past_out(const struct kvg_attention_args *a)
{
    right(a);
    ((uint16_t *)a->out)[a->problem->total_q * a->problem->q_heads * a->problem->head_dim] = 0;
    return KVG_OK;
}

static int writes_past_workspace(const struct kvg_attention_args *a)
{
    ((char *)a->workspace)[a->workspace_bytes] = 0;
    return right(a);
}

static int writes_its_input(const struct kvg_attention_args *a)
{
    right(a);
    ((uint16_t *)(uintptr_t)a->q)[0] ^= 1;
    return KVG_OK;
}

static int64_t calls;

/* Right, but the last bit of one output depends on the number of calls so far. */
static int wavers(const struct kvg_attention_args *a)
{
    right(a);
    ((uint16_t *)a->out)[0] ^= (uint16_t)(calls++ & 1);
    return KVG_OK;
}

/* The same for the LSE, where the bound is wide enough for it. */
static int wavers_within_bounds(const struct kvg_attention_args *a)
{
    uint32_t bits;
    right(a);
    if (!a->lse)
        return KVG_OK;
    memcpy(&bits, a->lse, sizeof bits);
    bits ^= (uint32_t)(calls++ & 1);
    memcpy(a->lse, &bits, sizeof bits);
    return KVG_OK;
}

/* Repeats the output of its first call: fast, and right as long as the inputs do not change. */
static int remembers(const struct kvg_attention_args *a)
{
    static uint16_t *out;
    static float *lse;
    size_t n = (size_t)(a->problem->total_q * a->problem->q_heads), dim = (size_t)a->problem->head_dim;
    if (!out) {
        right(a);
        out = malloc(n * dim * sizeof *out);
        lse = malloc(n * sizeof *lse);
        memcpy(out, a->out, n * dim * sizeof *out);
        memcpy(lse, a->lse, n * sizeof *lse);
    }
    memcpy(a->out, out, n * dim * sizeof *out);
    if (a->lse)
        memcpy(a->lse, lse, n * sizeof *lse);
    return KVG_OK;
}

/* The values that the first call saw in a buffer. */
static const int32_t *first_seen(const int32_t *now, int64_t count, int32_t **kept)
{
    if (!*kept) {
        *kept = malloc((size_t)count * sizeof **kept);
        memcpy(*kept, now, (size_t)count * sizeof **kept);
    }
    return *kept;
}

/* Keeps the block table of its first call, as a captured graph may. */
static int remembers_pages(const struct kvg_attention_args *a)
{
    static int32_t *kept;
    struct kvg_attention_args mine = *a;
    mine.block_table = first_seen(a->block_table, a->problem->batch * a->block_table_stride, &kept);
    return right(&mine);
}

/* Keeps the sequence lengths of its first call. */
static int remembers_lengths(const struct kvg_attention_args *a)
{
    static int32_t *kept;
    struct kvg_attention_args mine = *a;
    mine.seq_lens = first_seen(a->seq_lens, a->problem->batch, &kept);
    return right(&mine);
}

/* Keeps the scales of its first call. */
static int remembers_scales(const struct kvg_attention_args *a)
{
    static float *k, *v;
    size_t bytes = (size_t)(a->scales.k.stride_head ? a->problem->kv_heads : 1) * sizeof *k;
    struct kvg_attention_args mine = *a;
    if (!k) {
        k = malloc(bytes);
        v = malloc(bytes);
        memcpy(k, a->scales.k.data, bytes);
        memcpy(v, a->scales.v.data, bytes);
    }
    mine.scales.k.data = k;
    mine.scales.v.data = v;
    return right(&mine);
}

/* Computes twice. From the third call on it does nothing, and the outputs keep their content. */
static int tires(const struct kvg_attention_args *a)
{
    static int64_t done;
    return ++done > 2 ? KVG_OK : right(a);
}

static int zeros(const struct kvg_attention_args *a)
{
    size_t n = (size_t)(a->problem->total_q * a->problem->q_heads);
    memset(a->out, 0, n * (size_t)a->problem->head_dim * sizeof(uint16_t));
    if (a->lse)
        memset(a->lse, 0, n * sizeof(float));
    return KVG_OK;
}

/* Computes page number times stride in 32 bits. */
static int overflows(const struct kvg_attention_args *a)
{
    struct kvg_attention_args near = *a;
    int64_t entries = a->problem->batch * a->block_table_stride, stride = a->k_cache.stride_block;
    int32_t table[64];
    for (int64_t i = 0; i < entries && i < 64; i++)
        table[i] = (int32_t)((uint32_t)(a->block_table[i] * stride) / (uint32_t)stride);
    near.block_table = table;
    return right(&near);
}

/* Crashes if a page lies beyond 2^32 elements. */
static int crashes_far(const struct kvg_attention_args *a)
{
    if ((int64_t)a->block_table[0] * a->k_cache.stride_block >= (INT64_C(1) << 32))
        raise(SIGSEGV);
    return right(a);
}

/* Right only if an LSE is wanted. */
static int needs_lse(const struct kvg_attention_args *a)
{
    right(a);
    if (!a->lse)
        ((uint16_t *)a->out)[0] ^= 0x8000;
    return KVG_OK;
}

/* Wrong in one bit once in 25 calls. */
static int races(const struct kvg_attention_args *a)
{
    right(a);
    ((uint16_t *)a->out)[0] ^= (uint16_t)(++calls % 25 == 0);
    return KVG_OK;
}

/* Wrong in one bit at its 700th call. */
static int races_rarely(const struct kvg_attention_args *a)
{
    right(a);
    ((uint16_t *)a->out)[0] ^= (uint16_t)(++calls == 700);
    return KVG_OK;
}

/* The last bit of the first LSE depends on where the first page is. */
static int minds_pages(const struct kvg_attention_args *a)
{
    right(a);
    if (a->lse)
        a->lse[0] =
            nextafterf(a->lse[0], 2 * (int64_t)a->block_table[0] < a->num_blocks ? INFINITY : -INFINITY);
    return KVG_OK;
}

/* The last bit of the LSE of head 0 depends on the number of the head. */
static int minds_heads(const struct kvg_attention_args *a)
{
    right(a);
    if (a->lse)
        a->lse[0] = nextafterf(a->lse[0], INFINITY);
    return KVG_OK;
}

/* The last bits of the LSE of the first row depend on the place of a sequence. */
static int minds_sequences(const struct kvg_attention_args *a)
{
    right(a);
    for (int64_t h = 0; a->lse && h < a->problem->q_heads; h++)
        a->lse[h] = nextafterf(a->lse[h], INFINITY);
    return KVG_OK;
}

/* The last bits of the LSE of a sequence depend on whether the batch holds others. */
static int minds_batch(const struct kvg_attention_args *a)
{
    right(a);
    for (int64_t i = 0; a->lse && a->problem->batch > 1 && i < a->problem->total_q * a->problem->q_heads; i++)
        a->lse[i] = nextafterf(a->lse[i], INFINITY);
    return KVG_OK;
}

/* The last bits of the LSE of a row depend on whether the call holds other rows of its sequence. */
static int minds_rows(const struct kvg_attention_args *a)
{
    const int64_t heads = a->problem->q_heads;
    right(a);
    for (int64_t b = 0; a->lse && b < a->problem->batch; b++)
        for (int64_t i = a->cu_q_lens[b] * heads;
             i < a->cu_q_lens[b + 1] * heads && a->cu_q_lens[b + 1] - a->cu_q_lens[b] > 1; i++)
            a->lse[i] = nextafterf(a->lse[i], INFINITY);
    return KVG_OK;
}

/* Wrong in a batch of several sequences with unequal numbers of query rows. */
static int fails_on_a_mixed_batch(const struct kvg_attention_args *a)
{
    right(a);
    if (a->problem->total_q != a->problem->batch * a->problem->max_q_len)
        for (int64_t i = 0; i < a->problem->total_q * a->problem->q_heads * a->problem->head_dim; i++)
            ((uint16_t *)a->out)[i] ^= 0x8000;
    return KVG_OK;
}

static int fails_on_two_threads(const struct kvg_attention_args *a)
{
    right(a);
    if (a->problem->threads == 2)
        ((uint16_t *)a->out)[0] ^= 0x8000;
    return KVG_OK;
}

/* Does not write the last element. */
static int forgets_one(const struct kvg_attention_args *a)
{
    int64_t last = a->problem->total_q * a->problem->q_heads * a->problem->head_dim - 1;
    uint16_t before = ((uint16_t *)a->out)[last];
    right(a);
    ((uint16_t *)a->out)[last] = before;
    return KVG_OK;
}

static int plans(const struct kvg_attention_args *a)
{
    memcpy(a->workspace, "planned", 8);
    return KVG_OK;
}

/* Needs what its `prepare` left in the workspace. */
static int needs_plan(const struct kvg_attention_args *a)
{
    return memcmp(a->workspace, "planned", 8) == 0 ? right(a) : KVG_EINVAL;
}

#define KERNEL_AS(id, how, declared)                                                                         \
    static const struct kvg_kernel kernel_##id = {KVG_KERNEL_ABI_VERSION,                                    \
                                                  sizeof(struct kvg_kernel),                                 \
                                                  "faulty/" #id,                                             \
                                                  "fault: " #id,                                             \
                                                  KVG_DEVICE_CPU,                                            \
                                                  -1,                                                        \
                                                  supports,                                                  \
                                                  declared,                                                  \
                                                  workspace,                                                 \
                                                  NULL,                                                      \
                                                  NULL,                                                      \
                                                  NULL,                                                      \
                                                  how,                                                       \
                                                  NULL}
#define KERNEL(id, how) KERNEL_AS(id, how, arithmetic)
KERNEL(none, right);
KERNEL(crashes, crashes);
KERNEL(aborts, aborts);
KERNEL(hangs, hangs);
KERNEL(waits, waits);
KERNEL(exits, exits);
KERNEL(killed, killed);
KERNEL(hungry, hungry);
KERNEL(refuses, refuses);
KERNEL(talks, talks);
KERNEL(writes_past_out, writes_past_out);
KERNEL(writes_past_workspace, writes_past_workspace);
KERNEL(writes_its_input, writes_its_input);
KERNEL(wavers, wavers);
KERNEL(remembers, remembers);
KERNEL(remembers_pages, remembers_pages);
KERNEL(remembers_lengths, remembers_lengths);
KERNEL(remembers_scales, remembers_scales);
KERNEL(tires, tires);
KERNEL(zeros, zeros);
KERNEL(forgets_one, forgets_one);
KERNEL(overflows, overflows);
KERNEL(crashes_far, crashes_far);
KERNEL(needs_lse, needs_lse);
KERNEL(races, races);
KERNEL(races_rarely, races_rarely);
KERNEL_AS(wavers_openly, wavers_within_bounds, arithmetic_loose);
KERNEL_AS(minds_pages, minds_pages, arithmetic_anywhere);
KERNEL_AS(minds_heads, minds_heads, arithmetic_anywhere);
KERNEL_AS(minds_sequences, minds_sequences, arithmetic_anywhere);
KERNEL_AS(minds_batch, minds_batch, arithmetic_anywhere);
KERNEL_AS(minds_rows, minds_rows, arithmetic_anywhere);
KERNEL(minds_batch_openly, minds_batch);
KERNEL(fails_on_a_mixed_batch, fails_on_a_mixed_batch);
KERNEL(fails_on_two_threads, fails_on_two_threads);
static const struct kvg_kernel kernel_takes_nothing = {KVG_KERNEL_ABI_VERSION,
                                                       sizeof(struct kvg_kernel),
                                                       "faulty/takes_nothing",
                                                       "supports no case",
                                                       KVG_DEVICE_CPU,
                                                       -1,
                                                       supports_nothing,
                                                       arithmetic,
                                                       workspace,
                                                       NULL,
                                                       NULL,
                                                       NULL,
                                                       right,
                                                       NULL};
static const struct kvg_kernel kernel_needs_plan = {KVG_KERNEL_ABI_VERSION,
                                                    sizeof(struct kvg_kernel),
                                                    "faulty/needs_plan",
                                                    "no fault: plans apart",
                                                    KVG_DEVICE_CPU,
                                                    -1,
                                                    supports,
                                                    arithmetic,
                                                    workspace,
                                                    plans,
                                                    NULL,
                                                    NULL,
                                                    needs_plan,
                                                    NULL};

static const struct kvg_kernel *const kernels[] = {&kernel_none,
                                                   &kernel_crashes,
                                                   &kernel_aborts,
                                                   &kernel_hangs,
                                                   &kernel_waits,
                                                   &kernel_exits,
                                                   &kernel_killed,
                                                   &kernel_hungry,
                                                   &kernel_refuses,
                                                   &kernel_writes_past_out,
                                                   &kernel_writes_past_workspace,
                                                   &kernel_writes_its_input,
                                                   &kernel_wavers,
                                                   &kernel_remembers,
                                                   &kernel_remembers_pages,
                                                   &kernel_remembers_lengths,
                                                   &kernel_remembers_scales,
                                                   &kernel_tires,
                                                   &kernel_zeros,
                                                   &kernel_forgets_one,
                                                   &kernel_overflows,
                                                   &kernel_crashes_far,
                                                   &kernel_needs_lse,
                                                   &kernel_races,
                                                   &kernel_races_rarely,
                                                   &kernel_wavers_openly,
                                                   &kernel_minds_pages,
                                                   &kernel_minds_heads,
                                                   &kernel_minds_sequences,
                                                   &kernel_minds_batch,
                                                   &kernel_minds_rows,
                                                   &kernel_minds_batch_openly,
                                                   &kernel_fails_on_a_mixed_batch,
                                                   &kernel_fails_on_two_threads,
                                                   &kernel_takes_nothing,
                                                   &kernel_needs_plan,
                                                   &kernel_talks};

const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count);
const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count)
{
    *count = (int64_t)(sizeof kernels / sizeof kernels[0]);
    return kernels;
}
