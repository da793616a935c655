/* SPDX-License-Identifier: Apache-2.0
 *
 * sample.c: a stratified sample of rows. Positions (sequence, query) are tried in the order in which a fault
 * is likely to hit them. Each takes the same number of query heads per KV head, because the heads of one
 * group share a pass over K and V.
 */
#include "sample.h"
#include "harness/prepare/prepared.h"

#include <Random123/philox.h>
#include <stdlib.h>
#include <string.h>

/* Random queries tried per sequence, after all others. */
enum { RANDOM_QUERIES = 64 };

struct sampler {
    const struct kvg_prepared *p;
    int64_t group;           /* query heads per KV head */
    int64_t heads_per_group; /* query heads of a KV head that are taken at each position */
    int64_t rows_left;
    double cost_left;
    uint8_t *taken; /* [total_q] */
    int64_t positions;
    struct kvg_sample *out;
    int64_t capacity;
};

static int64_t q_len_of(const struct kvg_prepared *p, int64_t seq)
{
    return (int64_t)p->cu_q_lens[seq + 1] - p->cu_q_lens[seq];
}

int64_t kvg_sample_visible(const struct kvg_prepared *p, int64_t seq, int64_t q_index)
{
    int64_t first, last;
    const struct kvg_ref_mask mask = kvg_prepared_mask(p);
    kvg_ref_visible(&mask, seq, p->seq_lens[seq], q_len_of(p, seq), q_index, &first, &last);
    return last < first ? 0 : last - first + 1;
}

int64_t kvg_sample_place(const struct kvg_prepared *p, const struct kvg_ref_row *at)
{
    return ((int64_t)p->cu_q_lens[at->seq] + at->q_index) * p->problem.q_heads + at->q_head;
}

int kvg_same_group(const struct kvg_ref_row *a, const struct kvg_ref_row *b)
{
    return a->seq == b->seq && a->q_head == b->q_head;
}

static int append(struct sampler *s, int64_t seq, int64_t q_index, int64_t head)
{
    if (s->out->count == s->capacity) {
        const int64_t capacity = s->capacity ? 2 * s->capacity : 1024;
        struct kvg_ref_row *rows = realloc(s->out->rows, (size_t)capacity * sizeof *rows);
        if (!rows)
            return -1;
        s->out->rows = rows;
        s->capacity = capacity;
    }
    s->out->rows[s->out->count++] = (struct kvg_ref_row){(int32_t)seq, (int32_t)q_index, (int32_t)head};
    return 0;
}

/* Takes a position if it exists, sees a key, is new and fits (or must be taken). 0, or -1 when out of
 * memory. */
static int take(struct sampler *s, int64_t seq, int64_t q_index, int must)
{
    const struct kvg_prepared *p = s->p;
    if (q_index < 0 || q_index >= q_len_of(p, seq))
        return 0;
    uint8_t *taken = &s->taken[p->cu_q_lens[seq] + q_index];
    const int64_t visible = kvg_sample_visible(p, seq, q_index);
    if (*taken || visible == 0)
        return 0;
    const int64_t rows = p->problem.kv_heads * s->heads_per_group;
    const double cost = (double)rows * (double)visible * (double)p->problem.head_dim;
    if (!must && (rows > s->rows_left || cost > s->cost_left))
        return 0;
    *taken = 1;
    s->rows_left -= rows;
    s->cost_left -= cost;
    for (int64_t g = 0; g < p->problem.kv_heads; g++)
        for (int64_t i = 0; i < s->heads_per_group; i++) {
            const int64_t turn =
                s->heads_per_group == s->group ? i : (s->positions * s->heads_per_group + g + i) % s->group;
            if (append(s, seq, q_index, g * s->group + turn) != 0)
                return -1;
        }
    s->positions++;
    return 0;
}

/* The query whose last visible key is `key`. */
static int64_t query_at_key(const struct kvg_prepared *p, int64_t seq, int64_t key)
{
    return key - (p->seq_lens[seq] - q_len_of(p, seq));
}

/* Queries around multiples of `size` keys: the first and the last multiple. */
static int take_around(struct sampler *s, int64_t seq, int64_t size)
{
    const int64_t n = s->p->seq_lens[seq], before = n - q_len_of(s->p, seq);
    if (size <= 0)
        return 0;
    const int64_t first = (before / size + 1) * size, last = n / size * size;
    for (int64_t boundary = first; boundary <= last; boundary += last > first ? last - first : size)
        for (int64_t step = -2; step <= 0; step++) /* boundary - 1, boundary and boundary + 1 visible keys */
            if (take(s, seq, query_at_key(s->p, seq, boundary + step), 0) != 0)
                return -1;
    return 0;
}

