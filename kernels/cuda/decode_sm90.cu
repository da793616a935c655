/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90.cu: host side of the Hopper decode kernels: what they support and declare, tensor maps, launch.
 * decode_sm90_warps.cuh describes the large kernel, decode_sm90_lean.cuh the one for short work.
 *
 * Versions of the kernels, with what was predicted and what was measured. H200, cold L2, pages of 16, NHD,
 * shuffled pages, 32/8 heads, head_dim 128, e4m3 on path fp8. Bn x m: batch n, m tokens. The first three
 * columns are percent of the gather roof of the same run, the last is a time. (Two machines were used, with a
 * linear read of 4430 and of 4550 GB/s.)
 *
 *   version     B64 x 32k  B8 x 32k      B1 x 128k     B1 x 8k
 *   v1          91.2       89.6          77.7          16.7 us
 *   v2          93.9       -             -             -             with 8 heads a block
 *   v2 (sweep)  95.7       89.8          86.0          17.2 us       with two splits side by side
 *   v4 (sweep)  96.1       89.5          85.0          -
 *   v5          96.4       88.4          83.7          18.8 us
 *   v6          96.9       91.9 to 92.7  87.2 to 88.1  16.6 to 16.9 us
 *
 *   - v1: splits of about 1000 tokens, all 8 heads a block, items handed out by a counter, merge in a second
 *     kernel. Predicted 95 %, because the same reads without arithmetic reach 100. Lost to partial results
 *     (16 KB an item), serial loads in the merge, and idle blocks at the end.
 *   - v2: one list of slabs, cut into chunks that get smaller from round to round. The maximum restarts at
 *     splits inside a chunk, so the number of partial results no longer depends on the splits. The merge
 *     issues all loads at once. Predicted 95. Two splits side by side, added up in shared memory, halve the
 *     partial results.
 *   - v3: clusters of 8 blocks that add up through distributed shared memory. Predicted 14 us for B1 x 8k,
 *     measured 17.7: half of the multiprocessors read too slowly, and 16 clusters do not fit at once.
 *     Removed.
 *   - v4: the reader starts before the other warps. A kernel that overlaps with the decode kernel sets the
 *     counter to zero.
 *   - v5: chunk fractions rounded up. (Rounded down, an exact fraction was one slab short, and the last block
 *     did half as much again.) With it a dry pass over the loop while the first pages are on their way,
 *     because code is cold after the flush. Predicted 2 us less; it was not faster, also when each pair of
 *     warps fetched a quarter of the code. Fetching code is the serial part and delays the reader. Dry pass
 *     removed.
 *   - v6: in a single round one head and eight splits a block; chunks that end where sequences end; four
 *     stages instead of six. With fewer bytes in flight the blocks share the memory more evenly: blocks of B8
 *     x 32k end within 7 % of each other, before 40 %. B64 x 128k: 99.0. Path dequant: B64 x 32k e4m3 96.7,
 *     e5m2 97.0, bf16 98.4; B8 x 32k e4m3 92.3.
 *   - v7: in a single round every warp reads for itself (decode_sm90_lean.cuh). The loads of its merge are
 *     all issued at once. Two tiles ahead. The merge is launched and Q prefetched before the first page is
 *     requested. Predicted 14 us for B1 x 8k. Large kernel and v7 in the same run:
 *         B1 x 8k   16.6 and 14.2 us        fp8   B1 x 128k   86.8 and 88.9 %
 *         B2 x 8k   20.1 and 17.0 us        fp8   B8 x 8k     81.5 and 84.8 %
 *                                           fp8   B8 x 32k    91.7 and 91.8 %
 *                                           bf16  B1 x 128k   89.8 and 94.0 %
 *                                           bf16  B8 x 32k    94.2 and 96.0 %
 *     e4m3 and e5m2 on path dequant are as fp8. Slower: three tiles ahead (up to 1.5 %), no prefetch (up to
 *     1 %), a late launch of the merge (1.5 % with several sequences). With the merge of the large kernel it
 *     gains at 8k only. Tried and removed: a dry pass over the code after the loop (0.9 us more, because it
 *     delays the requests of the warp; in the merge alone: no effect), two heads a block (0.8 us more),
 *     misses of 256 bytes into the L2 (0.1 us more, B8 x 32k 2 % slower).
 *   - v8: a warp of the large kernel takes 16 query rows where there are more than 8 (append). K and V are
 *     then read from shared memory and widened once for all 16. V is loaded in parts where registers are
 *     short. Predicted near the roof for 16 rows, twice v7 beyond. Percent of the roof, B8 x 32k, fp8:
 *         query tokens (rows)    2 (8)   4 (16)   8 (32)   16 (64)
 *         8 rows a warp          92      73       41       22
 *         16 rows a warp         93      88       56       31
 *     Decode is unchanged (both in one run: B64 x 32k 97.0 and 96.9, B8 x 32k 93.3 and 93.3, B1 x 128k 89.8
 *     and 90.1).
 *   - No gain in the large kernel: for the work of a single round, a second round of 8 or 15 % handed out by
 *     the counter (4 to 18 % slower); for B64 x 32k, 4 or 5 stages, 2, 4 or 5 rounds, fractions of 60 to 90
 *     %, 8 heads, splits of 256 (from 2 % slower to 0.3 % faster); misses of 256 bytes (5 % slower).
 *
 * What remains.
 *   - B1 x 8k, from clocks read in the kernel, in us from the start of the first block:
 *          1.0         page table loaded, barriers set up
 *          1.7         pages requested
 *          5.2 to 5.7  Q and the first K arrived (code and scales come from memory as well)
 *          8.1         the two tiles of the warp done
 *          8.5 to 9.3  splits added and written
 *         10.5         the merge sees them
 *         12           the merge ends
 *     Between the events there are 3.4 us more around an empty kernel, 4.1 around two.
 *   - B1 x 128k: the last pages of the blocks arrive between 55 and 75 us, half of them by 66.
 *     Multiprocessors read at unequal speed, and with equal parts of the list all wait for the slowest.
 *   - bf16: a 256-byte row takes two boxes. Reading alone reaches 99.6 %.
 */
