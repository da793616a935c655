/* SPDX-License-Identifier: Apache-2.0
 *
 * cover.c: combinations that hold every pair of values.
 */
#include "cover.h"

#include <stdlib.h>
#include <string.h>

#include "harness/inputs/generate.h"

enum { MOST_CHANGES = 6 }; /* axes that a random try changes, at most */

struct maker {
    const struct kvg_cover_space *space;
    struct kvg_cover *cover;
    int64_t capacity;
    int *now;       /* [axes] */
    int *from;      /* [axes]: where a search with changes begins */
    uint32_t drawn; /* random numbers so far */
};

static unsigned char *pair_at(const struct kvg_cover *c, int a, int u, int b, int v)
{
    return &c->pairs[(int64_t)(c->first[a] + u) * c->all + c->first[b] + v];
}

enum kvg_pair kvg_cover_pair(const struct kvg_cover *cover, int axis_a, int value_a, int axis_b, int value_b)
{
    return (enum kvg_pair) * pair_at(cover, axis_a, value_a, axis_b, value_b);
}

static void set_pair(struct kvg_cover *c, int a, int u, int b, int v, enum kvg_pair state)
{
    *pair_at(c, a, u, b, v) = (unsigned char)state;
    *pair_at(c, b, v, a, u) = (unsigned char)state;
}

static int is_allowed(const struct maker *m, const int *values)
{
    return m->space->allowed(m->space->context, values);
}

/* ---------------------------------------------------------------- one combination */

/* A pair of values: value u of axis a with value v of axis b. */
struct pair {
    int a, u, b, v;
};

/* Copies a combination to m->now, puts the pair into it and asks. */
static int try_from(struct maker *m, const int *from, const struct pair *p)
{
    memmove(m->now, from, (size_t)m->space->axes * sizeof *m->now);
    m->now[p->a] = p->u;
    m->now[p->b] = p->v;
    return is_allowed(m, m->now);
}

/* Start i: the first values of all axes, then those of the space. */
static const int *start_at(struct maker *m, int64_t i)
{
    if (i < m->space->n_starts)
        return m->space->starts + i * m->space->axes;
    memset(m->from, 0, (size_t)m->space->axes * sizeof *m->from);
    return m->from;
}

/* Tries every other value of one axis after axis `from`; with depth 2 also of a second one. m->now holds the
 * pair. */
static int change_axes(struct maker *m, const struct pair *p, int from, int depth)
{
    for (int k = from; k < m->space->axes; k++) {
        const int own = m->now[k];
        if (k == p->a || k == p->b)
            continue;
        for (int v = 0; v < m->space->sizes[k]; v++) {
            m->now[k] = v;
            if (v != own && (is_allowed(m, m->now) || (depth > 1 && change_axes(m, p, k + 1, depth - 1))))
                return 1;
        }
        m->now[k] = own;
    }
    return 0;
}

static uint32_t draw(struct maker *m, int64_t n)
{
    return kvg_random_bits(1, 0, 0, m->drawn++, 0, 0) % (uint32_t)n;
}

/* A start or a combination with some axes at random values. */
static int try_random(struct maker *m, const struct pair *p)
{
    const int64_t starts = m->space->n_starts + 1, i = draw(m, starts + m->cover->count);
    memmove(m->from, i < starts ? start_at(m, i) : m->cover->combinations + (i - starts) * m->space->axes,
            (size_t)m->space->axes * sizeof *m->from);
    for (int changes = (int)draw(m, MOST_CHANGES) + 1; changes > 0; changes--) {
        const int k = (int)draw(m, m->space->axes);
        m->from[k] = (int)draw(m, m->space->sizes[k]);
    }
    return try_from(m, m->from, p);
}

/* Puts the pair into m->now with other values with which it is allowed. 0 if none is found. `again`: changes
 * of the starts were tried before. */
static int find_start(struct maker *m, const struct pair *p, int again)
{
    const int64_t starts = m->space->n_starts + 1;
    for (int64_t i = 0; i < starts; i++)
        if (try_from(m, start_at(m, i), p))
            return 1;
    for (int64_t i = m->cover->count - 1; i >= 0; i--) /* the last ones first: they have the rarer values */
        if (try_from(m, m->cover->combinations + i * m->space->axes, p))
            return 1;
    for (int64_t i = 0; i < starts && !again; i++) {
        try_from(m, start_at(m, i), p);
        if (change_axes(m, p, 0, i == 0 ? 2 : 1))
            return 1;
    }
    for (int i = 0; i < KVG_COVER_TRIES; i++)
        if (try_random(m, p))
            return 1;
    return 0;
}

/* Missing pairs that value v of axis k adds to the combination. */
static int64_t gain_of(const struct maker *m, int k, int v)
{
    int64_t gain = 0;
    for (int j = 0; j < m->space->axes; j++)
        gain += j != k && *pair_at(m->cover, k, v, j, m->now[j]) == KVG_PAIR_MISSING;
    return gain;
}

