/* SPDX-License-Identifier: Apache-2.0
 *
 * tile_model.h: the tile registers of AMX in software, one set per thread, under the names of
 * kernels/cpu/amx_tiles.h. Shapes come from the configuration alone, as in the CPU. What the CPU would refuse
 * (a tile that is not configured, shapes that do not fit) aborts the program.
 */
#ifndef KVG_TESTS_TILE_MODEL_H
#define KVG_TESTS_TILE_MODEL_H

#define KVG_TILE_MODEL 1

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/amx_tiles.h"

struct tile_file {
    struct tile_config config;
    uint32_t tile[8][16][16]; /* row, 32-bit column */
};
static _Thread_local struct tile_file tile_file;

static void tile_demand(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "tile model: %s\n", what);
        abort();
    }
}

static int tile_rows(int t)
{
    tile_demand(tile_file.config.palette == 1, "a tile is used without a configuration");
    tile_demand(t >= 0 && t < 8, "there are eight tiles");
    return tile_file.config.rows[t];
}

static int tile_bytes(int t)
{
    return tile_file.config.bytes_per_row[t];
}

static void tile_config(const struct tile_config *config)
{
    for (int i = 0; i < 16; i++) {
        const int used = i < 8 && config->rows[i] > 0;
        tile_demand(config->rows[i] <= (i < 8 ? 16 : 0), "too many rows");
        tile_demand(config->bytes_per_row[i] <= (i < 8 ? 64 : 0), "too many bytes in a row");
        tile_demand(used == (config->bytes_per_row[i] > 0), "rows without bytes, or bytes without rows");
    }
    tile_demand(config->palette == 1 && config->start_row == 0, "not palette 1, or a start row");
    memset(&tile_file, 0, sizeof tile_file);
    tile_file.config = *config;
}

static void tile_release(void)
{
    memset(&tile_file, 0, sizeof tile_file);
}

static void tile_zero(int t)
{
    tile_demand(tile_rows(t) > 0, "a tile without rows is zeroed");
    memset(tile_file.tile[t], 0, sizeof tile_file.tile[t]);
}

static void tile_load(int t, const void *from, int64_t stride)
{
    tile_demand(tile_rows(t) > 0, "a tile without rows is loaded");
    memset(tile_file.tile[t], 0, sizeof tile_file.tile[t]);
    for (int i = 0; i < tile_rows(t); i++)
        memcpy(tile_file.tile[t][i], (const char *)from + i * stride, (size_t)tile_bytes(t));
}

static void tile_store(int t, void *to, int64_t stride)
{
    for (int i = 0; i < tile_rows(t); i++)
        memcpy((char *)to + i * stride, tile_file.tile[t][i], (size_t)tile_bytes(t));
}

/* Products take most of the test's time. Their indices are checked above, so sanitizers are switched off. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

/* An FP32 value with subnormals as zero. */
static UNCHECKED float tile_float(uint32_t bits)
{
    float x;

    bits = bits & 0x7f800000u ? bits : bits & 0x80000000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static UNCHECKED uint32_t tile_word(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7f800000u ? bits : bits & 0x80000000u;
}

static UNCHECKED void tile_dp(int c, int a, int b)
{
    const int rows = tile_rows(c), columns = tile_bytes(c) / 4, pairs = tile_bytes(a) / 4;

    tile_demand(tile_rows(a) == rows && tile_rows(b) == pairs && tile_bytes(b) == tile_bytes(c),
                "the shapes of a product do not fit");
    for (int m = 0; m < rows; m++) {
        float even[16] = {0}, odd[16] = {0};

        for (int k = 0; k < pairs; k++) {
            const uint32_t x = tile_file.tile[a][m][k];
            for (int n = 0; n < columns; n++) {
                const uint32_t y = tile_file.tile[b][k][n];
                even[n] = tile_float(tile_word(fmaf(tile_float(x << 16), tile_float(y << 16), even[n])));
                odd[n] = tile_float(
                    tile_word(fmaf(tile_float(x & 0xffff0000u), tile_float(y & 0xffff0000u), odd[n])));
            }
        }
        for (int n = 0; n < columns; n++) {
            const float sum = tile_float(tile_word(even[n] + odd[n]));
            tile_file.tile[c][m][n] = tile_word(tile_float(tile_file.tile[c][m][n]) + sum);
        }
    }
}

#endif
