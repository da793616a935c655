/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90_kernel.cuh: the large decode kernel, built from the reader and the arithmetic warps of
 * decode_sm90_warps.cuh; its epilogue; and the kernel that merges the splits.
 */
#ifndef KVG_CUDA_DECODE_SM90_KERNEL_CUH
#define KVG_CUDA_DECODE_SM90_KERNEL_CUH

#include "decode_sm90_warps.cuh"

KVG_DEV uint16_t kvg_bf16_bits(float x)
{
    return (uint16_t)kvg_pack_bf16(x, 0.f);
}

/* Row of the partial results: (segment, query token, query head). */
KVG_DEV int64_t kvg_partial_row(const kvg_sm90_params &p, int slot, int qi, int head)
{
    return ((int64_t)slot * p.max_q_len + qi) * p.q_heads + head;
}

/* LSE in natural units from the maximum (log2 units) and the row sum, which is scaled by 2^offset. */
KVG_DEV float kvg_lse(float m, float l, int offset)
{
    return l > 0.f ? 0.69314718055994531f * (m - (float)offset + log2f(l)) : -INFINITY;
}

/* The same with the sink of the query head, if there are sinks. *factor is that of the output; it shrinks to the
 * share of the keys, e^lse / (e^lse + e^sink). */
KVG_DEV float kvg_lse_with_sink(const kvg_sm90_params &p, int head, float m, float l, int offset,
                                float *factor)
{
    const float lse = l == l ? kvg_lse(m, l, offset) : l;
    if (!p.sinks || lse != lse)
        return lse;
    const float sink = p.sinks[head], above = (sink - lse) * 1.44269504f;
    if (lse == -INFINITY)
        return sink;
    *factor /= 1.f + kvg_exp2(above);
    return fmaxf(sink, lse) + 0.69314718f * log2f(1.f + kvg_exp2(-fabsf(above)));
}

/* Destination of a query row's result: the output if one segment covers the sequence, otherwise the
 * partial results. */
struct kvg_sm90_sink {
    float *part;   /* head_dim floats, or NULL */
    uint16_t *out; /* head_dim bf16, or NULL */
    float factor;  /* out = factor * o */
};

KVG_DEV kvg_sm90_sink kvg_open_sink(const kvg_sm90_params &p, const kvg_sm90_segment &x, int kv_head, int row,
                                    float m, float l, int offset, bool write_stats)
{
    const int qi = row / p.group, head = kv_head * p.group + row % p.group;
    kvg_sm90_sink sink = {NULL, NULL, 0.f};
    if (x.whole) {
        const int64_t token = p.cu_q_lens[x.b] + qi;
        sink.out = p.out + token * p.out_stride_token + head * p.out_stride_head;
        sink.factor = l > 0.f    ? (p.v_scale ? p.v_scale[kv_head * p.scale_stride] : 1.f) / l
                      : l == 0.f ? 0.f
                                 : l;
        const float lse = kvg_lse_with_sink(p, head, m, l, offset, &sink.factor);
        if (write_stats && p.lse)
            p.lse[token * p.lse_stride_token + head] = lse;
    } else {
        const int64_t at = kvg_partial_row(p, x.slot, qi, head);
        sink.part = p.part_out + at * p.head_dim;
        if (write_stats)
            p.part_stats[at] = make_float2(m, l);
    }
    return sink;
}

KVG_DEV void kvg_store_quad(const kvg_sm90_sink &sink, int dim, float4 v)
{
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

/* Writes the result of a warp. Every lane holds quads of columns 2t and 2t + 1; a step of c writes one
 * column. */
template <typename W, int NSEG>
KVG_DEV void kvg_finish_single(const kvg_sm90_params &p, const kvg_sm90_segment &x, const W &w, int kv_head,
                               int row0, int flip)
{
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
                const int dim = seg * W::T::seg_dims + g * own + 4 * (i ^ flip);
                if (dim < p.head_dim)
                    kvg_store_quad(sink, dim, w.quad(seg, i, c));
            }
    }
}

