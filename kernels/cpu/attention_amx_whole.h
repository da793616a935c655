/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_amx_whole.h: a whole tile (64 keys, all visible to every row) of one KV head on the matrix tiles
 * of AMX, for up to 16 rows: logits, softmax and values in one call. Part of attention_amx.c.
 *
 * Schedule. Decode on one thread is limited by how little computing and memory access overlap, so the
 * schedule is fixed. Blocks of 32 keys by 64 dims are decoded one block ahead of the tiles. Between the keys
 * two streams of prefetches run, a few lines at a time and never in a burst:
 *   `far`   brings the next tile from memory to the second-level cache,
 *   `near`  brings the lines that are decoded 16 keys later from there to the first-level cache.
 *
 * Order of dims. Decoding is cheap because nothing is moved into the order of dims. Bytes are unpacked in
 * place; Q is packed in the order that K then has, and the accumulators stay in the order that V then has
 * until whole_end. V is interleaved by pairs of keys without a shuffle: words of two keys are blended. That
 * leaves the pairs of odd dims swapped, and those are multiplied by a copy of P with swapped pairs.
 *
 * Softmax. One FMA applies the scale and subtracts the maximum, which is one rounding less than the general
 * one.
 */
enum {
    SLICE = 64,            /* dims of a block */
    HALF = 32,             /* keys of a block */
    EIGHT = 8,             /* keys whose rows lie at one stride */
    BLOCK_TILES = 4,       /* decoded tiles of a block, 1 KiB each */
    TILE_WORDS = 512,      /* bf16 of a decoded tile */
    WHOLE_ROWS = 16,       /* rows at most */
    WHOLE_SLICES = 2,      /* head_dim is SLICE or twice that */
    NEAR_KEYS = 2 * EIGHT, /* `near` runs this far ahead */
    PIECE_ROWS = EIGHT     /* rows of a piece of `far` */
};

/* Tile registers. They are macros because the assembler needs literal numbers. */
#define TILE_S0 0 /* logits of 16 keys (rows) and as many more */
#define TILE_A 1  /* decoded K or V */
#define TILE_B 2
#define TILE_Q 3
#define TILE_S1 4
#define TILE_P 5
#define TILE_O0 6 /* accumulators, 16 dims */
#define TILE_O1 7

/* ---------------------------------------------------------------- layout */

static int whole_dim(int64_t dim)
{
    return dim == SLICE || dim == WHOLE_SLICES * SLICE;
}

/* Rows in fours: the softmax works on four at a time. */
static int64_t quads_of(int64_t rows)
{
    return (rows + 3) / 4;
}

static int64_t whole_columns(int64_t rows)
{
    return 4 * quads_of(rows);
}

/* Q lies behind the copy that attention_amx.c has for itself, WHOLE_ROWS rows. */
static int64_t whole_q_at(int64_t dim)
{
    return WHOLE_ROWS * dim;
}

/* It is [chunk of 32 dims][pair of dims][row, in fours][2]. */
static int64_t whole_q_words(int64_t rows, int64_t dim)
{
    return dim * whole_columns(rows);
}

/* Where dim d of a row goes: the decoding of K gives the low halves of every 16 dims of a slice to its first
 * chunk of 32, the high halves to the second. */
static int64_t whole_q_place(int64_t columns, int64_t row, int64_t d)
{
    const int64_t at = d / SLICE * SLICE + d / 8 % 2 * 32 + d % SLICE / 16 * 8 + d % 8;

    return (at / 2 * columns + row) * 2 + at % 2;
}

/* Two blocks, the logits [key][row], P and swapped P [row][key]. */
static int64_t whole_scratch_bytes(void)
{
    return 2 * BLOCK_TILES * TILE_WORDS * 2 + KVG_TILE * WHOLE_ROWS * 4 + 2 * WHOLE_ROWS * KVG_TILE * 2;
}

