/* SPDX-License-Identifier: Apache-2.0
 *
 * check_sizes.c: see check_sizes.h.
 */
#include "check_sizes.h"

static const struct size {
    enum kvg_phase phase;
    enum kvg_path path;
    int64_t batch, context, q_heads, kv_heads, block_size;
} sizes[] = {
    {KVG_PHASE_DECODE, KVG_PATH_DEQUANT, 1, 66001, 2, 1, 16},
    {KVG_PHASE_DECODE, KVG_PATH_FP8, 1, 66001, 2, 1, 16},
    {KVG_PHASE_DECODE, KVG_PATH_DEQUANT, 300, 20, 2, 1, 16},
    {KVG_PHASE_DECODE, KVG_PATH_FP8, 300, 20, 2, 1, 16},
    {KVG_PHASE_DECODE, KVG_PATH_DEQUANT, 2, 33, 300, 75, 16},
    {KVG_PHASE_DECODE, KVG_PATH_FP8, 2, 33, 300, 75, 16},
    {KVG_PHASE_STORE, KVG_PATH_DEQUANT, 1, 66001, 1, 1, 16},
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

int kvg_check_size(int i, const char *const given[KVG_AXIS_COUNT], struct kvg_case *c)
{
    static const enum kvg_axis axes[] = {KVG_AXIS_PHASE,   KVG_AXIS_PATH,  KVG_AXIS_BATCH,
                                         KVG_AXIS_CONTEXT, KVG_AXIS_HEADS, KVG_AXIS_BLOCK_SIZE,
                                         KVG_AXIS_Q_LEN};
    if (i >= SIZES)
        return -1;
    for (int a = 0; a < (int)(sizeof axes / sizeof axes[0]); a++)
        if (given[axes[a]])
            return 0;
    const struct size *s = &sizes[i];
    c->phase = s->phase;
    c->path = s->path;
    c->q_len = 0;
    c->batch = s->batch;
    c->context = s->context;
    c->q_heads = s->q_heads;
    c->kv_heads = s->kv_heads;
    c->head_dim = given[KVG_AXIS_HEAD_DIM] ? c->head_dim : 64;
    c->block_size = s->block_size;
    c->lengths = KVG_LENGTHS_UNIFORM;
    c->window = 0;
    return 1;
}