/* Writes the result of a warp to the scratch memory of the block. Row: (split, head and row block,
 * column). */
template <typename W, int NSEG>
KVG_DEV void kvg_put_scratch(const kvg_sm90_params &p, const W &w, float *scratch, float2 *stats, int split,
                             int head_row, int column0, int flip)
{
    const int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;
    constexpr int quads = W::T::seg_mmas / 2, own = 4 * quads;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int column = column0 + 2 * t + c;
        if (column >= p.columns)
            continue;
        const int at = (split * p.heads * p.row_blocks + head_row) * p.columns + column;
        if (g == 0)
            stats[at] = make_float2(w.m[c], w.l[c]);
#pragma unroll
        for (int seg = 0; seg < NSEG; seg++)
#pragma unroll
            for (int i = 0; i < quads; i++) {
                const int dim = seg * W::T::seg_dims + g * own + 4 * (i ^ flip);
                if (dim < p.head_dim)
                    *(float4 *)(scratch + at * p.head_dim + dim) = w.quad(seg, i, c);
            }
    }
}

/* Adds up the splits of a block through shared memory. */
template <typename W, int NSEG, int NB>
KVG_DEV void kvg_finish_splits(const kvg_sm90_params &p, const kvg_sm90_segment &x, const W (&w)[NB],
                               float *scratch, int split, int head_row, int flip)
{
    const int lanes_wide = p.heads * p.row_blocks, pitch = p.head_dim, rows = KVG_SM90_WARPS * p.columns;
    float2 *stats = (float2 *)(scratch + (int64_t)rows * pitch);
    kvg_named_barrier(1, 32 * KVG_SM90_WARPS); /* the scratch of the previous segment has been read */
#pragma unroll
    for (int n = 0; n < NB; n++)
        kvg_put_scratch<W, NSEG>(p, w[n], scratch, stats, split, head_row, 8 * n, flip);
    kvg_named_barrier(1, 32 * KVG_SM90_WARPS);
    const int per_row = p.head_dim / 4;
    for (int i = threadIdx.x; i < lanes_wide * p.columns * per_row; i += 32 * KVG_SM90_WARPS) {
        const int r = i / per_row, dim = i % per_row * 4;
        const int hr = r / p.columns, row = hr % p.row_blocks * 8 * NB + r % p.columns;
        /* All loads are issued at once. Positions beyond the last split load it again, with weight 0. */
        float2 st[KVG_SM90_WARPS];
        float4 v[KVG_SM90_WARPS];
#pragma unroll
        for (int s = 0; s < KVG_SM90_WARPS; s++) {
            const int at = min(s, p.splits_per_block - 1) * lanes_wide * p.columns + r;
            st[s] = stats[at];
            v[s] = *(const float4 *)(scratch + at * pitch + dim);
        }
        float m = -INFINITY, l = 0.f;
#pragma unroll
        for (int s = 0; s < KVG_SM90_WARPS; s++)
            m = fmaxf(m, st[s].x);
        float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int s = 0; s < KVG_SM90_WARPS; s++) {
            const bool live = s < p.splits_per_block && st[s].y != 0.f; /* 0: no visible key; NaN is passed
                                                                         * on */
            const float f = live ? kvg_exp2(st[s].x - m) : 0.f;
            l += live ? f * st[s].y : 0.f;
            sum.x += f * v[s].x, sum.y += f * v[s].y, sum.z += f * v[s].z, sum.w += f * v[s].w;
        }
        if (row >= p.group * x.q_len)
            continue;
        const kvg_sm90_sink sink = kvg_open_sink(p, x, x.head_block * p.heads + hr / p.row_blocks, row, m, l,
                                                 W::T::offset, dim == 0);
        kvg_store_quad(sink, dim, sum);
    }
}

