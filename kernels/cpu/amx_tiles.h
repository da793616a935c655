/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_tiles.h: short names for the operations on AMX tiles. A test that defines KVG_TILE_MODEL supplies its
 * own in software, so that the kernels can be checked on a CPU without AMX.
 *
 * TDPBF16PS (tile_dp: c += a b) has 32 products in FP32. It sums the even and the odd ones apart, adds the
 * two sums, and adds the result to the tile. It rounds to nearest even; subnormal inputs and results count as
 * zero.
 */
#ifndef KVG_KERNELS_CPU_AMX_TILES_H
#define KVG_KERNELS_CPU_AMX_TILES_H

#include <stdint.h>

/* GCC's tile loads and stores do not tell the compiler that they touch memory. */
#define MEMORY_BARRIER() __asm__ volatile("" ::: "memory")

struct tile_config { /* as LDTILECFG reads it */
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
};

#if !defined(KVG_TILE_MODEL)
#include <immintrin.h>
#define tile_config(config) _tile_loadconfig(config)
#define tile_release() _tile_release()
#define tile_zero(tile) _tile_zero(tile)
#define tile_load(tile, from, stride) _tile_loadd(tile, from, stride)
#define tile_store(tile, to, stride) _tile_stored(tile, to, stride)
#define tile_dp(c, a, b) _tile_dpbf16ps(c, a, b)
#endif

#endif