static int whole_fits(const struct kvg_problem *p, int64_t rows)
{
    return rows <= WHOLE_ROWS && whole_dim(p->head_dim) && p->soft_cap == 0.0f;
}

/* The dim, within its slice, of accumulator column `at` (0..63): tile at / 16 of decoded V. */
static int64_t v_dim(int64_t at)
{
    const int64_t tile = at / 16, lane = at % 16 / 4, n = at % 4;

    return 2 * (8 * lane + 4 * (tile & 1) + n) + tile / 2;
}

/* Accumulators to (inwards) or from the order of decoded V. */
static void whole_reorder(int inwards, int64_t dim, float *acc, int64_t acc_rows, int64_t acc_stride)
{
    for (int64_t i = 0; i < acc_rows * (dim / SLICE); i++) {
        float *slice = acc + i / (dim / SLICE) * acc_stride + i % (dim / SLICE) * SLICE, old[SLICE];

        memcpy(old, slice, sizeof old);
        for (int64_t at = 0; at < SLICE; at++) {
            const int64_t d = v_dim(at);
            slice[inwards ? at : d] = old[inwards ? d : at];
        }
    }
}

static void whole_configure(int64_t rows)
{
    struct tile_config config = {.palette = 1};
    const int columns = (int)whole_columns(rows), all = (int)rows;
    const int tile_rows[8] = {16, 16, 16, 16, 16, all, all, all};
    const int bytes[8] = {4 * columns, 64, 64, 4 * columns, 4 * columns, 64, 64, 64};

    for (int i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)tile_rows[i];
        config.bytes_per_row[i] = (uint16_t)bytes[i];
    }
    MEMORY_BARRIER();
    tile_config(&config);
}

/* ---------------------------------------------------------------- decoding */

/* Low byte of the bf16 of a magnitude code of e4m3, by its low four bits and whether its exponent's upper
 * bits are zero. The NaN gets 0xf0, which makes 0x7ff0, another NaN. */
#define E4M3_FOLDED(c) ((c) < 8 ? E4M3(c) : ((c)&15) << 4)
static const _Alignas(64) uint8_t folded_e4m3[64] = {BY_64(LOW, E4M3_FOLDED, 0)};

struct decoder {
    struct tables t;
    __m512i folded, bit5, sign;
};

ALWAYS_INLINE struct decoder load_decoder(enum kvg_dtype dtype)
{
    return (struct decoder){load_tables(dtype), _mm512_load_si512(folded_e4m3), _mm512_set1_epi8(0x20),
                            _mm512_set1_epi8((char)0x80)};
}

/* A load that the compiler must not repeat as a memory operand of every use. */
ALWAYS_INLINE __m512i load_once(const char *from)
{
    __m512i x = _mm512_loadu_si512(from);
    __asm__("" : "+v"(x));
    return x;
}

/* 64 codes: bytes 0..7 of every 16 to *a, bytes 8..15 to *b. */
ALWAYS_INLINE void decode_codes(enum kvg_dtype dtype, const struct decoder *t, __m512i x, __m512i *a,
                                __m512i *b)
{
    const __m512i magnitude = _mm512_permutex2var_epi8(t->t.high[0], x, t->t.high[1]);
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, x, t->sign, 0xf8); /* | (x & 80) */
    __m512i low;

    if (dtype == KVG_E4M3) { /* index: x | (x >> 1 & 20), of which the shuffle reads six bits */
        const __m512i index = _mm512_ternarylogic_epi32(x, _mm512_srli_epi16(x, 1), t->bit5, 0xf8);
        low = _mm512_permutexvar_epi8(index, t->folded);
    } else {
        low = _mm512_permutex2var_epi8(t->t.low[0], x, t->t.low[1]);
    }
    *a = _mm512_unpacklo_epi8(low, high);
    *b = _mm512_unpackhi_epi8(low, high);
}

