/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_f64.c: attention in FP64, which checks the exact reference. One row at a time, in plain loops in
 * double with libm's functions. Of the exact reference's code it uses only the codecs and the addressing.
 */
#include "attention.h"

#include <math.h>
#include <stdlib.h>

/* Scratch of one row. */
struct row_space {
    double *weight; /* [longest sequence] */
    float *q, *kv;  /* [head_dim] */
};

static int make_space(struct row_space *s, int64_t longest, int64_t head_dim)
{
    s->weight = malloc(((size_t)longest + 1) * sizeof *s->weight);
    s->q = malloc((size_t)head_dim * sizeof *s->q);
    s->kv = malloc((size_t)head_dim * sizeof *s->kv);
    return s->weight && s->q && s->kv ? 0 : -1;
}

static void free_space(struct row_space *s)
{
    free(s->weight);
    free(s->q);
    free(s->kv);
}

static double head_scale(const float *scale, int64_t stride, int64_t head)
{
    return scale ? scale[head * stride] : 1.0;
}

static void load(const struct kvg_ref_kv *kv, int64_t seq, int64_t token, int64_t head, int64_t dim,
                 float *out)
{
    kvg_ref_load_row(kv->format, kv->data, kvg_ref_kv_index(kv, seq, token, head), dim, out);
}

static void one_row(const struct kvg_ref_attention *a, const struct kvg_ref_row *row, struct row_space *s,
                    double *out, double *lse)
{
    int64_t dim = a->head_dim, g = row->q_head / (a->q_heads / a->kv_heads), first, last;
    int64_t q_first = a->cu_q_lens[row->seq], q_len = a->cu_q_lens[row->seq + 1] - q_first;
    kvg_ref_visible(&a->mask, row->seq, a->seq_lens[row->seq], q_len, row->q_index, &first, &last);
    kvg_ref_load_row(a->q_format, a->q,
                     (q_first + row->q_index) * a->q_stride_token + row->q_head * a->q_stride_head, dim,
                     s->q);
    double scale = a->softmax_scale * head_scale(a->q_scale, a->q_scale_stride, g) *
                   head_scale(a->k.scale, a->k.scale_stride, g);
    const double sink = a->sinks ? (double)a->sinks[row->q_head] : -INFINITY;
    double max = sink, sum = sink > -INFINITY ? 1 : 0;
    for (int64_t j = first; j <= last; j++) {
        double dot = 0;
        load(&a->k, row->seq, j, g, dim, s->kv);
        for (int64_t d = 0; d < dim; d++)
            dot += (double)s->q[d] * (double)s->kv[d];
        double logit = a->soft_cap > 0 ? a->soft_cap * tanh(scale * dot / a->soft_cap) : scale * dot;
        s->weight[j - first] = logit;
        if (logit > max) {
            sum = sink > -INFINITY ? exp(sink - logit) : 0;
            max = logit;
        }
    }
    for (int64_t d = 0; d < dim; d++)
        out[d] = 0;
    for (int64_t j = first; j <= last; j++) {
        double p = exp(s->weight[j - first] - max);
        load(&a->v, row->seq, j, g, dim, s->kv);
        for (int64_t d = 0; d < dim; d++)
            out[d] += p * (double)s->kv[d];
        sum += p;
    }
    for (int64_t d = 0; d < dim && last >= first; d++)
        out[d] = out[d] / sum * head_scale(a->v.scale, a->v.scale_stride, g);
    *lse = last >= first ? max + log(sum) : sink;
}

int kvg_ref_attention_f64(const struct kvg_ref_attention *a, const struct kvg_ref_row *rows, int64_t n_rows,
                          double *out, double *lse)
{
    int64_t longest = 0, threads = a->threads < n_rows ? a->threads : n_rows;
    int status = 0;
    for (int64_t b = 0; b < a->batch; b++)
        longest = a->seq_lens[b] > longest ? a->seq_lens[b] : longest;
#pragma omp parallel num_threads(threads > 0 ? (int)threads : 1)
    {
        struct row_space s;
        int ready = 1;
        double row_lse, *row_out = malloc((size_t)a->head_dim * sizeof *row_out);
        if (make_space(&s, longest, a->head_dim) != 0 || !row_out)
            ready = 0;
#pragma omp for schedule(dynamic, 1)
        for (int64_t r = 0; r < n_rows; r++) {
            if (!ready) {
#pragma omp atomic write
                status = -1;
                continue;
            }
            one_row(a, &rows[r], &s, out ? out + r * a->head_dim : row_out, &row_lse);
            if (lse)
                lse[r] = row_lse;
        }
        free_space(&s);
        free(row_out);
    }
    return status;
}
