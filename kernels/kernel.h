/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.h: the ABI between kvgauge and a kernel.
 *
 * A kernel is one constant `struct kvg_kernel`. It holds a name, the problems that the kernel supports, the
 * arithmetic that it declares, and up to three entry points (store, quantize_q, attention). The harness uses
 * nothing else of a kernel, and a kernel uses nothing of the harness. Built-in kernels and plug-ins use this
 * same header. A plug-in is a shared object that exports kvg_plugin_kernels.
 *
 * Conventions for the whole file:
 *   sizes      All sizes, counts and strides are int64_t.
 *   strides    A stride counts elements, not bytes. The stride of head_dim is always 1. Strides do not follow
 *              from the shape: an engine passes views into larger buffers. Rows of Q may lie in a fused QKV
 *              tensor, K and V pages in one allocation, rows and pages may have gaps, the head may be the
 *              slowest index, and the strides of K and V may differ. Elements between rows are not the
 *              kernel's: it must not use or write them.
 *   shapes     In [a, b, c] the last index is contiguous; the others have strides where a stride is given.
 *   owner      Every pointer belongs to the caller. It stays valid until the call returns, or on CUDA until
 *              the work that the call queued on `stream` is done. `problem` and the args struct are valid
 *              until the call returns.
 *   memory     CPU kernel: every pointer is host memory; `stream` is NULL. CUDA kernel: every pointer except
 *              `problem` is memory of the current device, and all work is queued on `stream`, a cudaStream_t.
 *   alignment  Each row of head_dim elements of q, q8, k, v, out and the caches is aligned to 16 bytes, or,
 *              if head_dim elements are no multiple of 16 bytes, to the largest power of two that divides
 *              their size. The workspace is aligned to 16 bytes, every other pointer to its element type.
 *              More is not promised, although dense buffers of kvgauge begin at multiples of 4096 bytes (256
 *              on a GPU).
 *   refusals   A kernel that cannot work with the strides or alignment of a call returns KVG_EUNSUPPORTED
 *              before it writes. The row is then skipped if its views are not dense.
 *   inputs     A kernel must not write to inputs: all pointers to const and, in `attention`, the pages. It
 *              must not read before the first or past the last element of an input, even if it does not use
 *              what it reads: the memory beside an input may have no access.
 *   outputs    `out`, `lse` and `workspace` arrive with undefined content.
 *   errors     Every entry point returns KVG_OK or a negative KVG_E* value. A kernel never prints, never exits
 *              and returns once: a process that it forks must not return.
 *   state      A call leaves the process as it found it. Floating-point control (rounding mode, flushing of
 *              subnormals, x87 precision) is restored before the call returns, in every thread that the kernel
 *              shares with others; the row of a plug-in's kernel that does not is incorrect. The rest is signal
 *              handlers and mask, locale, working directory, umask, CPU affinity, timers, resource limits, settings of OpenMP, environment,
 *              descriptors, child processes, and threads except a pool that sleeps between calls. It is put back
 *              after the row, or the process is replaced, and the row names what was left.
 *   growth     A new term of attention is a new bit of `features` and, where it needs them, new fields at the
 *              end of a struct. They are zero in a problem that does not have the bit, and a kernel is given
 *              only problems whose bits it has. So a kernel that was built before a term existed stays right.
 *              A kernel reads such a field only if the problem has the bit.
 */
#ifndef KVG_KERNEL_H
#define KVG_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this ABI. It is raised when a field below changes its meaning or its place, not when a struct
 * grows at its end. A plug-in of another version is refused.
 *   4  features; scales are views; the mask has a kind, in the place of `causal` */
#define KVG_KERNEL_ABI_VERSION 4u

/* Return values of the entry points. */
enum {
    KVG_OK = 0,
    KVG_EINVAL = -1,       /* arguments contradict the problem or each other */
    KVG_EUNSUPPORTED = -2, /* a problem for which `supports` returns 0, or strides that the kernel refuses */
    KVG_ENOMEM = -3,       /* the device is out of memory */
    KVG_EDEVICE = -4       /* a launch or the device failed */
};

