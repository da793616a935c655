/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h: what a right answer is.
 *
 * Softmax attention for chosen rows (query token x query head), in three ways:
 *
 * - exact: FP32 weights and values, every sum in a fixed order (bit-identical on every machine and thread
 * count, whatever other rows are asked for). Logits are summed in double and at most 32 products p v in FP32,
 * so to first order |error| <= 35 * 2^-24 * sum p |v|, and about 1e-7 in relative L2. Weights below 2^-149 of
 * the largest are lost.
 * - FP64: the oracle of the oracle.
 * - emulating: the same with what a kernel declares it does on purpose: operands rounded, P rounded relative
 * to the running max, row sum from unrounded P, tile size and order, splits. The accidental rounding of a
 * kernel's sums is left out.
 *
 * Beside the exact output there are, per output element, the sums from which an error bound is built
 * (`terms`).
 *
 * logit s_j = softmax_scale * q_scale * k_scale * (q . k_j), then the soft cap cap * tanh(s / cap);
 * out = v_scale * sum_j p_j v_j, p = softmax(s); lse = ln sum_j e^(s_j).
 * Visible keys of query i of a sequence with q_len queries and n keys (bottom-right aligned):
 *   last = causal ? n - q_len + i : n - 1;  first = window > 0 ? max(0, last - window + 1) : 0.
 * Without a visible key out is 0 and lse is -infinity.
 */
#ifndef KVG_REFERENCE_ATTENTION_H
#define KVG_REFERENCE_ATTENTION_H

#include <stdint.h>
#include "paged.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One row to compute. */
struct kvg_ref_row {
    int32_t seq;     /* sequence of the batch */
    int32_t q_index; /* query token within the sequence, 0 .. q_len - 1 */
    int32_t q_head;
};

/* What a kernel does on purpose; see struct kvg_arithmetic in kernels/kernel.h for the meaning. */
struct kvg_ref_emulation {
    enum kvg_ref_format q_operand, k_operand, v_operand; /* operands rounded to this (F32 = not) */
    int k_scaled_first, v_scaled_first;                  /* scale applied before that rounding */
    enum kvg_ref_format p_format;
    int p_offset_log2;
    int row_sum_of_rounded_p;
    int64_t tile;
    int tile_last_first;
    int64_t split_tokens;
    int split_from_window;
};

/* Sums for a bound. All arrays are [rows * head_dim] unless said otherwise; any may be NULL.
 * p_j is the exact softmax weight, v_j the value with its scale, o the exact output.
 * delta_j, the error bound of logit j, is logit_rel * |scale| * sum_d |q_d|' |k_jd|' + logit_abs; a soft cap
 * shrinks the first part to how far it can move the capped logit, next to nothing where the cap saturates.
 * eta_j bounds the rounding of P: min(p, max(p_rel * p, p_abs * p_max)).
 * The sums are taken in FP32 and then made larger (`shrink` smaller) by what that can lose: by less than 1e-4
 * of themselves, but for squares of terms below 2^-60 (p relative to the largest, v a code), which may be as
 * large as the square of their sum, and of terms above 2^63, which are infinite. e^delta - 1 stops growing at
 * delta = 60. */
/* A matrix unit that cuts off what lies too far below the largest term takes an operand below the smallest
 * normal of its format for as large as that one, when it looks for the largest (tensor_core.h); a zero does
 * not count. So what such a unit loses is measured in |x|' = max(|x|, floor) for x != 0, in units of the
 * operand: the code, or code * scale where that is what the kernel rounds (k_scaled, v_scaled). p: relative
 * to p_max. All 0: |x|' = |x|. */