/* 64 dims of a key, in the order of k_dim. */
ALWAYS_INLINE void decode_slice(enum kvg_dtype dtype, const struct decoder *t, const char *row, __m512i *a,
                                __m512i *b)
{
    if (dtype == KVG_BF16) {
        const __m512i x = load_once(row), y = load_once(row + 64);
        *a = _mm512_shuffle_i64x2(x, y, 0x88); /* even lanes of 8 dims */
        *b = _mm512_shuffle_i64x2(x, y, 0xdd);
        return;
    }
    decode_codes(dtype, t, load_once(row), a, b);
}

/* 64 dims of two keys as four tile rows of pairs, in the order of v_dim; the last two with b before a. */
ALWAYS_INLINE void decode_two(enum kvg_dtype dtype, const struct decoder *t, const char *a, const char *b,
                              __m512i out[4])
{
    if (dtype == KVG_BF16) {
        const __mmask32 odd = 0xaaaaaaaau;
        __m512i even_dims[2], odd_dims[2];

        for (int i = 0; i < 2; i++) {
            const __m512i x = load_once(a + 64 * i), y = _mm512_rol_epi32(load_once(b + 64 * i), 16);
            even_dims[i] = _mm512_mask_mov_epi16(x, odd, y);
            odd_dims[i] = _mm512_mask_mov_epi16(y, odd, x);
        }
        out[0] = _mm512_shuffle_i64x2(even_dims[0], even_dims[1], 0x88);
        out[1] = _mm512_shuffle_i64x2(even_dims[0], even_dims[1], 0xdd);
        out[2] = _mm512_shuffle_i64x2(odd_dims[0], odd_dims[1], 0x88);
        out[3] = _mm512_shuffle_i64x2(odd_dims[0], odd_dims[1], 0xdd);
        return;
    }
    const __mmask64 odd = 0xaaaaaaaaaaaaaaaau;
    const __m512i x = load_once(a), y = load_once(b);
    const __m512i swapped = _mm512_shldi_epi16(y, y, 8); /* bytes of every two */

    decode_codes(dtype, t, _mm512_mask_mov_epi8(x, odd, swapped), &out[0], &out[1]);
    decode_codes(dtype, t, _mm512_mask_mov_epi8(swapped, odd, x), &out[2], &out[3]);
}

/* ---------------------------------------------------------------- prefetching */

/* Rows in the order of the pieces, eight to a piece, `lines` cache lines each. */
struct stream {
    const char *at;
    const char *const *piece;
    int64_t offset, stride, row;
};

/* Prefetches one row. */
ALWAYS_INLINE void step(struct stream *s, int lines, int near)
{
    for (int i = 0; i < lines; i++)
        if (near)
            _mm_prefetch(s->at + KVG_LINE * i, _MM_HINT_T0);
        else
            _mm_prefetch(s->at + KVG_LINE * i, _MM_HINT_T1);
    s->row++;
    s->at = s->row % PIECE_ROWS ? s->at + s->stride : s->piece[s->row / PIECE_ROWS] + s->offset;
}

/* ---------------------------------------------------------------- logits */

/* Block (half, slice) of K to tiles [chunk][16 keys]. Key j of 16 becomes tile row 4 (j % 4) + j / 4, so that
 * the transposition of the logits gives keys in order. Per eight keys: 8 / slices rows of `near`, 6 / slices
 * of `far`. */
ALWAYS_INLINE void whole_k(enum kvg_dtype dtype, int slices, const struct kvg_whole *tile,
                           const struct decoder *t, struct stream *near, struct stream *far, int half,
                           int slice, uint16_t (*out)[TILE_WORDS])
{
    const int bytes = dtype == KVG_BF16 ? 2 : 1, lines = slices * bytes;
    const int64_t stride = tile->stride;

    for (int e = 0; e < HALF / EIGHT; e++) {
        const char *row = tile->group[half * (HALF / EIGHT) + e] + tile->offset + slice * SLICE * bytes;

#pragma GCC unroll 8
        for (int j = 0; j < EIGHT; j++, row += stride) {
            const int at = (j % 4 * 4 + (e & 1) * 2 + j / 4) * 32;
            const int rows = j == 3 ? 3 / slices : j == 7 ? (2 + slices) / slices : 0;
            __m512i a, b;

            decode_slice(dtype, t, row, &a, &b);
            _mm512_store_si512(out[e >> 1] + at, a);
            _mm512_store_si512(out[2 + (e >> 1)] + at, b);
            if (slices == 1 || j % 2 == 1)
                step(near, lines, 1);
#pragma GCC unroll 3
            for (int i = 0; i < rows; i++)
                step(far, lines, 0);
        }
    }
}