template <int KV, int FP8, int NSEG, int SUB, int PROBE, int NB>
KVG_DEV void kvg_arithmetic_warp(const kvg_sm90_params &p, kvg_sm90_shared &sh, uint32_t stages,
                                 const int32_t *prefix, float *scratch)
{
    using W = kvg_sm90_warp<KV, FP8, NSEG, SUB>;
    using P = kvg_sm90_products<KV, FP8, NSEG, SUB, NB>;
    const int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    const int head_row = warp % (p.heads * p.row_blocks), split = warp / (p.heads * p.row_blocks);
    const int local_head = head_row / p.row_blocks, row0 = head_row % p.row_blocks * 8 * NB;
    const uint32_t head_bytes = p.box_tokens * KVG_SM90_SEGMENT, seg_bytes = head_bytes * p.heads,
                   box_bytes = seg_bytes * NSEG;
    /* Offsets of the groups of 8 keys of a tile. */
    uint32_t group_at[2 * SUB];
#pragma unroll
    for (int i = 0; i < 2 * SUB; i++)
        group_at[i] = (split * (W::tile / p.box_tokens) + 8 * i / p.box_tokens) * box_bytes +
                      8 * i % p.box_tokens * KVG_SM90_SEGMENT + local_head * head_bytes;
    const uint32_t k_col = g * KVG_SM90_SEGMENT + ((2 * t) ^ g) * 16;
    const uint32_t v_col = P::v_col(g, t);

    const int tiles_per_slab = p.tiles_per_slab;
    W w[NB];
    kvg_sm90_ring ring = {0, 0};
    uint32_t unit = 0;
    kvg_sm90_walk walk;
    kvg_sm90_segment x;
    while (true) {
        const int slot = unit % KVG_SM90_UNIT_RING;
        kvg_bar_wait(kvg_smem(&sh.unit_full[slot]), unit / KVG_SM90_UNIT_RING & 1);
        const int u = sh.unit[slot];
        __syncwarp();
        if (lane == 0)
            kvg_bar_arrive(kvg_smem(&sh.unit_empty[slot]));
        unit++;
        if (u < 0)
            return;
        walk.open(p, prefix, u);
        while (walk.next(p, prefix, x)) {
            const int kv_head = x.head_block * p.heads + local_head;
#pragma unroll
            for (int n = 0; n < NB; n++) {
                w[n].load_q(p, x, kv_head, row0 + 8 * n);
                w[n].clear();
            }
            const int open = p.causal ? x.len - x.q_len + 1 : x.len; /* smaller keys are visible to all
                                                                      * rows */
            const int shut = p.window > 0 ? x.len - p.window : 0;    /* smaller keys are not */
            int step, end;
            kvg_step_range(p, x, W::tile, tiles_per_slab, step, end);
            int start = x.s0 * p.slab_tokens + split * p.split_tokens, j = step;
            bool fresh = true;
            for (; step < end; step++, j++) {
                if (j == tiles_per_slab) {
                    j = 0;
                    start += p.slab_tokens;
                    fresh = true;
                }
                const int limit = min(start + p.split_tokens, x.len);
                const int key0 = start + j * W::tile;
                const bool work = key0 < limit && key0 + W::tile > x.first;
                const bool masked = key0 + W::tile > min(limit, open) || key0 < shut;
                uint32_t pf[NB][SUB][2];
                {
                    kvg_bar_wait(kvg_smem(&sh.full[ring.stage]), ring.phase);
                    const uint32_t base = stages + ring.stage * p.stage_bytes;
                    float s[NB][SUB][4] = {};
                    if (work && !PROBE)
                        P::keys(w, s, base, seg_bytes, group_at, k_col);
                    __syncwarp();
                    if (lane == 0)
                        kvg_bar_arrive(kvg_smem(&sh.empty[ring.stage]));
                    ring.next(p.stages);
                    if (work && !PROBE) {
#pragma unroll
                        for (int n = 0; n < NB; n++)
                            w[n].template softmax<true>(p, x, s[n], pf[n], key0 + g, limit, masked, fresh);
                        fresh = false;
                    }
                }
                kvg_bar_wait(kvg_smem(&sh.full[ring.stage]), ring.phase);
                if (work && !PROBE)
                    P::values(w, x, pf, stages + ring.stage * p.stage_bytes, seg_bytes, group_at, v_col,
                              key0 + 2 * t, limit, masked);
                __syncwarp();
                if (lane == 0)
                    kvg_bar_arrive(kvg_smem(&sh.empty[ring.stage]));
                ring.next(p.stages);
            }
            if constexpr (!PROBE) {
#pragma unroll
                for (int n = 0; n < NB; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++)
                        for (int d = 4; d < 32; d *= 2)
                            w[n].l[c] += __shfl_xor_sync(~0u, w[n].l[c], d);
                if (p.splits_per_block > 1) {
                    kvg_finish_splits<W, NSEG, NB>(p, x, w, scratch, split, head_row, P::flip(g));
                } else {
#pragma unroll
                    for (int n = 0; n < NB; n++)
                        kvg_finish_single<W, NSEG>(p, x, w[n], kv_head, row0 + 8 * n, P::flip(g));
                }
            }
        }
    }
}

