/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90_kernel.cuh: the kernel around decode_sm90.cuh's reader and arithmetic warps, its epilogue, and
 * the kernel that merges the splits.
 */
#ifndef KVG_CUDA_DECODE_SM90_KERNEL_CUH
#define KVG_CUDA_DECODE_SM90_KERNEL_CUH

#include "decode_sm90.cuh"

KVG_DEV uint16_t kvg_bf16_bits(float x) { return (uint16_t)kvg_pack_bf16(x, 0.f); }

/* Row of the partial results: (unit of the sequence, query token, query head). */
KVG_DEV int64_t kvg_partial_row(const kvg_sm90_params &p, int b, int index, int qi, int head) {
    return (((int64_t)b * p.units_per_seq + index) * p.max_q_len + qi) * p.q_heads + head;
}

/* lse in natural units from the max (log2) and the row sum, which carries 2^offset. */
KVG_DEV float kvg_lse(float m, float l, int offset) {
    return l > 0.f ? 0.69314718055994531f * (m - (float)offset + log2f(l)) : -INFINITY;
}

/* Where a query row's result goes: the output if one unit covers the sequence, else the partial results. */
struct kvg_sm90_sink {
    float *part;   /* head_dim floats, or NULL */
    uint16_t *out; /* head_dim bf16, or NULL */
    float factor;  /* out = factor * o */
};

KVG_DEV kvg_sm90_sink kvg_open_sink(const kvg_sm90_params &p, const kvg_sm90_unit &x, int kv_head, int row, float m,
                                    float l, int offset, bool write_stats) {
    const int qi = row / p.group, head = kv_head * p.group + row % p.group;
    kvg_sm90_sink sink = {NULL, NULL, 0.f};
    if (p.direct) {
        const int64_t token = p.cu_q_lens[x.b] + qi;
        sink.out = p.out + token * p.out_stride_token + head * p.out_stride_head;
        sink.factor = l > 0.f ? (p.v_scale ? p.v_scale[kv_head * p.scale_stride] : 1.f) / l : l == 0.f ? 0.f : l;
        if (write_stats && p.lse)
            p.lse[token * p.lse_stride_token + head] = l == l ? kvg_lse(m, l, offset) : l;
    } else {
        const int64_t at = kvg_partial_row(p, x.b, x.index, qi, head);
        sink.part = p.part_out + at * p.head_dim;
        if (write_stats)
            p.part_stats[at] = make_float2(m, l);
    }
    return sink;
}

KVG_DEV void kvg_store_quad(const kvg_sm90_sink &sink, int dim, float4 v) {
    if (sink.part) {
        *(float4 *)(sink.part + dim) = v;
    } else {
        const float f = sink.factor;
        uint2 w;
        w.x = kvg_pack_bf16(v.x * f, v.y * f);
        w.y = kvg_pack_bf16(v.z * f, v.w * f);
        *(uint2 *)(sink.out + dim) = w;
    }
}

/* One column per step of c; every lane holds quads of columns 2t and 2t + 1. */
template <typename W, int NSEG>
KVG_DEV void kvg_finish_single(const kvg_sm90_params &p, const kvg_sm90_unit &x, const W &w, int kv_head, int row0) {
    const int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;
    constexpr int quads = W::T::seg_mmas / 2, own = 4 * quads;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int row = row0 + 2 * t + c;
        if (row >= p.group * x.q_len)
            continue;
        const kvg_sm90_sink sink = kvg_open_sink(p, x, kv_head, row, w.m[c], w.l[c], W::T::offset, g == 0);
#pragma unroll
        for (int seg = 0; seg < NSEG; seg++)
#pragma unroll
            for (int i = 0; i < quads; i++) {
                const int dim = seg * W::T::seg_dims + g * own + 4 * i;
                if (dim < p.head_dim)
                    kvg_store_quad(sink, dim, w.quad(seg, i, c));
            }
    }
}