static uint64_t random_at(const struct kvg_prepared *p, int64_t seq, int64_t draw)
{
    const philox4x32_ctr_t counter = {{(uint32_t)draw, (uint32_t)seq, 0x726f7773u /* "rows" */, 0}};
    const philox4x32_key_t key = {{(uint32_t)p->c.seed, (uint32_t)(p->c.seed >> 32)}};
    const philox4x32_ctr_t bits = philox4x32(counter, key);
    return (uint64_t)bits.v[0] << 32 | bits.v[1];
}

static int take_all(struct sampler *s, const struct kvg_sample_marks *marks)
{
    const struct kvg_prepared *p = s->p;
    const int64_t batch = p->problem.batch;
    for (int64_t b = 0; b < batch; b++)
        if (take(s, b, q_len_of(p, b) - 1, 1) != 0)
            return -1;
    for (int64_t b = 0; b < batch; b++) { /* causal with q_len > seq_len: the first queries see no key */
        const int sees_all = p->problem.mask == KVG_MASK_FULL || (p->prefix_lens && p->prefix_lens[b] > 0);
        const int64_t unseen = sees_all ? 0 : q_len_of(p, b) - p->seq_lens[b];
        if (take(s, b, unseen > 0 ? unseen : 0, 0) != 0)
            return -1;
    }
    for (int64_t b = 0; b < batch; b++)
        if (take_around(s, b, p->problem.block_size) != 0 || take_around(s, b, marks[b].tile) != 0 ||
            take_around(s, b, marks[b].split) != 0 || take_around(s, b, p->problem.window) != 0 ||
            take_around(s, b, p->problem.chunk) != 0 ||
            (p->prefix_lens && take_around(s, b, p->prefix_lens[b]) != 0))
            return -1;
    for (int64_t i = 0; i < RANDOM_QUERIES; i++)
        for (int64_t b = 0; b < batch; b++)
            if (q_len_of(p, b) > 0 &&
                take(s, b, (int64_t)(random_at(p, b, i) % (uint64_t)q_len_of(p, b)), 0) != 0)
                return -1;
    /* Small cases: all other queries. */
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < q_len_of(p, b) && s->rows_left > 0 && s->cost_left > 0.0; i++)
            if (take(s, b, i, 0) != 0)
                return -1;
    return 0;
}

/* Query heads of each KV head that fit if only the last query of every sequence is taken. */
static int64_t heads_that_fit(const struct sampler *s)
{
    const struct kvg_prepared *p = s->p;
    double keys = 0.0;
    int64_t positions = 0;
    for (int64_t b = 0; b < p->problem.batch; b++) {
        const int64_t q_len = q_len_of(p, b);
        const int64_t visible = q_len > 0 ? kvg_sample_visible(p, b, q_len - 1) : 0;
        keys += (double)visible;
        positions += visible > 0;
    }
    int64_t heads = s->group;
    while (heads > 1 &&
           ((double)heads * (double)p->problem.kv_heads * keys * (double)p->problem.head_dim > s->cost_left ||
            heads * p->problem.kv_heads * positions > s->rows_left))
        heads--;
    return heads;
}

static int compare_rows(const void *left, const void *right, void *group)
{
    const struct kvg_ref_row *a = left, *b = right;
    const int32_t size = (int32_t) * (const int64_t *)group;
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    if (a->q_head / size != b->q_head / size)
        return a->q_head / size < b->q_head / size ? -1 : 1;
    if (a->q_index != b->q_index)
        return a->q_index < b->q_index ? -1 : 1;
    return (a->q_head > b->q_head) - (a->q_head < b->q_head);
}

int kvg_sample_rows(const struct kvg_prepared *p, const struct kvg_sample_marks *marks, int64_t rows_limit,
                    double cost_limit, struct kvg_sample *out)
{
    memset(out, 0, sizeof *out);
    struct sampler s = {.p = p, .out = out, .cost_left = cost_limit};
    s.rows_left = rows_limit > 0 ? rows_limit : INT64_MAX;
    s.group = p->problem.q_heads / p->problem.kv_heads;
    s.heads_per_group = heads_that_fit(&s);
    s.taken = calloc((size_t)(p->total_q > 0 ? p->total_q : 1), 1);
    const int failed = !s.taken || take_all(&s, marks) != 0;
    free(s.taken);
    if (failed) {
        kvg_sample_free(out);
        return -1;
    }
    if (out->count > 0)
        qsort_r(out->rows, (size_t)out->count, sizeof *out->rows, compare_rows, &s.group);
    return 0;
}

void kvg_sample_free(struct kvg_sample *sample)
{
    free(sample->rows);
    memset(sample, 0, sizeof *sample);
}
