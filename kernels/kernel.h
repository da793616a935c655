/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.h: the ABI between kvgauge and a kernel.
 *
 * A kernel is one constant `struct kvg_kernel`: a name, the shapes it supports, the arithmetic it
 * declares, and up to three entry points (store, quantize_q, attention). The harness knows nothing
 * else about it; the kernel knows nothing about the harness. Built-in kernels and plug-ins (a shared
 * object that exports kvg_plugin_kernels) use this same header.
 *
 * Conventions, everywhere in this file:
 *   - sizes and strides are int64_t; strides count elements, never bytes;
 *   - every pointer belongs to the caller and is valid for the duration of the call; on a CUDA kernel
 *     every pointer but `problem` points to device memory, and work is queued on `stream`;
 *   - inputs must not be written. `out`, `lse` and `workspace` arrive with undefined content;
 *   - the return value is 0 or a negative KVG_E*; a kernel never prints and never exits.
 */
#ifndef KVG_KERNEL_H
#define KVG_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct below changes meaning or layout; a plug-in of another version is refused. */
#define KVG_KERNEL_ABI_VERSION 3u

/* Errors a kernel may return. */
enum {
    KVG_OK = 0,
    KVG_EINVAL = -1,       /* arguments contradict the problem or each other */
    KVG_EUNSUPPORTED = -2, /* `supports` would have said no */
    KVG_ENOMEM = -3,       /* the device ran out of memory */
    KVG_EDEVICE = -4       /* launch or device failure */
};

enum kvg_device_kind { KVG_DEVICE_CPU = 0, KVG_DEVICE_CUDA = 1 };

/* What the call does. The three attention phases differ in q_len alone: decode has 1 query token per
 * sequence, append has 1 < q_len < context (chunked prefill, speculative verify), prefill has
 * q_len = context. */
enum kvg_phase { KVG_PHASE_STORE = 0, KVG_PHASE_DECODE, KVG_PHASE_APPEND, KVG_PHASE_PREFILL };

/* Which arithmetic attention uses. dequant: K and V are read in their cache dtype, Q is bf16, products
 * in bf16 or wider. fp8: Q, K, V and P are all e4m3 (FlashAttention-3). none: not an attention case. */
enum kvg_path { KVG_PATH_NONE = 0, KVG_PATH_DEQUANT, KVG_PATH_FP8 };

/* Element formats. E4M3 is the OCP "fn" format (bias 7, max 448, no infinity, NaN 0x7f/0xff); E5M2 is
 * IEEE-like (bias 15, max 57344); E4M3FNUZ is AMD's (bias 8, max 240, NaN 0x80). */
enum kvg_dtype { KVG_F32 = 0, KVG_F16, KVG_BF16, KVG_E4M3, KVG_E5M2, KVG_E4M3FNUZ };

/* Page layout: NHD = [num_blocks, block_size, kv_heads, head_dim],
 *              HND = [num_blocks, kv_heads, block_size, head_dim]. */
enum kvg_layout { KVG_NHD = 0, KVG_HND = 1 };

/* How an accumulator narrower than FP32 drops what it cannot hold. TRUNCATE: as a matrix unit does, which
 * shifts the terms of a step to the largest exponent among them and cuts each off towards zero; the default,
 * and the more generous of the two. NEAREST: every addition, or fused product and addition, is exact and then
 * rounded once to the nearest value, as FP16 and bf16 arithmetic of a vector unit does. */
enum kvg_rounding { KVG_ROUND_TRUNCATE = 0, KVG_ROUND_NEAREST };

/* One scale for the whole tensor (stride 0), or one per KV head (stride 1). */
enum kvg_scheme { KVG_PER_TENSOR = 0, KVG_PER_HEAD = 1 };

/* The shape of a call: everything a kernel may plan with, no pointers. */
struct kvg_problem {
    enum kvg_phase phase;
    enum kvg_path path;
    enum kvg_dtype q_dtype;   /* bf16 on path dequant, e4m3 on path fp8; source dtype of K, V in store */
    enum kvg_dtype kv_dtype;  /* of the cache: bf16 (kv_cache_dtype auto), e4m3 or e5m2 */
    enum kvg_dtype out_dtype; /* bf16 */
    enum kvg_scheme scheme;
    enum kvg_layout layout;
    int64_t batch;       /* number of sequences, >= 1 */
    int64_t q_heads;     /* a multiple of kv_heads */
    int64_t kv_heads;    /* */
    int64_t head_dim;    /* of Q, K and V alike */
    int64_t block_size;  /* tokens per page, a multiple of 8 */
    int64_t total_q;     /* query tokens over all sequences (store: tokens to store) */
    int64_t max_q_len;   /* longest q_len of a sequence */
    int64_t max_seq_len; /* longest seq_len (keys, the query's own tokens included) */
    int64_t total_kv;    /* keys over all sequences */
    int64_t window;      /* visible keys per query, its own position included; 0 = all */
    float soft_cap;      /* logit := cap * tanh(logit / cap); 0 = none */
    int causal;          /* 1: query i of a sequence sees keys 0 .. seq_len - q_len + i */
    int threads;         /* CPU: threads to use, >= 1. CUDA: ignored */
};

