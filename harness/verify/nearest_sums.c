/* SPDX-License-Identifier: Apache-2.0
 *
 * nearest_sums.c: equal keys are counted by a hash of their bits, in a table with at least twice as many
 * cells as keys. Two keys with the same 64-bit hash count as equal, which only widens a bound.
 */
#include "nearest_sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cell {
    uint64_t hash;
    int64_t count;
};

static uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

/* Hash of a key of so many bytes. */
static uint64_t hash_of(const uint8_t *key, int64_t bytes)
{
    uint64_t hash = 0;
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, key + i, (size_t)(bytes - i < 8 ? bytes - i : 8));
        hash = mixed(hash, word);
    }
    return mixed(hash, (uint64_t)bytes);
}

/* Counts one more key with this hash; returns how many there are now. */
static int64_t count_in(struct cell *table, uint64_t cells, uint64_t hash)
{
    uint64_t at = hash & (cells - 1);
    while (table[at].count > 0 && table[at].hash != hash)
        at = (at + 1) & (cells - 1);
    table[at].hash = hash;
    return ++table[at].count;
}

/* How often the most frequent key of a sequence's head occurs, bit by bit. -1 when out of memory. */
static int64_t most_repeats(const struct kvg_ref_attention *a, int64_t seq, int64_t kv_head)
{
    const struct kvg_ref_kv *k = &a->k;
    const int64_t n = a->seq_lens[seq], width = k->format == KVG_REF_BF16 ? 2 : 1;
    uint64_t cells = 2;
    int64_t most = 0;
    while (cells < 2 * (uint64_t)n)
        cells *= 2;
    struct cell *table = calloc(cells, sizeof *table);
    if (!table)
        return -1;
    for (int64_t t = 0; t < n; t++) {
        const uint8_t *key = (const uint8_t *)k->data + kvg_ref_kv_index(k, seq, t, kv_head) * width;
        const int64_t count = count_in(table, cells, hash_of(key, a->head_dim * width));
        most = count > most ? count : most;
    }
    free(table);
    return most;
}

static double scale_of(const float *scale, int64_t stride, int64_t kv_head)
{
    return scale ? fabs((double)scale[kv_head * stride]) : 1.0;
}

static double largest_q(const struct kvg_ref_attention *a, const struct kvg_ref_row *row)
{
    const int64_t at =
        (a->cu_q_lens[row->seq] + (int64_t)row->q_index) * a->q_stride_token + row->q_head * a->q_stride_head;
    double largest = 0.0;
    for (int64_t d = 0; d < a->head_dim; d++)
        largest = fmax(largest, fabs((double)kvg_ref_load(a->q_format, a->q, at + d)));
    return largest;
}

void kvg_nearest_sums_free(struct kvg_nearest_sums *n)
{
    free(n->q_size);
    memset(n, 0, sizeof *n);
}

int kvg_nearest_sums_make(const struct kvg_ref_attention *a, const struct kvg_arithmetic *declared,
                          const struct kvg_bound *bound, const struct kvg_ref_row *rows, int64_t count,
                          struct kvg_nearest_sums *out)
{
    memset(out, 0, sizeof *out);
    if (!bound->nearest || (!bound->qk_narrow && !bound->pv_narrow))
        return 0;
    out->q_size = calloc(3 * (size_t)count + (size_t)a->kv_heads, sizeof *out->q_size);
    if (!out->q_size)
        return -1;
    out->v_size = out->q_size + count;
    out->repeats = out->v_size + count;
    double *known = out->repeats + count; /* [kv_heads] of the sequence at hand; 0 = not yet */
    for (int64_t i = 0; i < count; i++) {
        const int64_t g = rows[i].q_head / (a->q_heads / a->kv_heads);
        const double q = largest_q(a, &rows[i]) * scale_of(a->q_scale, a->q_scale_stride, g);
        const double k = declared->k_scaled_before_qk ? 1.0 : scale_of(a->k.scale, a->k.scale_stride, g);
        if (i > 0 && rows[i].seq != rows[i - 1].seq)
            memset(known, 0, (size_t)a->kv_heads * sizeof *known);
        if (known[g] == 0.0)
            known[g] = (double)most_repeats(a, rows[i].seq, g);
        if (known[g] < 0.0) {
            kvg_nearest_sums_free(out);
            return -1;
        }
        out->q_size[i] = fabs(a->softmax_scale) * q * k;
        out->v_size[i] = declared->v_scaled_before_pv ? 1.0 : scale_of(a->v.scale, a->v.scale_stride, g);
        out->repeats[i] = known[g];
    }
    return 0;
}
