/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90_lean.cuh: the decode kernel for short work, where latency takes most of the time. A block has
 * one chunk, inside one sequence, and one KV head. Each of its eight warps has one split.
 *
 * Each warp reads for itself: it looks up its pages (lean_walk.h), requests them, and computes on what
 * arrives. Its ring of tiles belongs to this warp alone.
 *   - No data is passed between warps, and eight warps issue requests at the same time.
 *   - The first page is requested after a few hundred instructions. The block table is loaded before anything
 *     else, from constants that lie together, and without a division. The barriers are set up during that
 *     load.
 *   - The arithmetic (decode_sm90_warps.cuh) and the partial results are those of the large kernel.
 *
 * No wait is endless. A warp waits for a barrier exactly once for each tile that it requested, and the
 * barrier expects the bytes of exactly the requested boxes. No two warps share a stage, so no warp waits for
 * another before the end.
 *
 * Measurements on an H200, and what did not help: see decode_sm90.cu.
 */
#ifndef KVG_CUDA_DECODE_SM90_LEAN_CUH
#define KVG_CUDA_DECODE_SM90_LEAN_CUH

#include "decode_sm90_kernel.cuh"
#include "lean_walk.h"

enum { KVG_LEAN_THREADS = 32 * KVG_SM90_WARPS, KVG_LEAN_MERGE_THREADS = 128 };

struct kvg_sm90_lean_params {
    kvg_lean_start start;
    kvg_sm90_params all;
};

struct kvg_sm90_lean_shared {
    uint64_t full[KVG_SM90_WARPS][KVG_SM90_LEAN_STAGES][2]; /* K, V */
};

/* The results of a warp in shared memory. Quad i of lane (g, t) for column 2t + c is at 8 i + (g ^ 2t), so
 * that neither writing nor reading has bank conflicts. */
template <typename W, int NSEG> struct kvg_lean_row {
    static constexpr int each = W::T::seg_mmas / 2, quads = 8 * NSEG * each;
};

template <typename W, int NSEG>
KVG_DEV void kvg_lean_put(const W &w, int columns, float4 *scratch, float2 *stats, int split)
{
    using R = kvg_lean_row<W, NSEG>;
    const int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int row = split * columns + 2 * t + c;
        if (2 * t + c >= columns)
            continue;
        if (g == 0)
            stats[row] = make_float2(w.m[c], w.l[c]);
#pragma unroll
        for (int i = 0; i < NSEG * R::each; i++)
            scratch[row * R::quads + 8 * i + (g ^ 2 * t)] = w.quad(i / R::each, i % R::each, c);
    }
}

/* Adds up the eight splits. A thread takes four dims of a query row. */
template <typename W, int NSEG>
KVG_DEV void kvg_lean_add(const kvg_sm90_params &p, const kvg_sm90_segment &x, const float4 *scratch,
                          const float2 *stats)
{
    using R = kvg_lean_row<W, NSEG>;
    for (int i = threadIdx.x; i < p.columns * R::quads; i += KVG_LEAN_THREADS) {
        const int row = i / R::quads, at = i % R::quads, n = at / 8, g = at % 8 ^ row / 2 * 2;
        const int dim = n / R::each * W::T::seg_dims + (g * R::each + n % R::each) * 4;
        float2 st[KVG_SM90_WARPS];
        float4 v[KVG_SM90_WARPS];
#pragma unroll
        for (int s = 0; s < KVG_SM90_WARPS; s++) {
            st[s] = stats[s * p.columns + row];
            v[s] = scratch[s * p.columns * R::quads + i];
        }
        float m = st[0].x, l = 0.f;
#pragma unroll
        for (int s = 1; s < KVG_SM90_WARPS; s++)
            m = fmaxf(m, st[s].x);
        float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int s = 0; s < KVG_SM90_WARPS; s++) {
            const bool live = st[s].y != 0.f; /* 0: no visible key; NaN is passed on */
            const float f = live ? kvg_exp2(st[s].x - m) : 0.f;
            l += live ? f * st[s].y : 0.f;
            sum.x += f * v[s].x, sum.y += f * v[s].y, sum.z += f * v[s].z, sum.w += f * v[s].w;
        }
        if (row >= p.group * x.q_len || dim >= p.head_dim)
            continue;
        const kvg_sm90_sink sink = kvg_open_sink(p, x, x.head_block, row, m, l, W::T::offset, dim == 0);
        kvg_store_quad(sink, dim, sum);
    }
}

