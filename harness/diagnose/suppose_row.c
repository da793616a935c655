/* SPDX-License-Identifier: Apache-2.0
 *
 * suppose_row.c: one row of the output as supposed: what attention gives (suppose.c), changed after it or
 * written to another place.
 */
#include "suppose.h"

#include <math.h>

#include "harness/verify/expectation.h"
#include "places.h"

#define LN2 0.69314718055994531
#define LOG2E 1.4426950408889634

/* The sequence and the query to which a token belongs. */
static struct kvg_ref_row row_of(const struct kvg_prepared *p, int64_t token, int64_t head)
{
    int64_t b = 0;
    while (b + 1 < p->problem.batch && token >= p->cu_q_lens[b + 1])
        b++;
    return (struct kvg_ref_row){(int32_t)b, (int32_t)(token - p->cu_q_lens[b]), (int32_t)head};
}

/* The row whose lse lies where this row's should, if the lse is written as [heads, tokens]. */
static struct kvg_ref_row transposed(const struct kvg_prepared *p, const struct kvg_ref_row *at)
{
    const int64_t place = kvg_sample_place(p, at);
    return row_of(p, place % p->total_q, place / p->total_q);
}

/* A right row is written with wrong strides, so `out` holds pieces of others. */
static void gather_out(const struct kvg_suppose_case *s, enum kvg_supposition what,
                       const struct kvg_ref_row *at, const struct kvg_suppose_room *room, float *out)
{
    const struct kvg_prepared *p = s->p;
    const int64_t dim = p->problem.head_dim;
    float *other = room->floats + 3 * dim, unused;
    struct kvg_element place = {p->cu_q_lens[at->seq] + at->q_index, at->q_head, 0}, have = {-1, -1, 0};
    for (; place.dim < dim; place.dim++) {
        const struct kvg_element e = kvg_element_in_out(p, what, &place);
        if (e.token >= 0 && (e.token != have.token || e.head != have.head)) {
            const struct kvg_ref_row from = row_of(p, e.token, e.head);
            kvg_suppose_attend(s, KVG_SUPPOSE_RIGHT, &from, room, other, &unused);
            have = e;
        }
        out[place.dim] = e.token >= 0 ? other[e.dim] : NAN;
    }
}

/* The lse of another row, or of another computation. */
static void other_lse(const struct kvg_suppose_case *s, enum kvg_supposition what,
                      const struct kvg_ref_row *at, const struct kvg_suppose_room *room, float *lse)
{
    const struct kvg_prepared *p = s->p;
    const struct kvg_element place = {p->cu_q_lens[at->seq] + at->q_index, at->q_head, 0};
    enum kvg_supposition then = KVG_SUPPOSE_RIGHT;
    struct kvg_ref_row other = *at;
    if (what == KVG_SUPPOSE_LSE_TRANSPOSED) {
        other = transposed(p, at);
    } else if (what == KVG_SUPPOSE_LSE_STRIDE_OF_SHAPE) {
        const struct kvg_element e = kvg_element_in_lse(p, what, &place);
        *lse = NAN;
        if (e.token < 0)
            return;
        other = row_of(p, e.token, e.head);
    } else if (what == KVG_SUPPOSE_LSE_WITHOUT_CAP) {
        then = KVG_SUPPOSE_CAP_IGNORED;
    } else {
        return;
    }
    kvg_suppose_attend(s, then, &other, room, room->floats + 3 * p->problem.head_dim, lse);
}

void kvg_suppose_row(const struct kvg_suppose_case *s, enum kvg_supposition what,
                     const struct kvg_ref_row *at, const struct kvg_suppose_room *room, float *out,
                     float *lse)
{
    const int64_t dim = s->p->problem.head_dim;
    kvg_suppose_attend(s, what, at, room, out, lse);
    if (what == KVG_SUPPOSE_LSE_LOG2)
        *lse *= (float)LOG2E;
    if (what == KVG_SUPPOSE_LSE_P_OFFSET)
        *lse +=
            (float)((s->declared[at->seq].p_offset_log2 > 0 ? s->declared[at->seq].p_offset_log2 : 8) * LN2);
    for (int64_t d = 0; d < dim && what == KVG_SUPPOSE_NEGATED; d++)
        out[d] = -out[d];
    for (int64_t d = dim / 64 * 64; d < dim && what == KVG_SUPPOSE_OUT_DIMS_64; d++)
        out[d] = 0.0f;
    if (what >= KVG_SUPPOSE_OUT_STRIDES_OF_SHAPE && what <= KVG_SUPPOSE_OUT_STRIDES_OF_Q)
        gather_out(s, what, at, room, out);
    other_lse(s, what, at, room, lse);
}
