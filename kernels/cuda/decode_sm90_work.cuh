/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90_work.cuh: parameters of the Hopper decode kernel, and how its blocks find their work: the list
 * of slabs, its chunks, and the segments of sequences. plan.h defines these terms. Everything here follows
 * from shapes and lengths alone. So the reader, the arithmetic warps and the merge compute the same division
 * without communication.
 */
#ifndef KVG_CUDA_DECODE_SM90_WORK_CUH
#define KVG_CUDA_DECODE_SM90_WORK_CUH

#include "../kernel.h"
#include "plan.h"
#include "ptx.cuh"

struct kvg_sm90_params {
    CUtensorMap k, v; /* [bytes][slots][heads][blocks], bytes fastest */
    const void *q;
    int64_t q_stride_token, q_stride_head;
    const int32_t *block_table;
    int64_t block_table_stride;
    const int32_t *seq_lens, *cu_q_lens;
    const float *q_scale, *k_scale, *v_scale;
    int64_t scale_stride;
    float softmax_scale, soft_cap;
    uint16_t *out;
    int64_t out_stride_token, out_stride_head;
    float *lse;
    int64_t lse_stride_token;
    float2 *part_stats; /* (maximum in log2 units, row sum) */
    float *part_out;    /* not normalised, head_dim floats a row */
    uint32_t *counter;
    int batch, q_heads, group, head_dim, block_size, window, causal, max_q_len;
    int64_t max_seq_len;
    int32_t *prefix_out; /* block 0 writes the prefix sums here for the merge */
    int heads, row_blocks, column_blocks, splits_per_block, columns, box_tokens, split_tokens, slab_tokens,
        slabs_per_seq, head_blocks;
    int stages, stage_bytes, rectangular, dynamic, rounds, chunks_per_round;
    /* block_log2: -1 if block_size is not a power of two. */
    int boxes_log2, per_tile_log2, block_log2, tiles_per_slab;
    /* Fractions of all slabs, unit 2^-32. */
    uint32_t round_start[KVG_SM90_MAX_ROUNDS], round_step[KVG_SM90_MAX_ROUNDS];
    const float *sinks; /* read where a row is written, and nowhere else */
};

enum { KVG_SM90_UNIT_RING = 8, KVG_SM90_MAX_STAGES = 16, KVG_SM90_THREADS = 32 * (KVG_SM90_WARPS + 4) };

/* What a block works on without interruption: slabs [s0, s1) of one sequence, for one block of heads. */
struct kvg_sm90_segment {
    int b, head_block;
    int slot;  /* index of its partial result: chunk + sequence */
    int whole; /* 1: it covers all slabs of the sequence and writes the output itself */
    int len;   /* keys of the sequence */
    int q_len;
    int first; /* first visible key of any query */
    int s0, s1;
};

KVG_DEV int kvg_first_visible(const kvg_sm90_params &p, int len, int q_len)
{
    const int last0 = p.causal ? len - q_len : len - 1;
    return max(0, last0 - p.window + 1);
}

/* First visible slab of a sequence. The branch avoids a wait for the length if there is no window. */
KVG_DEV int kvg_first_slab(const kvg_sm90_params &p, int len, int q_len)
{
    if (p.window > 0)
        return kvg_first_visible(p, len, q_len) / p.slab_tokens;
    return 0;
}

/* Slabs of a sequence in the list of all slabs. */
KVG_DEV int kvg_slab_count(const kvg_sm90_params &p, int len, int q_len)
{
    return len <= 0 ? 0 : (len + p.slab_tokens - 1) / p.slab_tokens - kvg_first_slab(p, len, q_len);
}

/* First slab of chunk j, of n slabs in all. Chunks get smaller from round to round. */
KVG_DEV int kvg_chunk_begin(const kvg_sm90_params &p, int n, int j)
{
    const int r = j / p.chunks_per_round, i = j - r * p.chunks_per_round;
    if (r >= p.rounds)
        return n;
    return (int)min((uint64_t)n, (uint64_t)n * (p.round_start[r] + (uint64_t)p.round_step[r] * i) >> 32);
}

