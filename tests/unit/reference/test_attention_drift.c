/* SPDX-License-Identifier: Apache-2.0
 *
 * test_attention_drift.c: the drift of the emulating reference against its definition, written out key by key
 * with libm's exponential. The definition covers how far a P next to a rounding boundary can move, and the
 * sums at the end of each tile.
 *
 * A P that is within the last bit of FP32 of a boundary may fall to either side of it. So the definition is
 * evaluated twice, for logit errors 0.1 % smaller and 0.1 % larger than those of the model. The drift must
 * lie between the two.
 */
#include "tests/unit/attention_fixture.h"
#include "reference/attention_tiles.h"

enum { DIM_MAX = 256, KEYS_MAX = 4100 };

struct sums {
    double max, sum, o[DIM_MAX], flips[DIM_MAX], squares[DIM_MAX], partial[DIM_MAX], flip_sum;
};

/* One row and its keys. */
struct row_at_hand {
    const struct kvg_ref_attention *a;
    const struct kvg_ref_emulation *how;
    const struct kvg_ref_drift_model *model;
    double theta_factor;
    int64_t first, last;
    double offset;
    double logit[KEYS_MAX], spread[KEYS_MAX]; /* logit in units of log2; spread of the natural logit */
    double (*v)[DIM_MAX];
};

static double operand(const struct kvg_ref_kv *kv, enum kvg_ref_format to, int64_t seq, int64_t key,
                      int64_t head, int64_t d)
{
    return (double)kvg_ref_round(
        to, kvg_ref_load(kv->format, kv->data, kvg_ref_kv_index(kv, seq, key, head) + d));
}

static double sized(double x, double floor)
{
    return x == 0 ? 0 : fmax(fabs(x), floor);
}

static void look_at(struct row_at_hand *w, const struct kvg_ref_row *r)
{
    const struct kvg_ref_attention *a = w->a;
    const int64_t g = r->q_head / (a->q_heads / a->kv_heads);
    const int64_t q = (a->cu_q_lens[r->seq] + r->q_index) * a->q_stride_token + r->q_head * a->q_stride_head;
    const double scale = a->softmax_scale * (double)a->q_scale[g * a->q_scale_stride] *
                         (double)a->k.scale[g * a->k.scale_stride];
    kvg_ref_visible(&a->mask, r->seq, a->seq_lens[r->seq], a->cu_q_lens[r->seq + 1] - a->cu_q_lens[r->seq],
                    r->q_index, &w->first, &w->last);
    w->offset =
        w->how->p_format == KVG_REF_E4M3 || w->how->p_format == KVG_REF_F16 ? w->how->p_offset_log2 : 0;
    for (int64_t j = w->first; j <= w->last; j++) {
        double dot = 0, size = 0;
        for (int64_t d = 0; d < a->head_dim; d++) {
            const double x = (double)kvg_ref_round(w->how->q_operand, kvg_ref_load(a->q_format, a->q, q + d));
            const double y = operand(&a->k, w->how->k_operand, r->seq, j, g, d);
            dot += x * y;
            size += sized(x, w->model->floors.q) * sized(y, w->model->floors.k);
            w->v[j][d] = operand(&a->v, w->how->v_operand, r->seq, j, g, d);
        }
        w->logit[j] = dot * scale * M_LOG2E;
        w->spread[j] = w->model->logit_rel * fabs(scale) * size + w->model->logit_abs;
    }
}

/* How far the rounded P moves when its logit is off by theta in either direction. */
static double farthest(const struct row_at_hand *w, float p, double theta)
{
    const double at = (double)kvg_ref_round(w->how->p_format, p);
    const double up = (double)kvg_ref_round(w->how->p_format, (float)((double)p * exp(theta))) - at;
    const double down = at - (double)kvg_ref_round(w->how->p_format, (float)((double)p * exp(-theta)));
    return fmax(up, down);
}

static void tile(const struct row_at_hand *w, int64_t from, int64_t to, struct sums *s)
{
    const int64_t dim = w->a->head_dim;
    const double before = s->max;
    for (int64_t j = from; j <= to; j++)
        s->max = fmax(s->max, w->logit[j]);
    const double shrink = before == -INFINITY ? 0 : exp2(before - s->max);
    s->sum *= shrink, s->flip_sum *= shrink;
    for (int64_t d = 0; d < dim; d++)
        s->o[d] *= shrink, s->flips[d] *= shrink, s->squares[d] *= shrink * shrink, s->partial[d] *= shrink;
    for (int64_t j = from; j <= to; j++) {
        const float p = (float)exp2(w->logit[j] - s->max + w->offset);
        const double rounded = (double)kvg_ref_round(w->how->p_format, p);
        const double theta = w->spread[j] + w->model->max_rel * fabs(s->max) * M_LN2;
        const double f = w->how->p_format == KVG_REF_F32 ? 0 : farthest(w, p, theta * w->theta_factor);
        s->sum += w->how->row_sum_of_rounded_p ? rounded : (double)p;
        s->flip_sum += f;
        for (int64_t d = 0; d < dim; d++) {
            s->o[d] += rounded * w->v[j][d];
            s->flips[d] += f * fabs(w->v[j][d]);
            s->squares[d] += f * f * w->v[j][d] * w->v[j][d];
        }
    }
    for (int64_t d = 0; d < dim; d++)
        s->partial[d] = fmax(s->partial[d], fabs(s->o[d]));
}