/* Add up the splits of a block through shared memory. Scratch row: (split, head and row block, column). */
template <typename W, int NSEG>
KVG_DEV void kvg_finish_splits(const kvg_sm90_params &p, const kvg_sm90_unit &x, const W &w, float *scratch, int split,
                               int head_row) {
    const int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;
    constexpr int quads = W::T::seg_mmas / 2, own = 4 * quads;
    const int lanes_wide = p.heads * p.row_blocks, pitch = p.head_dim, rows = KVG_SM90_WARPS * p.columns;
    float2 *stats = (float2 *)(scratch + (int64_t)rows * pitch);
    kvg_named_barrier(1, 32 * KVG_SM90_WARPS); /* the scratch of the unit before has been read */
#pragma unroll
    for (int c = 0; c < 2; c++) {
        if (2 * t + c >= p.columns)
            continue;
        const int at = (split * lanes_wide + head_row) * p.columns + 2 * t + c;
        if (g == 0)
            stats[at] = make_float2(w.m[c], w.l[c]);
#pragma unroll
        for (int seg = 0; seg < NSEG; seg++)
#pragma unroll
            for (int i = 0; i < quads; i++) {
                const int dim = seg * W::T::seg_dims + g * own + 4 * i;
                if (dim < p.head_dim)
                    *(float4 *)(scratch + at * pitch + dim) = w.quad(seg, i, c);
            }
    }
    kvg_named_barrier(1, 32 * KVG_SM90_WARPS);
    const int per_row = p.head_dim / 4;
    for (int i = threadIdx.x; i < lanes_wide * p.columns * per_row; i += 32 * KVG_SM90_WARPS) {
        const int r = i / per_row, dim = i % per_row * 4;
        const int hr = r / p.columns, row = hr % p.row_blocks * 8 + r % p.columns;
        if (row >= p.group * x.q_len)
            continue;
        float m = -INFINITY, l = 0.f;
        for (int s = 0; s < p.splits_per_block; s++)
            m = fmaxf(m, stats[s * lanes_wide * p.columns + r].x);
        float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
        for (int s = 0; s < p.splits_per_block; s++) {
            const int at = s * lanes_wide * p.columns + r;
            const float2 st = stats[at];
            if (st.y == 0.f) /* nothing visible; NaN goes on */
                continue;
            const float f = kvg_exp2(st.x - m);
            const float4 v = *(const float4 *)(scratch + at * pitch + dim);
            l += f * st.y;
            sum.x += f * v.x, sum.y += f * v.y, sum.z += f * v.z, sum.w += f * v.w;
        }
        const kvg_sm90_sink sink =
            kvg_open_sink(p, x, x.head_block * p.heads + hr / p.row_blocks, row, m, l, W::T::offset, dim == 0);
        kvg_store_quad(sink, dim, sum);
    }
}

/* Words of keys at or beyond the end, and of slots never brought in, must not meet a zero weight: 0 * NaN. */
KVG_DEV uint4 kvg_keep(uint4 v, bool keep) {
    v.x = keep ? v.x : 0, v.y = keep ? v.y : 0, v.z = keep ? v.z : 0, v.w = keep ? v.w : 0;
    return v;
}