/* The chunk that contains slab x. */
KVG_DEV int kvg_chunk_of(const kvg_sm90_params &p, int n, int x)
{
    int lo = 0, hi = p.rounds * p.chunks_per_round;
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (kvg_chunk_begin(p, n, mid) <= x)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Iterates over the segments of work item u = (chunk, head block). prefix[b]: slabs before sequence b.
 * NULL: every sequence has slabs_per_seq slabs. */
struct kvg_sm90_walk {
    int pos, end, b, chunk, head_block;
    KVG_MEMBER void open(const kvg_sm90_params &p, const int32_t *prefix, int u)
    {
        const int n = prefix ? prefix[p.batch] : p.batch * p.slabs_per_seq;
        head_block = u % p.head_blocks;
        chunk = u / p.head_blocks;
        pos = kvg_chunk_begin(p, n, chunk);
        end = kvg_chunk_begin(p, n, chunk + 1);
        if (prefix) {
            int lo = 0, hi = p.batch; /* prefix[lo] <= pos < prefix[hi] */
            while (hi - lo > 1) {
                const int mid = (lo + hi) / 2;
                if (prefix[mid] <= pos)
                    lo = mid;
                else
                    hi = mid;
            }
            b = lo;
        } else {
            b = pos / p.slabs_per_seq;
        }
    }
    KVG_MEMBER bool next(const kvg_sm90_params &p, const int32_t *prefix, kvg_sm90_segment &x)
    {
        int from, to;
        while (true) {
            if (pos >= end)
                return false;
            from = prefix ? prefix[b] : b * p.slabs_per_seq;
            to = prefix ? prefix[b + 1] : from + p.slabs_per_seq;
            if (to > pos)
                break;
            b++;
        }
        const int stop = min(end, to);
        x.b = b;
        x.head_block = head_block;
        x.slot = chunk + b;
        x.whole = pos == from && stop == to;
        x.len = p.seq_lens[b];
        x.q_len = p.cu_q_lens[b + 1] - p.cu_q_lens[b];
        const int skip = kvg_first_slab(p, x.len, x.q_len);
        x.first = p.window > 0 ? kvg_first_visible(p, x.len, x.q_len) : 0;
        x.s0 = skip + pos - from;
        x.s1 = skip + stop - from;
        pos = stop;
        b++;
        return true;
    }
};

/* Steps of a segment: tiles_per_slab for each slab; a step takes one tile of every split of the slab.
 * Steps [begin, end) contain visible keys. */
KVG_DEV void kvg_step_range(const kvg_sm90_params &p, const kvg_sm90_segment &x, int tile, int tiles_per_slab,
                            int &begin, int &end)
{
    const int last = x.s1 - 1, keys = min(p.split_tokens, x.len - last * p.slab_tokens);
    end = (last - x.s0) * tiles_per_slab + max(0, (keys + tile - 1) / tile);
    begin =
        p.splits_per_block == 1 && p.window > 0 ? min(end, max(0, x.first - x.s0 * p.slab_tokens) / tile) : 0;
}

/* Computes the slabs before each sequence, with the arithmetic warps. prefix has batch + 1 entries. */
static __device__ void kvg_prefix_slabs(const kvg_sm90_params &p, int32_t *prefix)
{
    __shared__ int32_t warp_sum[KVG_SM90_WARPS];
    constexpr int threads = 32 * KVG_SM90_WARPS;
    const int per = (p.batch + threads - 1) / threads;
    const int from = threadIdx.x * per;
    int sum = 0;
    for (int i = from; i < min(from + per, p.batch); i++) {
        prefix[i] = sum;
        sum += kvg_slab_count(p, p.seq_lens[i], p.cu_q_lens[i + 1] - p.cu_q_lens[i]);
    }
    int incl = sum;
    for (int d = 1; d < 32; d *= 2) {
        const int up = __shfl_up_sync(~0u, incl, d);
        if ((threadIdx.x & 31) >= d)
            incl += up;
    }
    if ((threadIdx.x & 31) == 31)
        warp_sum[threadIdx.x / 32] = incl;
    kvg_named_barrier(3, threads);
    int before = incl - sum;
    for (int w = 0; w < (int)threadIdx.x / 32; w++)
        before += warp_sum[w];
    for (int i = from; i < min(from + per, p.batch); i++)
        prefix[i] += before;
    if (threadIdx.x == threads - 1)
        prefix[p.batch] = before + sum;
    kvg_named_barrier(3, threads);
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i <= p.batch; i += threads)
            p.prefix_out[i] = prefix[i];
}

#endif