#include "cuda.h"
#include "decode_sm90.h"
#include "decode_sm90_lean.cuh"
#include "decode_sm90_launch.h"

#include <cudaTypedefs.h>
#include <math.h>
#include <stdio.h>

static int here(struct kvg_cuda_device *d, char *why, size_t size)
{
    if (kvg_cuda_device_here(d, why, size))
        return -1;
    if (d->major != 9 || d->minor != 0) {
        snprintf(why, size, "compiled for compute capability 9.0 (sm_90a), this device has %d.%d", d->major,
                 d->minor);
        return -1;
    }
    return 0;
}

extern "C" int kvg_sm90_plan_here(const struct kvg_problem *p, const struct kvg_sm90_tuning *tuning,
                                  struct kvg_sm90_plan *plan, char *why, size_t size)
{
    struct kvg_cuda_device d;
    if (here(&d, why, size))
        return -1;
    return kvg_sm90_make_plan(p, tuning, d.multiprocessors, d.smem_per_block, plan, why, size);
}

static int supports_shape(const struct kvg_problem *p, char *why, size_t size)
{
    struct kvg_sm90_plan plan;
    if (p->phase != KVG_PHASE_DECODE && p->phase != KVG_PHASE_APPEND) {
        snprintf(why, size, "only phases decode and append (q_len up to 16)");
        return 0;
    }
    if (p->max_q_len > 16) {
        snprintf(why, size, "q_len %lld: this kernel takes up to 16", (long long)p->max_q_len);
        return 0;
    }
    if (p->out_dtype != KVG_BF16) {
        snprintf(why, size, "output must be bf16");
        return 0;
    }
    if (p->head_dim != 64 && p->head_dim != 96 && p->head_dim != 128 && p->head_dim != 192 &&
        p->head_dim != 256) {
        snprintf(why, size, "head_dim %lld: this kernel takes 64, 96, 128, 192 and 256",
                 (long long)p->head_dim);
        return 0;
    }
    if (p->kv_heads < 1 || p->q_heads % p->kv_heads) {
        snprintf(why, size, "q_heads %lld is not a multiple of kv_heads %lld", (long long)p->q_heads,
                 (long long)p->kv_heads);
        return 0;
    }
    if (p->block_size < 8 || p->block_size % 8) {
        snprintf(why, size, "block_size %lld: this kernel takes multiples of 8", (long long)p->block_size);
        return 0;
    }
    if (p->max_seq_len > (int64_t)1 << 30 || p->window > (int64_t)1 << 30) {
        snprintf(why, size, "max_seq_len %lld: this kernel counts keys in 31 bits",
                 (long long)p->max_seq_len);
        return 0;
    }
    return kvg_sm90_plan_here(p, NULL, &plan, why, size) == 0;
}