/* The whole row: each split with its tiles in order, then the splits together. */
static void definition(const struct row_at_hand *w, double v_scale, struct sums *out)
{
    enum { SPLITS_MAX = 64 };
    static struct sums split[SPLITS_MAX];
    const struct kvg_ref_emulation *how = w->how;
    const int64_t dim = w->a->head_dim, step = how->split_tokens ? how->split_tokens : 1 << 30;
    int64_t n = 0;
    double total = 0;
    for (int64_t start = how->split_from_window ? w->first : 0; start <= w->last; start += step) {
        const int64_t from = start > w->first ? start : w->first;
        const int64_t to = start + step - 1 < w->last ? start + step - 1 : w->last;
        if (to < from)
            continue;
        split[n] = (struct sums){.max = -INFINITY};
        const int64_t low = (from - start) / how->tile, high = (to - start) / how->tile;
        for (int64_t i = 0; i <= high - low; i++) {
            const int64_t at = start + (how->tile_last_first ? high - i : low + i) * how->tile;
            tile(w, at > from ? at : from, at + how->tile - 1 < to ? at + how->tile - 1 : to, &split[n]);
        }
        total += exp2(split[n].max - w->offset) * split[n].sum;
        n++;
    }
    *out = (struct sums){0};
    for (int64_t i = 0; i < n; i++) {
        const double weight = exp2(split[i].max - w->offset) / total;
        out->flip_sum += weight * split[i].flip_sum;
        for (int64_t d = 0; d < dim; d++) {
            out->flips[d] += weight * v_scale * split[i].flips[d];
            out->squares[d] += weight * weight * v_scale * v_scale * split[i].squares[d];
            out->partial[d] += pow(weight * v_scale * split[i].partial[d], 2);
        }
    }
    for (int64_t d = 0; d < dim; d++)
        out->partial[d] = sqrt(out->partial[d]);
}

static const struct kvg_ref_emulation manners[] = {
    {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0, KVG_REF_E4M3, 8, 0, 96, 1, 0, 0, 0},
    {KVG_REF_BF16, KVG_REF_BF16, KVG_REF_BF16, 0, 0, KVG_REF_BF16, 0, 1, 32, 0, 0, 0, 0},
    {KVG_REF_BF16, KVG_REF_BF16, KVG_REF_BF16, 0, 0, KVG_REF_F16, 11, 0, 64, 0, 512, 0, 0},
    {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0, KVG_REF_E4M3, 4, 1, 17, 0, 200, 1, 0},
    {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0, KVG_REF_F32, 0, 0, 300, 0, 0, 0, 0},
};
/* Logit errors of FP32, logit errors of FP16 sums, and errors so large that e^theta is not a short series. */
static const struct kvg_ref_drift_model models[] = {
    {3e-6, 2.4e-7, 4e-7, {0, 0, 0, 0, 0, 0}},
    {4e-3, 2.4e-7, 1e-6, {0x1p-6, 0x1p-6, 0, 0, 0, 0}},
    {0.3, 0, 0.1, {0, 0, 0, 0, 0, 0}},
};
enum { MANNERS = sizeof manners / sizeof *manners, MODELS = sizeof models / sizeof *models };

static int between(double x, double low, double high)
{
    return x >= low * (1 - 1e-5) && x <= high * (1 + 1e-5);
}

static void check_rows(const struct problem *p, const struct kvg_ref_emulation *how,
                       const struct kvg_ref_drift_model *model, double (*v)[DIM_MAX])
{
    static struct row_at_hand w;
    static struct sums low, high;
    const int64_t dim = p->a.head_dim, step = p->n_rows > 20 ? p->n_rows / 10 : 1;
    double *all = malloc((size_t)(p->n_rows * (3 * dim + 2)) * sizeof *all);
    assert_non_null(all);
    const struct kvg_ref_drift drift = {all, all + p->n_rows * dim, all + 2 * p->n_rows * dim,
                                        all + 3 * p->n_rows * dim, all + p->n_rows * (3 * dim + 1)};
    assert_int_equal(kvg_ref_attention_drift(&p->a, how, model, p->rows, p->n_rows, NULL, NULL, &drift), 0);
    for (int64_t r = 0; r < p->n_rows; r += step) {
        const int64_t g = p->rows[r].q_head / (p->a.q_heads / p->a.kv_heads);
        const double v_scale = fabs((double)p->a.v.scale[g * p->a.v.scale_stride]);
        w.a = &p->a, w.how = how, w.model = model, w.v = v;
        look_at(&w, &p->rows[r]);
        w.theta_factor = 0.999;
        definition(&w, v_scale, &low);
        w.theta_factor = 1.001;
        definition(&w, v_scale, &high);
        assert_true(between(drift.flip_sum[r], low.flip_sum, high.flip_sum));
        assert_true(drift.flip_same[r] == 0); /* no two keys have the same logit */
        for (int64_t d = 0; d < dim; d++) {
            assert_true(between(drift.flips[r * dim + d], low.flips[d], high.flips[d]));
            assert_true(between(drift.sq_flips[r * dim + d], low.squares[d], high.squares[d]));
            assert_true(fabs(drift.partial[r * dim + d] - low.partial[d]) <= 1e-5 * low.partial[d] + 1e-7);
        }
    }
    free(all);
}

