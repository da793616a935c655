/* SPDX-License-Identifier: Apache-2.0
 *
 * device_check_times.c: checks timed regions, flush, graphs, conditions and roofs. Speeds are printed. It
 * checks that they are numbers, that no gather roof is more than 10 % above a linear one, and that recorded
 * calls do the same as direct calls.
 */
#include "device_check.h"
#include "harness/device/cuda/launch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- times and graphs */

static double region(struct checks *c, int hold, int flush, void *data, int64_t bytes)
{
    double seconds = NAN;
    if ((flush && c->d->ops->flush(c->d)) || c->d->ops->start(c->d, hold) ||
        (bytes && kvg_launch_read(data, bytes, 0, data, c->d->ops->stream(c->d)) != cudaSuccess) ||
        c->d->ops->stop(c->d, &seconds))
        return NAN;
    return seconds;
}

static void check_regions(struct checks *c)
{
    const int64_t bytes = (int64_t)16 << 20;
    void *data = must_allocate(c, bytes);
    double nothing = NAN, hot = NAN, cold = NAN, flush = NAN;
    int bad = c->d->ops->fill(c->d, data, 0x3c, bytes);
    for (int i = 0; i < 3; i++) {
        nothing = region(c, 1, 0, NULL, 0);
        hot = region(c, 1, 0, data, bytes);
        cold = region(c, 0, 1, data, bytes);
    }
    const double before = now();
    for (int i = 0; i < 10; i++)
        bad += c->d->ops->flush(c->d);
    bad += c->d->ops->finish(c->d);
    flush = (now() - before) / 10;
    check(c, !bad && nothing >= 0 && hot > 0 && cold > 0,
          "timed regions: nothing %.2f us, 16 MiB hot %.2f us, cold %.2f us; a flush takes %.0f us",
          nothing * 1e6, hot * 1e6, cold * 1e6, flush * 1e6);
    c->d->ops->release(c->d, data);
}

struct recorded {
    struct checks *c;
    unsigned char *to, *from;
    int code, allocate;
};

/* Copies 4096 bytes from `from` to `to`, or does something that cannot be recorded. */
static int call(void *context)
{
    struct recorded *r = context;
    void *data = NULL;
    if (r->allocate && cudaMalloc(&data, 4096) != cudaSuccess)
        return KVG_EDEVICE;
    if (kvg_launch_copy(r->to, r->from, 4096, 0, r->c->d->ops->stream(r->c->d)) != cudaSuccess)
        return KVG_EDEVICE;
    return r->code;
}

static int all_are(struct checks *c, const void *there, int byte)
{
    unsigned char got[4096];
    if (c->d->ops->download(c->d, got, there, sizeof got))
        return 0;
    for (size_t i = 0; i < sizeof got; i++)
        if (got[i] != byte)
            return 0;
    return 1;
}

static void check_graphs(struct checks *c)
{
    struct recorded r = {c, must_allocate(c, 4096), must_allocate(c, 4096), 0, 0};
    const struct kvg_device_ops *o = c->d->ops;
    void *recording = NULL;
    int bad = o->fill(c->d, r.to, 1, 4096) || o->fill(c->d, r.from, 2, 4096) ||
              o->record(c->d, call, &r, &recording);
    check(c, !bad && recording && all_are(c, r.to, 1), "recording a call does not run it");
    for (int i = 3; i < 6 && !bad; i++)
        bad = o->fill(c->d, r.from, i, 4096) || o->replay(c->d, recording) || !all_are(c, r.to, i);
    check(c, !bad, "each replay runs the recorded call");
    double seconds = NAN;
    bad = bad || o->start(c->d, 1) || o->replay(c->d, recording) || o->stop(c->d, &seconds);
    check(c, !bad && seconds > 0, "a replay takes %.2f us", seconds * 1e6);
    if (recording)
        o->forget(c->d, recording);
    void *none = &r;
    r.code = KVG_EINVAL;
    bad = !o->record(c->d, call, &r, &none);
    printf("  refused: %s\n", c->d->error);
    check(c, !bad && !none && !c->d->lost && !o->finish(c->d), "a call that fails is not recorded");
    r.code = 0;
    r.allocate = 1;
    none = &r;
    bad = !o->record(c->d, call, &r, &none);
    printf("  refused: %s\n", c->d->error);
    check(c, !bad && !none && !c->d->lost && !o->finish(c->d), "a call that allocates cannot be recorded");
    r.allocate = 0;
    bad = o->record(c->d, call, &r, &recording) || o->fill(c->d, r.from, 9, 4096) ||
          o->replay(c->d, recording) || !all_are(c, r.to, 9);
    check(c, !bad, "recording works again");
    if (recording)
        o->forget(c->d, recording);
    o->release(c->d, r.to);
    o->release(c->d, r.from);
}