/* Prefetches Q and the scales. They are needed as soon as the first page arrives, so their loads start
 * together with it. Two lanes a query row, 128 bytes each: the longest row of this kernel has 256 bytes. */
template <int Q_BYTES> KVG_DEV void kvg_lean_prefetch(const kvg_sm90_params &p, const kvg_sm90_segment &x)
{
    const int lane = threadIdx.x & 31, r = lane / 2, byte = lane % 2 * 128;
    if (r < p.group * x.q_len && byte < p.head_dim * Q_BYTES) {
        const int64_t token = p.cu_q_lens[x.b] + r / p.group;
        const int64_t head = x.head_block * p.group + r % p.group;
        kvg_prefetch((const char *)p.q + (token * p.q_stride_token + head * p.q_stride_head) * Q_BYTES +
                     byte);
    }
    const float *scale = lane == 29 ? p.q_scale : lane == 30 ? p.k_scale : lane == 31 ? p.v_scale : NULL;
    if (scale)
        kvg_prefetch(scale + x.head_block * p.scale_stride);
}

/* The chunk of this block. */
KVG_DEV kvg_sm90_segment kvg_lean_segment(const kvg_lean_start &st)
{
    kvg_sm90_segment x;
    const int chunk = blockIdx.z * gridDim.y + blockIdx.y;
    x.b = blockIdx.z;
    x.head_block = blockIdx.x;
    x.slot = chunk + x.b;
    x.s0 = kvg_lean_first_slab(st.share, st.slabs, chunk) - x.b * st.slabs_per_seq;
    x.s1 = kvg_lean_first_slab(st.share, st.slabs, chunk + 1) - x.b * st.slabs_per_seq;
    x.whole = x.s0 == 0 && x.s1 == st.slabs_per_seq;
    x.first = 0;
    return x;
}

/* Requests of a warp. Lane i requests box i of the tiles that one load of the block table serves. The next
 * load is always in flight. */
template <int NSEG, int TILE> struct kvg_lean_reader {
    kvg_lean_place look, ask;
    kvg_lean_box now, later;
    int in, in_load; /* next stage; next tile of this load */
    uint32_t ring, bars;
    uint64_t policy;
    static constexpr uint32_t tile_bytes = TILE * NSEG * KVG_SM90_SEGMENT;

    KVG_MEMBER void load(const kvg_lean_start &st, const kvg_sm90_segment &x, int tiles, kvg_lean_box &to)
    {
        const int part = (threadIdx.x & 31) & ((1 << st.boxes_log2) - 1);
        to = kvg_lean_look(&st, &look, x.s1, TILE, tiles, part);
        const int32_t *table = st.block_table + x.b * st.block_table_stride;
        to.at = to.real ? table[to.at] : 0; /* from here on the page, not the table entry */
    }

    /* Requests the next tile into stage `in`, which no warp reads any more. RELOAD: the first load of the
     * table may be used up. */
    template <bool RELOAD>
    KVG_MEMBER void request(const kvg_sm90_params &p, const kvg_lean_start &st, const kvg_sm90_segment &x,
                            int tiles)
    {
        if (!kvg_lean_there(&ask, x.s1, x.len, TILE))
            return;
        if (RELOAD && in_load == 32 >> st.boxes_log2) {
            in_load = 0;
            now = later;
            load(st, x, tiles, later);
        }
        const int lane = threadIdx.x & 31, part = lane & ((1 << st.boxes_log2) - 1),
                  ahead = lane >> st.boxes_log2;
        const uint32_t seg_bytes = (uint32_t)(TILE >> st.boxes_log2) * KVG_SM90_SEGMENT,
                       box_bytes = NSEG * seg_bytes;
        const bool mine = ahead == in_load && now.real && now.token < x.len;
        const uint32_t bytes = __popc(__ballot_sync(~0u, mine)) * box_bytes;
        const uint32_t bar = bars + 16 * in;
        if (lane == 0) {
            kvg_bar_expect(bar, bytes);
            kvg_bar_expect(bar + 8, bytes);
        }
        __syncwarp();
        if (mine) {
            const uint32_t dst = ring + in * 2 * tile_bytes + part * box_bytes;
#pragma unroll
            for (int seg = 0; seg < NSEG; seg++)
                kvg_tma_box(dst + seg * seg_bytes, &p.k, bar, seg * KVG_SM90_SEGMENT, now.slot, x.head_block,
                            now.at, policy);
#pragma unroll
            for (int seg = 0; seg < NSEG; seg++)
                kvg_tma_box(dst + tile_bytes + seg * seg_bytes, &p.v, bar + 8, seg * KVG_SM90_SEGMENT,
                            now.slot, x.head_block, now.at, policy);
        }
        __syncwarp();
        in_load++;
        in = in + 1 == p.stages ? 0 : in + 1;
        kvg_lean_next(&st, &ask, tiles);
    }
};