template <int KV, int FP8, int NSEG, int SUB, int PROBE>
KVG_DEV void kvg_arithmetic_warp(const kvg_sm90_params &p, kvg_sm90_shared &sh, uint32_t stages, const int32_t *prefix,
                                 float *scratch) {
    using W = kvg_sm90_warp<KV, FP8, NSEG, SUB>;
    const int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    const int head_row = warp % (p.heads * p.row_blocks), split = warp / (p.heads * p.row_blocks);
    const int local_head = head_row / p.row_blocks, row0 = head_row % p.row_blocks * 8;
    const uint32_t head_bytes = p.box_tokens * KVG_SM90_SEGMENT, seg_bytes = head_bytes * p.heads,
                   box_bytes = seg_bytes * NSEG;
    /* Offsets of the tile's groups of 8 keys. */
    uint32_t group_at[2 * SUB];
#pragma unroll
    for (int i = 0; i < 2 * SUB; i++)
        group_at[i] = (split * (W::tile / p.box_tokens) + 8 * i / p.box_tokens) * box_bytes +
                      8 * i % p.box_tokens * KVG_SM90_SEGMENT + local_head * head_bytes;
    const uint32_t k_col = g * KVG_SM90_SEGMENT + ((2 * t) ^ g) * 16;
    const uint32_t v_even = 2 * t * KVG_SM90_SEGMENT + (g ^ (2 * t)) * 16;
    const uint32_t v_odd = (2 * t + 1) * KVG_SM90_SEGMENT + (g ^ (2 * t + 1)) * 16;

    W w;
    kvg_sm90_ring ring = {0, 0};
    int slot = 0;
    uint32_t slot_phase = 0;
    while (true) {
        kvg_bar_wait(kvg_smem(&sh.unit_full[slot]), slot_phase);
        const int u = sh.unit[slot];
        __syncwarp();
        if (lane == 0)
            kvg_bar_arrive(kvg_smem(&sh.unit_empty[slot]));
        if (++slot == KVG_SM90_UNIT_RING) {
            slot = 0;
            slot_phase ^= 1;
        }
        if (u < 0)
            return;
        const kvg_sm90_unit x = kvg_locate(p, prefix, u);
        const int kv_head = x.head_block * p.heads + local_head;
        w.load_q(p, x, kv_head, row0);
        const int start = x.start + split * p.split_tokens;
        const int limit = min(start + p.split_tokens, x.len);
        const int open = p.causal ? min(limit, x.len - x.q_len + 1) : limit; /* keys below are seen by all rows */
        const int shut = p.window > 0 ? x.len - p.window : 0;                /* keys below are not */
        int begin, end;
        kvg_tile_range(p, x, W::tile, begin, end);
        for (int j = begin; j < end; j++) {
            const int key0 = start + j * W::tile;
            const bool work = key0 < limit && key0 + W::tile > x.first;
            const bool masked = key0 + W::tile > open || key0 < shut;
            uint32_t pf[SUB][2];
            {
                kvg_bar_wait(kvg_smem(&sh.full[ring.stage]), ring.phase);
                const uint32_t base = stages + ring.stage * p.stage_bytes;
                float s[SUB][4] = {};
                if (work && !PROBE) {
#pragma unroll
                    for (int seg = 0; seg < NSEG; seg++)
#pragma unroll
                        for (int i = 0; i < SUB; i++)
                            w.qk(s[i], base + seg * seg_bytes + group_at[2 * i],
                                 base + seg * seg_bytes + group_at[2 * i + 1], k_col, seg);
                }
                __syncwarp();
                if (lane == 0)
                    kvg_bar_arrive(kvg_smem(&sh.empty[ring.stage]));
                ring.next(p.stages);
                if (work && !PROBE)
                    w.softmax(p, s, pf, key0 + g, limit, masked);
            }
            kvg_bar_wait(kvg_smem(&sh.full[ring.stage]), ring.phase);
            if (work && !PROBE) {
                const uint32_t base = stages + ring.stage * p.stage_bytes;
#pragma unroll
                for (int seg = 0; seg < NSEG; seg++) {
                    uint4 v[SUB][4];
#pragma unroll
                    for (int i = 0; i < SUB; i++) {
                        const uint32_t lo = base + seg * seg_bytes + group_at[2 * i];
                        const uint32_t hi = base + seg * seg_bytes + group_at[2 * i + 1];
                        v[i][0] = kvg_lds128(lo + v_even), v[i][1] = kvg_lds128(lo + v_odd);
                        v[i][2] = kvg_lds128(hi + v_even), v[i][3] = kvg_lds128(hi + v_odd);
                    }
                    if (masked) {
#pragma unroll
                        for (int i = 0; i < SUB; i++)
#pragma unroll
                            for (int r = 0; r < 4; r++) {
                                const int key = key0 + 16 * i + 8 * (r / 2) + 2 * t + (r & 1);
                                v[i][r] = kvg_keep(v[i][r], key < limit && key >= x.first);
                            }
                    }
                    constexpr int per_word = W::T::bf16 ? 1 : 2;
#define KVG_PV_WORD(N, F)                                                                                              \
    {                                                                                                                  \
        float acc[per_word][4];                                                                                        \
        w.template pv_word<true>(acc, v[0][0].F, v[0][1].F, v[0][2].F, v[0][3].F, pf[0]);                              \
        if (SUB > 1)                                                                                                   \
            w.template pv_word<false>(acc, v[SUB - 1][0].F, v[SUB - 1][1].F, v[SUB - 1][2].F, v[SUB - 1][3].F,         \
                                      pf[SUB - 1]);                                                                    \
        _Pragma("unroll") for (int a = 0; a < per_word; a++) _Pragma("unroll") for (int c = 0; c < 4; c++)             \
            w.o[seg][per_word * N + a][c] += acc[a][c];                                                                \
    }
                    KVG_PV_WORD(0, x)
                    KVG_PV_WORD(1, y)
                    KVG_PV_WORD(2, z)
                    KVG_PV_WORD(3, w)
#undef KVG_PV_WORD
                }
            }
            __syncwarp();
            if (lane == 0)
                kvg_bar_arrive(kvg_smem(&sh.empty[ring.stage]));
            ring.next(p.stages);
        }
        if constexpr (!PROBE) {
#pragma unroll
            for (int c = 0; c < 2; c++)
                for (int d = 4; d < 32; d *= 2)
                    w.l[c] += __shfl_xor_sync(~0u, w.l[c], d);
            if (p.splits_per_block > 1)
                kvg_finish_splits<W, NSEG>(p, x, w, scratch, split, head_row);
            else
                kvg_finish_single<W, NSEG>(p, x, w, kv_head, row0);
        }
    }
}