/* Registers per thread. With 32 accumulators, 136 at launch leave room on the multiprocessor for a block
 * of the merge kernel. That block is then resident and waits, instead of being launched at the end. */
template <int KV, int NSEG, int NB> struct kvg_sm90_registers {
    static constexpr bool small = NB == 1 && (KV == KVG_BF16 ? NSEG <= 2 : NSEG == 1);
    static constexpr int at_launch = small ? 136 : 168,
                         reader = small    ? 72
                                  : NB > 1 ? 56
                                           : 88,
                         arithmetic = small    ? 168
                                      : NB > 1 ? 224
                                               : 208;
};

template <int KV, int FP8, int NSEG, int SUB, int PROBE, int NB>
__global__ void __maxnreg__((kvg_sm90_registers<KV, NSEG, NB>::at_launch))
    kvg_decode_sm90(const __grid_constant__ kvg_sm90_params p)
{
    extern __shared__ uint8_t raw[];
    uint8_t *const base = raw + (1024 - (kvg_smem(raw) & 1023)) % 1024;
    kvg_sm90_shared &sh = *(kvg_sm90_shared *)(base + p.stages * p.stage_bytes);
    int32_t *prefix = p.rectangular ? NULL : (int32_t *)(&sh + 1);
    float *scratch =
        (float *)((uint8_t *)(&sh + 1) + (p.rectangular ? 0 : (4 * (p.batch + 1) + 15) / 16 * 16));

    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    constexpr int busy = 32 * (KVG_SM90_WARPS + 1);

    kvg_launch_dependents();
    if (warp == KVG_SM90_WARPS) {
        if (lane < p.stages) {
            kvg_bar_init(kvg_smem(&sh.full[lane]), 1);
            kvg_bar_init(kvg_smem(&sh.empty[lane]), KVG_SM90_WARPS);
        } else if (lane >= 16 && lane < 16 + KVG_SM90_UNIT_RING) {
            kvg_bar_init(kvg_smem(&sh.unit_full[lane - 16]), 1);
            kvg_bar_init(kvg_smem(&sh.unit_empty[lane - 16]), KVG_SM90_WARPS);
        } else if (lane >= 30) {
            kvg_tma_prefetch(lane == 30 ? &p.k : &p.v);
        }
        kvg_bar_init_fence();
        __syncwarp();
    }
    /* setmaxnreg works on groups of 4 warps, so the reader's group has three idle warps. The reader does
     * not wait for the other warps: it has set up the barriers itself. */
    if (warp >= KVG_SM90_WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kvg_sm90_registers<KV, NSEG, NB>::reader));
        if (warp == KVG_SM90_WARPS) {
            if (prefix)
                kvg_named_barrier(2, busy);
            else
                kvg_named_barrier_arrive(2, busy);
            kvg_reader<NSEG, 16 * SUB>(p, sh, kvg_smem(base), prefix);
        }
    } else {
        asm volatile(
            "setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kvg_sm90_registers<KV, NSEG, NB>::arithmetic));
        if (prefix)
            kvg_prefix_slabs(p, prefix);
        kvg_named_barrier(2, busy);
        kvg_arithmetic_warp<KV, FP8, NSEG, SUB, PROBE, NB>(p, sh, kvg_smem(base), prefix, scratch);
    }
}

