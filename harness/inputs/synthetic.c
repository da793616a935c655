/* SPDX-License-Identifier: Apache-2.0
 *
 * synthetic.c: the distributions, as factors and offsets per head and channel for one normal deviate per
 * element (generate.h).
 *
 * Factors. K and V of each head have a factor 2^U(-2,2), so scales measured per head differ by up to 16, and
 * a kernel that uses another head's scale is detected. If the factor of Q were drawn independently, the
 * product of the Q and K factors (up to 2^4) would set how sharp the softmax of each head is, and "normal",
 * "sink" and "needle" would mean something different in every head. So the factor of a Q head is the inverse
 * of its KV head's K factor, times 2^U(-1/2,1/2):
 *   - logits stay close to N(0,1), with a standard deviation of 0.7 to 1.4;
 *   - Q scales differ between heads by up to 32;
 *   - Q scales differ inside a GQA group too, so that taking its maximum matters.
 * sink, needle and far_logits have no factor 2^U(-1/2,1/2): their logits must be exact.
 *
 * Factors, wide channels and directions depend on `seed` for every token set, since the channels of a model
 * are the same in calibration and in use. The deviates of the other sets come from seed + 1.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "generator.h"
#include "parts.h"

/* Sizes of the calibration set (samples of so many tokens) and of the one batch of random tokens. */
enum { SAMPLES = 64, SAMPLE_TOKENS = 128, RANDOM_TOKENS = 2048 };

/* Factors of K and Q in a wide channel; q_wide has those of k_wide exchanged. They make the standard
 * deviation of a logit sqrt(1 + (20/4)^2 / 32) = 1.33 for channel_outlier and sqrt(1 + 4^2 / 32) = 1.22 for
 * k_wide. */
#define CHANNEL_OUTLIER_K 20.0f
#define CHANNEL_OUTLIER_Q 0.25f
/* With the smallest factor of a head, 2^-2, a wide channel has sigma 512, so two values in five are beyond
 * 448. */
#define K_WIDE_K 2048.0f
#define K_WIDE_Q 0x1p-9f
#define CHANNEL_GROUP 32 /* channels in a group; one of them is wide */

/* far_logits, with s the direction:
 *   q = 112 s + z/4, k = -+ (5.6e4 / 112 / sqrt(d)) w s + z/50   logits near -5.6e4, or +5.6e4 in odd KV
 *   heads
 * w goes from 1/2 to 3/2 over every 8 dims, so that the products differ and their roundings are not all
 * alike. A running maximum that starts at a finite number, or an exponential without the maximum, shows. 112
 * leaves room for the factor 4 of a head below 448. The deviates of K are mostly lost in the cache, so the
 * keys have about the same weight. V has the mean 1: the logits have large rounding errors, and an output
 * near zero would show nothing. */
#define FAR_Q 112.0f
#define FAR_LOGIT 5.6e4f
#define FAR_Q_NOISE 0.25f
#define FAR_K_NOISE 0.02f

/* Needle, with s the direction (+-1 in every channel), z the deviate and d head_dim:
 *   q = s + z/4, key = 24/sqrt(d) s   the logit of the needle is 24 +- 0.25 * 24/sqrt(d)
 *   other logits                      N(0, 1.06)
 *   2^20 keys                         all others together weigh 2^20 e^0.53 / e^24 = 7e-5
 * The key is not larger than an ordinary one, so it changes no scale. Its V is +-2 in every channel. */
#define NEEDLE_LOGIT 24.0f
/* faint is a needle whose logit is 15.5 ln 2 above the others' mean, so that P of the others, relative to the
 * maximum and times 2^8, lies around 2^-7.5. The subnormals of e4m3 are 2^-9 to 7 * 2^-9. Their V is 1 + z/4,
 * and the needle's is 0, so that the output consists of them. */
#define FAINT_LOGIT 10.75f
#define FAINT_V_NOISE 0.25f
#define NEEDLE_NOISE 0.25f
#define NEEDLE_V 2.0f
/* Sink:
 *   q = s + z/2           other logits are N(0, 1.25), so n keys weigh n e^0.625
 *   logit of ln n + 2     the sink gets e^2 / (e^2 + e^0.625) = 80% of the attention at every context
 * Its V is small, as in real models. */