/* The products of a block; the last slice writes the logits of its 32 keys. */
ALWAYS_INLINE void whole_qk(int slices, int64_t quads, int slice, uint16_t (*const k)[TILE_WORDS],
                            const uint16_t *q, float *s)
{
    const int64_t columns = 4 * quads, chunk = 32 * columns;

    MEMORY_BARRIER();
    if (slice == 0) {
        tile_zero(TILE_S0);
        tile_zero(TILE_S1);
    }
    q += 2 * slice * chunk;
    tile_load(TILE_Q, q, columns * 4);
    tile_load(TILE_A, k[0], 64);
    tile_dp(TILE_S0, TILE_A, TILE_Q);
    tile_load(TILE_B, k[1], 64);
    tile_dp(TILE_S1, TILE_B, TILE_Q);
    tile_load(TILE_Q, q + chunk, columns * 4);
    tile_load(TILE_A, k[2], 64);
    tile_dp(TILE_S0, TILE_A, TILE_Q);
    tile_load(TILE_B, k[3], 64);
    tile_dp(TILE_S1, TILE_B, TILE_Q);
    if (slice == slices - 1) {
        tile_store(TILE_S0, s, columns * 4);
        tile_store(TILE_S1, s + 16 * columns, columns * 4);
    }
    MEMORY_BARRIER();
}

/* ---------------------------------------------------------------- softmax */

/* Logits of four rows and four keys, as whole_k orders these: z[i] has key 4 l + i in lane l. */
ALWAYS_INLINE __m512 load_keys(int64_t columns, const float *s, int i)
{
    const float *at = s + 4 * i * columns;
    __m512 z;

    if (columns == 4)
        return _mm512_load_ps(at);
    z = _mm512_castps128_ps512(_mm_load_ps(at));
    z = _mm512_insertf32x4(z, _mm_load_ps(at + columns), 1);
    z = _mm512_insertf32x4(z, _mm_load_ps(at + 2 * columns), 2);
    return _mm512_insertf32x4(z, _mm_load_ps(at + 3 * columns), 3);
}

/* Logits of 16 keys and four rows to t[row], keys in order. */
ALWAYS_INLINE void transpose_keys(int64_t columns, const float *s, __m512 t[4])
{
    const __m512 z0 = load_keys(columns, s, 0), z1 = load_keys(columns, s, 1), z2 = load_keys(columns, s, 2),
                 z3 = load_keys(columns, s, 3);
    const __m512 low[2] = {_mm512_unpacklo_ps(z0, z1), _mm512_unpacklo_ps(z2, z3)};
    const __m512 high[2] = {_mm512_unpackhi_ps(z0, z1), _mm512_unpackhi_ps(z2, z3)};

    t[0] = _mm512_shuffle_ps(low[0], low[1], 0x44);
    t[1] = _mm512_shuffle_ps(low[0], low[1], 0xee);
    t[2] = _mm512_shuffle_ps(high[0], high[1], 0x44);
    t[3] = _mm512_shuffle_ps(high[0], high[1], 0xee);
}

/* The largest logit of each of four rows over all keys; row r in element r of every lane. A NaN may or may
 * not be kept; it does not affect other rows. */