/* Sets the counter of work items to zero. The decode kernel starts at the same time. */
static __global__ void kvg_zero_counter(uint32_t *counter)
{
    kvg_launch_dependents();
    *counter = 0;
}

/* Launch for one cache dtype and path. */
template <int KV, int FP8, int NSEG, int PROBE, int NB>
static cudaError_t kvg_sm90_launch_one(const kvg_sm90_params &p, int64_t blocks, int64_t smem,
                                       cudaStream_t stream)
{
    constexpr int sub = NSEG == 1 ? 2 : 1; /* 32 keys a tile, or 16 */
    const auto kernel = kvg_decode_sm90<KV, FP8, NSEG, sub, PROBE, NB>;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    if (e != cudaSuccess)
        return e;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(KVG_SM90_THREADS);
    config.dynamicSmemBytes = (size_t)smem;
    config.stream = stream;
    config.attrs = &attribute;
    if (p.dynamic) {
        kvg_zero_counter<<<1, 1, 0, stream>>>(p.counter);
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        config.numAttrs = 1;
    }
    return cudaLaunchKernelEx(&config, kernel, p);
}

template <int KV, int FP8, int NSEG>
static cudaError_t kvg_sm90_launch(const kvg_sm90_params &p, int probe, int64_t blocks, int64_t smem,
                                   cudaStream_t stream)
{
    if (probe)
        return kvg_sm90_launch_one<KV, FP8, NSEG, 1, 1>(p, blocks, smem, stream);
    if (p.column_blocks == 1)
        return kvg_sm90_launch_one<KV, FP8, NSEG, 0, 1>(p, blocks, smem, stream);
    if constexpr (kvg_sm90_registers<KV, NSEG, 1>::small)
        return kvg_sm90_launch_one<KV, FP8, NSEG, 0, 2>(p, blocks, smem, stream);
    return cudaErrorInvalidValue;
}

enum { KVG_MERGE_THREADS = 256, KVG_MERGE_DIMS = 32 };

/* Adds up the segments of a sequence: out = v_scale * sum_i 2^(m_i - M) o_i / sum_i 2^(m_i - M) l_i. A
 * task is one query row and 32 of its dims. `lanes` lanes work on it, 8 for each segment, so that with few
 * segments all loads are issued at once. Segments without a visible key have l = 0. A sequence without
 * segments gets 0 and -inf. A sequence that one segment covers has already been written. */