enum kvg_device_kind { KVG_DEVICE_CPU = 0, KVG_DEVICE_CUDA = 1 };

/* What a call does. The three attention phases differ only in q_len, the query tokens of a sequence:
 *   store    no attention: K and V of new tokens go into the cache
 *   decode   q_len = 1
 *   append   1 < q_len < context (chunked prefill, speculative verification)
 *   prefill  q_len = context */
enum kvg_phase { KVG_PHASE_STORE = 0, KVG_PHASE_DECODE, KVG_PHASE_APPEND, KVG_PHASE_PREFILL };

/* The arithmetic of attention:
 *   none     not an attention case
 *   dequant  K and V are read in their cache dtype, Q is bf16, products are in bf16 or wider
 *   fp8      Q, K, V and P are all e4m3, as in FlashAttention-3 */
enum kvg_path { KVG_PATH_NONE = 0, KVG_PATH_DEQUANT, KVG_PATH_FP8 };

/* Element formats:
 *   E4M3      OCP "fn" format: bias 7, max 448, no infinity, NaN 0x7f and 0xff
 *   E5M2      IEEE-like: bias 15, max 57344
 *   E4M3FNUZ  AMD's format: bias 8, max 240, NaN 0x80 */
enum kvg_dtype { KVG_F32 = 0, KVG_F16, KVG_BF16, KVG_E4M3, KVG_E5M2, KVG_E4M3FNUZ };

/* Page layout of the cache:
 *   NHD  [num_blocks, block_size, kv_heads, head_dim]
 *   HND  [num_blocks, kv_heads, block_size, head_dim] */
enum kvg_layout { KVG_NHD = 0, KVG_HND = 1 };

/* How an accumulator narrower than FP32 rounds:
 *   TRUNCATE  As a matrix unit does: the terms of a step are shifted to the largest exponent among them,
 *             and each is cut off towards zero. This is the default, and gives the wider bound.
 *   NEAREST   As FP16 and bf16 arithmetic of a vector unit does: every addition, or fused product and
 *             addition, is exact and then rounded once to the nearest value. */
enum kvg_rounding { KVG_ROUND_TRUNCATE = 0, KVG_ROUND_NEAREST };

/* Terms of attention that not every kernel has. A set of bits in kvg_kernel.features (what the kernel takes)
 * and in kvg_problem.features (what the problem has):
 *   SINKS          a logit for each query head in the denominator (kvg_attention_args.sinks)
 *   CHUNKED_MASK   mask KVG_MASK_CHUNKED
 *   PREFIX_MASK    mask KVG_MASK_PREFIX
 *   SHARED_PAGES   rows of the block table begin with the same pages: a page belongs to several sequences
 *   SMALL_PAGES    block_size is no multiple of 8 */
#define KVG_FEATURE_SINKS (UINT64_C(1) << 0)
#define KVG_FEATURE_CHUNKED_MASK (UINT64_C(1) << 1)
#define KVG_FEATURE_PREFIX_MASK (UINT64_C(1) << 2)
#define KVG_FEATURE_SHARED_PAGES (UINT64_C(1) << 3)
#define KVG_FEATURE_SMALL_PAGES (UINT64_C(1) << 4)

/* Which keys query i of a sequence of n keys and q_len queries sees. Its own position is t = n - q_len + i,
 * and w is the window (0 = none). All keys from the first to the last are visible; none if last < first.
 *
 *   mask     first key                          last key
 *   CAUSAL   max(0, t - w + 1), or 0            t
 *   FULL     max(0, n - w), or 0                n - 1
 *   CHUNKED  max(c, t - w + 1), or c            t             c = t rounded down to a multiple of `chunk`
 *   PREFIX   max(0, t - w + 1), or 0            max(t, min(prefix, n) - 1)   prefix = prefix_lens[sequence]
 *
 * Where there is a window, the first of the two first keys counts. A query before the first key (t < 0) sees no
 * key under CAUSAL and CHUNKED. */
