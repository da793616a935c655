/* SPDX-License-Identifier: Apache-2.0
 *
 * synthetic.c: the distributions, as vectors of factors and offsets per head and channel around one normal
 * deviate per element (generate.h).
 *
 * Factors. K and V of head h carry 2^U(-2,2) each, so scales measured per head differ by up to 16 and a
 * kernel that takes another head's scale is found out. Were Q's factor drawn freely as well, the product of
 * the Q and K factors, up to 2^4, would decide how sharp the softmax of each head is, and "normal", "sink"
 * and "needle" would mean something else in every head. So a Q head carries the inverse of its KV head's K
 * factor, times 2^U(-1/2,1/2): logits stay near N(0,1) (standard deviation 0.7 to 1.4), Q scales still differ
 * between heads by up to 32, and differ inside a GQA group too, so that its maximum matters. sink and needle
 * go without that last part: their logits are meant exactly.
 *
 * Factors, wide channels and directions belong to `seed` whatever the token set, as a model's channels are
 * the same in calibration and use; the deviates of other sets come from seed + 1.
 */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "reference/clones.h"
#include "parts.h"

/* A wide K channel is this much larger; Q is this much smaller there. The logit's standard deviation becomes
 * sqrt(1 + (20/4)^2 / 32) = 1.33 for channel_outlier and sqrt(1 + 4^2 / 32) = 1.22 for k_wide. */
#define CHANNEL_OUTLIER_K 20.0f
#define CHANNEL_OUTLIER_Q 0.25f
/* With the smallest factor, 2^-2, a wide channel still has sigma 512: two values in five beyond 448. */
#define K_WIDE_K 2048.0f
#define K_WIDE_Q 0x1p-9f
#define CHANNEL_GROUP 32 /* one wide channel in each group of this many */

/* Needle: q = s + z/4, key = 24/sqrt(d) s, so its logit is 24 +- 0.25 * 24/sqrt(d), other logits are
 * N(0, 1.06); at 2^20 keys all others together weigh 2^20 e^0.53 / e^24 = 7e-5. The key is no larger than an
 * ordinary one, so it moves no scale. Its V is +-2 in every channel. */
#define NEEDLE_LOGIT 24.0f
#define NEEDLE_NOISE 0.25f
#define NEEDLE_V 2.0f
/* Sink: q = s + z/2, other logits N(0, 1.25), so n keys weigh n e^0.625 and a sink logit of ln n + 2 takes
 * e^2 / (e^2 + e^0.625) = 80% at every context. As in real models its V is small. */
#define SINK_LOGIT_ABOVE_LOG 2.0f
#define SINK_NOISE 0.5f
#define SINK_V 0.125f
#define V_SMALL 0x1p-9f

/* 2^u for u in [-4, 4] with + and * alone. */
static float power_of_two(double u)
{
    int whole = (int)(u + 8) - 8; /* floor */
    double x = (u - whole) * 0.69314718055994530942, sum = 1;
    for (int i = 14; i >= 1; i--)
        sum = 1 + sum * x / i;
    return (float)ldexp(sum, whole);
}

/* Uniform in [-half, half) from the stream of factors. */
static double uniform(uint64_t seed, enum kvg_tensor tensor, int64_t head, double half)
{
    uint32_t bits = kvg_random_bits(seed, KVG_STREAM_FACTOR + (uint32_t)tensor, 0, 0, (uint32_t)head, 0);
    return ((double)bits * 0x1p-31 - 1) * half;
}

/* ln n by linear interpolation between powers of two: within 0.06 and the same everywhere. */
static float log_of(int64_t n)
{
    int bits = 63 - __builtin_clzll((uint64_t)(n < 1 ? 1 : n));
    double fraction = (double)n / (double)(INT64_C(1) << bits) - 1;
    return (float)((bits + (fraction < 0 ? 0 : fraction)) * 0.69314718055994530942);
}

