/* SPDX-License-Identifier: Apache-2.0
 *
 * table_problems.c: the rows that did not pass, and what the incorrect rows of a kernel have in common.
 */
#include <string.h>
#include "common.h"
#include "failure.h"
#include "group.h"
#include "table_parts.h"

static int key_of_problem(const struct kvg_row *row, char *text, size_t size)
{
    if (row->status == KVG_PASSED)
        return 0;
    /* Failures come first, in the order of the rows; then skipped rows, by reason. */
    int skipped = row->status == KVG_SKIPPED;
    snprintf(text, size, "%d%.200s", skipped, skipped ? row->reason : "");
    return 1;
}

/* Failed rows with a full report in a table without --all, and where `most` limits the rows. The others have
 * two lines each. */
enum { BLOCKS = 12, FEW_BLOCKS = 2 };

static void print_problem(struct kvg_table *t, const struct kvg_row *row, int64_t alike, int64_t number)
{
    const struct kvg_failure_style style = {.colour = t->colour, .unicode = kvg_failure_unicode()};
    char id[KVG_CELL], many[48] = "", failed[128];
    const int block = t->all || number < (t->most > 0 ? FEW_BLOCKS : BLOCKS);
    if (alike > 1)
        snprintf(many, sizeof(many), " (%lld rows)", (long long)alike);
    const char *reason = row->reason[0] ? row->reason : "no reason given";
    if ((block || t->most > 0) && row->status == KVG_INCORRECT &&
        kvg_failure_checks(row, failed, sizeof failed))
        reason = failed; /* the report below has the numbers; where few rows are printed, that of the first */
    kvg_table_say(t, "%s %s%s: %s", kvg_cell_case(row, id), kvg_status_name((enum kvg_status)row->status),
                  many, reason);
    /* The command is not broken into lines, so that it can be copied. */
    fprintf(t->out, "    %s\n", row->repro[0] ? row->repro : row->case_string);
    if (block)
        kvg_failure_print(t->out, row, &style);
    else if (row->suspected[0])
        kvg_table_say(t, "suspected: %s", row->suspected);
}

/* One line for each kernel with incorrect rows: how many, and what they have in common. */
static void print_kernels(struct kvg_table *t)
{
    const struct kvg_results *results = t->results;
    for (int64_t i = 0; i < results->count; i++) {
        const char *kernel = results->rows[i].kernel;
        int64_t failed = 0, passed = 0, earlier = 0;
        char common[340];
        if (results->rows[i].status != KVG_INCORRECT)
            continue;
        for (int64_t j = 0; j < results->count; j++) {
            const struct kvg_row *row = &results->rows[j];
            if (strcmp(row->kernel, kernel) != 0)
                continue;
            earlier += j < i && row->status == KVG_INCORRECT;
            failed += row->status == KVG_INCORRECT;
            passed += row->status == KVG_PASSED;
        }
        if (earlier > 0 || failed + passed < 2)
            continue;
        if (kvg_common_of_failures(results, kernel, common, sizeof common))
            kvg_table_say(t, "%s: %lld of %lld rows are incorrect: exactly the rows with %s.", kernel,
                          (long long)failed, (long long)(failed + passed), common);
        else
            kvg_table_say(t, "%s: %lld of %lld rows are incorrect.", kernel, (long long)failed,
                          (long long)(failed + passed));
    }
}

static void say_hidden(struct kvg_table *t, int64_t rows)
{
    kvg_table_say(t, "and %lld more failed rows", (long long)rows);
}

int kvg_table_problems(struct kvg_table *t)
{
    struct kvg_picks picks;
    int64_t hidden = 0;
    if (kvg_pick_rows(t->results, key_of_problem, &picks))
        return -1;
    if (picks.count > 0)
        kvg_table_heading(t, "Rows that did not pass, each with the command that repeats it");
    print_kernels(t);
    for (int64_t begin = 0, end, number = 0; begin < picks.count; begin = end, number++) {
        int together = picks.picks[begin].key[0] == '1' && !t->all;
        end = together ? kvg_group_end(&picks, begin, 0) : begin + 1;
        if (t->most > 0 && number >= t->most && picks.picks[begin].key[0] == '0') {
            hidden++;
            continue;
        }
        if (hidden) {
            say_hidden(t, hidden);
            hidden = 0;
        }
        print_problem(t, picks.picks[begin].row, end - begin, number);
    }
    if (hidden)
        say_hidden(t, hidden);
    kvg_picks_free(&picks);
    return 0;
}