static void test_against_the_definition(void **state)
{
    (void)state;
    double(*v)[DIM_MAX] = malloc(KEYS_MAX * sizeof *v);
    assert_non_null(v);
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 31);
        p.a.soft_cap = 0;
        for (int i = 0; i < MANNERS; i++)
            check_rows(&p, &manners[i], &models[(i + s) % MODELS], v);
        problem_free(&p);
    }
    free(v);
}

/* Rows computed one by one on one thread have the same bits as rows that share a pass on three threads. */
static void test_same_bits(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 32);
        const int64_t dim = p.a.head_dim, n = p.n_rows, each = 3 * dim + 2;
        double *all = calloc((size_t)(n * each), sizeof *all), *one = calloc((size_t)each, sizeof *one);
        assert_true(all && one);
        const struct kvg_ref_drift together = {all, all + n * dim, all + 2 * n * dim, all + 3 * n * dim,
                                               all + n * (3 * dim + 1)};
        const struct kvg_ref_drift alone = {one, one + dim, one + 2 * dim, one + 3 * dim, one + 3 * dim + 1};
        p.a.threads = 3;
        assert_int_equal(
            kvg_ref_attention_drift(&p.a, &manners[2], &models[1], p.rows, n, NULL, NULL, &together), 0);
        p.a.threads = 1;
        for (int64_t r = 0; r < n; r += 3) {
            assert_int_equal(
                kvg_ref_attention_drift(&p.a, &manners[2], &models[1], &p.rows[r], 1, NULL, NULL, &alone), 0);
            assert_memory_equal(together.flips + r * dim, alone.flips, (size_t)dim * sizeof *one);
            assert_memory_equal(together.sq_flips + r * dim, alone.sq_flips, (size_t)dim * sizeof *one);
            assert_memory_equal(together.partial + r * dim, alone.partial, (size_t)dim * sizeof *one);
            assert_true(together.flip_sum[r] == alone.flip_sum[0]);
        }
        free(all);
        free(one);
        problem_free(&p);
    }
}

/* Every vector width gives the same bits, and the right sums. */
static void test_widths(void **state)
{
    (void)state;
    enum { DIM = 48 };
    static float size[KVG_BLOCK_TOKENS * DIM] __attribute__((aligned(64)));
    static double v_sq[KVG_BLOCK_TOKENS * DIM] __attribute__((aligned(64)));
    int64_t key[KVG_BLOCK_TOKENS], count = 0;
    float f[KVG_BLOCK_TOKENS];
    double f_sq[KVG_BLOCK_TOKENS], first[2 * DIM], sums[2 * DIM];
    uint64_t seed = 5;
    for (int i = 0; i < KVG_BLOCK_TOKENS * DIM; i++) {
        size[i] = fabsf(fixture_normal(&seed));
        v_sq[i] = (double)size[i] * (double)size[i];
    }
    for (int64_t t = 0; t < KVG_BLOCK_TOKENS; t += 1 + t % 3) {
        key[count] = t;
        f[count] = fabsf(fixture_normal(&seed));
        f_sq[count] = (double)f[count] * (double)f[count];
        count++;
    }
    const struct kvg_tiles *tiles;
    for (int n = 0; (tiles = kvg_tiles_of(n)) != NULL; n++) {
        for (int d = 0; d < 2 * DIM; d++)
            sums[d] = 1;
        tiles->add_flips(&(struct kvg_flips_tile){count, DIM, key, f, f_sq, size, v_sq, sums, sums + DIM});
        if (n == 0)
            memcpy(first, sums, sizeof first);
        assert_memory_equal(first, sums, sizeof first);
    }
    for (int d = 0; d < DIM; d++) {
        double flips = 1, squares = 1;
        for (int64_t m = 0; m < count; m++) {
            flips += (double)f[m] * (double)size[key[m] * DIM + d];
            squares += f_sq[m] * v_sq[key[m] * DIM + d];
        }
        assert_true(fabs(first[d] - flips) < 33 * 0x1p-24 * flips);
        assert_true(fabs(first[DIM + d] - squares) < 1e-14 * squares);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_definition),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