#define SINK_LOGIT_ABOVE_LOG 2.0f
#define SINK_NOISE 0.5f
#define SINK_V 0.125f
#define V_SMALL 0x1p-9f

/* 2^u for u in [-4, 4], from additions and multiplications only. */
static float power_of_two(double u)
{
    int whole = (int)(u + 8) - 8; /* floor */
    double x = (u - whole) * 0.69314718055994530942, sum = 1;
    for (int i = 14; i >= 1; i--)
        sum = 1 + sum * x / i;
    return (float)ldexp(sum, whole);
}

/* Uniform in [-half, half), from the stream of factors. */
static double uniform(uint64_t seed, enum kvg_tensor tensor, int64_t head, double half)
{
    uint32_t bits = kvg_random_bits(seed, KVG_STREAM_FACTOR + (uint32_t)tensor, 0, 0, (uint32_t)head, 0);
    return ((double)bits * 0x1p-31 - 1) * half;
}

/* ln n by linear interpolation between powers of two: within 0.06, and the same on every machine. */
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

/* +-1. which 0: the direction that queries and matching key share; which 1: the pattern of the needle's V. */
static float direction(uint64_t seed, uint32_t which, int64_t kv_head, int64_t dim)
{
    uint32_t bits = kvg_random_bits(seed, KVG_STREAM_DIRECTION, 0, which, (uint32_t)kv_head, (uint32_t)dim);
    return bits & 1 ? 1.0f : -1.0f;
}

/* 1 for the inputs with a key that matches every query. */
static int is_needle(const struct kvg_input_shape *s)
{
    return !strncmp(s->input, "needle", 6) || !strcmp(s->input, "faint");
}

/* What a channel does to the deviate, before the factor of the head; special_* for the special token. */
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
    if (!strcmp(s->input, "q_wide") && wide)
        c.multiply = K_WIDE_K;
    if (!strcmp(s->input, "far_logits")) {
        c.multiply = FAR_Q_NOISE;
        c.add = FAR_Q * direction(s->seed, 0, kv_head, dim);
    }
    if (!strcmp(s->input, "sink")) {
        c.multiply = SINK_NOISE;
        c.add = direction(s->seed, 0, kv_head, dim);
    }
    if (is_needle(s)) {
        c.multiply = NEEDLE_NOISE;
        c.add = direction(s->seed, 0, kv_head, dim);
    }
    return c;
}

/* 8/16, 10.25/16, ... 23.75/16: mean 1 over 8 dims. */
static float far_weight(int64_t dim)
{
    return 0.5f + 0.140625f * (float)(dim % 8) + 0.0078125f;
}

