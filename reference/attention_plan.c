/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_plan.c: which keys a row sees, which rows share a pass, and which thread computes which piece.
 */
#include "attention_rows.h"
#include "exp2.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Most memory for the records of one wave. A wave holds at least one group, whatever its size. */
enum { WAVE_BYTES = 64 << 20 };

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void kvg_ref_visible(const struct kvg_ref_mask *mask, int64_t seq, int64_t seq_len, int64_t q_len,
                     int64_t q_index, int64_t *first, int64_t *last)
{
    const int64_t own = mask->kind == KVG_REF_FULL ? seq_len - 1 : seq_len - q_len + q_index;
    *first = mask->window > 0 ? most(0, own - mask->window + 1) : 0;
    *last = own;
    if (mask->kind == KVG_REF_CHUNKED && own > 0)
        *first = most(*first, own / mask->chunk * mask->chunk);
    if (mask->kind == KVG_REF_PREFIX) {
        const int64_t prefix = mask->prefix_lens[seq];
        *last = most(own, (prefix < seq_len ? prefix : seq_len) - 1);
    }
}

static double scale_of(const float *scale, int64_t stride, int64_t kv_head)
{
    return scale ? scale[kv_head * stride] : 1.0;
}

double kvg_v_factor(const struct kvg_rows *rows, int64_t kv_head)
{
    const struct kvg_ref_kv *v = &rows->a->v;
    return rows->operands.v_scaled_first ? 1.0 : scale_of(v->scale, v->scale_stride, kv_head);
}

/* ---------------------------------------------------------------- plan */

/* A row while rows are sorted. */
struct sorted_row {
    int64_t seq, kv_head;
    struct kvg_row_plan plan;
};