enum kvg_mask { KVG_MASK_CAUSAL = 0, KVG_MASK_FULL, KVG_MASK_CHUNKED, KVG_MASK_PREFIX };

/* Scales: one for the whole tensor (stride 0), or one for each KV head (stride 1). */
enum kvg_scheme { KVG_PER_TENSOR = 0, KVG_PER_HEAD = 1 };

/* The shape of a call: everything that a kernel may use for planning. It holds no pointers. */
struct kvg_problem {
    enum kvg_phase phase;
    enum kvg_path path;
    /* Dtype of Q: bf16 on path dequant, e4m3 on path fp8. In phase store: dtype of the source K and V
     * (bf16, f16 or f32). */
    enum kvg_dtype q_dtype;
    /* Dtype of the cache: bf16 (kv_cache_dtype auto), e4m3, e5m2 or e4m3fnuz. */
    enum kvg_dtype kv_dtype;
    /* Dtype of the output: bf16. (kvgauge also asks its own GPU reference, cuda/naive_f32, for f32.) */
    enum kvg_dtype out_dtype;
    enum kvg_scheme scheme;
    enum kvg_layout layout;
    int64_t batch;       /* number of sequences, >= 1 */
    int64_t q_heads;     /* query heads, a multiple of kv_heads */
    int64_t kv_heads;    /* KV heads */
    int64_t head_dim;    /* elements of a row of Q, K and V */
    int64_t block_size;  /* tokens per page, >= 1; a multiple of 8 without KVG_FEATURE_SMALL_PAGES */
    int64_t total_q;     /* query tokens of all sequences (store: tokens to store) */
    int64_t max_q_len;   /* longest q_len of a sequence, in tokens */
    int64_t max_seq_len; /* longest seq_len of a sequence, in keys; includes the keys of the query tokens */
    int64_t total_kv;    /* keys of all sequences */
    int64_t window;      /* visible keys of a query, its own position included; 0 = all */
    float soft_cap;      /* logit := cap * tanh(logit / cap); 0 = no cap */
    enum kvg_mask mask;  /* which keys a query sees, with `window` */
    int threads;         /* CPU: threads to use, >= 1. CUDA: ignored */
    uint64_t features;   /* set of KVG_FEATURE_* */
    int64_t chunk;       /* mask CHUNKED: keys of a chunk, >= 1; else 0 */
};

/* Other orders of the same work. The values form a set (bits):
 *   PAGES      pages lie at other places in the cache
 *   HEADS      KV heads, their scales and their query heads have other numbers
 *   SEQUENCES  sequences have other places in the batch
 *   WORK       the number of threads is another (CPU only)
 *   COMPANY    other sequences are in the call, or none, with any lengths and numbers of query rows (batch
 *              invariance)
 *   CHUNKS     the query rows of a sequence come in several calls, or with more rows in one call (chunked
 *              prefill). Only under a causal mask: a call then ends at the key of its last query row
 * COMPANY and CHUNKS compare calls of different problems. Declared for a problem, they promise that a
 * sequence (a query row) of that problem has the same bits in every other call that the kernel supports,
 * whatever arithmetic it declares there. So a kernel must not declare COMPANY for a problem if the batch,
 * max_q_len, max_seq_len or the totals can change the order of its sums. It must not declare CHUNKS if the
 * number of query rows can. COMPANY includes SEQUENCES. */
enum kvg_rearrangement {
    KVG_MOVE_PAGES = 1,
    KVG_MOVE_HEADS = 2,
    KVG_MOVE_SEQUENCES = 4,
    KVG_MOVE_WORK = 8,
    KVG_MOVE_COMPANY = 16,
    KVG_MOVE_CHUNKS = 32
};

/* The arithmetic that a kernel declares for one sequence of one problem.
 *
 * The error bound of the row is derived from these fields and from nothing else, so they must describe
 * what the code does. If the declaration is too accurate, a correct kernel is called incorrect. If it is
 * too coarse, small faults stay below the bound. Large faults still fail the gain test. Of these fields
 * the gain test uses only whether an accumulator is narrower than FP32. If one is, its allowance is what a
 * two-level accumulator on Hopper's FP8 unit loses on the same rows. */