/* Gives axis k the allowed value with the largest gain. */
static void improve(struct maker *m, int k)
{
    const int size = m->space->sizes[k], own = m->now[k];
    int best = own;
    int64_t best_gain = gain_of(m, k, own);
    for (int i = 1; i < size; i++) {
        const int v = (own + i) % size;
        const int64_t gain = gain_of(m, k, v);
        if (gain <= best_gain)
            continue;
        m->now[k] = v;
        if (is_allowed(m, m->now)) {
            best = v;
            best_gain = gain;
        }
    }
    m->now[k] = best;
}

static void complete(struct maker *m, int a, int b)
{
    const int axes = m->space->axes;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < axes; i++) {
            const int k = (int)((m->cover->count + i) % axes); /* another axis first in every combination */
            if (k != a && k != b)
                improve(m, k);
        }
}

/* Appends m->now and marks its pairs. */
static int append(struct maker *m)
{
    struct kvg_cover *c = m->cover;
    const int axes = m->space->axes;
    if (c->count == m->capacity) {
        const int64_t capacity = m->capacity ? 2 * m->capacity : 64;
        int *more = realloc(c->combinations, (size_t)(capacity * axes) * sizeof *more);
        if (!more)
            return -1;
        c->combinations = more;
        m->capacity = capacity;
    }
    memcpy(c->combinations + c->count++ * axes, m->now, (size_t)axes * sizeof *m->now);
    for (int a = 0; a < axes; a++)
        for (int b = 0; b < axes; b++)
            if (a != b)
                set_pair(c, a, m->now[a], b, m->now[b], KVG_PAIR_COVERED);
    return 0;
}

/* ---------------------------------------------------------------- all combinations */

/* Makes combinations for the pairs in a state. */
static int cover_all(struct maker *m, enum kvg_pair state)
{
    const struct kvg_cover_space *s = m->space;
    for (int a = 0; a < s->axes; a++)
        for (int b = a + 1; b < s->axes; b++)
            for (int u = 0; u < s->sizes[a]; u++)
                for (int v = 0; v < s->sizes[b]; v++) {
                    const struct pair p = {a, u, b, v};
                    if (kvg_cover_pair(m->cover, a, u, b, v) != state)
                        continue;
                    if (!find_start(m, &p, state == KVG_PAIR_IMPOSSIBLE)) {
                        set_pair(m->cover, a, u, b, v, KVG_PAIR_IMPOSSIBLE);
                        continue;
                    }
                    complete(m, a, b);
                    if (append(m))
                        return -1;
                }
    return 0;
}

int kvg_cover_make(const struct kvg_cover_space *space, struct kvg_cover *cover)
{
    struct maker m = {.space = space, .cover = cover};
    *cover = (struct kvg_cover){.axes = space->axes};
    cover->first = malloc((size_t)space->axes * sizeof *cover->first);
    m.now = malloc((size_t)space->axes * sizeof *m.now);
    m.from = malloc((size_t)space->axes * sizeof *m.from);
    for (int a = 0; a < space->axes && cover->first; a++) {
        cover->first[a] = cover->all;
        cover->all += space->sizes[a];
    }
    cover->pairs = calloc((size_t)cover->all * (size_t)cover->all + 1, 1);
    const int failed = !cover->first || !m.now || !m.from || !cover->pairs ||
                       cover_all(&m, KVG_PAIR_MISSING) || cover_all(&m, KVG_PAIR_IMPOSSIBLE);
    free(m.now);
    free(m.from);
    if (failed)
        kvg_cover_free(cover);
    return failed ? -1 : 0;
}

void kvg_cover_free(struct kvg_cover *cover)
{
    free(cover->first);
    free(cover->combinations);
    free(cover->pairs);
    *cover = (struct kvg_cover){0};
}

int64_t kvg_cover_count(const struct kvg_cover *cover, enum kvg_pair state)
{
    int64_t n = 0;
    for (int a = 0; a < cover->axes; a++)
        for (int b = a + 1; b < cover->axes; b++) {
            const int end_a = a + 1 < cover->axes ? cover->first[a + 1] : cover->all,
                      end_b = b + 1 < cover->axes ? cover->first[b + 1] : cover->all;
            for (int u = cover->first[a]; u < end_a; u++)
                for (int v = cover->first[b]; v < end_b; v++)
                    n += cover->pairs[(int64_t)u * cover->all + v] == state;
        }
    return n;
}

int kvg_cover_holds(const struct kvg_cover *cover, int64_t combinations, int axis_a, int value_a, int axis_b,
                    int value_b)
{
    for (int64_t i = 0; i < combinations && i < cover->count; i++) {
        const int *values = cover->combinations + i * cover->axes;
        if (values[axis_a] == value_a && values[axis_b] == value_b)
            return 1;
    }
    return 0;
}
