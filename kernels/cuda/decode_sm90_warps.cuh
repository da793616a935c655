/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90_warps.cuh: paged decode attention for Hopper: the warp that reads and the warps that compute.
 * One template serves every cache dtype and both paths.
 *
 * Decode reads every K and V byte once and does little arithmetic with it. So the kernel is a memory reader,
 * and its arithmetic runs while the next bytes are on their way. One warp requests pages with bulk tensor
 * copies into a ring of stages. Eight warps compute.
 *   - The products are transposed: S^T = K Q^T and O^T = V^T P^T. Keys and dims fill the 16 rows of the
 *     tensor instruction, and the query heads of a group fill its 8 columns. No row of K or V is padding.
 *   - The order of dims in K Q^T and in O^T is free. It is chosen so that a lane reads 16 bytes of one row at
 *     a time without bank conflicts under the 128-byte swizzle, and K and V never move between lanes. With
 *     lane = 4 g + t, in FP8:
 *     - K: lane (g, t) holds dims 32t .. 32t+31 of keys g and g + 8.
 *     - V: lane (g, t) holds dims 16g .. 16g+15 of keys 2t, 2t+1, 2t+8, 2t+9. Two byte permutes put the two
 *       keys of a dim side by side. Hopper has no instruction that transposes 8-bit data.
 *     - P moves between lanes with one movmatrix per 8 keys.
 *   - The running maximum is reduced over lanes only when a vote finds that it grew.
 *   - The product of each tile starts at zero and is added to FP32 registers, so a long context loses no
 *     precision.
 *
 * Bytes and operations for head_dim 128, FP8:
 *   - A key and KV head is 256 bytes. For 32 keys of one head (8 KB) a warp issues about 400 instructions
 *     (SASS): 128 unpack, 32 permutes, 32 HMMA, 16 LDS, 32 additions of the flush, the rest softmax and
 *     control.
 *   - At 4400 GB/s a multiprocessor gets 33 bytes/ns, 19 a cycle. The instructions for them take 0.9 of its 4
 *     issue slots.
 *   - ncu measures 28 % of the slots, and DRAM at 84 to 89 % of its peak. So arithmetic is not the limit.
 *     What remains is the latency at both ends and the unequal speed of the multiprocessors.
 *
 * decode_sm90.cu has the measurements of all versions and what was tried.
 */
#ifndef KVG_CUDA_DECODE_SM90_WARPS_CUH
#define KVG_CUDA_DECODE_SM90_WARPS_CUH

#include "decode_sm90_work.cuh"

/* P is scaled by 2^offset before it is rounded. 8 is FlashAttention-3's rule for e4m3. 14 keeps f16
 * weights normal down to 2^-28 of the maximum. */
template <int KV, int FP8> struct kvg_sm90_traits {
    static constexpr bool bf16 = KV == KVG_BF16;
    static constexpr int offset = FP8 ? 8 : bf16 ? 0 : 14;
    static constexpr int seg_dims = bf16 ? 64 : 128; /* dims in a 128-byte segment */
    static constexpr int seg_mmas = bf16 ? 4 : 8;    /* 16 x 8 x 16 products per segment, in QK and in PV */
};

/* Shared memory after the stages. */
struct kvg_sm90_shared {
    uint64_t full[KVG_SM90_MAX_STAGES], empty[KVG_SM90_MAX_STAGES];
    uint64_t unit_full[KVG_SM90_UNIT_RING], unit_empty[KVG_SM90_UNIT_RING];
    int32_t unit[KVG_SM90_UNIT_RING];
};

/* ------------------------------------------------------------------ the reader */