static int is_wide_channel(uint64_t seed, int64_t kv_head, int64_t dim, int64_t head_dim)
{
    int64_t group = dim / CHANNEL_GROUP;
    int64_t width = head_dim - group * CHANNEL_GROUP;
    width = width < CHANNEL_GROUP ? width : CHANNEL_GROUP;
    if (width < CHANNEL_GROUP && group > 0)
        return 0;
    uint32_t bits = kvg_random_bits(seed, KVG_STREAM_CHANNEL, 0, (uint32_t)group, (uint32_t)kv_head, 0);
    return dim - group * CHANNEL_GROUP == (int64_t)(bits % (uint64_t)width);
}

/* +-1: the direction shared by queries and matching key (which 0), or the pattern of the needle's V (1). */
static float direction(uint64_t seed, uint32_t which, int64_t kv_head, int64_t dim)
{
    uint32_t bits = kvg_random_bits(seed, KVG_STREAM_DIRECTION, 0, which, (uint32_t)kv_head, (uint32_t)dim);
    return bits & 1 ? 1.0f : -1.0f;
}

/* What one channel does to the deviate, before the factor of the head. */
struct channel {
    float multiply, add, special_multiply, special_add;
};

static struct channel q_channel(const struct kvg_input_shape *s, int64_t kv_head, int64_t dim)
{
    struct channel c = {1, 0, 1, 0};
    int wide = is_wide_channel(s->seed, kv_head, dim, s->head_dim);
    if (!strcmp(s->input, "channel_outlier") && wide)
        c.multiply = CHANNEL_OUTLIER_Q;
    if (!strcmp(s->input, "k_wide") && wide)
        c.multiply = K_WIDE_Q;
    if (!strcmp(s->input, "sink")) {
        c.multiply = SINK_NOISE;
        c.add = direction(s->seed, 0, kv_head, dim);
    }
    if (!strncmp(s->input, "needle", 6)) {
        c.multiply = NEEDLE_NOISE;
        c.add = direction(s->seed, 0, kv_head, dim);
    }
    return c;
}

static struct channel k_channel(const struct kvg_input_shape *s, int64_t head, int64_t dim)
{
    struct channel c = {1, 0, 1, 0};
    int wide = is_wide_channel(s->seed, head, dim, s->head_dim);
    if (!strcmp(s->input, "channel_outlier") && wide)
        c.multiply = CHANNEL_OUTLIER_K;
    if (!strcmp(s->input, "k_wide") && wide)
        c.multiply = K_WIDE_K;
    int sink = !strcmp(s->input, "sink");
    if (sink || !strncmp(s->input, "needle", 6)) {
        float logit = sink ? log_of(s->context) + SINK_LOGIT_ABOVE_LOG : NEEDLE_LOGIT;
        c.special_multiply = 0;
        c.special_add = logit / sqrtf((float)s->head_dim) * direction(s->seed, 0, head, dim);
    }
    return c;
}

static struct channel v_channel(const struct kvg_input_shape *s, int64_t head, int64_t dim)
{
    struct channel c = {1, 0, 1, 0};
    if (!strcmp(s->input, "v_small"))
        c.multiply = V_SMALL;
    if (!strcmp(s->input, "v_shift"))
        c.add = 1;
    if (!strcmp(s->input, "sink"))
        c.special_multiply = SINK_V;
    if (!strncmp(s->input, "needle", 6)) {
        c.special_multiply = 0;
        c.special_add = NEEDLE_V * direction(s->seed, 1, head, dim);
    }
    return c;
}

static float head_factor(const struct kvg_input_shape *s, enum kvg_tensor tensor, int64_t head)
{
    if (tensor != KVG_TENSOR_Q)
        return power_of_two(uniform(s->seed, tensor, head, 2.0));
    int64_t kv_head = head / (s->q_heads / s->kv_heads);
    int exact = !strcmp(s->input, "sink") || !strncmp(s->input, "needle", 6);
    double own = exact ? 0 : uniform(s->seed, KVG_TENSOR_Q, head, 0.5);
    return power_of_two(own - uniform(s->seed, KVG_TENSOR_K, kv_head, 2.0));
}

static int64_t special_token(const struct kvg_input_shape *s, double depth)
{
    if (!strcmp(s->input, "sink"))
        return 0;
    if (!strncmp(s->input, "needle", 6))
        return (int64_t)(depth * (double)(s->context > 0 ? s->context - 1 : 0) + 0.5);
    return -1;
}

