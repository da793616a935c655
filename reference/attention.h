/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h: what a right answer is.
 *
 * Softmax attention for chosen rows (one row is one query token and one query head), in three ways:
 *
 *   exact      kvg_ref_attention_f32. FP32 weights and values, and every sum in a fixed order. The result has
 *              the same bits on every machine, for every number of threads, and whatever other rows are asked
 *              for in the same call. Logits are summed in double; at most 32 products p v are summed in FP32.
 *              To first order |error| <= 35 * 2^-24 * sum p |v|; the relative L2 error is about 1e-7.
 *              Weights below 2^-149 of the largest weight are lost.
 *   FP64       kvg_ref_attention_f64. Plain loops in double with libm's functions. It checks the exact one.
 *   emulating  kvg_ref_attention_emulate. As the exact one, with what a kernel declares that it does on
 *              purpose: operands rounded, P rounded relative to the running max, row sum of unrounded P, size
 *              and order of the tiles, splits. The accidental rounding of a kernel's sums is left out.
 *
 * kvg_ref_attention_bound returns the exact output and, for each output element, the sums from which an error
 * bound is built (struct kvg_ref_terms). kvg_ref_attention_drift returns the emulated output and how far a
 * kernel may differ from it (struct kvg_ref_drift).
 *
 * Definition, for query i of a sequence with q_len queries and n keys:
 *
 *   s_j  = softmax_scale * q_scale * k_scale * (q . k_j), then the soft cap: cap * tanh(s_j / cap)
 *   p    = softmax(s)
 *   out  = v_scale * sum_j p_j v_j
 *   lse  = ln sum_j e^(s_j)
 *
 *   visible keys: first .. last (struct kvg_ref_mask), the last query aligned with the last key
 *
 * Without a visible key out is 0 and lse is -infinity.
 *
 * A sink z of the query head is one more key: its logit is z, neither scaled nor capped, and its value is 0. So
 * it is in the denominator of p and in lse, and without a visible key lse is z.
 */
#ifndef KVG_REFERENCE_ATTENTION_H
#define KVG_REFERENCE_ATTENTION_H

#include <stdint.h>
#include "paged.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- the problem */

/* One row to compute. */
struct kvg_ref_row {
    int32_t seq;     /* sequence of the batch */
    int32_t q_index; /* query token within the sequence, 0 .. q_len - 1 */
    int32_t q_head;
};

/* Which keys a query sees. Its own position is t = n - q_len + i, and w is the window.
 *   causal   first = 0 or, with a window, max(0, t - w + 1); last = t
 *   full     last = n - 1; first = 0 or max(0, n - w)
 *   chunked  causal, and first is not before t rounded down to a multiple of `chunk`
 *   prefix   causal, and last is not before the last of the first `prefix` keys of the sequence */
enum kvg_ref_mask_kind { KVG_REF_CAUSAL = 0, KVG_REF_FULL, KVG_REF_CHUNKED, KVG_REF_PREFIX };
struct kvg_ref_mask {
    enum kvg_ref_mask_kind kind;
    int64_t window;             /* visible keys of a query, its own position included; 0 = all */
    int64_t chunk;              /* chunked only; >= 1 */
    const int32_t *prefix_lens; /* prefix only: [batch] */
};

/* The tensors of a call. All pointers belong to the caller. Strides count elements. q_heads is a multiple of
 * kv_heads; query head h reads KV head h / (q_heads / kv_heads). */
struct kvg_ref_attention {
    int64_t batch, q_heads, kv_heads, head_dim;
    enum kvg_ref_format q_format;
    const void *q; /* [total_q, q_heads, head_dim] */
    int64_t q_stride_token, q_stride_head;
    const float *q_scale; /* [kv_heads] with stride 1, one value with stride 0, NULL = 1 */
    int64_t q_scale_stride;
    struct kvg_ref_kv k, v;
    const int32_t *seq_lens;  /* [batch] keys of each sequence */
    const int32_t *cu_q_lens; /* [batch + 1] first query token of each sequence, and total_q at the end */
    double softmax_scale;
    double soft_cap; /* 0 = none */
    struct kvg_ref_mask mask;
    int threads;        /* >= 1 */
    const float *sinks; /* [q_heads], or NULL: no sinks */
};