/* Other orders of the same work. Pages lie elsewhere in the cache; KV heads, their scales and query heads
 * carry other numbers; sequences stand in another order in the batch; `threads` is another. */
enum kvg_rearrangement {
    KVG_MOVE_PAGES = 1,
    KVG_MOVE_HEADS = 2,
    KVG_MOVE_SEQUENCES = 4,
    KVG_MOVE_WORK = 8 /* CPU alone */
};

/* The arithmetic a kernel declares for one sequence of one problem. The error bound of the row is
 * derived from this and from nothing else, so it must say what the code does: too modest and a right
 * kernel is called incorrect, too generous and small faults hide in the bound (large ones still fail the
 * gain test, whose allowance knows at most that an accumulator is narrower than FP32, and then is what two
 * levels on Hopper's FP8 unit lose on the same rows). */
struct kvg_arithmetic {
    /* logits: s = scale * sum over head_dim of round(q) * round(k) */
    enum kvg_dtype qk_operand; /* format both factors are rounded to before the product (codes are exact in
                                  bf16; F32 = no rounding) */
    int k_scaled_before_qk;    /* 1: K is multiplied by k_scale before it is rounded to qk_operand, so the
                                  rounding is inexact even for FP8 codes; 0: the scale joins the logit */
    int qk_accumulator_bits;   /* significand bits kept by the QK accumulator, hidden bit included: FP32 = 24,
                                  Hopper FP8 wgmma = 14 */
    int64_t qk_chain;          /* additions in the longest accumulation chain of one logit; 0 = head_dim */
    double qk_smallest_normal; /* NEAREST only: below this a sum keeps fewer bits (the smallest normal of its
                                  format), over the largest |q| of the row times 1 of what K is multiplied
                                  as (the code; code * scale with k_scaled_before_qk); 0 = range of FP32 */
    /* softmax */
    double exp2_rel_error;   /* largest relative error of the exponential, as the code calls it, argument
                                reduction included; excludes the rounding of the logit itself */
    enum kvg_dtype p_format; /* P is rounded to this before the PV product: F32, F16, BF16 or E4M3 */
    int p_offset_log2; /* P = 2^(s - running max + offset) is what is rounded: 8 in FlashAttention-3's E4M3.
                          Of E4M3 and F16 alone, whose small numbers are coarse; otherwise ignored */
    int row_sum_of_rounded_p; /* 1: the row sum adds the rounded P; 0: the unrounded (FlashAttention-3) */
    /* output: o = sum p * v / row sum */
    enum kvg_dtype pv_operand; /* format V is rounded to before the product; F32 = no rounding */
    int v_scaled_before_pv;    /* as k_scaled_before_qk */
    int pv_accumulator_bits;   /* as qk_accumulator_bits */
    int64_t pv_flush_interval; /* tokens accumulated at pv_accumulator_bits before the sum is added to an
                                  FP32 register; 0 = never. Irrelevant when the accumulator is FP32 */
    double pv_smallest_normal; /* as qk_smallest_normal, over the weight of the running max (1) times 1 of
                                  what V is multiplied as */
    enum kvg_rounding accumulator_rounding; /* of both accumulators, where they are narrower than FP32 */
    /* order */
    int64_t tile;         /* keys between two updates of the running max; tiles start at multiples of `tile`
                             counted from the split's first key */
    int tile_last_first;  /* 1: the last tile of a split is taken first (FlashAttention-3) */
    int64_t split_tokens; /* keys per split of the context (the last may be shorter), counted from the first
                             key of the sequence, or, with split_from_window, from the first visible key;
                             0 = one split */
    int split_from_window;
    int deterministic;   /* 1: two runs on the same inputs give the same bits */
    int same_bits_under; /* set of enum kvg_rearrangement: those that leave every row its bits; in the others
                            the output must be right, no more. Of no account unless deterministic */
};

/* K or V in pages. Element (token t of sequence b, head h, dim d) is at
 *   data[block_table[b * block_table_stride + t / block_size] * stride_block
 *        + (t % block_size) * stride_slot + h * stride_head + d]  (64-bit arithmetic) */
struct kvg_pages {
    void *data;
    int64_t stride_block;
    int64_t stride_slot;
    int64_t stride_head;
};

/* Scales: float32 [kv_heads] with stride 1, or one value with stride 0. value = code * scale.
 * NULL means 1.0 and is only passed where the tensor is not quantised. */
struct kvg_scales {
    const float *q, *k, *v;
    int64_t stride;
};