static struct channel k_channel(const struct kvg_input_shape *s, int64_t head, int64_t dim)
{
    struct channel c = {1, 0, 1, 0};
    int wide = is_wide_channel(s->seed, head, dim, s->head_dim);
    if (!strcmp(s->input, "channel_outlier") && wide)
        c.multiply = CHANNEL_OUTLIER_K;
    if (!strcmp(s->input, "k_wide") && wide)
        c.multiply = K_WIDE_K;
    if (!strcmp(s->input, "q_wide") && wide)
        c.multiply = K_WIDE_Q;
    if (!strcmp(s->input, "far_logits")) {
        c.multiply = FAR_K_NOISE;
        c.add = (head % 2 ? 1.0f : -1.0f) * (FAR_LOGIT / FAR_Q / sqrtf((float)s->head_dim)) *
                far_weight(dim) * direction(s->seed, 0, head, dim);
    }
    int sink = !strcmp(s->input, "sink");
    if (sink || is_needle(s)) {
        const int faint = !strcmp(s->input, "faint");
        float logit = sink ? log_of(s->context) + SINK_LOGIT_ABOVE_LOG : faint ? FAINT_LOGIT : NEEDLE_LOGIT;
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
    if (!strcmp(s->input, "v_shift") || !strcmp(s->input, "far_logits") || !strcmp(s->input, "faint"))
        c.add = 1;
    if (!strcmp(s->input, "faint"))
        c.multiply = FAINT_V_NOISE;
    if (!strcmp(s->input, "sink"))
        c.special_multiply = SINK_V;
    if (is_needle(s)) {
        c.special_multiply = 0;
        c.special_add = strcmp(s->input, "faint") ? NEEDLE_V * direction(s->seed, 1, head, dim) : 0;
    }
    return c;
}

static float head_factor(const struct kvg_input_shape *s, enum kvg_tensor tensor, int64_t head)
{
    if (tensor != KVG_TENSOR_Q)
        return power_of_two(uniform(s->seed, tensor, head, 2.0));
    int64_t kv_head = head / (s->q_heads / s->kv_heads);
    int exact = !strcmp(s->input, "sink") || is_needle(s) || !strcmp(s->input, "far_logits");
    double own = exact ? 0 : uniform(s->seed, KVG_TENSOR_Q, head, 0.5);
    return power_of_two(own - uniform(s->seed, KVG_TENSOR_K, kv_head, 2.0));
}

int kvg_needle_depth(const char *input, double *depth, struct kvg_error *error)
{
    *depth = 0.5;
    if (!strcmp(input, "needle"))
        return 0;
    const char *text = input + strlen("needle:");
    char *end;
    *depth = strtod(text, &end);
    if (end == text || *end || !(*depth >= 0 && *depth <= 1))
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "input %s: the depth is a number from 0 (first key) to 1 (last key)", input);
    return 0;
}

/* The token that has vectors of its own, -1 for none. */
static int64_t special_token(const struct kvg_input_shape *s, double depth)
{
    if (!strcmp(s->input, "sink"))
        return 0;
    if (is_needle(s))
        return (int64_t)(depth * (double)(s->context > 0 ? s->context - 1 : 0) + 0.5);
    return -1;
}

/* Fills the four vectors of heads * head_dim values each. */
static void fill_vectors(const struct kvg_input_shape *s, enum kvg_tensor tensor, int64_t heads,
                         float *vectors)
{
    const int64_t n = heads * s->head_dim;
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
}

int kvg_generator_make(const struct kvg_input_shape *s, enum kvg_tensor tensor, enum kvg_token_set set,
                       struct kvg_generator *g, struct kvg_error *error)
{
    memset(g, 0, sizeof *g);
    double depth = 0.5;
    if (!strncmp(s->input, "needle", 6) && kvg_needle_depth(s->input, &depth, error))
        return -1;
    const int64_t heads = tensor == KVG_TENSOR_Q ? s->q_heads : s->kv_heads, n = heads * s->head_dim;
    float *vectors = malloc((size_t)n * 4 * sizeof *vectors);
    if (!vectors)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "input %s: out of memory for %lld bytes", s->input,
                        (long long)n * 16);
    fill_vectors(s, tensor, heads, vectors);
    *g = (struct kvg_generator){.seed = set == KVG_SET_EVALUATION ? s->seed : s->seed + 1,
                                .stream = KVG_STREAM_VALUE + (uint32_t)tensor * 16 + (uint32_t)set,
                                .sequence = (uint32_t)s->seq,
                                .heads = heads,
                                .head_dim = s->head_dim,
                                .multiply = vectors,
                                .add = vectors + n,
                                .special_multiply = vectors + 2 * n,
                                .special_add = vectors + 3 * n,
                                .special_token = tensor == KVG_TENSOR_Q ? -1 : special_token(s, depth),
                                .absolute = tensor == KVG_TENSOR_V && !strcmp(s->input, "v_nonneg"),
                                .outliers = !strcmp(s->input, "outlier")};
    return 0;
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
    sample.context = set == KVG_SET_CALIBRATION ? SAMPLE_TOKENS : RANDOM_TOKENS;
    sample.q_len = sample.context;
    struct kvg_generator g;
    if (kvg_generator_make(&sample, tensor, set, &g, error))
        return -1;
    int64_t count = set == KVG_SET_CALIBRATION ? SAMPLES : 1;
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
