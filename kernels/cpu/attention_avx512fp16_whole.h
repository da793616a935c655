/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_avx512fp16_whole.h: a whole tile (64 keys, all visible to every row) for up to four rows and
 * head_dim 128, in one call. Part of attention_avx512fp16.c, which includes it once.
 *
 * The arithmetic is that of attention_avx512fp16.c, bit for bit. The gain is the schedule: the 128 rows that
 * are prefetched from memory are spread over logits (seven rows for every eight keys), softmax (four rows for
 * each of four query rows) and values (seven rows for every eight keys). The sums stay in the order in which
 * dims are decoded.
 */

enum { WHOLE_DIM = 128 };

static int whole_fits(const struct kvg_problem *problem, int64_t rows)
{
    return rows <= ROWS && problem->head_dim == WHOLE_DIM && !(problem->soft_cap > 0.0f);
}

/* To the order of decoded dims, or back. */
static void reorder(int there, float *acc, int64_t acc_rows, int64_t acc_stride)
{
    for (int64_t r = 0; r < acc_rows; r++, acc += acc_stride) {
        float old[WHOLE_DIM];

        memcpy(old, acc, sizeof old);
        for (int64_t d = 0; d < WHOLE_DIM; d++)
            acc[there ? place_of(d) : d] = old[there ? d : place_of(d)];
    }
}

static void whole_begin(int64_t rows, int64_t dim, float *acc, int64_t acc_rows, int64_t acc_stride)
{
    (void)rows;
    (void)dim;
    reorder(1, acc, acc_rows, acc_stride);
}

static void whole_end(int64_t dim, float *acc, int64_t acc_rows, int64_t acc_stride)
{
    (void)dim;
    reorder(0, acc, acc_rows, acc_stride);
}

/* The same keys as struct kvg_keys, for the slow paths for NaN. */
static __attribute__((noinline)) void keys_of(const struct kvg_whole *w, int64_t group, const void **row,
                                              struct kvg_keys *keys)
{
    for (int64_t j = 0; j < KVG_TILE; j++)
        row[j] = w->group[group + j / 8] + w->offset + j % 8 * w->stride;
    *keys = (struct kvg_keys){.row = row, .count = KVG_TILE, .dim = WHOLE_DIM, .dtype = w->dtype};
}

ALWAYS_INLINE void whole_logits(enum kvg_dtype dtype, const struct kvg_whole *w, _Float16 *k, float *s)
{
    const _Float16 *q = w->packed_q;
    const float *factor = (const float *)(const void *)(q + ROWS * WHOLE_DIM);
    __m512i nan = _mm512_setzero_si512();

    for (int64_t g = 0; g < KVG_EIGHTS; g++) {
        for (int64_t i = 0; i < 8; i++) {
            for (int64_t d = 0; d < WHOLE_DIM; d += BLOCK) {
                __m512h value[2];
                decode(dtype, _mm512_loadu_si512(w->group[g] + w->offset + i * w->stride + d), value, &nan);
                _mm512_store_ph(k + i * WHOLE_DIM + d, value[0]);
                _mm512_store_ph(k + i * WHOLE_DIM + d + BLOCK / 2, value[1]);
            }
        }
        logits_block(q, factor, k, WHOLE_DIM, NULL, w, g, s + g * 8);
    }
    if (any_nan(nan)) {
        const void *row[KVG_TILE];
        struct kvg_keys keys;

        keys_of(w, 0, row, &keys);
        nan_to_logits(&keys, w->rows, s);
    }
}

/* acc = acc * factor + part. */
ALWAYS_INLINE void whole_add(int rows, const float *part, const char *p, const float *factor, float *acc,
                             int64_t acc_stride)
{
    for (int r = 0; r < rows; r++) {
        float unlift;
        memcpy(&unlift, p + r * P_ROW + KVG_TILE * 4, sizeof unlift);
        const __m512 f = _mm512_set1_ps(factor[r]), u = _mm512_set1_ps(unlift);
        for (int i = 0; i < WHOLE_DIM; i += VECTOR) {
            const __m512 old = _mm512_mul_ps(_mm512_load_ps(acc + r * acc_stride + i), f);
            _mm512_store_ps(acc + r * acc_stride + i,
                            _mm512_fmadd_ps(_mm512_load_ps(part + r * WHOLE_DIM + i), u, old));
        }
    }
}

ALWAYS_INLINE void whole_values(enum kvg_dtype dtype, int rows, const struct kvg_whole *w, const char *p,
                                const float *factor, float *part)
{
    __m512i nan = _mm512_setzero_si512();

    for (int64_t g = 0; g < KVG_EIGHTS;) {
        const int first = g == 0;
        __m512h sum[ROWS][PAIRS][2];

        clear(rows, PAIRS, sum);
        for (int64_t end = g + FLUSH_KEYS / 8; g < end; g++) {
            for (int64_t i = 0; i < 8; i++, p += 4) {
                const char *at = w->group[KVG_EIGHTS + g] + w->offset + i * w->stride;
                __m512h value[PAIRS][2];

                prefetch_near(w, KVG_EIGHTS + g + 1, i);
                if (i < WHOLE_STEP)
                    prefetch_far(w, 128 - (KVG_EIGHTS - g) * WHOLE_STEP + i);
                decode(dtype, _mm512_loadu_si512(at), value[0], &nan);
                decode(dtype, _mm512_loadu_si512(at + BLOCK), value[1], &nan);
                add_key(rows, PAIRS, p, value, sum);
            }
        }
        flush(rows, PAIRS, first, sum, part);
    }
    p -= KVG_TILE * 4;
    whole_add(rows, part, p, factor, w->acc, w->acc_stride);
    if (any_nan(nan)) {
        const void *row[KVG_TILE];
        struct kvg_keys keys;

        keys_of(w, KVG_EIGHTS, row, &keys);
        reorder(0, w->acc, rows, w->acc_stride);
        nan_to_values(&keys, rows, w->acc, w->acc_stride);
        reorder(1, w->acc, rows, w->acc_stride);
    }
}

ALWAYS_INLINE void whole_as(enum kvg_dtype dtype, const struct kvg_whole *w)
{
    _Float16 *k = w->scratch;
    float *part = (float *)(void *)(k + KEYS * WHOLE_DIM), *s = part + ROWS * WHOLE_DIM;
    char *p = (char *)(s + ROWS * KVG_TILE);
    float factor[ROWS];

    whole_logits(dtype, w, k, s);
    for (int64_t r = 0; r < w->rows; r++) {
        for (int64_t i = 0; i < 4; i++)
            prefetch_far(w, KVG_EIGHTS * WHOLE_STEP + 4 * r + i);
        factor[r] = softmax(w->how, s + r * KVG_TILE, 0, KVG_TILE, &w->state[r], p + r * P_ROW);
    }
    for (int64_t n = 4 * w->rows; n < 4 * ROWS; n++)
        prefetch_far(w, KVG_EIGHTS * WHOLE_STEP + n);
    switch (w->rows) {
    case 1:
        whole_values(dtype, 1, w, p, factor, part);
        break;
    case 2:
        whole_values(dtype, 2, w, p, factor, part);
        break;
    case 3:
        whole_values(dtype, 3, w, p, factor, part);
        break;
    default:
        whole_values(dtype, 4, w, p, factor, part);
        break;
    }
}

static void whole(const struct kvg_whole *w)
{
    if (w->dtype == KVG_E4M3)
        whole_as(KVG_E4M3, w);
    else
        whole_as(KVG_E5M2, w);
}