struct kvg_sm90_ring {
    int stage;
    uint32_t phase;
    KVG_MEMBER void next(int stages)
    {
        if (++stage == stages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/* Lane i requests box i of a step. A step has splits_per_block splits x tile / box_tokens boxes, at most
 * 32. Lanes beyond that look up the pages of later steps. So one load of the block table serves 32 / boxes
 * steps, and the next load is always in flight. The first load does not wait for the length of the
 * sequence. */
template <int NSEG, int TILE>
KVG_DEV void kvg_read_segment(const kvg_sm90_params &p, const kvg_sm90_segment &x, kvg_sm90_shared &sh,
                              uint32_t stages, kvg_sm90_ring &ring, uint64_t policy)
{
    const int lane = threadIdx.x & 31;
    const int steps_a_load = 32 >> p.boxes_log2;
    const int box = lane & ((1 << p.boxes_log2) - 1), ahead = lane >> p.boxes_log2;
    const int split = box >> p.per_tile_log2, part = box & ((1 << p.per_tile_log2) - 1);
    const uint32_t box_bytes = (uint32_t)(NSEG * p.heads * p.box_tokens * KVG_SM90_SEGMENT);
    const uint32_t seg_bytes = (uint32_t)(p.heads * p.box_tokens * KVG_SM90_SEGMENT);
    const int tiles_per_slab = p.tiles_per_slab;
    const int32_t *table = p.block_table + x.b * p.block_table_stride;

    struct page {
        int index, slot, token;
        bool real;
    };
    /* Position of this lane: tile j of slab s0 + slab. A lookup advances it by steps_a_load tiles. */
    int slab = x.s0, j = ahead;
    const auto lookup = [&]() {
        while (j >= tiles_per_slab) {
            j -= tiles_per_slab;
            slab++;
        }
        const int in_split = j * TILE + part * p.box_tokens;
        page g;
        g.token = slab * p.slab_tokens + split * p.split_tokens + in_split;
        const int at = p.block_log2 >= 0 ? g.token >> p.block_log2 : g.token / p.block_size;
        g.slot = g.token - at * p.block_size;
        g.real = ahead < steps_a_load && slab < x.s1 && in_split < p.split_tokens;
        g.index = g.real && g.token < p.max_seq_len ? table[at] : 0;
        j += steps_a_load;
        return g;
    };
    page now = lookup();
    int begin, end;
    kvg_step_range(p, x, TILE, tiles_per_slab, begin, end);
    for (int base = 0; base < end; base += steps_a_load) {
        const page next = lookup();
        const bool wanted = now.real && now.token < x.len && now.token + p.box_tokens > x.first;
        for (int s = 0; s < steps_a_load && base + s < end; s++) {
            if (base + s < begin)
                continue;
            const bool mine = ahead == s && wanted;
            const uint32_t bytes = __popc(__ballot_sync(~0u, mine)) * box_bytes;
#pragma unroll
            for (int kv = 0; kv < 2; kv++) {
                const uint32_t full = kvg_smem(&sh.full[ring.stage]);
                kvg_bar_wait(kvg_smem(&sh.empty[ring.stage]), ring.phase ^ 1);
                if (lane == 0)
                    kvg_bar_expect(full, bytes);
                __syncwarp();
                if (mine) {
                    const uint32_t dst = stages + ring.stage * p.stage_bytes + box * box_bytes;
#pragma unroll
                    for (int seg = 0; seg < NSEG; seg++)
                        kvg_tma_box(dst + seg * seg_bytes, kv ? &p.v : &p.k, full, seg * KVG_SM90_SEGMENT,
                                    now.slot, x.head_block * p.heads, now.index, policy);
                }
                __syncwarp();
                ring.next(p.stages);
            }
        }
        now = next;
    }
}

template <int NSEG, int TILE>
KVG_DEV void kvg_reader(const kvg_sm90_params &p, kvg_sm90_shared &sh, uint32_t stages, const int32_t *prefix)
{
    const int lane = threadIdx.x & 31;
    const int total = p.head_blocks * p.rounds * p.chunks_per_round;
    const uint64_t policy = kvg_policy_stream();
    kvg_sm90_ring ring = {0, 0};
    int slot = 0;
    uint32_t slot_phase = 0;
    int u = blockIdx.x;
    while (true) {
        int next = u + gridDim.x;
        if (p.dynamic && u < total && lane == 0) {
            kvg_wait_for_primary(); /* the primary sets the counter to zero */
            next = gridDim.x + atomicAdd(p.counter, 1u);
        }
        kvg_bar_wait(kvg_smem(&sh.unit_empty[slot]), slot_phase ^ 1);
        if (lane == 0) {
            sh.unit[slot] = u < total ? u : -1;
            kvg_bar_arrive(kvg_smem(&sh.unit_full[slot]));
        }
        if (++slot == KVG_SM90_UNIT_RING) {
            slot = 0;
            slot_phase ^= 1;
        }
        if (u >= total)
            return;
        kvg_sm90_walk walk;
        kvg_sm90_segment x;
        walk.open(p, prefix, u);
        while (walk.next(p, prefix, x))
            kvg_read_segment<NSEG, TILE>(p, x, sh, stages, ring, policy);
        u = __shfl_sync(~0u, next, 0);
    }
}

/* ------------------------------------------------------------------ the arithmetic warps */

/* State of a warp for one block of 8 query rows, which are the columns of the products. */
template <int KV, int FP8, int NSEG, int SUB> struct kvg_sm90_warp {
    using T = kvg_sm90_traits<KV, FP8>;
    static constexpr int tile = 16 * SUB;
    uint32_t qf[NSEG][T::seg_mmas][2]; /* Q^T fragments */
    float o[NSEG][T::seg_mmas][4];     /* O^T: FP32 sums of the split so far */
    float m[2], l[2]; /* columns 2t, 2t+1: running maximum (log2 units), this lane's part of the row sum */
    float scale[2];   /* logit in log2 units = scale * (K Q^T); with a soft cap: logit / cap */
    int row0;         /* query row of column 0 */

    /* Turns logits into weights. key0: the key of row g of tile 0. */
    template <bool CAP>
    KVG_MEMBER void softmax(const kvg_sm90_params &p, const kvg_sm90_segment &x, float (&s)[SUB][4],
                            uint32_t (&pf)[SUB][2], int key0, int limit, bool masked, bool fresh)
    {
#pragma unroll
        for (int i = 0; i < SUB; i++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                s[i][c] *= scale[c & 1];
        if (CAP && p.soft_cap > 0.f) {
            const float cap = p.soft_cap * 1.44269504088896341f;
#pragma unroll
            for (int i = 0; i < SUB; i++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    s[i][c] = cap * tanhf(s[i][c]);
        }
        if (masked) {
            int last[2], first[2]; /* visible keys of the columns */
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int qi = (row0 + 2 * (threadIdx.x % 4) + c) / p.group;
                last[c] = p.causal ? x.len - x.q_len + qi : x.len - 1;
                first[c] = p.window > 0 ? last[c] - p.window + 1 : 0;
            }
#pragma unroll
            for (int i = 0; i < SUB; i++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    const int key = key0 + 16 * i + 8 * (c >> 1);
                    if (key < first[c & 1] || key > last[c & 1] || key >= limit)
                        s[i][c] = -INFINITY;
                }
        }
        float top[2] = {s[0][0], s[0][1]};
#pragma unroll
        for (int i = 0; i < SUB; i++) {
            top[0] = fmaxf(top[0], fmaxf(s[i][0], s[i][2]));
            top[1] = fmaxf(top[1], fmaxf(s[i][1], s[i][3]));
        }
        if (fresh || __any_sync(~0u, top[0] > m[0] || top[1] > m[1]))
            raise(top, fresh);
        float base[2];
#pragma unroll
        for (int c = 0; c < 2; c++)
            base[c] = m[c] == -INFINITY ? 0.f : m[c] - T::offset;
#pragma unroll
        for (int i = 0; i < SUB; i++) {
            float w[4];
#pragma unroll
            for (int c = 0; c < 4; c++)
                w[c] = kvg_exp2(s[i][c] - base[c & 1]);
            l[0] += w[0] + w[2];
            l[1] += w[1] + w[3];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t pair = FP8       ? kvg_round_e4m3(w[2 * h], w[2 * h + 1])
                                      : T::bf16 ? kvg_pack_bf16(w[2 * h], w[2 * h + 1])
                                                : kvg_pack_f16(w[2 * h], w[2 * h + 1]);
                pf[i][h] = kvg_transpose8(pair);
            }
        }
    }

    /* Raises the maximum to that of the tile. At the first tile of a split it may also fall, so that P is
     * rounded relative to the maximum of its own split. The sums so far are then scaled up, by 2^64 at
     * most. */
    KVG_MEMBER void raise(float (&top)[2], bool fresh)
    {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            for (int d = 4; d < 32; d *= 2)
                top[c] = fmaxf(top[c], __shfl_xor_sync(~0u, top[c], d));
            const float old = m[c];
            m[c] = fmaxf(fresh ? old - 64.f : old, top[c]);
            const float shrink = old == -INFINITY ? 0.f : kvg_exp2(old - m[c]);
            l[c] *= shrink;
#pragma unroll
            for (int seg = 0; seg < NSEG; seg++)
#pragma unroll
                for (int i = 0; i < T::seg_mmas; i++) {
                    o[seg][i][c] *= shrink;
                    o[seg][i][c + 2] *= shrink;
                }
        }
    }

    /* Loads the Q^T fragments of query row r (column g of the product) and the factor of its logits. */
    KVG_MEMBER void load_q(const kvg_sm90_params &p, const kvg_sm90_segment &x, int head, int first_row)
    {
        const int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;
        row0 = first_row;
        const int r = row0 + g;
        const bool valid = r < p.group * x.q_len;
        const int64_t token = p.cu_q_lens[x.b] + r / p.group;
        const int64_t at =
            token * p.q_stride_token + (int64_t)(head * p.group + r % p.group) * p.q_stride_head;
        float fit = 1.f; /* power of two by which Q was divided to fit f16 */
        if (T::bf16 || FP8) {
#pragma unroll
            for (int seg = 0; seg < NSEG; seg++) {
                const int dim = seg * T::seg_dims + t * (T::seg_dims / 4);
                uint4 w[2] = {};
                if (valid && dim < p.head_dim) {
                    const uint4 *src = (const uint4 *)((const char *)p.q + (at + dim) * (FP8 ? 1 : 2));
                    w[0] = src[0], w[1] = src[1];
                }
                const uint32_t v[8] = {w[0].x, w[0].y, w[0].z, w[0].w, w[1].x, w[1].y, w[1].z, w[1].w};
#pragma unroll
                for (int j = 0; j < T::seg_mmas; j++)
                    if (FP8)
                        kvg_unpack_e4m3(v[j], qf[seg][j][0], qf[seg][j][1]);
                    else
                        qf[seg][j][0] = v[(2 * j) & 7], qf[seg][j][1] = v[(2 * j + 1) & 7];
            }
        } else {
            /* bf16 to f16: exact after a shift of the exponent, down to 2^-28 of the largest element of
             * the row. */
            uint32_t v[NSEG][16];
            uint32_t big = 0;
#pragma unroll
            for (int seg = 0; seg < NSEG; seg++) {
                const int dim = seg * 128 + t * 32;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint4 w = {};
                    if (valid && dim < p.head_dim)
                        w = ((const uint4 *)((const uint16_t *)p.q + at + dim))[i];
                    v[seg][4 * i] = w.x, v[seg][4 * i + 1] = w.y, v[seg][4 * i + 2] = w.z,
                               v[seg][4 * i + 3] = w.w;
                }
#pragma unroll
                for (int i = 0; i < 16; i++)
                    big = max(big, max(v[seg][i] << 16 & 0x7fff0000u, v[seg][i] & 0x7fff0000u));
            }
            big = max(big, __shfl_xor_sync(~0u, big, 1));
            big = max(big, __shfl_xor_sync(~0u, big, 2));
            /* exponent field of the shift: it moves the largest element to [2^14, 2^15) */
            int shift = 127 + 14 - ((int)(big >> 23) - 127);
            shift = min(max(shift, 27), 227);
            const float up = __uint_as_float((uint32_t)shift << 23);
            fit = __uint_as_float((uint32_t)(254 - shift) << 23);
#pragma unroll
            for (int seg = 0; seg < NSEG; seg++)
#pragma unroll
                for (int j = 0; j < 8; j++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const uint32_t w = v[seg][2 * j + h];
                        qf[seg][j & (T::seg_mmas - 1)][h] = kvg_pack_f16(
                            __uint_as_float(w << 16) * up, __uint_as_float(w & 0xffff0000u) * up);
                    }
        }
        float s = p.softmax_scale;
        if (FP8)
            s *= p.q_scale[head * p.scale_stride];
        if (p.k_scale)
            s *= p.k_scale[head * p.scale_stride];
        s *= p.soft_cap > 0.f ? 1.f / p.soft_cap : 1.44269504088896341f;
#pragma unroll
        for (int c = 0; c < 2; c++)
            scale[c] = T::bf16 || FP8 ? s : s * __shfl_sync(~0u, fit, (2 * t + c) * 4);
    }

    KVG_MEMBER void clear()
    {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            m[c] = -INFINITY;
            l[c] = 0.f;
        }
#pragma unroll
        for (int seg = 0; seg < NSEG; seg++)
#pragma unroll
            for (int i = 0; i < T::seg_mmas; i++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    o[seg][i][c] = 0.f;
    }

    /* Four consecutive dims of column 2t + c: float4 number i of this lane's part of a segment. */
    KVG_MEMBER float4 quad(int seg, int i, int c) const
    {
        return make_float4(o[seg][2 * i][c], o[seg][2 * i][c + 2], o[seg][2 * i + 1][c],
                           o[seg][2 * i + 1][c + 2]);
    }
};

/* The products of a warp whose query rows fill NB blocks of 8 columns. K and V are read from shared memory
 * and widened once for all blocks. */
template <int KV, int FP8, int NSEG, int SUB, int NB> struct kvg_sm90_products {
    using W = kvg_sm90_warp<KV, FP8, NSEG, SUB>;
    using T = kvg_sm90_traits<KV, FP8>;

    /* K, 16 rows: chunks 2t and 2t+1 of rows g and g + 8. */
    static KVG_MEMBER void qk(const W (&w)[NB], float (&s)[NB][SUB][4], int i, uint32_t row_lo,
                              uint32_t row_hi, uint32_t col, int seg)
    {
        const uint4 a = kvg_lds128(row_lo + col), b = kvg_lds128(row_hi + col);
        const uint4 c = kvg_lds128(row_lo + (col ^ 16)), d = kvg_lds128(row_hi + (col ^ 16));
        const uint32_t lo[8] = {a.x, a.y, a.z, a.w, c.x, c.y, c.z, c.w};
        const uint32_t hi[8] = {b.x, b.y, b.z, b.w, d.x, d.y, d.z, d.w};
#pragma unroll
        for (int j = 0; j < T::seg_mmas; j++) {
            uint32_t a0, a1, a2, a3;
            if (T::bf16) {
                a0 = lo[(2 * j) & 7], a1 = hi[(2 * j) & 7], a2 = lo[(2 * j + 1) & 7],
                a3 = hi[(2 * j + 1) & 7];
            } else if (KV == KVG_E4M3) {
                kvg_unpack_e4m3(lo[j], a0, a2);
                kvg_unpack_e4m3(hi[j], a1, a3);
            } else {
                kvg_unpack_e5m2(lo[j], a0, a2);
                kvg_unpack_e5m2(hi[j], a1, a3);
            }
#pragma unroll
            for (int n = 0; n < NB; n++)
                kvg_mma<T::bf16>(s[n][i], a0, a1, a2, a3, w[n].qf[seg][j][0], w[n].qf[seg][j][1]);
        }
    }

    /* One word of V (two dims in bf16, four in FP8) of keys 2t, 2t+1 | 2t+8, 2t+9, times P. */
    template <bool FIRST>
    static KVG_MEMBER void pv_word(float (&acc)[NB][2][4], uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                                   const uint32_t (&pf)[NB][SUB][2], int sub)
    {
        const uint32_t ab = __byte_perm(a, b, T::bf16 ? 0x5410 : 0x5140),
                       cd = __byte_perm(c, d, T::bf16 ? 0x5410 : 0x5140);
        const uint32_t ab1 = __byte_perm(a, b, T::bf16 ? 0x7632 : 0x7362),
                       cd1 = __byte_perm(c, d, T::bf16 ? 0x7632 : 0x7362);
        if (FIRST)
#pragma unroll
            for (int i = 0; i < NB * (T::bf16 ? 4 : 8); i++)
                acc[i % NB][i / NB / 4][i / NB % 4] = 0.f;
        if (T::bf16) {
#pragma unroll
            for (int n = 0; n < NB; n++)
                kvg_mma<true>(acc[n][0], ab, ab1, cd, cd1, pf[n][sub][0], pf[n][sub][1]);
        } else {
            uint32_t x0, x1, y0, y1;
            if (KV == KVG_E4M3) {
                kvg_unpack_e4m3(ab, x0, x1);
                kvg_unpack_e4m3(cd, y0, y1);
            } else {
                kvg_unpack_e5m2(ab, x0, x1);
                kvg_unpack_e5m2(cd, y0, y1);
            }
#pragma unroll
            for (int n = 0; n < NB; n++)
                kvg_mma<false>(acc[n][0], x0, x1, y0, y1, pf[n][sub][0], pf[n][sub][1]);
            if (KV == KVG_E4M3) {
                kvg_unpack_e4m3(ab1, x0, x1);
                kvg_unpack_e4m3(cd1, y0, y1);
            } else {
                kvg_unpack_e5m2(ab1, x0, x1);
                kvg_unpack_e5m2(cd1, y0, y1);
            }
#pragma unroll
            for (int n = 0; n < NB; n++)
                kvg_mma<false>(acc[n][1], x0, x1, y0, y1, pf[n][sub][0], pf[n][sub][1]);
        }
    }

    /* K Q^T of the tile at `base`. group_at: offsets of its groups of 8 keys. */
    static KVG_MEMBER void keys(const W (&w)[NB], float (&s)[NB][SUB][4], uint32_t base, uint32_t seg_bytes,
                                const uint32_t (&group_at)[2 * SUB], uint32_t col)
    {
#pragma unroll
        for (int seg = 0; seg < NSEG; seg++)
#pragma unroll
            for (int i = 0; i < SUB; i++)
                qk(w, s, i, base + seg * seg_bytes + group_at[2 * i],
                   base + seg * seg_bytes + group_at[2 * i + 1], col, seg);
    }

    /* A row's 16 bytes of V are loaded in `parts` loads: more than one where registers are short. Then
     * lanes start with different parts, which avoids bank conflicts, and the sums of a lane are in another
     * order: the sum at word i belongs to word i ^ flip(g). */
    static constexpr int parts = NB == 1 || T::bf16 ? 1 : KV == KVG_E5M2 ? 4 : 2, words = 4 / parts;
    /* Offset of this lane's 16 bytes in row 2t of a group of keys. XOR with odd_key gives those of row 2t
     * + 1: the next row, and the other neighbour under the swizzle. */
    static constexpr uint32_t odd_key = KVG_SM90_SEGMENT | 16;
    static KVG_MEMBER uint32_t v_col(int g, int t)
    {
        return 2 * t * KVG_SM90_SEGMENT + (g ^ (2 * t)) * 16 + 4 * flip(g);
    }
    static KVG_MEMBER int flip(int g)
    {
        return parts == 4 ? g / 2 & 3 : parts == 2 ? g & 2 : 0;
    }
    static KVG_MEMBER void load_words(uint32_t (&v)[words], uint32_t at)
    {
        if constexpr (parts == 1) {
            const uint4 a = kvg_lds128(at);
            v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        } else if constexpr (parts == 2) {
            const uint2 a = kvg_lds64(at);
            v[0] = a.x, v[1] = a.y;
        } else {
            v[0] = kvg_lds32(at);
        }
    }
    /* V^T P^T of a tile: computed from zero, then added to o. key0: the key of row 2t of tile 0. */
    static KVG_MEMBER void values(W (&w)[NB], const kvg_sm90_segment &x, const uint32_t (&pf)[NB][SUB][2],
                                  uint32_t base, uint32_t seg_bytes, const uint32_t (&group_at)[2 * SUB],
                                  uint32_t col, int key0, int limit, bool masked)
    {
        constexpr int per_word = T::bf16 ? 1 : 2;
#pragma unroll
        for (int part = 0; part < NSEG * parts; part++) {
            const int seg = part / parts, half = part % parts;
            uint32_t v[SUB][4][words];
#pragma unroll
            for (int i = 0; i < SUB; i++) {
                const uint32_t lo = (base + seg * seg_bytes + group_at[2 * i] + col) ^ 4 * words * half;
                const uint32_t hi = (base + seg * seg_bytes + group_at[2 * i + 1] + col) ^ 4 * words * half;
                load_words(v[i][0], lo), load_words(v[i][1], lo ^ odd_key);
                load_words(v[i][2], hi), load_words(v[i][3], hi ^ odd_key);
            }
            /* Words of keys at or beyond the end, and of slots that were never loaded, may be NaN. They
             * are cleared, because a zero weight does not remove them: 0 * NaN = NaN. */
            if (masked) {
#pragma unroll
                for (int i = 0; i < SUB; i++)
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        const int key = key0 + 16 * i + 8 * (r / 2) + (r & 1);
                        const bool keep = key < limit && key >= x.first;
#pragma unroll
                        for (int f = 0; f < words; f++)
                            v[i][r][f] = keep ? v[i][r][f] : 0;
                    }
            }
#pragma unroll
            for (int f = 0; f < words; f++) {
                float acc[NB][2][4];
                pv_word<true>(acc, v[0][0][f], v[0][1][f], v[0][2][f], v[0][3][f], pf, 0);
                if (SUB > 1)
                    pv_word<false>(acc, v[SUB - 1][0][f], v[SUB - 1][1][f], v[SUB - 1][2][f],
                                   v[SUB - 1][3][f], pf, SUB - 1);
#pragma unroll
                for (int n = 0; n < NB; n++)
#pragma unroll
                    for (int a = 0; a < per_word; a++)
#pragma unroll
                        for (int c = 0; c < 4; c++)
                            w[n].o[seg][per_word * (half * words + f) + a][c] += acc[n][a][c];
            }
        }
    }
};

#endif