ALWAYS_INLINE __m512 row_maxima(int64_t columns, const float *s)
{
    __m512 most = load_keys(columns, s, 0);

    for (int i = 1; i < KVG_TILE / 4; i++)
        most = _mm512_max_ps(most, load_keys(columns, s, i));
    most = _mm512_max_ps(most, _mm512_shuffle_f32x4(most, most, 0x4e));
    return _mm512_max_ps(most, _mm512_shuffle_f32x4(most, most, 0xb1));
}

/* The sum over the 16 elements of each of four rows; row r in element r of every lane. */
ALWAYS_INLINE __m512 row_sums(const __m512 x[4])
{
    const __m512 x01 = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    const __m512 x23 = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    __m512 all = _mm512_add_ps(_mm512_shuffle_ps(x01, x23, 0x44), _mm512_shuffle_ps(x01, x23, 0xee));

    all = _mm512_add_ps(all, _mm512_shuffle_f32x4(all, all, 0x4e));
    return _mm512_add_ps(all, _mm512_shuffle_f32x4(all, all, 0xb1));
}

/* Accumulators of the rows of a quad where the maximum rose. */
ALWAYS_INLINE void rescale(int slices, const struct kvg_whole *tile, int64_t first, unsigned rose,
                           __m512 factor)
{
    float f[VECTOR];

    _mm512_storeu_ps(f, factor);
    for (; rose; rose &= rose - 1) {
        const int r = __builtin_ctz(rose);
        float *acc = tile->acc + (first + r) * tile->acc_stride;
        for (int d = 0; d < slices * SLICE; d += VECTOR)
            _mm512_store_ps(acc + d, _mm512_mul_ps(_mm512_load_ps(acc + d), _mm512_set1_ps(f[r])));
    }
}

/* 64 keys of the four rows from row `first` on, whose logits s holds: P, swapped P, states, accumulators. */
ALWAYS_INLINE void softmax_quad(enum kvg_dtype dtype, int slices, int64_t quads, const struct kvg_whole *tile,
                                int64_t first, const float *s, uint16_t *p_out, uint16_t *swapped,
                                struct stream *far)
{
    const struct kvg_softmax *how = tile->how;
    const __m512 scale = _mm512_set1_ps(how->scale), one = _mm512_set1_ps(1.0f);
    const int64_t left = tile->rows - first, columns = 4 * quads;
    const unsigned rows = left < 4 ? (1u << left) - 1 : 15u;
    const __mmask16 pairs = (__mmask16)(left < 4 ? (1u << 2 * left) - 1 : 255u); /* (max, sum) of each row */
    const __m512i maxima = _mm512_set4_epi32(6, 4, 2, 0), sums = _mm512_set4_epi32(7, 5, 3, 1);
    float *state = &tile->state[first].max;
    const __m512 before = _mm512_maskz_loadu_ps(pairs, state);
    const __m512 old = _mm512_permutexvar_ps(maxima, before);
    /* VMAXPS gives `old` where the first operand is NaN */
    const __m512 now = _mm512_max_ps(_mm512_mul_ps(row_maxima(columns, s), scale), old);
    __m512 total[4], factor;
    float shift[VECTOR];
    unsigned rose;

