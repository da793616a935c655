/* SPDX-License-Identifier: Apache-2.0
 *
 * figures_gain.c: the factor between output and reference against context: one panel per input, one line per
 * accumulator. Drawn for inputs with predictions, and also with the rows of the kernel itself (fp32). Of the
 * rows that belong to one point, the gain farthest from 1 is shown.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "figures.h"

enum { MAX_LINES = 12, MAX_PANELS = 6 };

static int key_of_gain(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || row->status != KVG_PASSED || !isfinite(row->gain_min) ||
        strcmp(row->path, "fp8") != 0)
        return 0;
    /* figure | input | accumulator | context */
    snprintf(text, size, "%d%.20s %.12s|%d%.64s|%09lld|%012lld", kvg_rank_phase(row->phase), row->phase,
             row->path, !kvg_is_captured(row), row->input, kvg_rank_accumulate(row), (long long)row->context);
    return 1;
}

static double worst_gain(const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    double worst = 1.0;
    for (int64_t i = begin; i < end; i++) {
        const struct kvg_row *row = picks->picks[i].row;
        worst = fabs(row->gain_min - 1.0) > fabs(worst - 1.0) ? row->gain_min : worst;
        worst = fabs(row->gain_max - 1.0) > fabs(worst - 1.0) ? row->gain_max : worst;
    }
    return worst;
}

/* One block: the points of a line in a panel; a single NaN if the line has no points there. */
static void put_block(FILE *out, const struct kvg_picks *picks, int64_t begin, int64_t end, const char *input,
                      const char *line)
{
    int64_t points = 0;
    fprintf(out, "# %s %s: context, gain of the worst head\n", input, line);
    for (int64_t at = begin, next; at < end; at = next) {
        const struct kvg_row *row = picks->picks[at].row;
        next = kvg_group_end(picks, at, 0);
        if (strcmp(row->input, input) != 0 || strcmp(row->accumulate, line) != 0)
            continue;
        fprintf(out, "%lld\t%.6g\n", (long long)row->context, worst_gain(picks, at, next));
        points++;
    }
    fputs(points ? "\n\n" : "NaN\tNaN\n\n\n", out);
}

static int gain_figure(struct plotter *p, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    struct words inputs = {.n = 0}, lines = {.n = 0};
    struct figure f = {0};
    for (int64_t i = begin; i < end; i++) /* a panel for each input with predictions */
        if (picks->picks[i].row->prediction == 1)
            words_add(&inputs, picks->picks[i].row->input, MAX_PANELS);
    /* The lines in the order of their rank, whatever the order of the inputs. */
    for (long long rank = 0; rank <= 10000 && inputs.n > 0; rank++)
        for (int64_t i = begin; i < end; i++)
            if (kvg_rank_accumulate(picks->picks[i].row) == rank)
                words_add(&lines, picks->picks[i].row->accumulate, MAX_LINES);
    if (inputs.n == 0)
        return 0;
    snprintf(f.name, sizeof f.name, "gain_%.20s_%.12s", row->phase, row->path);
    snprintf(f.title, sizeof f.title, "Gain against context, by accumulator: %.20s, path %.12s", row->phase,
             row->path);
    snprintf(f.detail, sizeof f.detail,
             "gain: factor between the output and the emulating reference, worst head; 1 is right");
    if (figure_begin(p, &f))
        return -1;
    for (int i = 0; i < inputs.n; i++) {
        figure_add_word(f.extra[0], sizeof f.extra[0], inputs.text[i]);
        for (int l = 0; l < lines.n; l++)
            put_block(f.data, picks, begin, end, inputs.text[i], lines.text[l]);
    }
    for (int l = 0; l < lines.n; l++)
        figure_add_word(f.series, sizeof f.series, lines.text[l]);
    return figure_end(p, &f, "gain.gp");
}

int draw_gain(struct plotter *p)
{
    struct kvg_picks picks;
    const int64_t before = p->figures;
    int failed = kvg_pick_rows(p->results, key_of_gain, &picks);
    if (failed)
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "out of memory");
    for (int64_t begin = 0, end; !failed && begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        failed = gain_figure(p, &picks, begin, end);
    }
    kvg_picks_free(&picks);
    if (!failed && p->figures == before)
        figure_left_out(p, "gain", "no predicted row; --accumulate or suite accumulation makes them");
    return failed;
}
