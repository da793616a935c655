/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.c: what a failed row shows: the checks that broke, the elements farthest off, a map of the error.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "diagnose.h"
#include "parts.h"

/* ---------------------------------------------------------------- the map */

/* Cell of index `at` of `of` on an edge of `cells` cells. */
static int cell_of(int64_t at, int64_t of, int cells)
{
    return (int)(of <= cells ? at : at * cells / of);
}

static void heat_begin(struct kvg_evidence_heat *heat, int64_t heads, int64_t positions)
{
    heat->heads = heads;
    heat->down = heads < KVG_HEAT_DOWN ? (int)heads : KVG_HEAT_DOWN;
    heat->across = positions < KVG_HEAT_ACROSS ? (int)positions : KVG_HEAT_ACROSS;
    for (int i = 0; i < heat->down; i++)
        memset(heat->cell[i], '-', (size_t)heat->across);
}

/* A cell shows its worst level. In ASCII '-' < '0' < ... < '9' < 'N'. */
static void heat_put(struct kvg_evidence_heat *heat, int64_t head, int64_t position, int64_t positions,
                     char level)
{
    char *cell =
        &heat->cell[cell_of(head, heat->heads, heat->down)][cell_of(position, positions, heat->across)];
    if (level > *cell)
        *cell = level;
}

/* ---------------------------------------------------------------- attention */

static int64_t position_of(const struct kvg_prepared *p, const struct kvg_ref_row *at)
{
    return p->cu_q_lens[at->seq] + at->q_index;
}

static void keep_worst(struct kvg_evidence *out, const struct kvg_evidence_element *element)
{
    int at = out->n_worst, of_row = 0, first = -1;
    for (int i = 0; i < out->n_worst; i++)
        if (out->worst[i].at.sequence == element->at.sequence &&
            out->worst[i].at.query == element->at.query && out->worst[i].at.head == element->at.head) {
            of_row++;
            first = i;
        }
    if (of_row >= 2) { /* at most two of a row: those farthest off */
        if (!(element->ratio > out->worst[first].ratio))
            return;
        memmove(&out->worst[first], &out->worst[first + 1],
                (size_t)(out->n_worst - first - 1) * sizeof out->worst[0]);
        at = --out->n_worst;
    }
    while (at > 0 && element->ratio > out->worst[at - 1].ratio)
        at--;
    if (at >= KVG_EVIDENCE_WORST)
        return;
    const int kept = out->n_worst < KVG_EVIDENCE_WORST ? out->n_worst : KVG_EVIDENCE_WORST - 1;
    memmove(&out->worst[at + 1], &out->worst[at], (size_t)(kept - at) * sizeof out->worst[0]);
    out->worst[at] = *element;
    out->n_worst = kept + 1;
}

static void look_at_row(const struct kvg_failure *f, int64_t i, struct kvg_evidence *out)
{
    const struct kvg_expectation *e = f->expectation;
    const struct kvg_ref_row *at = &e->sample.rows[i];
    const int64_t dim = e->p->problem.head_dim, position = position_of(e->p, at),
                  place = position * e->p->problem.q_heads + at->q_head;
    double row_ratio = 0.0;
    for (int64_t d = 0; d < dim; d++) {
        const int64_t k = i * dim + d;
        const double got = (double)kvg_ref_bf16_decode(f->out[place * dim + d]);
        const double bound = kvg_bound_ratio(got, (double)e->exact[k], e->worst[k]);
        const double probable = kvg_bound_ratio(got, (double)e->emulated[k], e->probable[k]);
        const int exact = bound >= probable;
        const struct kvg_evidence_element element = {
            .at = {kvg_prepared_sequence(e->p, at->seq), at->q_index, at->q_head, d},
            .got = got,
            .reference = (double)(exact ? e->exact[k] : e->emulated[k]),
            .allowed = exact ? e->worst[k] : e->probable[k],
            .ratio = exact ? bound : probable};
        row_ratio = fmax(row_ratio, element.ratio);
        if (element.ratio > 1.0)
            keep_worst(out, &element);
    }
    if (f->lse)
        row_ratio = fmax(row_ratio, kvg_bound_ratio((double)f->lse[place], (double)e->lse_emulated[i],
                                                    e->lse_probable[i]));
    heat_put(&out->heat, at->q_head, position, e->p->total_q, kvg_heat_level(row_ratio));
}

static void put_checks(const struct kvg_prepared *p, const struct kvg_check *checks, struct kvg_evidence *out)
{
    _Static_assert((int)KVG_CHECKS <= (int)KVG_EVIDENCE_CHECKS, "evidence has no room for every check");
    for (int id = 0; id < KVG_CHECKS; id++) {
        const struct kvg_check *c = &checks[id];
        if (c->failures == 0)
            continue;
        struct kvg_evidence_check *to = &out->checks[out->n_checks++];
        const int group = kvg_check_table[id].of == KVG_CHECK_OF_GROUPS;
        snprintf(to->name, sizeof to->name, "%s", c->name);
        to->failed = c->failures;
        to->of = c->of;
        snprintf(to->where, sizeof to->where, "%s", c->where);
        to->at = (struct kvg_evidence_place){c->where[0] ? -1 : kvg_prepared_sequence(p, c->row.seq),
                                             group ? -1 : c->row.q_index, c->row.q_head, c->dim};
        to->got = c->got;
        to->reference = c->reference;
        to->allowed = c->allowed;
        to->ratio = c->ratio;
    }
}