static int supports_dequant(const struct kvg_problem *p, char *why, size_t size)
{
    struct kvg_cuda_device d;
    if (here(&d, why, size))
        return 0;
    if (p->path != KVG_PATH_DEQUANT || p->q_dtype != KVG_BF16 ||
        (p->kv_dtype != KVG_BF16 && p->kv_dtype != KVG_E4M3 && p->kv_dtype != KVG_E5M2)) {
        snprintf(why, size, "only path dequant with bf16 Q and a bf16, e4m3 or e5m2 cache");
        return 0;
    }
    return supports_shape(p, why, size);
}

static int supports_fp8(const struct kvg_problem *p, char *why, size_t size)
{
    struct kvg_cuda_device d;
    if (here(&d, why, size))
        return 0;
    if (p->path != KVG_PATH_FP8 || p->q_dtype != KVG_E4M3 || p->kv_dtype != KVG_E4M3) {
        snprintf(why, size, "only path fp8, where Q and the cache are e4m3");
        return 0;
    }
    return supports_shape(p, why, size);
}

/* QK: one HMMA chain over head_dim, in FP32. PV: each tile starts from zero, then one FP32 addition a
 * tile. */
static void arithmetic(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    struct kvg_sm90_plan plan;
    char why[160];
    memset(out, 0, sizeof *out);
    (void)seq_len;
    if (kvg_sm90_plan_here(p, NULL, &plan, why, sizeof why))
        return;
    const int fp8 = p->path == KVG_PATH_FP8;
    out->qk_operand = fp8 ? KVG_E4M3 : KVG_BF16;
    out->qk_accumulator_bits = 24;
    out->qk_chain = p->head_dim;
    out->exp2_rel_error = 2.4e-7; /* ex2.approx.ftz: 2^-22 by the PTX manual */
    out->p_format = fp8 ? KVG_E4M3 : p->kv_dtype == KVG_BF16 ? KVG_BF16 : KVG_F16;
    out->p_offset_log2 = fp8 ? 8 : p->kv_dtype == KVG_BF16 ? 0 : 14;
    out->pv_operand = p->kv_dtype;
    out->pv_accumulator_bits = 24;
    out->pv_flush_interval = plan.tile;
    out->tile = plan.tile;
    out->split_tokens = plan.split_tokens;
    out->deterministic = 1;
    out->same_bits_under = KVG_MOVE_PAGES | KVG_MOVE_HEADS; /* a sequence's place in the batch decides
                                                             * where it is cut */
}

static int64_t workspace_bytes(const struct kvg_problem *p)
{
    struct kvg_sm90_plan plan;
    char why[160];
    return kvg_sm90_plan_here(p, NULL, &plan, why, sizeof why) ? 0 : plan.workspace_bytes;
}

/* Tensor map of a cache: [block][head][slot][bytes of a row]. Rows are cut into 128-byte boxes, and the
 * last box is padded with zeros. So values of head_dim that are not a multiple of 128 bytes need no other
 * code. */