static void print_conditions(struct checks *c, const char *what, const struct kvg_device_conditions *x)
{
    check(c, x->sm_clock > 0 || x->power > 0 || x->why[0],
          "conditions %s: SM %.0f MHz, memory %.0f MHz, %.0f W, %.2f J, %.0f C, throttle '%s' %s", what,
          x->sm_clock / 1e6, x->memory_clock / 1e6, x->power, x->energy, x->temperature, x->throttle, x->why);
}

static void check_conditions(struct checks *c)
{
    struct kvg_device_conditions x;
    const int64_t bytes = (int64_t)1 << 30;
    void *data = must_allocate(c, bytes);
    c->d->ops->conditions_begin(c->d);
    c->d->ops->conditions_end(c->d, &x);
    print_conditions(c, "without work", &x);
    c->d->ops->conditions_begin(c->d);
    const double end = now() + 0.3;
    while (now() < end)
        if (isnan(region(c, 0, 0, data, bytes)))
            break;
    c->d->ops->conditions_end(c->d, &x);
    print_conditions(c, "during 0.3 s of reading", &x);
    check(c, isnan(x.energy) || x.energy > 0, "energy increases");
    c->d->ops->release(c->d, data);
}

void check_times(struct checks *c)
{
    check_regions(c);
    check_graphs(c);
    check_conditions(c);
}

/* ---------------------------------------------------------------- roofs */

struct shape {
    const char *name;
    enum kvg_dtype dtype;
    int hnd, ragged;
    int64_t batch, len, head_dim, block_size, window;
};

static int64_t element_of(enum kvg_dtype dtype)
{
    return dtype == KVG_BF16 ? 2 : 1;
}

/* Blocks are spread over the whole cache: 1000003 is prime and divides no number of blocks here. */
static void check_gather(struct checks *c, const struct shape *s, double read)
{
    enum { KV_HEADS = 8 };
    const int64_t pages = (s->len + s->block_size - 1) / s->block_size, blocks = s->batch * pages + 1;
    const int64_t row = s->head_dim, token = KV_HEADS * row, element = element_of(s->dtype);
    const int64_t cache = blocks * s->block_size * token;
    int32_t *table = must_malloc(4 * s->batch * pages), *lens = must_malloc(4 * s->batch);
    int32_t *first = must_malloc(4 * s->batch);
    for (int64_t i = 0; i < s->batch * pages; i++)
        table[i] = (int32_t)((i * 1000003 + 1) % blocks);
    for (int64_t b = 0; b < s->batch; b++) {
        lens[b] = (int32_t)(s->ragged ? s->len * (b + 1) / s->batch - b % 3 : s->len);
        first[b] = (int32_t)(s->window && lens[b] > s->window ? lens[b] - s->window : 0);
    }
    const struct kvg_problem problem = {.kv_dtype = s->dtype,
                                        .batch = s->batch,
                                        .q_heads = 32,
                                        .kv_heads = KV_HEADS,
                                        .head_dim = row,
                                        .block_size = s->block_size,
                                        .max_seq_len = s->len,
                                        .window = s->window};
    struct kvg_attention_args a = {.problem = &problem, .num_blocks = blocks, .block_table_stride = pages};
    a.k_cache = (struct kvg_pages){must_allocate(c, cache * element), s->block_size * token,
                                   s->hnd ? row : token, s->hnd ? s->block_size * row : row};
    a.v_cache = a.k_cache;
    a.v_cache.data = must_allocate(c, cache * element);
    int32_t *there = must_allocate(c, 4 * s->batch * pages);
    a.block_table = there;
    int bad = c->d->ops->upload(c->d, there, table, 4 * s->batch * pages);
    bad +=
        kvg_launch_noise(KVG_BF16, a.k_cache.data, cache * element / 2, 1, 128, c->d->ops->stream(c->d)) != 0;
    bad +=
        kvg_launch_noise(KVG_BF16, a.v_cache.data, cache * element / 2, 2, 128, c->d->ops->stream(c->d)) != 0;
    bad += c->d->ops->finish(c->d) != 0;
    const struct kvg_device_gather g = {&a, lens, first};
    const double start = now(), roof = c->d->ops->gather_roof(c->d, &g);
    check(c, !bad && roof > 0 && roof <= 1.1 * read,
          "gather %s: %.0f GB/s, %.1f %% of the linear read, in %.0f ms", s->name, roof / 1e9,
          100 * roof / read, (now() - start) * 1e3);
    c->d->ops->release(c->d, a.k_cache.data);
    c->d->ops->release(c->d, a.v_cache.data);
    c->d->ops->release(c->d, there);
    free(table);
    free(lens);
    free(first);
}

