/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_ops.h: the contract between the driver of CPU attention and the micro-kernels of one instruction
 * set. The driver (attention_call.h) does the plan, pages, masks, splits and merge. The micro-kernels are in
 * attention_scalar.c, _avx2.c, _avx512vbmi.c, _avx512fp16.c, _amx.c and _neon.c.
 *
 * The unit of work is a tile: KVG_TILE keys of one KV head against all query rows of that head's GQA group. A
 * "row" is one query token of one query head. For each tile the driver calls logits, then softmax for each
 * row, then values. So a cached value is decoded once for the whole group.
 *
 * All buffers are aligned to 64 bytes and belong to the driver.
 */
#ifndef KVG_KERNELS_CPU_ATTENTION_OPS_H
#define KVG_KERNELS_CPU_ATTENTION_OPS_H

#include "cpu.h"

enum {
    KVG_TILE = 64,             /* keys per tile; the running maximum is updated once per tile */
    KVG_KEYS_STEP = 16,        /* micro-kernels read keys in multiples of this */
    KVG_DIM_STEP = 8,          /* head_dim is a multiple of this */
    KVG_EIGHTS = KVG_TILE / 8, /* groups of eight keys in a tile; a page holds a multiple of eight keys */
    KVG_ALIGN = 64,            /* bytes; buffers aligned to 16 only were 6 to 39 % slower */
    KVG_LINE = 64              /* bytes of a cache line */
};

/* K or V of one tile and one KV head. */
struct kvg_keys {
    const void *const *row;   /* [KVG_TILE]: the dim elements of each key. A key that no query of the item may
                                 see gets a row of zeros: its memory may hold NaN or may not exist */
    const char *const *ahead; /* [KVG_TILE]: dim elements to prefetch while row[i] is read; always a valid
                                 address */
    int64_t offset, offset_ahead; /* bytes to add to each address; 0 unless ops->adds_offset */
    int64_t count;                /* keys to read, a multiple of KVG_KEYS_STEP, <= KVG_TILE */
    int64_t dim;                  /* head_dim */
    enum kvg_dtype dtype;         /* of the rows */
};

/* Softmax in base 2: p = 2^(t - running maximum + offset) with t = logit * log2(e). */
struct kvg_softmax {
    float scale;    /* no cap: t = s * scale. Cap: t = cap_log2 * tanh(s * scale) */
    float cap_log2; /* soft_cap * log2(e), or 0 = no cap */
    float offset;   /* 8 where P is e4m3, else 0 */
    float p_factor; /* a power of two that the stored P is multiplied by; `values` takes it out again */
    int p_e4m3;     /* 1: P is rounded to e4m3 and stored in the P format of the instruction set */
};

/* Running state of one query row. */
struct kvg_row_state {
    float max; /* largest t so far, -inf before the first key */
    float sum; /* sum of the unrounded p, relative to max */
};

/* A whole tile: KVG_TILE keys of one KV head that are all visible to all rows. Some micro-kernels do all
 * three steps of such a tile in one call. Every group of eight keys lies in one page, so its rows have one
 * stride. */
struct kvg_whole {
    /* The first key of each group of eight: of K, then of V. Then two groups of the K that is read next, for
     * prefetching, and one address that is never read. Add `offset` bytes to each. */
    const char *group[2 * KVG_EIGHTS + 3];
    /* What to prefetch from memory: pieces of eight rows of the next tile's K, then of its V, then one
     * address that is never read. Each address is valid once `ahead_offset` bytes are added. */
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
    int adds_offset;  /* 1: takes the rows of the item's first head and an offset, so the driver copies no
                         addresses for the other heads */
    int rows_apart;   /* 1: the sums of a row have the same order for any number of rows beside it */
    int64_t row_step; /* Q is packed in multiples of this many rows, and logits writes as many */
    /* Sizes in bytes: `rows` packed rows of Q (any number); the scratch of logits and values; one row of
     * P. */
    int64_t (*packed_q_bytes)(int64_t rows, int64_t dim);
    int64_t (*scratch_bytes)(int64_t dim);
    int64_t p_row_bytes;
    float (*p_factor)(enum kvg_dtype dtype); /* for a cache of this dtype; NULL = 1. P in F16 needs one */
    /* Every thread calls these before its first and after its last tile; NULL = nothing to do. */
    void (*begin)(void);
    void (*end)(void);
    /* row[i]: dim elements in dtype (bf16 or e4m3). The packed layout is the instruction set's own. */
    void (*pack_q)(const void *const *row, int64_t rows, int64_t dim, enum kvg_dtype dtype, void *packed);
    /* s[r * KVG_TILE + j] = q_r . k_j, unscaled, for r < rows rounded up to row_step and j < keys->count. */
    void (*logits)(const struct kvg_keys *keys, const void *packed_q, int64_t rows, void *scratch, float *s);
    /* One row: scales and caps s[0 .. KVG_TILE), masks all keys but lo <= j < hi (lo < hi), updates the state
     * and writes P for all KVG_TILE keys. Returns the factor for what was accumulated before. */
    float (*softmax)(const struct kvg_softmax *how, float *s, int64_t lo, int64_t hi,
                     struct kvg_row_state *state, void *p);
    /* acc[r * acc_stride + d] = acc * factor[r] + sum over keys of p[r][j] * v_j[d]. */
    void (*values)(const struct kvg_keys *keys, const void *p, const float *factor, int64_t rows,
                   void *scratch, float *acc, int64_t acc_stride);
    /* Whole tiles, for problems that whole_fits accepts; all four NULL = never. Between whole_begin and
     * whole_end only `whole` is called. In that time the accumulators of all heads of the item,
     * acc[acc_rows][acc_stride], may have their dims in another order. */
    int (*whole_fits)(const struct kvg_problem *problem, int64_t rows);
    void (*whole_begin)(int64_t rows, int64_t dim, float *acc, int64_t acc_rows, int64_t acc_stride);
    void (*whole)(const struct kvg_whole *tile);
    void (*whole_end)(int64_t dim, float *acc, int64_t acc_rows, int64_t acc_stride);
    int own_rows_ahead; /* what a head prefetches in whole tiles. 1: its own rows of the next tile; 0: its
                           share of the rows of all heads, in the order of addresses */
    /* x[0 .. count) := 2^x as softmax computes it, count a multiple of 16. For the test of exp2_rel_error. */
    void (*exp2)(float *x, int64_t count);
    /* The declared arithmetic; the fields of struct kvg_arithmetic are made from it. */
    int64_t (*qk_chain)(int64_t dim); /* additions in the longest chain of a logit */
    double exp2_rel_error;            /* bound of the exponential */
    enum kvg_dtype p_format;          /* on path dequant; on path fp8 it is e4m3 */
    enum kvg_dtype operand; /* Q, K and V are rounded to this before their products (exact for codes) */
    int sum_bits;           /* significand bits of the sums of logits and values; 0 = FP32 */
    int64_t pv_flush;       /* keys whose values are summed in sum_bits before the sum moves to FP32 */
    double (*qk_smallest_normal)(int64_t dim); /* with sum_bits: as in struct kvg_arithmetic */
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

/* Prefetches into the second-level cache: a tile of all heads is larger than the first-level cache. */
static inline void kvg_prefetch(const char *address, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += KVG_LINE)
        __builtin_prefetch(address + i, 0, 2);
}

#endif