struct kvg_arithmetic {
    /* ---- logits: s = scale * sum over head_dim of round(q) * round(k) */
    /* Format to which both factors are rounded before the product. F32 = no rounding. Codes are exact in
     * bf16. */
    enum kvg_dtype qk_operand;
    /* 1: K is multiplied by k_scale before it is rounded to qk_operand, so the rounding is inexact even
     * for FP8 codes. 0: the scale is applied to the logit. */
    int k_scaled_before_qk;
    /* Significand bits that the QK accumulator keeps, hidden bit included. FP32: 24. Hopper's FP8 wgmma:
     * 14. */
    int qk_accumulator_bits;
    /* Additions in the longest accumulation chain of one logit. 0 = head_dim. */
    int64_t qk_chain;
    /* NEAREST only. Below this magnitude a sum keeps fewer bits; it is the smallest normal of the
     * accumulator's format. Unit: the largest |q| of the row times 1 of the number that K is multiplied as
     * (the code, or code * scale if k_scaled_before_qk). 0 = the range of FP32. */
    double qk_smallest_normal;
    /* ---- softmax */
    /* Largest relative error of the exponential as the code calls it, argument reduction included. The
     * rounding of the logit itself is not included. */
    double exp2_rel_error;
    /* Format to which P is rounded before the PV product: F32, F16, BF16 or E4M3. */
    enum kvg_dtype p_format;
    /* P = 2^(s - running maximum + offset) is the number that is rounded. FlashAttention-3 has 8 for E4M3.
     * Used for E4M3 and F16 only, whose small numbers are coarse; ignored for the others. */
    int p_offset_log2;
    /* 1: the row sum adds the rounded P. 0: it adds the unrounded P (FlashAttention-3). */
    int row_sum_of_rounded_p;
    /* ---- output: o = sum p * v / row sum */
    /* Format to which V is rounded before the product. F32 = no rounding. */
    enum kvg_dtype pv_operand;
    /* As k_scaled_before_qk, for V and v_scale. */
    int v_scaled_before_pv;
    /* As qk_accumulator_bits, for PV. */
    int pv_accumulator_bits;
    /* Tokens accumulated at pv_accumulator_bits before the sum is added to an FP32 register. 0 = never.
     * Ignored if the accumulator is FP32. */
    int64_t pv_flush_interval;
    /* As qk_smallest_normal. Unit: the weight of the running maximum (1) times 1 of the number that V is
     * multiplied as. */
    double pv_smallest_normal;
    /* Rounding of both accumulators, where they are narrower than FP32. */
    enum kvg_rounding accumulator_rounding;
    /* ---- order */
    /* Keys between two updates of the running maximum. Tiles start at multiples of `tile`, counted from
     * the first key of the split. 0 = the whole split: its maximum is known before P is rounded. */
    int64_t tile;
    /* 1: the last tile of a split is taken first (FlashAttention-3). */
    int tile_last_first;
    /* Keys of a split of the context; the last split may be shorter. Counted from the first key of the
     * sequence or, with split_from_window, from the first visible key. 0 = one split. */
    int64_t split_tokens;
    int split_from_window;
    /* 1: two runs on the same inputs give the same bits. */
    int deterministic;
    /* Set of enum kvg_rearrangement: the orders that leave the bits of every row unchanged. Under the
     * others the output must be correct, but may have other bits. Ignored unless `deterministic` is 1. */
    int same_bits_under;
    /* 1: the sink is the first value of the running maximum, as if it were a key before all others, so P is
     * rounded relative to it. With several splits, this is so in the first one with a visible key. 0: the sink
     * joins the row sum at the end, and P does not depend on it. */
    int sink_in_maximum;
};