/* store: for every token i with slot_mapping[i] >= 0 write round(float(k[i]) / k_scale) to slot
 * slot_mapping[i] (block = slot / block_size) and likewise V. True FP32 division, round to nearest even,
 * saturating; NaN stays NaN. A bf16 cache takes the bits as they are. A negative slot stores nothing. */
struct kvg_store_args {
    const struct kvg_problem *problem;
    const void *k, *v; /* [tokens, kv_heads, head_dim] in problem->q_dtype (bf16, f16 or f32) */
    int64_t k_stride_token, k_stride_head;
    int64_t v_stride_token, v_stride_head;
    const int64_t *slot_mapping; /* [tokens] */
    int64_t tokens;
    struct kvg_pages k_cache, v_cache;
    int64_t num_blocks;
    struct kvg_scales scales;
    void *workspace;
    int64_t workspace_bytes;
    void *stream;
};

/* quantize_q: q8 = e4m3(saturate(float(q) * (1 / q_scale[head / group]))): the reciprocal rule, which may
 * differ from the division in the last bit at ties. q is bf16. */
struct kvg_quantize_q_args {
    const struct kvg_problem *problem;
    const void *q; /* [total_q, q_heads, head_dim] bf16 */
    int64_t q_stride_token, q_stride_head;
    void *q8; /* [total_q, q_heads, head_dim] e4m3 */
    int64_t q8_stride_token, q8_stride_head;
    struct kvg_scales scales;
    void *stream;
};

/* attention: for query token i of sequence b (global row cu_q_lens[b] + i) and query head h, with
 * g = h / (q_heads / kv_heads):
 *   s_j = softmax_scale * q_scale[g] * k_scale[g] * (q . k_j), then the soft cap, over the visible keys j;
 *   out = v_scale[g] * sum_j softmax(s)_j v_j;  lse = ln sum_j e^(s_j) (natural logarithm).
 * No visible key (an empty sequence): out = 0 and lse = -inf. q_scale is 1 on path dequant. */
struct kvg_attention_args {
    const struct kvg_problem *problem;
    const void *q; /* [total_q, q_heads, head_dim] in problem->q_dtype */
    int64_t q_stride_token, q_stride_head;
    struct kvg_pages k_cache, v_cache;
    int64_t num_blocks;
    const int32_t *block_table; /* [batch, >= ceil(max_seq_len / block_size)] */
    int64_t block_table_stride;
    const int32_t *seq_lens;  /* [batch], keys of each sequence; 0 allowed */
    const int32_t *cu_q_lens; /* [batch + 1], first query row of each sequence, then total_q */
    struct kvg_scales scales;
    float softmax_scale; /* usually 1 / sqrt(head_dim) */
    void *out;           /* [total_q, q_heads, head_dim] in problem->out_dtype */
    int64_t out_stride_token, out_stride_head;
    float *lse; /* [total_q, q_heads] or NULL */
    int64_t lse_stride_token;
    void *workspace;
    int64_t workspace_bytes;
    void *stream;
};

struct kvg_kernel {
    uint32_t abi_version; /* KVG_KERNEL_ABI_VERSION */
    uint32_t struct_size; /* sizeof(struct kvg_kernel) */
    const char *name;     /* "device/what_isa", unique: "cpu/decode_dequant_avx512" */
    const char *summary;  /* one line for `kvgauge list --kernels` */
    enum kvg_device_kind device;
    int rank; /* among kernels that support a problem, `kernel=best` takes the highest rank; a tie goes to the
                 kernel listed first. Every CPU kernel that is built in stays below 100 */
    /* 1 if the kernel takes this problem on this machine; else 0 and one sentence in why[0..size). */
    int (*supports)(const struct kvg_problem *problem, char *why, size_t size);
    /* What the code does for a sequence of seq_len keys. NULL for a kernel without attention. */
    void (*arithmetic)(const struct kvg_problem *problem, int64_t seq_len, struct kvg_arithmetic *out);
    int64_t (*workspace_bytes)(const struct kvg_problem *problem); /* NULL = none */
    /* Planning that depends on seq_lens, timed apart from attention; NULL = none. */
    int (*prepare)(const struct kvg_attention_args *args);
    int (*store)(const struct kvg_store_args *args);           /* NULL = does not store */
    int (*quantize_q)(const struct kvg_quantize_q_args *args); /* NULL = does not quantise Q */
    int (*attention)(const struct kvg_attention_args *args);   /* NULL = does not attend */
    /* The rank for this problem, where it is not `rank` for all: a kernel may lead in one phase and follow in
     * another. A plain function of the problem: the same on every machine, touches no device, and is asked of
     * problems that `supports` refuses too. NULL = `rank`. */
    int (*rank_for)(const struct kvg_problem *problem);
};

/* A plug-in exports this symbol: *count kernels, alive until the process ends. */
typedef const struct kvg_kernel *const *(*kvg_plugin_kernels_fn)(int64_t *count);
#define KVG_PLUGIN_SYMBOL "kvg_plugin_kernels"

#ifdef __cplusplus
}
#endif
#endif