template <int KV, int FP8, int NSEG, int SUB, int PROBE>
__global__ void __launch_bounds__(KVG_SM90_THREADS, 1) kvg_decode_sm90(const __grid_constant__ kvg_sm90_params p) {
    extern __shared__ uint8_t raw[];
    uint8_t *const base = raw + (1024 - (kvg_smem(raw) & 1023)) % 1024;
    kvg_sm90_shared &sh = *(kvg_sm90_shared *)(base + (int64_t)p.stages * p.stage_bytes);
    int32_t *prefix = p.rectangular ? NULL : (int32_t *)(&sh + 1);
    float *scratch = (float *)((uint8_t *)(&sh + 1) + (p.rectangular ? 0 : (4 * (p.batch + 1) + 15) / 16 * 16));

    if (threadIdx.x == 0) {
        kvg_tma_prefetch(&p.k);
        kvg_tma_prefetch(&p.v);
        for (int i = 0; i < p.stages; i++) {
            kvg_bar_init(kvg_smem(&sh.full[i]), 1);
            kvg_bar_init(kvg_smem(&sh.empty[i]), KVG_SM90_WARPS);
        }
        for (int i = 0; i < KVG_SM90_UNIT_RING; i++) {
            kvg_bar_init(kvg_smem(&sh.unit_full[i]), 1);
            kvg_bar_init(kvg_smem(&sh.unit_empty[i]), KVG_SM90_WARPS);
        }
        kvg_bar_init_fence();
    }
    kvg_launch_dependents();
    if (prefix)
        kvg_prefix_units(p, prefix);
    __syncthreads();
    /* Registers move between groups of 4 warps only, so the reader brings three idle warps along. */
    if (threadIdx.x / 32 >= KVG_SM90_WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
        if (threadIdx.x / 32 == KVG_SM90_WARPS)
            kvg_reader<NSEG, 16 * SUB>(p, sh, kvg_smem(base), prefix);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        kvg_arithmetic_warp<KV, FP8, NSEG, SUB, PROBE>(p, sh, kvg_smem(base), prefix, scratch);
    }
}