/* K or V in pages: a buffer of num_blocks pages. Strides in elements. Element (token t of sequence b, head
 * h, dim d) is at
 *   data[block_table[b * block_table_stride + t / block_size] * stride_block
 *        + (t % block_size) * stride_slot + h * stride_head + d]
 * The index may exceed 32 bits: compute it in 64-bit arithmetic. Slots that no sequence owns may hold NaN. */
struct kvg_pages {
    void *data;
    int64_t stride_block;
    int64_t stride_slot;
    int64_t stride_head;
};

/* Scales of one tensor: value = code * scale. The scale of token t of sequence b and KV head h is at
 *   data[b * stride_sequence + block_table[b * block_table_stride + t / block_size] * stride_block
 *        + (t % block_size) * stride_slot + h * stride_head]
 * in float32. One scale for the tensor: all strides are 0. One for each KV head: stride_head is 1, the others
 * are 0. data is NULL, which means 1.0, only for a tensor that is not quantised. */
struct kvg_scale {
    float *data;
    int64_t stride_sequence, stride_block, stride_slot, stride_head;
};
struct kvg_scales {
    struct kvg_scale q, k, v;
};

/* Arguments of `store`. For every token i with slot_mapping[i] >= 0, write round(float(k[i]) / k_scale) to
 * slot slot_mapping[i] of the K cache (block = slot / block_size), and V likewise.
 *   - The division is a true FP32 division. The result is rounded to nearest even and saturates. NaN stays
 *     NaN.
 *   - A bf16 cache takes the source bits unchanged.
 *   - A token with a negative slot is not stored. No other slot may be written. */
struct kvg_store_args {
    const struct kvg_problem *problem;
    /* Source: [tokens, kv_heads, head_dim] in problem->q_dtype (bf16, f16 or f32). */
    const void *k, *v;
    int64_t k_stride_token, k_stride_head;
    int64_t v_stride_token, v_stride_head;
    const int64_t *slot_mapping; /* [tokens], in any order, with negative slots anywhere */
    int64_t tokens;
    struct kvg_pages k_cache, v_cache;
    int64_t num_blocks;
    struct kvg_scales scales;
    void *workspace;
    int64_t workspace_bytes;
    void *stream;
};

/* Arguments of `quantize_q`: q8 = e4m3(saturate(float(q) * (1 / q_scale[head / group]))), group = q_heads
 * / kv_heads. This is the reciprocal rule. At ties it may differ from a division in the last bit. */
struct kvg_quantize_q_args {
    const struct kvg_problem *problem;
    const void *q; /* [total_q, q_heads, head_dim], bf16 */
    int64_t q_stride_token, q_stride_head;
    void *q8; /* [total_q, q_heads, head_dim], e4m3 */
    int64_t q8_stride_token, q8_stride_head;
    struct kvg_scales scales;
    void *stream;
};

/* Arguments of `attention` and `prepare`. For query token i of sequence b (global row cu_q_lens[b] + i)
 * and query head h, with g = h / (q_heads / kv_heads), over the visible keys j:
 *   s_j = softmax_scale * q_scale[g] * k_scale[g] * (q . k_j), then the soft cap
 *   out = v_scale[g] * sum_j softmax(s)_j v_j
 *   lse = ln sum_j e^(s_j)    (natural logarithm)
 * Without a visible key (an empty sequence): out = 0 and lse = -inf. On path dequant q_scale is 1.
 * With a sink z = sinks[h], which is neither scaled nor capped, Z = e^z + sum_j e^(s_j):
 *   out = v_scale[g] * sum_j e^(s_j) v_j / Z, lse = ln Z. Without a visible key: out = 0 and lse = z.
 * A NaN in a visible key of K makes the row and its lse NaN, a NaN in V makes its dim NaN. Rows of other
 * sequences and KV heads stay right; a row of the same sequence and head that does not see the key may become
 * NaN (0 * NaN in a tile). */
