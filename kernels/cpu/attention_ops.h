/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h: the contract between the driver of CPU attention (attention_call.h: plan, pages, masks,
 * splits, merge) and the micro-kernels of one instruction set (attention_scalar.c, _avx2.c, _avx512vbmi.c,
 * _avx512fp16.c).
 *
 * The unit of work is a tile of KVG_TILE keys of one KV head against all query rows of that head's GQA group
 * (a "row" is a query token and a query head): logits, then softmax row by row, then values. So a cached
 * value is decoded once for the whole group.
 *
 * All buffers are aligned to 64 bytes and belong to the driver.
 */
#ifndef KVG_KERNELS_CPU_ATTENTION_OPS_H
#define KVG_KERNELS_CPU_ATTENTION_OPS_H

#include "cpu.h"

enum {
    KVG_TILE = 64,             /* keys per tile, and between two updates of the running maximum */
    KVG_KEYS_STEP = 16,        /* micro-kernels read keys in multiples of this */
    KVG_DIM_STEP = 8,          /* head_dim is a multiple of this */
    KVG_EIGHTS = KVG_TILE / 8, /* of a tile; a page holds a multiple of eight keys */
    KVG_ALIGN = 64,            /* bytes; a buffer aligned to 16 costs 6 to 39 % */
    KVG_LINE = 64              /* bytes of a cache line */
};

/* K or V of one tile and one KV head. */
struct kvg_keys {
    const void *const *row;   /* [KVG_TILE]: the dim elements of each key; a row of zeros for a key that no
                                 query of the item may see, whose memory may hold anything (NaN) or not exist */
    const char *const *ahead; /* [KVG_TILE]: dim elements to prefetch while row[i] is read; always a valid
                                 address */
    int64_t offset, offset_ahead; /* bytes to add to each; 0 unless the instruction set says adds_offset */
    int64_t count;                /* keys to read, a multiple of KVG_KEYS_STEP, <= KVG_TILE */
    int64_t dim;                  /* head_dim */
    enum kvg_dtype dtype;         /* of the rows */
};

/* Softmax in base 2: p = 2^(t - running maximum + offset) with t = logit * log2(e). */
struct kvg_softmax {
    float scale;    /* no cap: t = s * scale. Cap: t = cap_log2 * tanh(s * scale) */
    float cap_log2; /* soft_cap * log2(e), or 0 = no cap */
    float offset;   /* 8 where P is e4m3, else 0 */
    float p_factor; /* a power of two that the stored P carries (and values removes again) */
    int p_e4m3;     /* P is rounded to e4m3 (its value stays in the P format of the instruction set) */
};

/* Running state of one query row. */
struct kvg_row_state {
    float max; /* of t so far, -inf before the first key */
    float sum; /* of the unrounded p, relative to max */
};

/* A tile of KVG_TILE keys of one KV head that all of its rows see in full, for micro-kernels that do all
 * three steps in one call. Every eight keys lie in one page, so at one stride. */
struct kvg_whole {
    /* The first key of every eight: of K, then of V; then two of the K that is read next, for prefetching,
     * and one that is never read. `offset` bytes are to be added. */
    const char *group[2 * KVG_EIGHTS + 3];
    /* What to prefetch from memory: pieces of eight rows of the next tile's K, then V; one more, never read.
     * `ahead_offset` bytes are to be added, and the addresses are valid then. */
    const char *ahead[2 * KVG_EIGHTS + 1];
    int64_t offset, ahead_offset;
    int64_t stride, ahead_stride; /* bytes from row to row of a group and of a piece */
    int64_t dim, rows;
    enum kvg_dtype dtype;
    const void *packed_q;
    const struct kvg_softmax *how; /* its scale is positive */
    struct kvg_row_state *state;   /* [rows] */
    void *scratch;
    float *acc; /* [rows][acc_stride], in the order that whole_begin gave it */
    int64_t acc_stride;
};

