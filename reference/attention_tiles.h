/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_tiles.h: the inner loops of the reference, over one block of keys. Internal to reference/.
 *
 * Each loop exists once for every vector width, and all widths give the same bits:
 *   - No sum runs across the lanes of a vector. Where the sum is over dimensions, the lanes are keys; where
 *     it is over keys, the lanes are dimensions.
 *   - Every sum is taken in ascending order.
 *   - No multiply is fused with an add, except in `dots`. There it changes nothing, because the product of
 *     two FP32 values is exact in double.
 */
#ifndef KVG_REFERENCE_ATTENTION_TILES_H
#define KVG_REFERENCE_ATTENTION_TILES_H

#include <stdint.h>

enum {
    KVG_BLOCK_TOKENS = 32, /* keys of a block */
    KVG_DIM_STEP = 16      /* `dim` below is a multiple of this */
};

/* Sums of a bound, in FP32 and not yet scaled, in the order of kvg_bound_tile.sums. */
enum {
    KVG_TILE_ABS,        /* sum p |v| */
    KVG_TILE_SQ,         /* sum (p |v|)^2 */
    KVG_TILE_SHIFT,      /* sum shift |v - o|, or sum g |v - o| where shift is NULL */
    KVG_TILE_SQ_LOGIT,   /* sum (g |v - o|)^2 */
    KVG_TILE_ROUNDING,   /* sum eta |v|; unchanged where eta is NULL */
    KVG_TILE_ALIGNED,    /* sum p' |v|'; add_aligned only */
    KVG_TILE_SQ_ALIGNED, /* sum (p' |v|')^2; add_aligned only */
    KVG_TILE_SUMS
};

/* One row and `count` keys: the arguments of add_bound and add_aligned. */
struct kvg_bound_tile {
    int64_t count, dim;
    const float *p, *g, *shift, *eta; /* [count]; the last two may be NULL */
    const float *v, *v_size;          /* [count][dim], v_size = |v| */
    const float *o;                   /* [dim] */
    const float *p_aligned;           /* [count] */
    const float *v_aligned;           /* [count][dim] */
    float *sums;                      /* [KVG_TILE_SUMS][dim] */
};

/* One row and those keys of a block whose P can move: the arguments of add_flips. */
struct kvg_flips_tile {
    int64_t count, dim;
    const int64_t *key;       /* [count] position in the block */
    const float *f;           /* [count] */
    const double *f_sq;       /* [count] f^2 */
    const float *size;        /* [keys][dim] |v| */
    const double *v_sq;       /* [keys][dim] v^2 */
    double *flips, *sq_flips; /* [dim] += sum f |v|, in FP32 over the block; += sum f^2 v^2, in double */
};

/* The loops for one vector width. Rows of q and v are `dim` apart; k is [dim][KVG_BLOCK_TOKENS]. All arrays
 * are aligned to 64 bytes, except:
 *   - add_pv: p and sum;
 *   - add_bound and add_aligned: the factors p, g, shift, eta and p_aligned;
 *   - add_flips: key, f, f_sq, flips and sq_flips. */
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

/* The loops of the nth vector width of this CPU; n = 0 is the widest. NULL when the CPU has no nth width. */
__attribute__((visibility("hidden"))) const struct kvg_tiles *kvg_tiles_of(int n);

#endif