void kvg_evidence_attention(const struct kvg_failure *f, struct kvg_evidence *out)
{
    const struct kvg_expectation *e = f->expectation;
    const struct kvg_prepared *p = e->p;
    struct kvg_check checks[KVG_CHECKS];
    *out = (struct kvg_evidence){0};
    snprintf(out->run, sizeof out->run, "%s", kvg_run_words(f->run));
    kvg_compare_checks(e, f->out, f->lse, checks);
    put_checks(p, checks, out);
    heat_begin(&out->heat, p->problem.q_heads, p->total_q);
    if (p->problem.max_q_len <= 1)
        snprintf(out->heat.across_words, sizeof out->heat.across_words, "%lld sequence%s",
                 (long long)p->problem.batch, p->problem.batch == 1 ? "" : "s");
    else
        snprintf(out->heat.across_words, sizeof out->heat.across_words, "%lld queries of %lld sequence%s",
                 (long long)p->total_q, (long long)p->problem.batch, p->problem.batch == 1 ? "" : "s");
    for (int64_t i = 0; i < e->sample.count; i++)
        look_at_row(f, i, out);
    if (out->n_worst == 0 &&
        checks[KVG_CHECK_NONFINITE].failures > 0) { /* NaN only in a row outside the sample */
        const struct kvg_check *c = &checks[KVG_CHECK_NONFINITE];
        out->worst[out->n_worst++] = (struct kvg_evidence_element){
            {kvg_prepared_sequence(p, c->row.seq), c->row.q_index, c->row.q_head, c->dim},
            c->got,
            NAN,
            NAN,
            INFINITY};
        heat_put(&out->heat, c->row.q_head, position_of(p, &c->row), p->total_q, 'N');
    }
}

/* ---------------------------------------------------------------- store */

/* Counts the wrong codes of one token by head, and puts the first of each head among the worst elements. */
static void look_at_token(const struct kvg_prepared *p, const void *const got[2], int64_t token,
                          int64_t sequence, int64_t first, int64_t wrong_of_head[], struct kvg_evidence *out)
{
    const struct kvg_pages *const pages[2] = {&p->k_pages, &p->v_pages};
    const enum kvg_ref_format format = kvg_ref_format_of(p->problem.kv_dtype);
    const int64_t slot = p->slot_mapping[token], bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    for (int64_t h = 0; h < p->problem.kv_heads; h++)
        wrong_of_head[h] = 0;
    if (slot < 0)
        return;
    for (int t = 0; t < 2; t++)
        for (int64_t h = 0; h < p->problem.kv_heads; h++) {
            const int64_t at = kvg_slot_place(pages[t], p->problem.block_size, slot, h);
            const char *want = (const char *)pages[t]->data + at * bytes,
                       *have = (const char *)got[t] + at * bytes;
            for (int64_t d = 0; d < p->problem.head_dim; d++) {
                if (memcmp(want + d * bytes, have + d * bytes, (size_t)bytes) == 0)
                    continue;
                if (wrong_of_head[h]++ == 0 && out->n_worst < KVG_EVIDENCE_WORST)
                    out->worst[out->n_worst++] =
                        (struct kvg_evidence_element){{sequence, token - first, h, d},
                                                      (double)kvg_ref_load(format, have, d),
                                                      (double)kvg_ref_load(format, want, d),
                                                      0.0,
                                                      NAN};
            }
        }
}

void kvg_evidence_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache,
                        enum kvg_run_kind run, struct kvg_evidence *out)
{
    enum { HEADS = 512 };
    const void *const got[2] = {k_cache, v_cache};
    int64_t wrong[HEADS], sequence = 0;
    *out = (struct kvg_evidence){0};
    snprintf(out->run, sizeof out->run, "%s", kvg_run_words(run));
    if (p->problem.kv_heads > HEADS || p->total_kv == 0)
        return;
    heat_begin(&out->heat, p->problem.kv_heads, p->total_kv);
    snprintf(out->heat.across_words, sizeof out->heat.across_words, "%lld tokens of %lld sequence%s",
             (long long)p->total_kv, (long long)p->problem.batch, p->problem.batch == 1 ? "" : "s");
    for (int64_t i = 0; i < p->total_kv; i++) {
        while (sequence + 1 < p->problem.batch && i >= p->cu_kv_lens[sequence + 1])
            sequence++;
        look_at_token(p, got, i, sequence, p->cu_kv_lens[sequence], wrong, out);
        for (int64_t h = 0; h < p->problem.kv_heads; h++) {
            const int64_t tenths = (wrong[h] * 9 + 2 * p->problem.head_dim - 1) / (2 * p->problem.head_dim);
            heat_put(&out->heat, h, i, p->total_kv, (char)('0' + (tenths > 9 ? 9 : tenths)));
        }
    }
}