    rose = _mm512_cmp_ps_mask(now, old, _CMP_NEQ_UQ) & rows;
    factor = one;
    if (rose) {
        factor = _mm512_mask_mov_ps(one, (__mmask16)(rose * 0x1111u), exp2_16(_mm512_sub_ps(old, now)));
        rescale(slices, tile, first, rose, factor);
    }
    _mm512_storeu_ps(shift, _mm512_sub_ps(now, _mm512_set1_ps(how->offset)));
    for (int half = 0; half < 2; half++) {
        __m512 t[2][4];

        transpose_keys(columns, s + 2 * half * 16 * columns, t[0]);
        transpose_keys(columns, s + (2 * half + 1) * 16 * columns, t[1]);
        for (int r = 0; r < 4; r++) {
            const __m512 top = _mm512_set1_ps(shift[r]);
            __m512 x = exp2_16(_mm512_fmsub_ps(t[0][r], scale, top));
            __m512 y = exp2_16(_mm512_fmsub_ps(t[1][r], scale, top));
            const int64_t at = (first + r) * KVG_TILE + half * HALF;

            total[r] = half == 0 ? _mm512_add_ps(x, y) : _mm512_add_ps(total[r], _mm512_add_ps(x, y));
            if (how->p_e4m3) {
                x = round_e4m3(x);
                y = round_e4m3(y);
            }
            if (first == 0) { /* 16 rows in all */
                step(far, slices * (dtype == KVG_BF16 ? 2 : 1), 0);
                step(far, slices * (dtype == KVG_BF16 ? 2 : 1), 0);
            }
            const __m512i p = (__m512i)_mm512_cvtne2ps_pbh(y, x);
            _mm512_store_si512(p_out + at, p);
            _mm512_store_si512(swapped + at, _mm512_rol_epi32(p, 16));
        }
    }
    const __m512 sum = _mm512_fmadd_ps(_mm512_permutexvar_ps(sums, before), factor, row_sums(total));
    /* The lanes are alike: rows 0 and 1 from the first, 2 and 3 from the second. */
    _mm512_mask_storeu_ps(
        state, pairs, _mm512_mask_mov_ps(_mm512_unpacklo_ps(now, sum), 0xf0, _mm512_unpackhi_ps(now, sum)));
}

/* ---------------------------------------------------------------- values */

/* Block (half, slice) of V to four tiles of [16 pairs]. Per pair: 2 / slices rows of `near` and of `far`. */
ALWAYS_INLINE void whole_v(enum kvg_dtype dtype, int slices, const struct kvg_whole *tile,
                           const struct decoder *t, struct stream *near, struct stream *far, int half,
                           int slice, uint16_t (*out)[TILE_WORDS])
{
    const int bytes = dtype == KVG_BF16 ? 2 : 1, lines = slices * bytes;
    const int64_t stride = tile->stride;

    for (int e = 0; e < HALF / EIGHT; e++) {
        const char *row =
            tile->group[KVG_TILE / EIGHT + half * (HALF / EIGHT) + e] + tile->offset + slice * SLICE * bytes;

#pragma GCC unroll 4
        for (int j = 0; j < EIGHT / 2; j++, row += 2 * stride) {
            __m512i pair[4];

            decode_two(dtype, t, row, row + stride, pair);
            for (int i = 0; i < 4; i++)
                _mm512_store_si512(out[i] + (e * (EIGHT / 2) + j) * 32, pair[i]);
            for (int i = 0; i < 2 / slices; i++) {
                step(near, lines, 1);
                step(far, lines, 0);
            }
        }
    }
}

/* 32 keys to the accumulators of 64 dims. */
ALWAYS_INLINE void whole_pv(uint16_t (*const v)[TILE_WORDS], const uint16_t *p, const uint16_t *swapped,
                            float *acc, int64_t acc_stride)
{
    const int64_t stride = acc_stride * 4;

    MEMORY_BARRIER();
    tile_load(TILE_P, p, KVG_TILE * 2);
    tile_load(TILE_O0, acc, stride);
    tile_load(TILE_A, v[0], 64);
    tile_dp(TILE_O0, TILE_P, TILE_A);
    tile_load(TILE_O1, acc + 16, stride);
    tile_load(TILE_B, v[1], 64);
    tile_dp(TILE_O1, TILE_P, TILE_B);
    tile_store(TILE_O0, acc, stride);
    tile_store(TILE_O1, acc + 16, stride);
    tile_load(TILE_P, swapped, KVG_TILE * 2);
    tile_load(TILE_O0, acc + 32, stride);
    tile_load(TILE_A, v[2], 64);
    tile_dp(TILE_O0, TILE_P, TILE_A);
    tile_load(TILE_O1, acc + 48, stride);
    tile_load(TILE_B, v[3], 64);
    tile_dp(TILE_O1, TILE_P, TILE_B);
    tile_store(TILE_O0, acc + 32, stride);
    tile_store(TILE_O1, acc + 48, stride);
    MEMORY_BARRIER();
}