/* Visible keys [*first, *last] of query q_index of sequence `seq`; *last < *first when there is none. */
void kvg_ref_visible(const struct kvg_ref_mask *mask, int64_t seq, int64_t seq_len, int64_t q_len,
                     int64_t q_index, int64_t *first, int64_t *last);

/* All functions below return 0, or -1 when out of memory. out is [rows, head_dim], lse is [rows]; both may be
 * NULL. `rows` may come in any order. Up to 24 rows of one (sequence, KV head) share one pass over K and
 * V. */
int kvg_ref_attention_f32(const struct kvg_ref_attention *a, const struct kvg_ref_row *rows, int64_t n_rows,
                          float *out, float *lse);
int kvg_ref_attention_f64(const struct kvg_ref_attention *a, const struct kvg_ref_row *rows, int64_t n_rows,
                          double *out, double *lse);

/* ---------------------------------------------------------------- emulation */

/* What a kernel does on purpose. The fields have the meaning of those of struct kvg_arithmetic in kvgauge's
 * kernels/kernel.h. */
struct kvg_ref_emulation {
    enum kvg_ref_format q_operand, k_operand, v_operand; /* operands are rounded to this; F32 = not rounded */
    int k_scaled_first, v_scaled_first; /* 1: the scale is applied before that rounding; 0: after the sum */
    enum kvg_ref_format p_format;       /* P is rounded to this before the product with V */
    int p_offset_log2;        /* P = 2^(logit - running max + offset) is what is rounded, in units of log2;
                                 used for E4M3 and F16 only */
    int row_sum_of_rounded_p; /* 1: the row sum adds the rounded P; 0: the unrounded P */
    int64_t tile;             /* keys between two updates of the running max; 0 = a whole split */
    int tile_last_first;      /* 1: the last tile of a split is taken first */
    int64_t split_tokens;     /* keys of a split; 0 = one split */
    int split_from_window;    /* 1: splits are counted from the first visible key; 0: from key 0 */
    int sink_in_maximum;      /* 1: the sink begins the running max of the first split with a visible key;
                                 0: it joins the row sum at the end */
};

/* `out` is the output in FP32, before it is rounded to the output dtype. */
int kvg_ref_attention_emulate(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                              const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse);

/* ---------------------------------------------------------------- error bound */

/* Floors under the operands of a matrix unit that cuts off what lies too far below the largest term
 * (tensor_core.h). When such a unit looks for the largest exponent, it takes an operand below the smallest
 * normal number of its format for as large as that number. A zero does not count. So what the unit loses is
 * measured in
 *
 *   |x|' = max(|x|, floor) for x != 0, and 0 for x = 0
 *
 * A floor is in units of the operand: the code, or code * scale where that is what the kernel rounds
 * (k_scaled, v_scaled). The floor of p is relative to p_max. With all floors 0, |x|' = |x|. */
struct kvg_ref_floors {
    double q, k, p, v;
    int k_scaled, v_scaled;
};

/* The errors that a bound allows for.
 *
 *   delta_j  error bound of logit j: logit_rel * |scale| * sum_d |q_d|' |k_jd|' + logit_abs
 *            scale = softmax_scale * q_scale * k_scale
 *            A soft cap shrinks the first part to how far that part can move the capped logit, which is next
 *            to nothing where the cap saturates.
 *   eta_j    error bound of the rounding of P: min(p, max(p_rel * p, p_abs * p_max)) */
struct kvg_ref_bound_model {
    double logit_rel, logit_abs;
    double p_rel, p_abs; /* E4M3: 2^-4 and 2^-18; BF16: 2^-8 and 0; F32: 2^-24 and 0 */
    struct kvg_ref_floors floors;
    int sink_in_maximum; /* 1: p_max is the weight of the sink where that is larger */
};