static int make_map(PFN_cuTensorMapEncodeTiled_v12000 encode, const struct kvg_problem *p,
                    const struct kvg_sm90_plan *plan, const struct kvg_pages *pages, int64_t num_blocks,
                    int promotion, CUtensorMap *map)
{
    const cuuint64_t es = p->kv_dtype == KVG_BF16 ? 2 : 1;
    const cuuint64_t dim[4] = {(cuuint64_t)p->head_dim * es, (cuuint64_t)p->block_size,
                               (cuuint64_t)p->kv_heads, (cuuint64_t)num_blocks};
    const cuuint64_t stride[3] = {(cuuint64_t)pages->stride_slot * es, (cuuint64_t)pages->stride_head * es,
                                  (cuuint64_t)pages->stride_block * es};
    const cuuint32_t box[4] = {KVG_SM90_SEGMENT, (cuuint32_t)plan->box_tokens, (cuuint32_t)plan->heads, 1};
    const cuuint32_t one[4] = {1, 1, 1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, pages->data, dim, stride, box, one,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  promotion == 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? 0
               : -1;
}

static int aligned(const void *p, int64_t bytes, int64_t stride_a, int64_t stride_b, int64_t es)
{
    return (uintptr_t)p % bytes == 0 && stride_a * es % bytes == 0 && stride_b * es % bytes == 0;
}

static int fill(const struct kvg_attention_args *a, const struct kvg_sm90_plan *plan, int promotion,
                struct kvg_sm90_params *x)
{
    const struct kvg_problem *p = a->problem;
    void *fn = NULL;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return KVG_EDEVICE;
    const PFN_cuTensorMapEncodeTiled_v12000 encode = (PFN_cuTensorMapEncodeTiled_v12000)fn;
    const int64_t q_es = p->q_dtype == KVG_BF16 ? 2 : 1;
    if (!aligned(a->q, 16, a->q_stride_token, a->q_stride_head, q_es) ||
        !aligned(a->out, 8, a->out_stride_token, a->out_stride_head, 2))
        return KVG_EUNSUPPORTED;
    if (make_map(encode, p, plan, &a->k_cache, a->num_blocks, promotion, &x->k) ||
        make_map(encode, p, plan, &a->v_cache, a->num_blocks, promotion, &x->v))
        return KVG_EUNSUPPORTED;
    x->q = a->q;
    x->q_stride_token = a->q_stride_token;
    x->q_stride_head = a->q_stride_head;
    x->block_table = a->block_table;
    x->block_table_stride = a->block_table_stride;
    x->seq_lens = a->seq_lens;
    x->cu_q_lens = a->cu_q_lens;
    x->q_scale = a->scales.q.data;
    x->k_scale = a->scales.k.data;
    x->v_scale = a->scales.v.data;
    x->scale_stride = a->scales.k.stride_head;
    x->softmax_scale = a->softmax_scale;
    x->soft_cap = p->soft_cap;
    x->out = (uint16_t *)a->out;
    x->out_stride_token = a->out_stride_token;
    x->out_stride_head = a->out_stride_head;
    x->lse = a->lse;
    x->lse_stride_token = a->lse_stride_token;
    x->sinks = a->sinks;
    x->counter = (uint32_t *)((char *)a->workspace + kvg_sm90_ws_counter());
    x->prefix_out = (int32_t *)((char *)a->workspace + kvg_sm90_ws_prefix());
    x->part_stats = (float2 *)((char *)a->workspace + kvg_sm90_ws_stats());
    x->part_out = (float *)((char *)a->workspace + kvg_sm90_ws_output(plan));
    x->batch = (int)p->batch;
    x->q_heads = (int)p->q_heads;
    x->group = (int)(p->q_heads / p->kv_heads);
    x->head_dim = (int)p->head_dim;
    x->block_size = (int)p->block_size;
    x->window = (int)p->window;
    x->causal = p->mask != KVG_MASK_FULL;
    x->max_q_len = (int)p->max_q_len;
    x->heads = plan->heads;
    x->row_blocks = plan->row_blocks;
    x->column_blocks = plan->column_blocks;
    x->splits_per_block = plan->splits_per_block;
    x->columns = plan->columns;
    x->box_tokens = plan->box_tokens;
    x->split_tokens = (int)plan->split_tokens;
    x->slab_tokens = (int)plan->slab_tokens;
    x->slabs_per_seq = (int)plan->slabs_per_seq;
    x->max_seq_len = p->max_seq_len;
    x->rounds = plan->rounds;
    x->chunks_per_round = (int)plan->chunks_per_round;
    memcpy(x->round_start, plan->round_start, sizeof x->round_start);
    memcpy(x->round_step, plan->round_step, sizeof x->round_step);
    x->head_blocks = (int)plan->head_blocks;
    x->stages = plan->stages;
    x->stage_bytes = (int)plan->stage_bytes;
    x->rectangular = plan->rectangular;
    const int per_tile = plan->tile / plan->box_tokens;
    x->per_tile_log2 = __builtin_ctz((unsigned)per_tile);
    x->boxes_log2 = __builtin_ctz((unsigned)(per_tile * plan->splits_per_block));
    x->block_log2 =
        p->block_size & (p->block_size - 1) ? -1 : __builtin_ctzll((unsigned long long)p->block_size);
    x->tiles_per_slab = (int)((plan->split_tokens + plan->tile - 1) / plan->tile);
    x->dynamic = plan->dynamic;
    return 0;
}

static cudaError_t launch_large(const struct kvg_sm90_params *x, const struct kvg_problem *p,
                                const struct kvg_sm90_plan *plan, int probe, cudaStream_t stream)
{
    if (p->path == KVG_PATH_FP8)
        return kvg_sm90_launch_fp8(x, plan->segments, probe, plan->blocks, plan->smem_bytes, stream);
    if (p->kv_dtype == KVG_BF16)
        return kvg_sm90_launch_bf16(x, plan->segments, probe, plan->blocks, plan->smem_bytes, stream);
    if (p->kv_dtype == KVG_E4M3)
        return kvg_sm90_launch_e4m3(x, plan->segments, probe, plan->blocks, plan->smem_bytes, stream);
    return kvg_sm90_launch_e5m2(x, plan->segments, probe, plan->blocks, plan->smem_bytes, stream);
}

static cudaError_t launch_lean(const struct kvg_sm90_params *x, const struct kvg_problem *p,
                               const struct kvg_sm90_plan *plan, cudaStream_t stream)
{
    struct kvg_sm90_lean_params q;
    memset(&q, 0, sizeof q);
    q.all = *x;
    q.start = kvg_sm90_lean_start(p, plan);
    q.start.block_table = x->block_table;
    q.start.block_table_stride = x->block_table_stride;
    q.start.seq_lens = x->seq_lens;
    q.start.cu_q_lens = x->cu_q_lens;
    if (p->path == KVG_PATH_FP8)
        return kvg_sm90_lean_fp8(&q, plan->segments, plan->smem_bytes, stream);
    if (p->kv_dtype == KVG_BF16)
        return kvg_sm90_lean_bf16(&q, plan->segments, plan->smem_bytes, stream);
    if (p->kv_dtype == KVG_E4M3)
        return kvg_sm90_lean_e4m3(&q, plan->segments, plan->smem_bytes, stream);
    return kvg_sm90_lean_e5m2(&q, plan->segments, plan->smem_bytes, stream);
}

/* The merge is launched while the decode kernel still runs, and waits for it on the device. */
static cudaError_t launch_merge(const struct kvg_sm90_params *x, const struct kvg_problem *p,
                                const struct kvg_sm90_plan *plan, cudaStream_t stream)
{
    const int offset = p->path == KVG_PATH_FP8 ? 8 : p->kv_dtype == KVG_BF16 ? 0 : 14;
    const int64_t tasks = p->batch * p->max_q_len * p->q_heads * (p->head_dim / KVG_MERGE_DIMS);
    const int per = (int)(plan->chunks_per_round / p->batch);
    const int threads = plan->lean ? (int)KVG_LEAN_MERGE_THREADS : (int)KVG_MERGE_THREADS;
    const int64_t lanes = plan->lean ? 32 : plan->merge_lanes;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)((tasks * lanes + threads - 1) / threads));
    config.blockDim = dim3((unsigned)threads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (!plan->lean)
        return cudaLaunchKernelEx(&config, kvg_merge_segments, *x, offset, plan->merge_lanes);
    return cudaLaunchKernelEx(&config, per > 16 ? kvg_merge_lean<9> : kvg_merge_lean<4>, *x, offset, per);
}