int kvg_generator_make(const struct kvg_input_shape *s, enum kvg_tensor tensor, enum kvg_token_set set,
                       struct kvg_generator *g, struct kvg_error *error)
{
    memset(g, 0, sizeof *g);
    double depth = 0;
    if (!strncmp(s->input, "needle", 6) && kvg_needle_depth(s->input, &depth, error))
        return -1;
    int64_t heads = tensor == KVG_TENSOR_Q ? s->q_heads : s->kv_heads;
    int64_t n = heads * s->head_dim;
    float *vectors = malloc((size_t)n * 4 * sizeof *vectors);
    if (!vectors)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "input %s: out of memory for %lld bytes", s->input,
                        (long long)n * 16);
    for (int64_t i = 0; i < n; i++) {
        int64_t head = i / s->head_dim, dim = i % s->head_dim;
        struct channel c = tensor == KVG_TENSOR_Q   ? q_channel(s, head / (s->q_heads / s->kv_heads), dim)
                           : tensor == KVG_TENSOR_K ? k_channel(s, head, dim)
                                                    : v_channel(s, head, dim);
        float factor = head_factor(s, tensor, head);
        vectors[i] = c.multiply * factor;
        vectors[n + i] = c.add * factor;
        vectors[2 * n + i] = c.special_multiply * factor;
        vectors[3 * n + i] = c.special_add * factor;
    }
    g->seed = set == KVG_SET_EVALUATION ? s->seed : s->seed + 1;
    g->stream = KVG_STREAM_VALUE + (uint32_t)tensor * 16 + (uint32_t)set;
    g->sequence = (uint32_t)s->seq;
    g->heads = heads;
    g->head_dim = s->head_dim;
    g->multiply = vectors;
    g->add = vectors + n;
    g->special_multiply = vectors + 2 * n;
    g->special_add = vectors + 3 * n;
    g->special_token = tensor == KVG_TENSOR_Q ? -1 : special_token(s, depth);
    g->absolute = tensor == KVG_TENSOR_V && !strcmp(s->input, "v_nonneg");
    g->outliers = !strcmp(s->input, "outlier");
    return 0;
}

void kvg_generator_free(struct kvg_generator *g)
{
    free((void *)g->multiply);
    memset(g, 0, sizeof *g);
}

/* The 64 random words of dims [dim, dim + 64): 16 counters in a row. Leaf functions with restrict arrays, so
 * that the compiler makes vectors of them. */
KVG_REF_CLONES
static void random_run(uint32_t token, uint32_t head_block, uint32_t sequence, uint32_t stream, uint32_t key0,
                       uint32_t key1, uint32_t *restrict bits)
{
    for (uint32_t j = 0; j < 16; j++) {
        philox4x32_key_t key = {{key0, key1}};
        philox4x32_ctr_t counter = {{token, head_block + j, sequence, stream}};
        philox4x32_ctr_t words = philox4x32_R(10, counter, key);
        bits[j] = words.v[0];
        bits[16 + j] = words.v[1];
        bits[32 + j] = words.v[2];
        bits[48 + j] = words.v[3];
    }
}

KVG_REF_CLONES
static void normal_run(const uint32_t *restrict bits, float *restrict x)
{
    for (int j = 0; j < 64; j++)
        x[j] = kvg_normal(kvg_normal_table, bits[j]);
}

KVG_REF_CLONES
static void scale_run(float *restrict x, const float *restrict a, const float *restrict b, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        x[j] = kvg_add_rn(kvg_mul_rn(x[j], a[j]), b[j]);
}

KVG_REF_CLONES
static void round_run(const float *restrict x, uint16_t *restrict out, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        out[j] = kvg_bf16_bits(x[j]);
}

