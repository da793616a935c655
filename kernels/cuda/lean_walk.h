/* SPDX-License-Identifier: Apache-2.0
 *
 * lean_walk.h: which keys a warp of the lean decode kernel reads, in which order, and where their pages are
 * in the block table. It is plain C as well, so a test on the CPU can walk every chunk and check that each
 * key is requested once.
 *
 * plan.h defines slabs, splits and chunks. Chunk c is slabs [first_slab(c), first_slab(c + 1)) of the list of
 * all slabs. It lies in sequence c / (chunks of a sequence). Warp w reads split w of each slab of the chunk,
 * tile after tile. A tile consists of boxes of box_tokens keys. One load of the block table gives a warp the
 * pages of 32 boxes (lane i has box i), which are the next 32 >> boxes_log2 tiles.
 */
#ifndef KVG_CUDA_LEAN_WALK_H
#define KVG_CUDA_LEAN_WALK_H

#include <stdint.h>

#ifdef __CUDACC__
#define KVG_LEAN_WALK static __device__ __forceinline__
#else
#define KVG_LEAN_WALK static inline
#endif

/* What a warp needs before it can request its first page. A little more than 64 bytes, so it fits into one
 * or two cache lines of constants. */
struct kvg_lean_start {
    const int32_t *block_table;
    int64_t block_table_stride;
    const int32_t *seq_lens, *cu_q_lens;
    uint32_t share; /* one chunk as a fraction of all slabs, unit 2^-32, rounded up */
    int32_t slabs, slabs_per_seq, slab_tokens, split_tokens, max_seq_len;
    int32_t block_size, block_log2; /* block_log2: -1 if block_size is not a power of two */
    int32_t boxes_log2;             /* log2 of the boxes of a tile */
};

/* A position in the sequence of tiles of a warp. */
struct kvg_lean_place {
    int32_t slab, tile, start; /* tile: its number in the split; start: first key of the split */
};

struct kvg_lean_box {
    int32_t at, slot, token; /* entry of the sequence's block table, slot in that page, first key */
    int32_t real;            /* 0: beyond the chunk, the split or the longest length of a sequence */
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

/* Position of tile `ahead` of split `split` in slab `slab`. */
KVG_LEAN_WALK struct kvg_lean_place kvg_lean_open(const struct kvg_lean_start *s, int32_t slab, int32_t split,
                                                  int32_t ahead)
{
    struct kvg_lean_place at;
    at.slab = slab;
    at.tile = ahead;
    at.start = slab * s->slab_tokens + split * s->split_tokens;
    return at;
}

/* 1 if there is a tile at this position: inside the chunk, and its first key inside the sequence. After a
 * position without a tile there are no more tiles. */
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

/* Box `part` of the tile at this position. Then advances the position by the tiles of one load. */
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