extern "C" int kvg_sm90_attention(const struct kvg_attention_args *a, const struct kvg_sm90_tuning *tuning,
                                  int probe)
{
    const struct kvg_problem *p = a->problem;
    struct kvg_sm90_tuning wanted = {};
    struct kvg_sm90_plan plan;
    struct kvg_sm90_params x;
    char why[160];
    cudaStream_t stream = (cudaStream_t)a->stream;
    if (tuning)
        wanted = *tuning;
    if (probe)
        wanted.lean = 2; /* the lean kernel has no variant without arithmetic */
    if (kvg_sm90_plan_here(p, &wanted, &plan, why, sizeof why))
        return KVG_EUNSUPPORTED;
    if (plan.workspace_bytes > a->workspace_bytes || (p->path == KVG_PATH_FP8 && !a->scales.q.data))
        return KVG_EINVAL;
    memset(&x, 0, sizeof x);
    int rc = fill(a, &plan, wanted.promotion, &x);
    if (rc)
        return rc;
    cudaError_t e = plan.lean ? launch_lean(&x, p, &plan, stream) : launch_large(&x, p, &plan, probe, stream);
    if (e == cudaSuccess && !plan.direct && !probe)
        e = launch_merge(&x, p, &plan, stream);
    return e == cudaSuccess ? KVG_OK : KVG_EDEVICE;
}