/* ---------------------------------------------------------------- the tile */

ALWAYS_INLINE void whole_as(enum kvg_dtype dtype, int slices, int64_t quads, const struct kvg_whole *tile)
{
    uint16_t(*const blocks)[TILE_WORDS] = tile->scratch;
    float *const s = (float *)(void *)blocks[2 * BLOCK_TILES];
    uint16_t *const p = (uint16_t *)(void *)(s + KVG_TILE * 4 * quads);
    uint16_t *const swapped = p + 4 * quads * KVG_TILE;
    const uint16_t *const q = (const uint16_t *)tile->packed_q + whole_q_at(slices * SLICE);
    const struct decoder t = load_decoder(dtype);
    struct stream near = {tile->group[NEAR_KEYS / EIGHT] + tile->offset, tile->group, tile->offset,
                          tile->stride, NEAR_KEYS};
    struct stream far = {tile->ahead[0] + tile->ahead_offset, tile->ahead, tile->ahead_offset,
                         tile->ahead_stride, 0};
    const int count = KVG_TILE / HALF * slices;

    whole_k(dtype, slices, tile, &t, &near, &far, 0, 0, blocks);
    for (int i = 0; i < count; i++) {
        if (i + 1 < count) {
            whole_k(dtype, slices, tile, &t, &near, &far, (i + 1) / slices, (i + 1) % slices,
                    blocks + (i + 1) % 2 * BLOCK_TILES);
        }
        whole_qk(slices, quads, i % slices, blocks + i % 2 * BLOCK_TILES, q,
                 s + i / slices * HALF * 4 * quads);
    }
    whole_v(dtype, slices, tile, &t, &near, &far, 0, 0,
            blocks); /* while the last products are on their way */
    for (int64_t first = 0; first < 4 * quads; first += 4)
        softmax_quad(dtype, slices, quads, tile, first, s + first, p, swapped, &far);
    for (int i = 0; i < count; i++) {
        const int64_t at = i / slices * HALF;
        if (i + 1 < count) {
            whole_v(dtype, slices, tile, &t, &near, &far, (i + 1) / slices, (i + 1) % slices,
                    blocks + (i + 1) % 2 * BLOCK_TILES);
        }
        whole_pv(blocks + i % 2 * BLOCK_TILES, p + at, swapped + at, tile->acc + i % slices * SLICE,
                 tile->acc_stride);
    }
}

/* One function for each pair of constants, so that registers are allocated for each apart. */
#define WHOLE(name, dtype, slices)                                                                           \
    static __attribute__((noinline)) void name(const struct kvg_whole *tile)                                 \
    {                                                                                                        \
        if (tile->rows <= 4)                                                                                 \
            whole_as(dtype, slices, 1, tile);                                                                \
        else                                                                                                 \
            whole_as(dtype, slices, quads_of(tile->rows), tile);                                             \
    }
WHOLE(whole_e4m3_64, KVG_E4M3, 1)
WHOLE(whole_e4m3_128, KVG_E4M3, 2)
WHOLE(whole_e5m2_64, KVG_E5M2, 1)
WHOLE(whole_e5m2_128, KVG_E5M2, 2)
WHOLE(whole_bf16_64, KVG_BF16, 1)
WHOLE(whole_bf16_128, KVG_BF16, 2)

static void whole(const struct kvg_whole *tile)
{
    const int wide = tile->dim > SLICE;

    if (tile->dtype == KVG_E4M3)
        (wide ? whole_e4m3_128 : whole_e4m3_64)(tile);
    else if (tile->dtype == KVG_E5M2)
        (wide ? whole_e5m2_128 : whole_e5m2_64)(tile);
    else
        (wide ? whole_bf16_128 : whole_bf16_64)(tile);
}
