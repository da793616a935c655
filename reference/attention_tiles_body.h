/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_tiles_body.h: the loops of attention_tiles.h for one vector width. attention_tiles.c includes it
 * once for each width, with these macros defined:
 *
 *   NAME(x)                  x with a suffix for this width
 *   ISA                      name of the instruction set
 *   VEC                      bytes of a vector
 *   WIDE                     vectors of sums of a row, chosen so that the sums of four rows fit in registers
 *   WIDEN(x)                 half a vector of float as a vector of double
 *   MULTIPLY_ADD(sum, x, y)  sum + x y for a scalar x and a vector y of double, where x y is exact
 *
 * The macros are undefined at the end.
 */
#define LANES_F32 (VEC / (int)sizeof(float))
#define LANES_F64 (VEC / (int)sizeof(double))
#define INLINE static inline __attribute__((always_inline))

typedef double NAME(f64) __attribute__((vector_size(VEC)));
typedef float NAME(f32) __attribute__((vector_size(VEC)));
typedef int32_t NAME(i32) __attribute__((vector_size(VEC)));
typedef float NAME(half) __attribute__((vector_size(VEC / 2)));
typedef double NAME(f64_anywhere) __attribute__((vector_size(VEC), aligned(8)));

/* ---------------------------------------------------------------- dot products, lanes are keys */

INLINE void NAME(dots_of_rows)(const double *q, const int n, const float *k, int64_t dim, double *out)
{
    for (int64_t t = 0; t < KVG_BLOCK_TOKENS; t += WIDE * LANES_F64) {
        NAME(f64) sum[4][WIDE] = {{{0}}};
        for (int64_t d = 0; d < dim; d++) {
            const NAME(half) *at = (const NAME(half) *)(k + d * KVG_BLOCK_TOKENS + t);
            NAME(f64) keys[WIDE];
            for (int i = 0; i < WIDE; i++)
                keys[i] = WIDEN(at[i]);
            for (int r = 0; r < n; r++)
                for (int i = 0; i < WIDE; i++)
                    sum[r][i] = MULTIPLY_ADD(sum[r][i], q[r * dim + d], keys[i]);
        }
        for (int r = 0; r < n; r++)
            for (int i = 0; i < WIDE; i++)
                *(NAME(f64) *)(out + r * KVG_BLOCK_TOKENS + t + i * LANES_F64) = sum[r][i];
    }
}

static void NAME(dots)(const double *q, int64_t rows, const float *k, int64_t dim, double *out)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
        NAME(dots_of_rows)(q + r * dim, 4, k, dim, out + r * KVG_BLOCK_TOKENS);
    if (rows - r == 3)
        NAME(dots_of_rows)(q + r * dim, 3, k, dim, out + r * KVG_BLOCK_TOKENS);
    else if (rows - r == 2)
        NAME(dots_of_rows)(q + r * dim, 2, k, dim, out + r * KVG_BLOCK_TOKENS);
    else if (rows - r == 1)
        NAME(dots_of_rows)(q + r * dim, 1, k, dim, out + r * KVG_BLOCK_TOKENS);
}

INLINE void NAME(dots_f32_of_rows)(const float *q, const int n, const float *k, int64_t dim, float *out)
{
    enum { VECTORS = 2 };
    for (int64_t t = 0; t < KVG_BLOCK_TOKENS; t += VECTORS * LANES_F32) {
        NAME(f32) sum[4][VECTORS] = {{{0}}};
        for (int64_t d = 0; d < dim; d++) {
            const NAME(f32) *keys = (const NAME(f32) *)(k + d * KVG_BLOCK_TOKENS + t);
            for (int r = 0; r < n; r++)
                for (int i = 0; i < VECTORS; i++)
                    sum[r][i] += q[r * dim + d] * keys[i];
        }
        for (int r = 0; r < n; r++)
            for (int i = 0; i < VECTORS; i++)
                *(NAME(f32) *)(out + r * KVG_BLOCK_TOKENS + t + i * LANES_F32) = sum[r][i];
    }
}

static void NAME(dots_f32)(const float *q, int64_t rows, const float *k, int64_t dim, float *out)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
        NAME(dots_f32_of_rows)(q + r * dim, 4, k, dim, out + r * KVG_BLOCK_TOKENS);
    for (; r < rows; r++)
        NAME(dots_f32_of_rows)(q + r * dim, 1, k, dim, out + r * KVG_BLOCK_TOKENS);
}

/* ---------------------------------------------------------------- sums over keys, lanes are dimensions */

INLINE void NAME(join)(double *sum, NAME(f32) block)
{
    NAME(half) half[2];
    memcpy(half, &block, sizeof half);
    for (int i = 0; i < 2; i++)
        *(NAME(f64_anywhere) *)(sum + i * LANES_F64) += WIDEN(half[i]);
}

INLINE void NAME(add_pv_vectors)(const float *p, const float *v, int64_t count, int64_t dim, const int n,
                                 double *sum)
{
    NAME(f32) block[4] = {{0}};
    for (int64_t t = 0; t < count; t++)
        for (int i = 0; i < n; i++)
            block[i] += p[t] * ((const NAME(f32) *)(v + t * dim))[i];
    for (int i = 0; i < n; i++)
        NAME(join)(sum + i * LANES_F32, block[i]);
}