template <int KV, int FP8, int NSEG, int SUB>
__global__ void __maxnreg__(200) kvg_decode_sm90_lean(const __grid_constant__ kvg_sm90_lean_params q)
{
    using W = kvg_sm90_warp<KV, FP8, NSEG, SUB>;
    using P = kvg_sm90_products<KV, FP8, NSEG, SUB, 1>;
    using R = kvg_lean_reader<NSEG, W::tile>;
    constexpr int TILE = W::tile, tile_bytes = (int)R::tile_bytes;
    extern __shared__ uint8_t raw[];
    const kvg_lean_start &st = q.start;
    const kvg_sm90_params &p = q.all;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;

    kvg_sm90_segment x = kvg_lean_segment(st);
    if (x.s0 >= x.s1)
        return;
    R reader;
    const int tiles = kvg_lean_tiles(&st, TILE);
    reader.look = kvg_lean_open(&st, x.s0, warp, lane >> st.boxes_log2);
    reader.load(st, x, tiles, reader.now);
    x.len = st.seq_lens[x.b];
    x.q_len = st.cu_q_lens[x.b + 1] - st.cu_q_lens[x.b];
    kvg_launch_dependents();

    uint8_t *const base = raw + (1024 - (kvg_smem(raw) & 1023)) % 1024;
    kvg_sm90_lean_shared &sh = *(kvg_sm90_lean_shared *)(base + p.stages * KVG_SM90_WARPS * 2 * tile_bytes);
    float4 *const scratch = (float4 *)(&sh + 1);
    float2 *const stats = (float2 *)(scratch + KVG_SM90_WARPS * p.columns * kvg_lean_row<W, NSEG>::quads);
    reader.ring = kvg_smem(base) + warp * p.stages * 2 * tile_bytes;
    reader.bars = kvg_smem(&sh.full[warp][0][0]);
    if (warp < 2 && lane == 0)
        kvg_tma_prefetch(warp ? &p.v : &p.k);
    if (lane < 2 * p.stages)
        kvg_bar_init(reader.bars + 8 * lane, 1);
    kvg_bar_init_fence();
    __syncwarp();

    reader.policy = kvg_policy_stream();
    reader.ask = kvg_lean_open(&st, x.s0, warp, 0);
    reader.in = reader.in_load = 0;
    if (warp == KVG_SM90_WARPS - 1)
        kvg_lean_prefetch<FP8 ? 1 : 2>(p, x);
#pragma unroll 1
    for (int i = 0; i < p.stages; i++)
        reader.template request<false>(p, st, x, tiles);
    reader.load(st, x, tiles, reader.later);

    W w[1];
    w[0].load_q(p, x, x.head_block, 0);
    w[0].clear();
    const int box_tokens = TILE >> st.boxes_log2;
    const uint32_t seg_bytes = (uint32_t)(box_tokens * KVG_SM90_SEGMENT);
    uint32_t group_at[2 * SUB];
#pragma unroll
    for (int i = 0; i < 2 * SUB; i++)
        group_at[i] = 8 * i / box_tokens * NSEG * seg_bytes + 8 * i % box_tokens * KVG_SM90_SEGMENT;
    const uint32_t k_col = g * KVG_SM90_SEGMENT + ((2 * t) ^ g) * 16;
    const uint32_t v_col = P::v_col(g, t);
    const int open = p.causal ? x.len - x.q_len + 1 : x.len; /* smaller keys are visible to all rows */

    int stage = 0;
    uint32_t phase = 0;
    for (kvg_lean_place c = kvg_lean_open(&st, x.s0, warp, 0); kvg_lean_there(&c, x.s1, x.len, TILE);) {
        const int limit = min(c.start + st.split_tokens, x.len), key0 = c.start + c.tile * TILE;
        const bool masked = key0 + TILE > min(limit, open);
        const uint32_t tile = reader.ring + stage * 2 * tile_bytes, bar = reader.bars + 16 * stage;
        uint32_t pf[1][SUB][2];
        float s[1][SUB][4] = {};
        kvg_bar_wait(bar, phase);
        P::keys(w, s, tile, seg_bytes, group_at, k_col);
        w[0].template softmax<false>(p, x, s[0], pf[0], key0 + g, limit, masked, c.tile == 0);
        kvg_bar_wait(bar + 8, phase);
        P::values(w, x, pf, tile + tile_bytes, seg_bytes, group_at, v_col, key0 + 2 * t, limit, masked);
        __syncwarp();
        reader.template request<true>(p, st, x, tiles);
        kvg_lean_next(&st, &c, tiles);
        if (++stage == p.stages) {
            stage = 0;
            phase ^= 1;
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        for (int d = 4; d < 32; d *= 2)
            w[0].l[i] += __shfl_xor_sync(~0u, w[0].l[i], d);
    kvg_lean_put<W, NSEG>(w[0], p.columns, scratch, stats, warp);
    __syncthreads();
    kvg_lean_add<W, NSEG>(p, x, scratch, stats);
}

/* Adds up the `per` chunks of a sequence. A warp does one query row's slice of 32 dims, 8 lanes a chunk, 4
 * K chunks at a time with all loads in flight. What does not depend on the partial results is computed
 * before they are ready. Empty chunks have written nothing and are skipped. Chunks without a visible key
 * have l = 0. */
template <int K>
static __global__ void __launch_bounds__(KVG_LEAN_MERGE_THREADS, K > 4 ? 4 : 8)
    kvg_merge_lean(const __grid_constant__ kvg_sm90_params p, int offset, int per)
{
    const int lane = threadIdx.x & 31, vec = lane % 8, part = lane / 8;
    const unsigned slices = p.head_dim / 32;
    const unsigned task = (blockIdx.x * KVG_LEAN_MERGE_THREADS + threadIdx.x) / 32;
    const unsigned slice = task % slices, rest = task / slices, head = rest % p.q_heads, r = rest / p.q_heads;
    const int qi = r % p.max_q_len, b = r / p.max_q_len;
    if (b >= p.batch)
        return;
    const int q0 = p.cu_q_lens[b];
    if (qi >= p.cu_q_lens[b + 1] - q0)
        return;
    const float v_scale = p.v_scale ? p.v_scale[head / p.group * p.scale_stride] : 1.f;
    const int n = p.batch * p.slabs_per_seq;
    const int64_t pitch = (int64_t)p.max_q_len * p.q_heads;
    const int64_t at0 = kvg_partial_row(p, b * per + b, qi, head);
    const float2 *stats = p.part_stats + at0;
    const float *rows = p.part_out + at0 * p.head_dim + slice * 32 + vec * 4;
    uint16_t *out =
        p.out + (int64_t)(q0 + qi) * p.out_stride_token + head * p.out_stride_head + slice * 32 + vec * 4;
    const auto filled = [&](int i) {
        return i < per && kvg_lean_first_slab(p.round_step[0], n, b * per + i) <
                              kvg_lean_first_slab(p.round_step[0], n, b * per + i + 1);
    };
    bool have[K];
#pragma unroll
    for (int k = 0; k < K; k++)
        have[k] = filled(part + 4 * k);
    float m = -INFINITY, l = 0.f;
    float4 o = make_float4(0.f, 0.f, 0.f, 0.f);
    /* A NaN in l is kept: 0 x NaN is NaN. */
    const auto join = [&](float m2, float l2, float4 o2) {
        const float top = fmaxf(m, m2);
        const float a = m == -INFINITY ? 0.f : kvg_exp2(m - top),
                    c = m2 == -INFINITY ? 0.f : kvg_exp2(m2 - top);
        m = top;
        l = l * a + l2 * c;
        o.x = o.x * a + o2.x * c, o.y = o.y * a + o2.y * c;
        o.z = o.z * a + o2.z * c, o.w = o.w * a + o2.w * c;
    };
    kvg_wait_for_primary();
#pragma unroll 1
    for (int base = 0; base < per; base += 4 * K) {
        float2 st[K];
        float4 v[K];
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int i = base + part + 4 * k;
            st[k] = make_float2(-INFINITY, 0.f);
            v[k] = make_float4(0.f, 0.f, 0.f, 0.f);
            if (base == 0 ? have[k] : filled(i)) {
                st[k] = __ldcg(stats + i * pitch);
                v[k] = __ldcg((const float4 *)(rows + i * pitch * p.head_dim));
            }
        }
#pragma unroll
        for (int k = 0; k < K; k++)
            join(st[k].x, st[k].y, v[k]);
    }
#pragma unroll
    for (int d = 8; d < 32; d *= 2) {
        const float m2 = __shfl_xor_sync(~0u, m, d), l2 = __shfl_xor_sync(~0u, l, d);
        const float4 o2 = make_float4(__shfl_xor_sync(~0u, o.x, d), __shfl_xor_sync(~0u, o.y, d),
                                      __shfl_xor_sync(~0u, o.z, d), __shfl_xor_sync(~0u, o.w, d));
        join(m2, l2, o2);
    }
    if (part > 0)
        return;
    float factor = l > 0.f ? v_scale / l : l == 0.f ? 0.f : l;
    const float lse = kvg_lse_with_sink(p, head, m, l, offset, &factor);
    uint2 packed;
    packed.x = kvg_pack_bf16(o.x * factor, o.y * factor);
    packed.y = kvg_pack_bf16(o.z * factor, o.w * factor);
    *(uint2 *)out = packed;
    if (lane == 0 && slice == 0 && p.lse)
        p.lse[(q0 + qi) * p.lse_stride_token + head] = lse;
}

template <int KV, int FP8, int NSEG>
static cudaError_t kvg_sm90_launch_lean(const kvg_sm90_lean_params &q, int64_t smem, cudaStream_t stream)
{
    constexpr int sub = NSEG == 1 ? 2 : 1;
    const auto kernel = kvg_decode_sm90_lean<KV, FP8, NSEG, sub>;
    const cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    if (e != cudaSuccess)
        return e;
    const dim3 grid((unsigned)q.all.head_blocks, (unsigned)(q.all.chunks_per_round / q.all.batch),
                    (unsigned)q.all.batch);
    kernel<<<grid, KVG_LEAN_THREADS, (size_t)smem, stream>>>(q);
    return cudaGetLastError();
}

#endif