void check_roofs(struct checks *c)
{
    static const struct shape shapes[] = {
        {"e4m3 NHD, 64 x 32k", KVG_E4M3, 0, 0, 64, 32768, 128, 16, 0},
        {"e4m3 HND, 64 x 32k", KVG_E4M3, 1, 0, 64, 32768, 128, 16, 0},
        {"bf16 NHD, 64 x 8k", KVG_BF16, 0, 0, 64, 8192, 128, 16, 0},
        {"e4m3 NHD, 8 x 32k", KVG_E4M3, 0, 0, 8, 32768, 128, 16, 0},
        {"e4m3 HND, 8 x 32k", KVG_E4M3, 1, 0, 8, 32768, 128, 16, 0},
        {"e4m3 NHD, 1 x 128k", KVG_E4M3, 0, 0, 1, 131072, 128, 16, 0},
        {"e4m3 NHD, 1 x 8k", KVG_E4M3, 0, 0, 1, 8192, 128, 16, 0},
        {"e5m2 NHD, 16 ragged to 32k, block 64", KVG_E5M2, 0, 1, 16, 32768, 64, 64, 0},
        {"e4m3 HND, 16 ragged to 32k, window 4096", KVG_E4M3, 1, 1, 16, 32768, 128, 16, 4096},
        {"e4m3 HND, 4 ragged, window 100, head_dim 20 (4-byte loads)", KVG_E4M3, 1, 1, 4, 32768, 20, 8, 100},
    };
    struct kvg_device_roofs r, linear;
    double start = now();
    const int bad = c->d->ops->roofs(c->d, &r);
    const double all = now() - start;
    check(c, !bad && r.read > 0 && r.copy > 0 && r.cache > 0 && r.floor > 0,
          "roofs: read %.0f GB/s, copy %.0f, cache %.0f, floor %.2f us", r.read / 1e9, r.copy / 1e9,
          r.cache / 1e9, r.floor * 1e6);
    check(c,
          !bad && (r.why[0] || (r.bf16_burst > 0 && r.bf16_sustained > 0 && r.fp8_burst > 0 &&
                                r.fp8_sustained > 0 && r.fp8_promoted > 0)),
          "roofs: bf16 %.0f TFLOP/s, sustained %.0f; e4m3 %.0f, sustained %.0f, promoted %.0f; %s",
          r.bf16_burst / 1e12, r.bf16_sustained / 1e12, r.fp8_burst / 1e12, r.fp8_sustained / 1e12,
          r.fp8_promoted / 1e12, r.why);
    start = now();
    const int failed = c->d->ops->linear_roofs(c->d, &linear);
    check(c, !failed && linear.read > 0 && isnan(linear.bf16_burst),
          "linear roofs: read %.0f GB/s, copy %.0f, cache %.0f, floor %.2f us; %.0f ms (all roofs: %.2f s)",
          linear.read / 1e9, linear.copy / 1e9, linear.cache / 1e9, linear.floor * 1e6, (now() - start) * 1e3,
          all);
    const char *key, *value;
    for (int64_t i = 0; !c->d->ops->fact(c->d, i, &key, &value); i++)
        if (!strcmp(key, "cublaslt"))
            printf("%s: %s\n", key, value);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_gather(c, &shapes[i], r.read > linear.read ? r.read : linear.read);
}
