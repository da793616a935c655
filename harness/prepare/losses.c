/* SPDX-License-Identifier: Apache-2.0
 *
 * losses.c: the shares of values that saturate or become zero under the scales of a case.
 */
#include <math.h>
#include <stdlib.h>

#include "parts.h"
#include "reference/clones.h"
#include "prepared.h"

/* The bf16 magnitudes (bits without the sign) that a scale loses. Above `over`, infinity included, they
 * saturate; up to `under`, zero excluded, they become zero. Two limits are enough, because the quotient grows
 * with the magnitude. */
struct limits {
    uint16_t over, under;
};
#define BF16_INFINITY 0x7f80u

/* The largest magnitude whose quotient is at most `most`. */
static uint16_t largest_within(float scale, float most)
{
    uint32_t within = 0, beyond = BF16_INFINITY + 1;
    while (beyond - within > 1) {
        const uint32_t middle = (within + beyond) / 2;
        if (kvg_ref_bf16_decode((uint16_t)middle) / scale <= most)
            within = middle;
        else
            beyond = middle;
    }
    return (uint16_t)within;
}

/* Quotients up to half the smallest subnormal become zero. Half is a tie, and zero is the even code. */
static struct limits limits_of(const struct kvg_ref_format_info *format, float scale)
{
    const float half = ldexpf(0.5f, format->min_exponent - format->mantissa_bits);
    return (struct limits){largest_within(scale, (float)format->max), largest_within(scale, half)};
}

/* Counts of one row: values that saturate, values that are not zero, and those of them that become zero. */
struct losses {
    int32_t beyond, nonzero, lost;
};

KVG_REF_CLONES
static struct losses count_row(const uint16_t *x, int32_t count, uint16_t over, uint16_t under)
{
    int32_t beyond = 0, nonzero = 0, lost = 0;
    for (int32_t i = 0; i < count; i++) {
        const uint16_t magnitude = x[i] & 0x7fffu;
        beyond += (magnitude > over) & (magnitude <= BF16_INFINITY);
        nonzero += (magnitude > 0) & (magnitude <= BF16_INFINITY);
        lost += (magnitude > 0) & (magnitude <= under);
    }
    return (struct losses){beyond, nonzero, lost};
}

/* Share of values that saturate, and share of the non-zero values that become zero. */
static int count_losses(const struct kvg_prepared *p, const float *scale, const uint16_t *source,
                        double *saturated, double *flushed, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    const struct kvg_ref_format_info *format =
        kvg_ref_format_get_info(kvg_ref_format_of(p->problem.kv_dtype));
    const int64_t rows = p->total_kv * c->kv_heads, scales = p->scale_stride ? c->kv_heads : 1;
    int64_t beyond = 0, lost = 0, nonzero = 0;
    *saturated = *flushed = 0;
    if (p->problem.kv_dtype == KVG_BF16)
        return 0;
    struct limits *limits = malloc((size_t)scales * sizeof *limits);
    if (!limits)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for %lld scales", (long long)scales);
    for (int64_t h = 0; h < scales; h++)
        limits[h] = limits_of(format, scale[h]);
#pragma omp parallel for schedule(static) reduction(+ : beyond, lost, nonzero) if (rows > 1024)
    for (int64_t r = 0; r < rows; r++) {
        const struct limits *l = &limits[r % c->kv_heads * p->scale_stride];
        const struct losses row =
            count_row(source + r * c->head_dim, (int32_t)c->head_dim, l->over, l->under);
        beyond += row.beyond;
        nonzero += row.nonzero;
        lost += row.lost;
    }
    free(limits);
    *saturated = rows ? (double)beyond / (double)(rows * c->head_dim) : 0;
    *flushed = nonzero ? (double)lost / (double)nonzero : 0;
    return 0;
}

int kvg_losses_count(struct kvg_prepared *p, struct kvg_error *error)
{
    p->k_saturated = p->v_saturated = p->k_flushed = p->v_flushed = NAN;
    return !p->frame && (count_losses(p, p->k_scale, p->k, &p->k_saturated, &p->k_flushed, error) ||
                         count_losses(p, p->v_scale, p->v, &p->v_saturated, &p->v_flushed, error))
               ? -1
               : 0;
}