static int attention_dequant(const struct kvg_attention_args *a)
{
    char why[160];
    return supports_dequant(a->problem, why, sizeof why) ? kvg_sm90_attention(a, NULL, 0) : KVG_EUNSUPPORTED;
}

static int attention_fp8(const struct kvg_attention_args *a)
{
    char why[160];
    return supports_fp8(a->problem, why, sizeof why) ? kvg_sm90_attention(a, NULL, 0) : KVG_EUNSUPPORTED;
}

extern "C" const struct kvg_kernel kvg_cuda_dequant_sm90 = {
    KVG_KERNEL_ABI_VERSION,
    sizeof(struct kvg_kernel),
    "cuda/dequant_sm90",
    "Hopper decode, bf16/e4m3/e5m2 cache: bulk tensor copies, K and V as the A operand, f16 or bf16 products",
    KVG_DEVICE_CUDA,
    90,
    supports_dequant,
    arithmetic,
    workspace_bytes,
    NULL,
    NULL,
    NULL,
    attention_dequant,
    NULL,
    KVG_FEATURE_SHARED_PAGES | KVG_FEATURE_SINKS, /* pages are only read, each through the block table */
};

extern "C" const struct kvg_kernel kvg_cuda_fp8_sm90 = {
    KVG_KERNEL_ABI_VERSION,
    sizeof(struct kvg_kernel),
    "cuda/fp8_sm90",
    "Hopper decode, e4m3 Q, K, V and P (FlashAttention-3's rule for P), products exact, FP32 sums",
    KVG_DEVICE_CUDA,
    90,
    supports_fp8,
    arithmetic,
    workspace_bytes,
    NULL,
    NULL,
    NULL,
    attention_fp8,
    NULL,
    KVG_FEATURE_SHARED_PAGES | KVG_FEATURE_SINKS, /* pages are only read, each through the block table */
};