/* Micro-kernels of one instruction set. */
struct kvg_attention_ops {
    enum kvg_isa isa;
    int adds_offset;  /* 1: takes the rows of the item's first head, and an offset: nothing is copied for a
                         head */
    int64_t row_step; /* Q is packed in multiples of this many rows; logits writes as many rows */
    /* Bytes of `rows` packed rows of Q (any number); of the scratch that logits and values may use; of one
     * row of P. */
    int64_t (*packed_q_bytes)(int64_t rows, int64_t dim);
    int64_t (*scratch_bytes)(int64_t dim);
    int64_t p_row_bytes;
    float (*p_factor)(enum kvg_dtype dtype); /* of a cache of this dtype; NULL = 1, but not with P in F16 */
    /* Called by every thread before its first and after its last tile; NULL = nothing to do. */
    void (*begin)(void);
    void (*end)(void);
    /* row[i]: dim elements in dtype (bf16 or e4m3). Rows are packed as this instruction set likes them. */
    void (*pack_q)(const void *const *row, int64_t rows, int64_t dim, enum kvg_dtype dtype, void *packed);
    /* s[r * KVG_TILE + j] = q_r . k_j, unscaled, for r < rows rounded up to row_step and j < keys->count. */
    void (*logits)(const struct kvg_keys *keys, const void *packed_q, int64_t rows, void *scratch, float *s);
    /* One row: scale and cap s[0 .. KVG_TILE), keep keys lo <= j < hi alone (lo < hi), update the state,
     * write P for all KVG_TILE keys. Returns the factor for what was accumulated before. */
    float (*softmax)(const struct kvg_softmax *how, float *s, int64_t lo, int64_t hi,
                     struct kvg_row_state *state, void *p);
    /* acc[r * acc_stride + d] = acc * factor[r] + sum over keys of p[r][j] * v_j[d]. */
    void (*values)(const struct kvg_keys *keys, const void *p, const float *factor, int64_t rows,
                   void *scratch, float *acc, int64_t acc_stride);
    /* Whole tiles, where head_dim, the rows of a head and the softmax fit; all four NULL = never. Between
     * whole_begin and whole_end nothing but `whole` is called, and acc[acc_rows][acc_stride], the
     * accumulators of all heads of an item, have their dims in an order of the instruction set's own. */
    int (*whole_fits)(const struct kvg_problem *problem, int64_t rows);
    void (*whole_begin)(int64_t rows, int64_t dim, float *acc, int64_t acc_rows, int64_t acc_stride);
    void (*whole)(const struct kvg_whole *tile);
    void (*whole_end)(int64_t dim, float *acc, int64_t acc_rows, int64_t acc_stride);
    int own_rows_ahead; /* 1: while a head is worked on, its own rows of the next tile are what to prefetch;
                           0: in whole tiles the heads of a token share them in the order of addresses */
    /* x[0 .. count) := 2^x as softmax computes it, count a multiple of 16. For the test of exp2_rel_error. */
    void (*exp2)(float *x, int64_t count);
    /* Declared: additions in the longest chain of a logit; bound of the exponential; formats. */
    int64_t (*qk_chain)(int64_t dim);
    double exp2_rel_error;
    enum kvg_dtype p_format; /* on path dequant; path fp8 has e4m3 */
    enum kvg_dtype operand;  /* Q, K and V are rounded to this before their products (exact for codes) */
    int sum_bits;            /* significand bits of the sums of logits and values where not FP32; 0 = FP32 */
    int64_t pv_flush;        /* keys whose values are summed in sum_bits before FP32 takes over */
    double (*qk_smallest_normal)(int64_t dim); /* with sum_bits: as struct kvg_arithmetic has them */
    double (*pv_smallest_normal)(enum kvg_dtype dtype);
    uint32_t dtypes; /* bit (1 << dtype) set: reads such a cache on path dequant */
};

extern const struct kvg_attention_ops kvg_attention_scalar, kvg_attention_avx2, kvg_attention_avx512,
    kvg_attention_avx512fp16, kvg_attention_amx, kvg_attention_neon;

/* For the micro-kernels: the parts of one, specialised by constant arguments. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

static inline int64_t kvg_round_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

/* Into the second-level cache: a tile of all heads is larger than the first level. */
static inline void kvg_prefetch(const char *address, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += KVG_LINE)
        __builtin_prefetch(address + i, 0, 2);
}

#endif