/* Beyond this the keys have no weight that a double can hold. */
#define KVG_REF_SUNK_MOST 700.0

/* Sums for an error bound. All arrays are [rows * head_dim] unless said otherwise; any may be NULL.
 *
 *   p_j  exact softmax weight of key j
 *   v_j  value of key j, its scale included
 *   o    exact output
 *
 * A sink is one more key of the sums, whose value is 0 and whose delta and eta are 0.
 *
 * The sums are taken in FP32. Each is then made larger (`shrink`: smaller) by what FP32 can lose, so that no
 * bound comes out too small. They are too large by less than 1e-4 of themselves, with two exceptions:
 *
 *   - Squares of terms below 2^-60 (p relative to the largest p, v a code): their sum may be as large as the
 *     square of the sum of the terms.
 *   - Squares of terms above 2^63: their sum is infinite.
 *
 * e^delta - 1 stops growing at delta = 60. */
struct kvg_ref_terms {
    double *abs_pv;      /* sum p |v| */
    double *logit_shift; /* sum p (e^delta - 1) |v - o|, to be divided by `shrink` */
    double *p_rounding;  /* sum eta |v| */
    double *sq_pv;       /* sum p^2 v^2 */
    double *sq_logit;    /* sum p^2 delta^2 (v - o)^2 */
    double *abs_aligned; /* sum p' |v|', with p' = min(max(p, floor * p_max), 16 p). The limit is 16 p because
                            a P that is not rounded to zero is at least half the smallest subnormal number,
                            which is 2^-4 of the smallest normal number */
    double *sq_aligned;  /* sum p'^2 |v|'^2 */
    double *shrink;      /* [rows] sum p e^-delta */
    double *eta_sum;     /* [rows] sum eta: needed where the row sum adds rounded P */
    double *delta_mean;  /* [rows] sum p delta: to first order the error bound of the lse */
    double *grow;        /* [rows] sum p (e^delta - 1) */
    double *sunk; /* [rows] how far the sink raises the lse: lse - ln sum_j e^(s_j) over the keys, at most
                            KVG_REF_SUNK_MOST; 0 without a sink */
};

/* The exact output, as kvg_ref_attention_f32, and the terms. */
int kvg_ref_attention_bound(const struct kvg_ref_attention *a, const struct kvg_ref_bound_model *model,
                            const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse,
                            const struct kvg_ref_terms *terms);

/* ---------------------------------------------------------------- drift */

/* How far a kernel may drift from its emulation although it does the same. Its logit j is off by at most
 *
 *   theta_j = logit_rel * |scale| * sum_d |q_d|' |k_jd|' + max_rel * |running max| + logit_abs
 *
 * (natural logarithm). So a P close to a rounding boundary may fall to the other side of it. */
struct kvg_ref_drift_model {
    double logit_rel, max_rel, logit_abs;
    struct kvg_ref_floors floors;
};

/* f_j is the farthest that the rounded P of key j can move, divided by the row sum. It is 0 for most keys.
 * All arrays are [rows * head_dim] unless said otherwise; any may be NULL. */
struct kvg_ref_drift {
    double *flips;     /* sum f |v| */
    double *sq_flips;  /* sum f^2 v^2 */
    double *partial;   /* largest |sum of p v so far| at the end of a tile; splits are joined by the root of
                         the sum of their squares */
    double *flip_sum;  /* [rows] sum f */
    double *flip_same; /* [rows] the part of flip_sum from repeated logits: keys whose logit equals, to the
                          bit, one of the last four different logits among keys with f > 0. Such keys move
                          together */
};

/* The emulated output, as kvg_ref_attention_emulate, and the drift. */
int kvg_ref_attention_drift(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                            const struct kvg_ref_drift_model *model, const struct kvg_ref_row *rows,
                            int64_t n_rows, float *out, float *lse, const struct kvg_ref_drift *drift);

#ifdef __cplusplus
}
#endif

#endif
