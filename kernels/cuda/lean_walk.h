/* SPDX-License-Identifier: Apache-2.0
 *
 * lean_walk.h: which keys a warp of the lean decode kernel reads, in which order, and where the block table
 * has their pages. Plain C as well, so that a test on the CPU walks every chunk and counts that each key is
 * asked for once.
 *
 * Slabs, splits and chunks are those of plan.h. Chunk c is slabs [first_slab(c), first_slab(c + 1)) of the
 * list of all slabs and lies in sequence c / (chunks of a sequence); warp w reads split w of each of its
 * slabs, tile after tile. A tile comes in boxes of box_tokens keys. One load of the block table brings a warp
 * the pages of 32 boxes, lane i box i of them: the next steps_a_load tiles.
 */
#ifndef KVG_CUDA_LEAN_WALK_H
#define KVG_CUDA_LEAN_WALK_H

#include <stdint.h>

#ifdef __CUDACC__
#define KVG_LEAN_WALK static __device__ __forceinline__
#else
#define KVG_LEAN_WALK static inline
#endif

/* What a warp needs before it can ask for its first page: 64 bytes and a few, so that one or two cache lines
 * of constants hold it. */
struct kvg_lean_start {
    const int32_t *block_table;
    int64_t block_table_stride;
    const int32_t *seq_lens, *cu_q_lens;
    uint32_t share; /* of all slabs, of a chunk, 2^-32, rounded up */
    int32_t slabs, slabs_per_seq, slab_tokens, split_tokens, max_seq_len;
    int32_t block_size, block_log2; /* block_log2: -1 if block_size is no power of two */
    int32_t boxes_log2;             /* boxes of a tile */
};

/* Place in a warp's row of tiles. */
struct kvg_lean_place {
    int32_t slab, tile, start; /* tile: in the split; start: first key of the split */
};

struct kvg_lean_box {
    int32_t at, slot, token; /* entry of the sequence's block table, slot in that page, first key */
    int32_t real;            /* 0: beyond the chunk, the split or the sequence's longest length */
};

KVG_LEAN_WALK int32_t kvg_lean_first_slab(uint32_t share, int32_t slabs, int32_t chunk)
{
    const uint64_t n = (uint64_t)slabs, first = n * ((uint64_t)share * (uint64_t)chunk) >> 32;
    return (int32_t)(first < n ? first : n);
}

KVG_LEAN_WALK int32_t kvg_lean_tiles(const struct kvg_lean_start *s, int32_t tile_tokens)
{
    return (s->split_tokens + tile_tokens - 1) / tile_tokens;
}

/* Tile `ahead` of split `split` in slab `slab`. */
KVG_LEAN_WALK struct kvg_lean_place kvg_lean_open(const struct kvg_lean_start *s, int32_t slab, int32_t split,
                                                  int32_t ahead)
{
    struct kvg_lean_place at;
    at.slab = slab;
    at.tile = ahead;
    at.start = slab * s->slab_tokens + split * s->split_tokens;
    return at;
}

/* There is a tile at this place: inside the chunk, and its first key inside the sequence. Where there is
 * none, none follows. */
KVG_LEAN_WALK int kvg_lean_there(const struct kvg_lean_place *at, int32_t end_slab, int32_t len,
                                 int32_t tile_tokens)
{
    return at->slab < end_slab && at->start + at->tile * tile_tokens < len;
}

KVG_LEAN_WALK void kvg_lean_next(const struct kvg_lean_start *s, struct kvg_lean_place *at, int32_t tiles)
{
    if (++at->tile == tiles) {
        at->tile = 0;
        at->slab++;
        at->start += s->slab_tokens;
    }
}

/* Box `part` of the tile at this place, which then moves on by the tiles of one load. */
KVG_LEAN_WALK struct kvg_lean_box kvg_lean_look(const struct kvg_lean_start *s, struct kvg_lean_place *at,
                                                int32_t end_slab, int32_t tile_tokens, int32_t tiles,
                                                int32_t part)
{
    struct kvg_lean_box box;
    while (at->tile >= tiles) {
        at->tile -= tiles;
        at->slab++;
        at->start += s->slab_tokens;
    }
    const int32_t in_split = at->tile * tile_tokens + part * (tile_tokens >> s->boxes_log2);
    box.token = at->start + in_split;
    box.at = s->block_log2 >= 0 ? box.token >> s->block_log2 : box.token / s->block_size;
    box.slot = box.token - box.at * s->block_size;
    box.real = at->slab < end_slab && in_split < s->split_tokens && box.token < s->max_seq_len;
    at->tile += 32 >> s->boxes_log2;
    return box;
}

#endif
