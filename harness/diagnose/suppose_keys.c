/* SPDX-License-Identifier: Apache-2.0
 *
 * suppose_keys.c: which keys a row sees, as supposed: windows, masks, tails, shared pages.
 */
#include "supposed.h"

#include "harness/prepare/prepared.h"

/* Number of pages that the sequence shares with the first one. */
int64_t kvg_supposed_common_pages(const struct row *r)
{
    const int64_t own = kvg_prepared_shared_pages(r->p, r->b), first = kvg_prepared_shared_pages(r->p, 0);
    return r->b == 0 ? 0 : least(own, first);
}

/* Mask chunked: the first key of the chunk of position `own`. */
static int64_t chunk_start(const struct row *r, int64_t own)
{
    const int64_t chunk = r->p->problem.chunk, origin = most(r->n - r->q_len, 0);
    if (is(CHUNK_IGNORED) || own < 0)
        return 0;
    if (is(CHUNK_AS_WINDOW))
        return most(0, own - chunk + 1);
    if (is(CHUNK_FROM_QUERIES))
        return own < origin ? 0 : origin + (own - origin) / chunk * chunk;
    if (is(CHUNK_OF_LAST_QUERY))
        own = r->n - 1;
    if (is(CHUNK_LATE) && own > 0 && own % chunk == 0)
        own--;
    const int64_t start = own / chunk * chunk;
    return is(CHUNK_EARLY) ? most(start - 1, 0) : start;
}

/* Mask prefix: the last key that every query of the sequence sees; -1 for none. */
static int64_t prefix_end(const struct row *r)
{
    int64_t prefix = r->p->prefix_lens[is(PREFIX_OF_FIRST) ? 0 : r->b];
    if (is(PREFIX_IGNORED))
        prefix = 0;
    if (prefix > 0)
        prefix += is(PREFIX_PLUS_1) - is(PREFIX_MINUS_1);
    return least(prefix, r->n) - 1;
}

void kvg_supposed_keys(struct row *r)
{
    const struct kvg_problem *problem = &r->p->problem;
    const int64_t size = problem->block_size;
    int64_t window = problem->window;
    r->last = problem->mask != KVG_MASK_FULL || is(MASK_CAUSAL) ? r->n - r->q_len + r->i : r->n - 1;
    if (is(MASK_OF_FIRST))
        r->last += r->q_len - (r->p->cu_q_lens[1] - r->p->cu_q_lens[0]);
    if (is(MASK_OF_LONGEST))
        r->last += r->q_len - problem->max_q_len;
    if (is(SHARED_UNMASKED))
        r->last = most(r->last, kvg_supposed_common_pages(r) * size - 1);
    if (is(CAUSAL_TOP_LEFT) && r->q_len > 1)
        r->last = least(r->i, r->n - 1);
    if (is(CAUSAL_MISSING))
        r->last = r->n - 1;
    if (is(CAUSAL_PLUS_1))
        r->last = least(r->last + 1, r->n - 1);
    if (is(WINDOW_PLUS_1) || (is(WINDOW_PLUS_1_LATER) && r->i > 0))
        window++;
    if (is(WINDOW_MINUS_1))
        window = most(window - 1, 1);
    if (is(WINDOW_IGNORED) || (is(WINDOW_IGNORED_LATER) && r->i > 0))
        window = 0;
    r->first = window > 0 ? most(0, r->last - window + 1) : 0;
    if (problem->mask == KVG_MASK_CHUNKED)
        r->first = most(r->first, chunk_start(r, r->last));
    if (problem->mask == KVG_MASK_PREFIX)
        r->last = most(r->last, prefix_end(r));
    if (is(SHARED_LEFT_OUT))
        r->first = most(r->first, kvg_supposed_common_pages(r) * size);
    if (is(WINDOW_SKIPS_PAGE) && r->first > 0)
        r->first = least((r->first / size + 1) * size, r->last);
    if (is(WINDOW_WHOLE_PAGES))
        r->first = r->first / size * size;
    if (is(WINDOW_WHOLE_TILES))
        r->first = r->first / (r->declared->tile > 0 ? r->declared->tile : 64) *
                   (r->declared->tile > 0 ? r->declared->tile : 64);
    if (is(FIRST_KEY_MISSED) && r->last > r->first)
        r->first++;
    if (is(LAST_KEY_MISSED) && r->last > r->first)
        r->last--;
    const int at_end = r->last == r->n - 1, full = r->n % size == 0;
    if (at_end && (is(TAIL_READ) || (is(TAIL_READ_FULL) && full) || (is(TAIL_READ_NOT_FULL) && !full)))
        r->last++;
}