static void NAME(add_pv)(const float *p, const float *v, int64_t count, int64_t dim, double *sum)
{
    int64_t d = 0;
    for (; d + 4 * LANES_F32 <= dim; d += 4 * LANES_F32)
        NAME(add_pv_vectors)(p, v + d, count, dim, 4, sum + d);
    for (; d < dim; d += LANES_F32)
        NAME(add_pv_vectors)(p, v + d, count, dim, 1, sum + d);
}

/* One vector of dimensions. `shift` and `eta`: 1 where the tile has those factors. */
INLINE void NAME(add_bound_vector)(const struct kvg_bound_tile *tile, int64_t d, const int shift,
                                   const int eta)
{
    const int64_t dim = tile->dim;
    const NAME(f32) o = *(const NAME(f32) *)(tile->o + d);
    NAME(f32) *const at = (NAME(f32) *)(tile->sums + d);
    const int64_t step = dim / LANES_F32; /* from one kind of sum to the next, in vectors */
    NAME(f32) abs = at[KVG_TILE_ABS * step], sq = at[KVG_TILE_SQ * step], far = at[KVG_TILE_SHIFT * step];
    NAME(f32) sq_logit = at[KVG_TILE_SQ_LOGIT * step], rounding = at[KVG_TILE_ROUNDING * step];
    for (int64_t t = 0; t < tile->count; t++) {
        const NAME(f32) v = *(const NAME(f32) *)(tile->v + t * dim + d);
        const NAME(f32) size = *(const NAME(f32) *)(tile->v_size + t * dim + d);
        const NAME(f32) x = tile->p[t] * size, from_o = v - o;
        const NAME(f32) distance = (NAME(f32))((NAME(i32))from_o & INT32_MAX); /* without the sign */
        const NAME(f32) y = tile->g[t] * distance;
        abs += x;
        sq += x * x;
        far += shift ? tile->shift[t] * distance : y;
        sq_logit += y * y;
        if (eta)
            rounding += tile->eta[t] * size;
    }
    at[KVG_TILE_ABS * step] = abs;
    at[KVG_TILE_SQ * step] = sq;
    at[KVG_TILE_SHIFT * step] = far;
    at[KVG_TILE_SQ_LOGIT * step] = sq_logit;
    at[KVG_TILE_ROUNDING * step] = rounding;
}

static void NAME(add_bound)(const struct kvg_bound_tile *tile)
{
    for (int64_t d = 0; d < tile->dim; d += LANES_F32)
        if (tile->shift && tile->eta)
            NAME(add_bound_vector)(tile, d, 1, 1);
        else if (tile->shift)
            NAME(add_bound_vector)(tile, d, 1, 0);
        else if (tile->eta)
            NAME(add_bound_vector)(tile, d, 0, 1);
        else
            NAME(add_bound_vector)(tile, d, 0, 0);
}

static void NAME(add_aligned)(const struct kvg_bound_tile *tile)
{
    for (int64_t d = 0; d < tile->dim; d += LANES_F32) {
        NAME(f32) *const abs = (NAME(f32) *)(tile->sums + KVG_TILE_ALIGNED * tile->dim + d);
        NAME(f32) *const sq = (NAME(f32) *)(tile->sums + KVG_TILE_SQ_ALIGNED * tile->dim + d);
        NAME(f32) abs_sum = *abs, sq_sum = *sq;
        for (int64_t t = 0; t < tile->count; t++) {
            const NAME(f32) x =
                tile->p_aligned[t] * *(const NAME(f32) *)(tile->v_aligned + t * tile->dim + d);
            abs_sum += x;
            sq_sum += x * x;
        }
        *abs = abs_sum;
        *sq = sq_sum;
    }
}

INLINE void NAME(add_flips_vectors)(const struct kvg_flips_tile *tile, int64_t d, const int n)
{
    NAME(f32) flips[2] = {{0}};
    NAME(f64) sq_flips[4] = {{0}};
    for (int64_t m = 0; m < tile->count; m++) {
        const int64_t at = tile->key[m] * tile->dim + d;
        for (int i = 0; i < n; i++)
            flips[i] += tile->f[m] * ((const NAME(f32) *)(tile->size + at))[i];
        for (int i = 0; i < 2 * n; i++)
            sq_flips[i] += tile->f_sq[m] * ((const NAME(f64) *)(tile->v_sq + at))[i];
    }
    for (int i = 0; i < n; i++)
        NAME(join)(tile->flips + d + i * LANES_F32, flips[i]);
    for (int i = 0; i < 2 * n; i++)
        *(NAME(f64_anywhere) *)(tile->sq_flips + d + i * LANES_F64) += sq_flips[i];
}

static void NAME(add_flips)(const struct kvg_flips_tile *tile)
{
    int64_t d = 0;
    for (; d + 2 * LANES_F32 <= tile->dim; d += 2 * LANES_F32)
        NAME(add_flips_vectors)(tile, d, 2);
    for (; d < tile->dim; d += LANES_F32)
        NAME(add_flips_vectors)(tile, d, 1);
}

static const struct kvg_tiles NAME(tiles) = {
    ISA, NAME(dots), NAME(dots_f32), NAME(add_pv), NAME(add_bound), NAME(add_aligned), NAME(add_flips)};

#undef LANES_F32
#undef LANES_F64
#undef INLINE
#undef NAME
#undef ISA
#undef VEC
#undef WIDE
#undef WIDEN
#undef MULTIPLY_ADD
