/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90.cu: host side of the Hopper decode kernels: what they support and declare, tensor maps, launch.
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
        snprintf(why, size, "q_heads %lld is no multiple of kv_heads %lld", (long long)p->q_heads,
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
        snprintf(why, size, "only path fp8, which is e4m3 throughout");
        return 0;
    }
    return supports_shape(p, why, size);
}

/* QK: one HMMA chain over head_dim, FP32. PV: each tile from zero, then one FP32 addition a tile. */
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
    out->same_bits_under = KVG_MOVE_PAGES | KVG_MOVE_HEADS; /* a sequence's place decides where it is cut */
}

static int64_t workspace_bytes(const struct kvg_problem *p)
{
    struct kvg_sm90_plan plan;
    char why[160];
    return kvg_sm90_plan_here(p, NULL, &plan, why, sizeof why) ? 0 : plan.workspace_bytes;
}

/* [block][head][slot][bytes of a row] as a tensor map; rows are cut into 128-byte boxes, the last filled up
 * with zeros, so head_dims that are no multiple of 128 bytes need no other code. */
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
        return KVG_EINVAL;
    if (make_map(encode, p, plan, &a->k_cache, a->num_blocks, promotion, &x->k) ||
        make_map(encode, p, plan, &a->v_cache, a->num_blocks, promotion, &x->v))
        return KVG_EINVAL;
    x->q = a->q;
    x->q_stride_token = a->q_stride_token;
    x->q_stride_head = a->q_stride_head;
    x->block_table = a->block_table;
    x->block_table_stride = a->block_table_stride;
    x->seq_lens = a->seq_lens;
    x->cu_q_lens = a->cu_q_lens;
    x->q_scale = a->scales.q;
    x->k_scale = a->scales.k;
    x->v_scale = a->scales.v;
    x->scale_stride = a->scales.stride;
    x->softmax_scale = a->softmax_scale;
    x->soft_cap = p->soft_cap;
    x->out = (uint16_t *)a->out;
    x->out_stride_token = a->out_stride_token;
    x->out_stride_head = a->out_stride_head;
    x->lse = a->lse;
    x->lse_stride_token = a->lse_stride_token;
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
    x->causal = p->causal;
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

/* The large kernel. */
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

/* The kernel for short work. */
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

/* The merge starts while the decode kernel still works and waits at its door. */
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
        wanted.lean = 2; /* the lean kernel has no form without arithmetic */
    if (kvg_sm90_plan_here(p, &wanted, &plan, why, sizeof why))
        return KVG_EUNSUPPORTED;
    if (plan.workspace_bytes > a->workspace_bytes || (p->path == KVG_PATH_FP8 && !a->scales.q))
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
};
