/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_tiles.h: the inner loops of the reference, over one block of keys. Internal to reference/.
 *
 * Each is there once for every vector width of this CPU, and all give the same bits. For that no sum runs
 * across the lanes of a vector: lanes are keys where the sum goes over dimensions, and dimensions where it
 * goes over keys, and every sum is taken in ascending order. Nor is a multiply fused with an add, except in
 * `dots`, where it changes nothing: the product of two FP32 values is exact in double.
 */
#ifndef KVG_REFERENCE_ATTENTION_TILES_H
#define KVG_REFERENCE_ATTENTION_TILES_H

#include <stdint.h>

enum {
    KVG_BLOCK_TOKENS = 32, /* keys of a block */
    KVG_DIM_STEP = 16      /* `dim` below is a multiple of this */
};

/* Sums of a bound, FP32 and not yet scaled, in the order in which they lie in `sums`. */
enum {
    KVG_TILE_ABS,        /* sum p |v| */
    KVG_TILE_SQ,         /* sum (p |v|)^2 */
    KVG_TILE_SHIFT,      /* sum shift |v - o|, or sum g |v - o| where shift is NULL */
    KVG_TILE_SQ_LOGIT,   /* sum (g |v - o|)^2 */
    KVG_TILE_ROUNDING,   /* sum eta |v|; untouched where eta is NULL */
    KVG_TILE_ALIGNED,    /* sum p' |v|'; only by add_aligned */
    KVG_TILE_SQ_ALIGNED, /* sum (p' |v|')^2; only by add_aligned */
    KVG_TILE_SUMS
};

/* One row and `count` keys: what add_bound and add_aligned read and add to. */
struct kvg_bound_tile {
    int64_t count, dim;
    const float *p, *g, *shift, *eta; /* [count]; the last two may be NULL */
    const float *v, *v_size;          /* [count][dim], v_size = |v| */
    const float *o;                   /* [dim] */
    const float *p_aligned;           /* [count] */
    const float *v_aligned;           /* [count][dim] */
    float *sums;                      /* [KVG_TILE_SUMS][dim] */
};

/* One row and those keys of a block whose P can move: what add_flips reads and adds to. */
struct kvg_flips_tile {
    int64_t count, dim;
    const int64_t *key;       /* [count] of the block */
    const float *f;           /* [count] */
    const double *f_sq;       /* [count] f^2 */
    const float *size;        /* [keys][dim] |v| */
    const double *v_sq;       /* [keys][dim] v^2 */
    double *flips, *sq_flips; /* [dim] += sum f |v|, in FP32 over the block; += sum f^2 v^2, in double */
};

/* All arrays are aligned to 64 bytes but p of add_pv, the factors of a bound, and what is
 * double in add_pv and add_flips but v_sq; q rows and v rows are `dim`
 * apart, k is [dim][KVG_BLOCK_TOKENS]. */
struct kvg_tiles {
    const char *isa;
    /* out[r][t] = sum_d q[r][d] k[d][t], out [rows][KVG_BLOCK_TOKENS], in double; q holds FP32 values. */
    void (*dots)(const double *q, int64_t rows, const float *k, int64_t dim, double *out);
    /* The same in FP32. */
    void (*dots_f32)(const float *q, int64_t rows, const float *k, int64_t dim, float *out);
    /* sum[d] += sum_t p[t] v[t][d], in FP32 over the block, then in double. */
    void (*add_pv)(const float *p, const float *v, int64_t count, int64_t dim, double *sum);
    void (*add_bound)(const struct kvg_bound_tile *tile);
    void (*add_aligned)(const struct kvg_bound_tile *tile);
    void (*add_flips)(const struct kvg_flips_tile *tile);
};

/* The widest that this CPU has; `n` more narrow ones follow. NULL when there are not so many. */
const struct kvg_tiles *kvg_tiles_of(int n);

#endif