/* Launch for one cache dtype and path. */
template <int KV, int FP8, int NSEG, int PROBE>
static cudaError_t kvg_sm90_launch_one(const kvg_sm90_params &p, int64_t blocks, int64_t smem, cudaStream_t stream) {
    const auto kernel = kvg_decode_sm90<KV, FP8, NSEG, NSEG == 1 ? 2 : 1, PROBE>; /* 32 keys a tile, or 16 */
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    if (e != cudaSuccess)
        return e;
    kernel<<<(unsigned)blocks, KVG_SM90_THREADS, (size_t)smem, stream>>>(p);
    return cudaGetLastError();
}

enum { KVG_MERGE_WARPS = 8 };

/* One block per (sequence, query token, query head): out = v_scale * sum_i 2^(m_i - M) o_i / sum_i 2^(m_i - M) l_i.
 * Splits without a visible key have m = -inf and are passed over; no split at all gives 0 and -inf. */
static __global__ void __launch_bounds__(32 * KVG_MERGE_WARPS) kvg_merge_splits(const __grid_constant__ kvg_sm90_params p,
                                                                           int offset) {
    __shared__ float sum_o[KVG_MERGE_WARPS][256 + 4];
    __shared__ float sum_l[KVG_MERGE_WARPS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const int head = blockIdx.x % p.q_heads, r = blockIdx.x / p.q_heads;
    const int qi = r % p.max_q_len, b = r / p.max_q_len;
    const int len = p.seq_lens[b], q_len = p.cu_q_lens[b + 1] - p.cu_q_lens[b];
    const int units = kvg_unit_count(p, len, q_len);
    kvg_wait_for_primary();
    if (qi >= q_len)
        return;
    const int64_t step = (int64_t)p.max_q_len * p.q_heads, at0 = kvg_partial_row(p, b, 0, qi, head);
    float m = -INFINITY;
    for (int i = lane; i < units; i += 32)
        m = fmaxf(m, p.part_stats[at0 + i * step].x);
    for (int d = 1; d < 32; d *= 2)
        m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
    float l = 0.f;
    float4 o[2] = {};
    const bool wide = 4 * (lane + 32) < p.head_dim, any = 4 * lane < p.head_dim;
#pragma unroll 4
    for (int i = warp; i < units; i += KVG_MERGE_WARPS) {
        const float2 st = p.part_stats[at0 + i * step];
        const float *src = p.part_out + (at0 + i * step) * p.head_dim;
        const bool live = st.y != 0.f; /* NaN counts */
        const float f = live ? kvg_exp2(st.x - m) : 0.f;
        l += live ? f * st.y : 0.f;
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (live && (h ? wide : any)) {
                const float4 v = *(const float4 *)(src + 4 * (lane + 32 * h));
                o[h].x += f * v.x, o[h].y += f * v.y, o[h].z += f * v.z, o[h].w += f * v.w;
            }
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (h ? wide : any)
            *(float4 *)&sum_o[warp][4 * (lane + 32 * h)] = o[h];
    if (lane == 0)
        sum_l[warp] = l;
    __syncthreads();
    l = 0.f;
    for (int w = 0; w < KVG_MERGE_WARPS; w++)
        l += sum_l[w];
    const int kv_head = head / p.group;
    const float factor = l > 0.f ? (p.v_scale ? p.v_scale[kv_head * p.scale_stride] : 1.f) / l : l == 0.f ? 0.f : l;
    const int64_t token = p.cu_q_lens[b] + qi;
    for (int d = threadIdx.x; d < p.head_dim; d += 32 * KVG_MERGE_WARPS) {
        float s = 0.f;
        for (int w = 0; w < KVG_MERGE_WARPS; w++)
            s += sum_o[w][d];
        p.out[token * p.out_stride_token + head * p.out_stride_head + d] = kvg_bf16_bits(s * factor);
    }
    if (threadIdx.x == 0 && p.lse)
        p.lse[token * p.lse_stride_token + head] = l == l ? kvg_lse(m, l, offset) : l;
}

#endif