static __global__ void __launch_bounds__(KVG_MERGE_THREADS, 5)
    kvg_merge_segments(const __grid_constant__ kvg_sm90_params p, int offset, int lanes)
{
    __shared__ float4 sum_o[KVG_MERGE_THREADS / 32][8];
    __shared__ float sum_m[KVG_MERGE_THREADS / 32], sum_l[KVG_MERGE_THREADS / 32];
    const int slices = p.head_dim / KVG_MERGE_DIMS;
    const int64_t task = ((int64_t)blockIdx.x * KVG_MERGE_THREADS + threadIdx.x) / lanes;
    const int in_task = threadIdx.x % lanes, vec = in_task % 8;
    const int slice = (int)(task % slices), head = (int)(task / slices % p.q_heads);
    const int64_t r = task / slices / p.q_heads;
    const int qi = (int)(r % p.max_q_len), b = (int)(r / p.max_q_len);
    const bool real = b < p.batch;
    const int q0 = real ? p.cu_q_lens[b] : 0;
    const bool row = real && qi < p.cu_q_lens[b + 1] - q0;
    int from = 0, to = 0, all = 0, j0 = 0, j1 = 0;
    if (p.rectangular) {
        from = b * p.slabs_per_seq, to = from + p.slabs_per_seq, all = p.batch * p.slabs_per_seq;
        j0 = kvg_chunk_of(p, all, from), j1 = kvg_chunk_of(p, all, to - 1);
    }
    const float v_scale = p.v_scale && real ? p.v_scale[head / p.group * p.scale_stride] : 1.f;
    float m = -INFINITY, l = 0.f;
    float4 o = make_float4(0.f, 0.f, 0.f, 0.f);
    kvg_wait_for_primary();
    if (!p.rectangular && real) {
        from = p.prefix_out[b], to = p.prefix_out[b + 1], all = p.prefix_out[p.batch];
        if (to > from)
            j0 = kvg_chunk_of(p, all, from), j1 = kvg_chunk_of(p, all, to - 1);
    }
    const bool split = row && j1 > j0, empty = row && from == to;
    if (split) {
        const int64_t pitch = (int64_t)p.max_q_len * p.q_heads, at0 = kvg_partial_row(p, b, qi, head);
#pragma unroll 4
        for (int j = j0 + in_task / 8; j <= j1; j += lanes / 8) {
            const int64_t at = at0 + j * pitch;
            if (kvg_chunk_begin(p, all, j) == kvg_chunk_begin(p, all, j + 1))
                continue; /* an empty chunk */
            const float2 st = p.part_stats[at];
            const float4 v =
                *(const float4 *)(p.part_out + at * p.head_dim + slice * KVG_MERGE_DIMS + vec * 4);
            const float top = fmaxf(m, st.x);
            const float keep = m == -INFINITY ? 0.f : kvg_exp2(m - top);
            const float add = st.x == -INFINITY ? 0.f : kvg_exp2(st.x - top);
            m = top;
            l = l * keep + st.y * add;
            o.x = o.x * keep + v.x * add, o.y = o.y * keep + v.y * add;
            o.z = o.z * keep + v.z * add, o.w = o.w * keep + v.w * add;
            if (st.y != st.y)
                l = st.y; /* NaN */
        }
    }
    const auto join = [&](float m2, float l2, float4 o2) {
        const float top = fmaxf(m, m2);
        const float a = m == -INFINITY ? 0.f : kvg_exp2(m - top),
                    c = m2 == -INFINITY ? 0.f : kvg_exp2(m2 - top);
        m = top;
        l = l != l ? l : l2 != l2 ? l2 : l * a + l2 * c;
        o.x = o.x * a + o2.x * c, o.y = o.y * a + o2.y * c, o.z = o.z * a + o2.z * c,
        o.w = o.w * a + o2.w * c;
    };
    for (int d = 8; d < min(lanes, 32); d *= 2) {
        const float m2 = __shfl_xor_sync(~0u, m, d), l2 = __shfl_xor_sync(~0u, l, d);
        const float4 o2 = make_float4(__shfl_xor_sync(~0u, o.x, d), __shfl_xor_sync(~0u, o.y, d),
                                      __shfl_xor_sync(~0u, o.z, d), __shfl_xor_sync(~0u, o.w, d));
        join(m2, l2, o2);
    }
    if (lanes > 32) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
        if (lane < 8)
            sum_o[warp][lane] = o;
        if (lane == 0)
            sum_m[warp] = m, sum_l[warp] = l;
        __syncthreads();
        if (in_task < 8)
            for (int w = 1; w < lanes / 32; w++)
                join(sum_m[warp + w], sum_l[warp + w], sum_o[warp + w][lane]);
    }
    if (in_task >= 8 || !(split || empty))
        return;
    float factor = l > 0.f ? v_scale / l : l == 0.f ? 0.f : l;
    const float lse = kvg_lse_with_sink(p, head, m, l, offset, &factor);
    const int64_t token = q0 + qi;
    uint2 packed;
    packed.x = kvg_pack_bf16(o.x * factor, o.y * factor);
    packed.y = kvg_pack_bf16(o.z * factor, o.w * factor);
    *(uint2 *)(p.out + token * p.out_stride_token + head * p.out_stride_head + slice * KVG_MERGE_DIMS +
               vec * 4) = packed;
    if (in_task == 0 && slice == 0 && p.lse)
        p.lse[token * p.lse_stride_token + head] = lse;
}

#endif