/* Dims [dim, dim + 64) of one row as floats; same bits as kvg_generate. */
static void generate_run(const struct kvg_generator *g, uint32_t token, uint32_t head, uint32_t dim,
                         float x[64])
{
    const uint32_t block = (head << 16) + dim / 4, key0 = (uint32_t)g->seed, key1 = (uint32_t)(g->seed >> 32);
    uint32_t bits[64];
    random_run(token, block, g->sequence, g->stream, key0, key1, bits);
    normal_run(bits, x);
    if (g->outliers) {
        random_run(token, block, g->sequence, g->stream + KVG_STREAM_OUTLIER, key0, key1, bits);
        for (uint32_t j = 0; j < 64; j++)
            if (bits[j] < KVG_OUTLIER_THRESHOLD)
                x[j] = kvg_with_outlier(g, kvg_normal_table, x[j], token, head, dim + j);
    }
    if (g->absolute)
        for (uint32_t j = 0; j < 64; j++)
            x[j] = fabsf(x[j]);
    int64_t i = (int64_t)head * g->head_dim + dim;
    int special = (int64_t)token == g->special_token;
    const float *a = (special ? g->special_multiply : g->multiply) + i;
    const float *b = (special ? g->special_add : g->add) + i;
    int64_t count = g->head_dim - dim < 64 ? g->head_dim - dim : 64;
    scale_run(x, a, b, count);
}

void kvg_generator_fill(const struct kvg_generator *g, int64_t first, int64_t tokens, int threads,
                        uint16_t *out)
{
    int64_t rows = tokens * g->heads;
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * g->head_dim > 65536)
    for (int64_t row = 0; row < rows; row++) {
        uint32_t token = (uint32_t)(first + row / g->heads), head = (uint32_t)(row % g->heads);
        for (int64_t dim = 0; dim < g->head_dim; dim += 64) {
            float x[64];
            generate_run(g, token, head, (uint32_t)dim, x);
            int64_t count = g->head_dim - dim < 64 ? g->head_dim - dim : 64;
            round_run(x, out + row * g->head_dim + dim, count);
        }
    }
}

/* Rounding to bf16 is monotonic, so the largest rounded value is the largest value, rounded. */
void kvg_generator_absmax(const struct kvg_generator *g, int64_t tokens, float *absmax)
{
    for (int64_t head = 0; head < g->heads; head++) {
        float largest = 0;
        for (int64_t token = 0; token < tokens; token++)
            for (int64_t dim = 0; dim < g->head_dim; dim += 64) {
                float x[64];
                generate_run(g, (uint32_t)token, (uint32_t)head, (uint32_t)dim, x);
                int64_t count = g->head_dim - dim < 64 ? g->head_dim - dim : 64;
                for (int64_t j = 0; j < count; j++)
                    largest = fabsf(x[j]) > largest ? fabsf(x[j]) : largest;
            }
        absmax[head] = kvg_bits_float((uint32_t)kvg_bf16_bits(largest) << 16);
    }
}

int kvg_synthetic_fill(const struct kvg_input_shape *shape, enum kvg_tensor tensor, int threads,
                       uint16_t *out, struct kvg_error *error)
{
    struct kvg_generator g;
    if (kvg_generator_make(shape, tensor, KVG_SET_EVALUATION, &g, error))
        return -1;
    if (tensor == KVG_TENSOR_Q)
        kvg_generator_fill(&g, shape->context - shape->q_len, shape->q_len, threads, out);
    else
        kvg_generator_fill(&g, 0, shape->context, threads, out);
    kvg_generator_free(&g);
    return 0;
}

int kvg_synthetic_absmax(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                         float **absmax, int64_t *samples, struct kvg_error *error)
{
    struct kvg_input_shape sample = *shape;
    sample.seq = 0;
    sample.context = set == KVG_SET_CALIBRATION ? KVG_SYNTHETIC_SAMPLE_TOKENS : KVG_SYNTHETIC_RANDOM_TOKENS;
    sample.q_len = sample.context;
    struct kvg_generator g;
    if (kvg_generator_make(&sample, tensor, set, &g, error))
        return -1;
    int64_t count = set == KVG_SET_CALIBRATION ? KVG_SYNTHETIC_SAMPLES : 1;
    float *out = calloc((size_t)(count * g.heads), sizeof *out);
    if (!out) {
        kvg_generator_free(&g);
        return kvg_fail(error, KVG_EXIT_TROUBLE, "input %s: out of memory", shape->input);
    }
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < count; i++) {
        struct kvg_generator mine = g;
        mine.sequence = (uint32_t)i;
        kvg_generator_absmax(&mine, sample.context, out + i * g.heads);
    }
    kvg_generator_free(&g);
    *absmax = out;
    *samples = count;
    return 0;
}