struct kvg_attention_args {
    const struct kvg_problem *problem;
    const void *q; /* [total_q, q_heads, head_dim] in problem->q_dtype */
    int64_t q_stride_token, q_stride_head;
    struct kvg_pages k_cache, v_cache;
    int64_t num_blocks; /* pages of each cache; some may belong to no sequence */
    /* Page of each block_size tokens: [batch, >= ceil(max_seq_len / block_size)]. Entries past the end of
     * a sequence are undefined. */
    const int32_t *block_table;
    int64_t block_table_stride;
    const int32_t *seq_lens;  /* [batch]: keys of each sequence; 0 is allowed */
    const int32_t *cu_q_lens; /* [batch + 1]: first query row of each sequence, then total_q. A sequence may
                                 have no query row, whether it has keys or not */
    struct kvg_scales scales;
    float softmax_scale; /* usually 1 / sqrt(head_dim) */
    void *out;           /* [total_q, q_heads, head_dim] in problem->out_dtype */
    int64_t out_stride_token, out_stride_head;
    float *lse; /* [total_q, q_heads], or NULL if no LSE is wanted */
    int64_t lse_stride_token;
    void *workspace;
    int64_t workspace_bytes;
    void *stream;
    const float *sinks;         /* [q_heads] with KVG_FEATURE_SINKS, else NULL */
    const int32_t *prefix_lens; /* [batch] with KVG_FEATURE_PREFIX_MASK, else NULL. May exceed seq_lens */
};

#define KVG_KERNEL_NAME_MAX 63
struct kvg_kernel {
    uint32_t abi_version; /* KVG_KERNEL_ABI_VERSION */
    uint32_t struct_size; /* sizeof(struct kvg_kernel) */
    /* "device/what_isa", unique: "cpu/dequant_avx512". Letters, digits, '_', '.', '+' and '-', in parts that are
     * not empty between '/'; at most KVG_KERNEL_NAME_MAX characters. Not "best", and not "predict/...". */
    const char *name;
    const char *summary; /* one line for `kvgauge list --kernels` */
    enum kvg_device_kind device;
    /* Of the kernels that support a problem, `kernel=best` takes the one of highest rank; of equal ranks,
     * the one listed first. Every built-in CPU kernel has a rank below 100. */
    int rank;
    /* 1 if the kernel takes this problem on this machine. Otherwise 0, and one sentence in why[0..size). */
    int (*supports)(const struct kvg_problem *problem, char *why, size_t size);
    /* Describes the code for a sequence of seq_len keys in *out. NULL for a kernel without attention. */
    void (*arithmetic)(const struct kvg_problem *problem, int64_t seq_len, struct kvg_arithmetic *out);
    /* Bytes of workspace that an attention or store call needs, >= 0. NULL = none. */
    int64_t (*workspace_bytes)(const struct kvg_problem *problem);
    /* Planning that depends on seq_lens, timed apart from attention. Called before `attention` with the
     * same args; what it leaves in the workspace stays there. NULL = none. */
    int (*prepare)(const struct kvg_attention_args *args);
    int (*store)(const struct kvg_store_args *args);           /* NULL = does not store */
    int (*quantize_q)(const struct kvg_quantize_q_args *args); /* NULL = does not quantise Q */
    int (*attention)(const struct kvg_attention_args *args);   /* NULL = does not attend */
    /* Rank for this problem, for a kernel whose rank depends on the problem: it may lead in one phase and
     * not in another. The result must depend on the problem only and be the same on every machine. It must
     * not touch a device. It is also called with problems that `supports` refuses. NULL = `rank` for every
     * problem. */
    int (*rank_for)(const struct kvg_problem *problem);
    /* Set of KVG_FEATURE_* that the kernel takes. It is asked and given only problems whose features are among
     * them. */
    uint64_t features;
};

/* A plug-in exports this symbol. It returns a list of *count kernels. The list and the kernels stay valid
 * until the process ends. */
typedef const struct kvg_kernel *const *(*kvg_plugin_kernels_fn)(int64_t *count);
#define KVG_PLUGIN_SYMBOL "kvg_plugin_kernels"

#ifdef __cplusplus
}
#endif
#endif