static int order(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_rows(const void *left, const void *right)
{
    const struct sorted_row *a = left, *b = right;
    if (a->seq != b->seq)
        return order(a->seq, b->seq);
    if (a->kv_head != b->kv_head)
        return order(a->kv_head, b->kv_head);
    if (a->plan.first != b->plan.first)
        return order(a->plan.first, b->plan.first);
    if (a->plan.last != b->plan.last)
        return order(a->plan.last, b->plan.last);
    return order(a->plan.index, b->plan.index);
}

static void plan_row(const struct kvg_rows *rows, const struct kvg_ref_row *row, int64_t index,
                     struct sorted_row *out)
{
    const struct kvg_ref_attention *a = rows->a;
    int64_t q_first = a->cu_q_lens[row->seq], q_len = a->cu_q_lens[row->seq + 1] - q_first;
    out->seq = row->seq;
    out->kv_head = row->q_head / (a->q_heads / a->kv_heads);
    out->plan.index = index;
    out->plan.q_head = row->q_head;
    out->plan.q_index = (q_first + row->q_index) * a->q_stride_token + row->q_head * a->q_stride_head;
    out->plan.scale = a->softmax_scale * scale_of(a->q_scale, a->q_scale_stride, out->kv_head);
    if (!rows->operands.k_scaled_first)
        out->plan.scale *= scale_of(a->k.scale, a->k.scale_stride, out->kv_head);
    kvg_ref_visible(&a->mask, row->seq, a->seq_lens[row->seq], q_len, row->q_index, &out->plan.first,
                    &out->plan.last);
    out->plan.sink = a->sinks ? (double)a->sinks[row->q_head] * KVG_LOG2E : -INFINITY;
}

double kvg_sink_weight(const struct kvg_row_plan *row, double max)
{
    const double above = row->sink - max;
    return row->sink > -INFINITY && above > -1000 ? kvg_exp2(above < 1000 ? above : 1000) : 0;
}

/* Rows [row, row + count) become a group. */
static void close_group(struct kvg_rows *rows, const struct sorted_row *sorted, int64_t row, int64_t count,
                        int align_to_first)
{
    struct kvg_group *g = &rows->groups[rows->n_groups++];
    *g =
        (struct kvg_group){.seq = sorted[row].seq, .kv_head = sorted[row].kv_head, .row = row, .rows = count};
    g->first = INT64_MAX, g->last = -1;
    for (int64_t r = row; r < row + count; r++) {
        const struct kvg_row_plan *p = &rows->plans[r];
        if (p->last < p->first)
            continue;
        g->first = p->first < g->first ? p->first : g->first;
        g->last = p->last > g->last ? p->last : g->last;
    }
    if (g->last < 0)
        return; /* no row sees a key: no pieces */
    g->piece_start = align_to_first ? g->first : 0;
    g->piece = (g->first - g->piece_start) / rows->piece_tokens;
    g->pieces = (g->last - g->piece_start) / rows->piece_tokens - g->piece + 1;
}

static void form_groups(struct kvg_rows *rows, const struct sorted_row *sorted, int align_to_first)
{
    int64_t start = 0;
    for (int64_t r = 1; r <= rows->n_rows; r++) {
        int same = r < rows->n_rows && r - start < rows->rows_max && sorted[r].seq == sorted[start].seq &&
                   sorted[r].kv_head == sorted[start].kv_head &&
                   (!align_to_first || sorted[r].plan.first == sorted[start].plan.first);
        if (same)
            continue;
        close_group(rows, sorted, start, r - start, align_to_first);
        start = r;
    }
}

int kvg_rows_plan(struct kvg_rows *rows, const struct kvg_ref_attention *a,
                  const struct kvg_operands *operands, const struct kvg_ref_row *list, int64_t n_rows,
                  int64_t piece_tokens, int align_to_first, int64_t rows_max)
{
    *rows = (struct kvg_rows){.a = a, .operands = *operands, .n_rows = n_rows, .piece_tokens = piece_tokens};
    rows->dim = (a->head_dim + KVG_DIM_STEP - 1) / KVG_DIM_STEP * KVG_DIM_STEP;
    rows->rows_max = rows_max < KVG_ROWS_MAX ? rows_max : KVG_ROWS_MAX;
    size_t n = (size_t)n_rows + 1;
    struct sorted_row *sorted = malloc(n * sizeof *sorted);
    rows->plans = malloc(n * sizeof *rows->plans);
    rows->groups = malloc(n * sizeof *rows->groups);
    if (!sorted || !rows->plans || !rows->groups) {
        free(sorted);
        kvg_rows_free(rows);
        return -1;
    }
    for (int64_t r = 0; r < n_rows; r++)
        plan_row(rows, &list[r], r, &sorted[r]);
    qsort(sorted, (size_t)n_rows, sizeof *sorted, compare_rows);
    for (int64_t r = 0; r < n_rows; r++)
        rows->plans[r] = sorted[r].plan;
    if (n_rows > 0)
        form_groups(rows, sorted, align_to_first);
    free(sorted);
    return 0;
}

void kvg_rows_free(struct kvg_rows *rows)
{
    free(rows->plans);
    free(rows->groups);
    rows->plans = NULL;
    rows->groups = NULL;
}

/* ---------------------------------------------------------------- scratch */

static void *aligned(int64_t count, size_t bytes)
{
    size_t size = ((size_t)count * bytes + 63) / 64 * 64;
    void *p = aligned_alloc(64, size);
    if (p)
        memset(p, 0, size); /* the padding of rows must be zero; it is not written later */
    return p;
}

int kvg_scratch_make(struct kvg_scratch *s, const struct kvg_rows *rows, int64_t span, int with_spread)
{
    *s = (struct kvg_scratch){.span = span};
    s->q = aligned(rows->rows_max * rows->dim, sizeof *s->q);
    s->q_size = aligned(rows->rows_max * rows->dim, sizeof *s->q_size);
    s->codes = aligned(KVG_BLOCK_TOKENS * rows->dim, sizeof *s->codes);
    s->k = aligned(KVG_BLOCK_TOKENS * rows->dim, sizeof *s->k);
    s->k_size = aligned(KVG_BLOCK_TOKENS * rows->dim, sizeof *s->k_size);
    s->v = aligned(KVG_BLOCK_TOKENS * rows->dim, sizeof *s->v);
    s->wide = aligned(KVG_BLOCK_TOKENS * rows->dim, sizeof *s->wide);
    s->row = aligned(rows->dim, sizeof *s->row);
    s->logit = aligned(rows->rows_max * span, sizeof *s->logit);
    s->p = aligned(rows->rows_max * span, sizeof *s->p);
    s->spread = with_spread ? aligned(rows->rows_max * span, sizeof *s->spread) : NULL;
    s->extra = rows->extra_bytes > 0 ? aligned(rows->extra_bytes, 1) : NULL;
    if (s->q && s->q_size && s->codes && s->k && s->k_size && s->v && s->wide && s->row && s->logit && s->p &&
        (s->spread || !with_spread) && (s->extra || rows->extra_bytes == 0))
        return 0;
    kvg_scratch_free(s);
    return -1;
}

void kvg_scratch_free(struct kvg_scratch *s)
{
    free(s->q);
    free(s->q_size);
    free(s->codes);
    free(s->k);
    free(s->k_size);
    free(s->v);
    free(s->wide);
    free(s->row);
    free(s->logit);
    free(s->p);
    free(s->spread);
    free(s->extra);
    *s = (struct kvg_scratch){0};
}

/* ---------------------------------------------------------------- run */

struct unit {
    int64_t group, piece; /* piece is counted from the first piece of the group */
};

/* One wave: the groups [from, to), whose records fit the memory limit. */
struct wave {
    int64_t from, to, units, doubles;
};

static struct wave next_wave(struct kvg_rows *rows, int64_t from, int64_t record_doubles)
{
    struct wave w = {.from = from, .to = from};
    while (w.to < rows->n_groups) {
        struct kvg_group *g = &rows->groups[w.to];
        int64_t doubles = g->pieces * g->rows * record_doubles;
        if (w.to > from && (w.doubles + doubles) * (int64_t)sizeof(double) > WAVE_BYTES)
            break;
        g->record = w.doubles;
        w.doubles += doubles;
        w.units += g->pieces;
        w.to++;
    }
    return w;
}

static void list_units(const struct kvg_rows *rows, const struct wave *w, struct unit *units)
{
    int64_t u = 0;
    for (int64_t g = w->from; g < w->to; g++)
        for (int64_t p = 0; p < rows->groups[g].pieces; p++)
            units[u++] = (struct unit){g, p};
}

struct run {
    struct kvg_rows *rows;
    struct kvg_scratch *scratch; /* [threads] */
    int threads;
    int64_t record_doubles;
    kvg_piece_fn piece;
    kvg_merge_fn merge;
    void *context;
};

/* Computes all units of a wave, then merges the records of its groups. OpenMP distributes both. */
static void run_units(const struct run *run, const struct wave *w, const struct unit *units, double *records)
{
    const struct kvg_rows *rows = run->rows;
#pragma omp parallel num_threads(run->threads)
    {
        struct kvg_scratch *scratch = &run->scratch[omp_get_thread_num()];
#pragma omp for schedule(dynamic, 1)
        for (int64_t u = 0; u < w->units; u++) {
            const struct kvg_group *g = &rows->groups[units[u].group];
            double *record = records + g->record + units[u].piece * g->rows * run->record_doubles;
            run->piece(rows, g, g->piece + units[u].piece, scratch, record, run->context);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = w->from; n < w->to; n++) {
            const struct kvg_group *g = &rows->groups[n];
            for (int64_t r = 0; r < g->rows; r++)
                run->merge(rows, &rows->plans[g->row + r], records + g->record + r * run->record_doubles,
                           g->pieces, g->rows * run->record_doubles, run->context);
        }
    }
}

static int run_wave(const struct run *run, const struct wave *w)
{
    struct unit *units = malloc(((size_t)w->units + 1) * sizeof *units);
    double *records = malloc(((size_t)w->doubles + 1) * sizeof *records);
    int status = units && records ? 0 : -1;
    if (status == 0) {
        list_units(run->rows, w, units);
        run_units(run, w, units, records);
    }
    free(units);
    free(records);
    return status;
}

/* At most one thread for each unit of work. At most one thread for every half million products of query and
 * key elements, which take some tenths of a millisecond: for less work, starting a thread costs more than it
 * saves. */
static int useful_threads(const struct kvg_rows *rows)
{
    int64_t units = 0, products = 0, threads = rows->a->threads;
    for (int64_t n = 0; n < rows->n_groups; n++) {
        const struct kvg_group *g = &rows->groups[n];
        units += g->pieces;
        products += g->pieces > 0 ? g->rows * (g->last - g->first + 1) * rows->dim : 0;
    }
    threads = threads < units ? threads : units;
    threads = threads < products >> 19 ? threads : products >> 19;
    return threads > 0 ? (int)threads : 1;
}

/* The largest number of keys of one piece that a group sees. */
static int64_t longest_piece(const struct kvg_rows *rows)
{
    int64_t longest = 1;
    for (int64_t n = 0; n < rows->n_groups; n++) {
        const struct kvg_group *g = &rows->groups[n];
        const int64_t keys = g->pieces > 0 ? g->last - g->first + 1 : 0;
        longest = keys > longest ? keys : longest;
    }
    return longest < rows->piece_tokens ? longest : rows->piece_tokens;
}

int kvg_rows_run(struct kvg_rows *rows, int64_t span, int with_spread, int64_t record_doubles,
                 kvg_piece_fn piece, kvg_merge_fn merge, void *context)
{
    int threads = useful_threads(rows), made = 0, status = 0;
    const int64_t needed = longest_piece(rows);
    span = span < needed ? span : needed;
    struct kvg_scratch *scratch = malloc((size_t)threads * sizeof *scratch);
    if (!scratch)
        return -1;
    while (made < threads && status == 0) {
        status = kvg_scratch_make(&scratch[made], rows, span, with_spread);
        made += status == 0;
    }
    struct run run = {rows, scratch, threads, record_doubles, piece, merge, context};
    for (int64_t from = 0; from < rows->n_groups && status == 0;) {
        struct wave w = next_wave(rows, from, record_doubles);
        status = run_wave(&run, &w);
        from = w.to;
    }
    while (made > 0)
        kvg_scratch_free(&scratch[--made]);
    free(scratch);
    return status;
}
