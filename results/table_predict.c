/* SPDX-License-Identifier: Apache-2.0
 *
 * table_predict.c: rows that a model of the FP8 unit predicts: gain and error against context, one line per
 * input and accumulator. Rows that belong to the same line and context share a cell, which shows the worst of
 * them.
 */
#include "table_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "group.h"

enum { MAX_CONTEXTS = 9 };

struct contexts {
    int64_t value[MAX_CONTEXTS]; /* ascending; the longest ones if there are more */
    int n, left_out;
};

static int key_of_prediction(const struct kvg_row *row, char *text, size_t size)
{
    if (row->prediction != 1 || row->n_checked <= 0)
        return 0;
    snprintf(text, size, "%d%.20s %.64s|%09lld|%012lld", kvg_rank_phase(row->phase), row->phase, row->input,
             kvg_rank_accumulate(row), (long long)row->context);
    return 1;
}

static void note_context(struct contexts *c, int64_t context)
{
    int at = 0;
    while (at < c->n && c->value[at] < context)
        at++;
    if (at < c->n && c->value[at] == context)
        return;
    if (c->n == MAX_CONTEXTS) {
        c->left_out = 1;
        if (at == 0)
            return;
        memmove(c->value, c->value + 1, (size_t)--at * sizeof *c->value);
    } else {
        memmove(c->value + at + 1, c->value + at, (size_t)(c->n++ - at) * sizeof *c->value);
    }
    c->value[at] = context;
}

static const char *context_cell(int64_t context, char text[KVG_CELL])
{
    const int64_t mega = 1 << 20;
    if (context >= mega && context % mega == 0)
        snprintf(text, KVG_CELL, "%lldM", (long long)(context / mega));
    else if (context >= 1024 && context % 1024 == 0)
        snprintf(text, KVG_CELL, "%lldk", (long long)(context / 1024));
    else
        snprintf(text, KVG_CELL, "%lld", (long long)context);
    return text;
}

/* Of the rows of one line and context: the gain farthest from 1, or the largest error in percent. */
static double worst(const struct kvg_picks *picks, int64_t begin, int64_t end, int64_t context, int gain)
{
    double most = NAN;
    for (int64_t i = begin; i < end; i++) {
        const struct kvg_row *row = picks->picks[i].row;
        if (row->context != context)
            continue;
        const double low = row->gain_min, high = row->gain_max;
        const double x = !gain ? 100 * row->kernel_rel_l2 : fabs(low - 1) > fabs(high - 1) ? low : high;
        if (isnan(most) || (gain ? fabs(x - 1) > fabs(most - 1) : x > most))
            most = x;
    }
    return most;
}

/* The first context that is shown: the terminal has room for the longest ones only. */
static int first_shown(const struct kvg_table *t, const struct contexts *c)
{
    const int room = (t->width - 2 - 9 - 15 - 21) / 8;
    return c->n > room ? c->n - room : 0;
}

static void print_block(struct kvg_table *t, const struct kvg_picks *picks, const struct contexts *c,
                        int gain)
{
    char cell[KVG_CELL];
    const int first = first_shown(t, c);
    fprintf(t->out, "  %-9s%-15s%-21s", "phase", "input", gain ? "gain" : "error, percent");
    for (int i = first; i < c->n; i++)
        fprintf(t->out, "%8s", context_cell(c->value[i], cell));
    fputs("\n", t->out);
    for (int64_t begin = 0, end; begin < picks->count; begin = end) {
        end = kvg_group_end(picks, begin, kvg_key_prefix(picks->picks[begin].key, 2));
        const struct kvg_row *row = picks->picks[begin].row;
        fprintf(t->out, "  %-9s%-15.14s%-21s", row->phase, row->input, row->accumulate);
        for (int i = first; i < c->n; i++) {
            const double x = worst(picks, begin, end, c->value[i], gain);
            kvg_put_cell(t->out, 8, gain ? kvg_cell_fixed(x, 3, cell) : kvg_cell_digits(x, 3, cell));
        }
        fputs("\n", t->out);
    }
}

int kvg_table_predictions(struct kvg_table *t)
{
    struct kvg_picks picks;
    struct contexts contexts = {.n = 0};
    if (kvg_pick_rows(t->results, key_of_prediction, &picks))
        return -1;
    for (int64_t i = 0; i < picks.count; i++)
        note_context(&contexts, picks.picks[i].row->context);
    if (picks.count > 0) {
        kvg_table_heading(t, "Predicted, not measured: the fp8 path on a model of Hopper's FP8 unit");
        print_block(t, &picks, &contexts, 1);
        fputs("\n", t->out);
        print_block(t, &picks, &contexts, 0);
        kvg_table_say(
            t, "gain: factor between output and reference, for the worst head (0.39 means that 61 %% of "
               "the output is lost); error: relative L2 against the exact reference on the same codes.");
        const int hidden = first_shown(t, &contexts);
        if (contexts.left_out || hidden)
            kvg_table_say(t, "Only the %d longest contexts are shown%s.", contexts.n - hidden,
                          hidden ? "; a wider terminal shows more" : "");
        kvg_table_trace(t, "accumulate=");
    }
    kvg_picks_free(&picks);
    return 0;
}