struct kvg_ref_floors {
    double q, k, p, v;
    int k_scaled, v_scaled;
};
struct kvg_ref_bound_model {
    double logit_rel, logit_abs;
    double p_rel, p_abs; /* E4M3: 2^-4 and 2^-18; BF16: 2^-8 (+0); F32: 2^-24 */
    struct kvg_ref_floors floors;
};
struct kvg_ref_terms {
    double *abs_pv;      /* sum p |v| */
    double *logit_shift; /* sum p (e^delta - 1) |v - o|, to be divided by `shrink` */
    double *p_rounding;  /* sum eta |v| */
    double *sq_pv;       /* sum p^2 v^2 */
    double *sq_logit;    /* sum p^2 delta^2 (v - o)^2 */
    double *abs_aligned; /* sum p' |v|', p' = min(max(p, floor * p_max), 16 p) (a P that is not rounded to
                            zero has at least half the smallest subnormal, 2^-4 of the smallest normal) */
    double *sq_aligned;  /* sum p'^2 |v|'^2 */
    double *shrink;      /* [rows] sum p e^-delta */
    double *eta_sum;     /* [rows] sum eta: matters where the row sum adds rounded P */
    double *delta_mean;  /* [rows] sum p delta: the error bound of the lse to first order */
    double *grow;        /* [rows] sum p (e^delta - 1) */
};

struct kvg_ref_attention {
    int64_t batch, q_heads, kv_heads, head_dim;
    enum kvg_ref_format q_format;
    const void *q; /* [total_q, q_heads, head_dim] */
    int64_t q_stride_token, q_stride_head;
    const float *q_scale; /* [kv_heads] with stride 1, one value with stride 0, NULL = 1 */
    int64_t q_scale_stride;
    struct kvg_ref_kv k, v;
    const int32_t *seq_lens;  /* [batch] */
    const int32_t *cu_q_lens; /* [batch + 1] */
    double softmax_scale;
    double soft_cap; /* 0 = none */
    int64_t window;  /* 0 = none */
    int causal;
    int threads; /* >= 1 */
};

/* All return 0, or -1 on out of memory. out is [rows, head_dim], lse [rows]; both may be NULL.
 * rows may come in any order; up to 24 rows of one (seq, KV head) share one pass over K and V. */
int kvg_ref_attention_f32(const struct kvg_ref_attention *a, const struct kvg_ref_row *rows, int64_t n_rows,
                          float *out, float *lse);
int kvg_ref_attention_f64(const struct kvg_ref_attention *a, const struct kvg_ref_row *rows, int64_t n_rows,
                          double *out, double *lse);
/* out in FP32 before the rounding to the output dtype. */
int kvg_ref_attention_emulate(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                              const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse);
/* How far a kernel may drift from its emulation although it does the same: its logit j is off by at most
 *   theta_j = logit_rel * |scale| sum_d |q_d|' |k_jd|' + max_rel * |running max| + logit_abs   (natural
 * logarithm), so a P close to a rounding boundary may fall to the other side of it. f_j is the farthest that
 * the rounded P can move (mostly 0), over the row sum. All arrays are [rows * head_dim] unless said
 * otherwise; any may be NULL. */
struct kvg_ref_drift_model {
    double logit_rel, max_rel, logit_abs;
    struct kvg_ref_floors floors;
};
struct kvg_ref_drift {
    double *flips;    /* sum f |v| */
    double *sq_flips; /* sum f^2 v^2 */
    double
        *partial; /* largest |sum of p v so far| at the end of a tile; over splits the root of the squares */
    double *flip_sum;  /* [rows] sum f */
    double *flip_same; /* [rows] the part of it from keys whose logit equals, to the bit, one of the four last
                          different ones of keys with an f: they are moved together */
};
/* kvg_ref_attention_emulate, and the drift with it. */
int kvg_ref_attention_drift(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                            const struct kvg_ref_drift_model *model, const struct kvg_ref_row *rows,
                            int64_t n_rows, float *out, float *lse, const struct kvg_ref_drift *drift);
/* Exact output (FP32) and the terms in one go. */
int kvg_ref_attention_bound(const struct kvg_ref_attention *a, const struct kvg_ref_bound_model *model,
                            const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse,
                            const struct kvg_ref_terms *terms);

/* Visible keys [*first, *last] of a query; *last < *first when there is none. */
void kvg_ref_visible(int64_t seq_len, int64_t q_len, int64_t q_index, int64_t window, int causal,
                     int64_t *first, int64_t *last);

#ifdef __cplusplus
}
#endif

#endif
