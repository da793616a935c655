/* SPDX-License-Identifier: Apache-2.0
 *
 * checks.c: the table of checks, and the sentence of each kind of check.
 */
#include "checks.h"

#include <math.h>
#include <stdio.h>

#include "results/row.h"

const struct kvg_check_entry kvg_check_table[KVG_CHECKS] = {
#define RATIO_IN(column) (ptrdiff_t) offsetof(struct kvg_row, column)
#define RATIO_NOWHERE -1
#define CHECK(id, name, of, counted, column) {name, KVG_CHECK_OF_##of, counted, column},
#include "checks.def"
#undef CHECK
#undef RATIO_NOWHERE
#undef RATIO_IN
};

void kvg_check_note(struct kvg_check *check, double ratio, const struct kvg_ref_row *row, int64_t dim,
                    double got, double reference, double allowed)
{
    check->of++;
    check->failures += !(ratio <= 1.0);
    if (check->of > 1 && !(ratio > check->ratio))
        return;
    check->ratio = ratio;
    check->row = *row;
    check->dim = dim;
    check->got = got;
    check->reference = reference;
    check->allowed = allowed;
}

/* ---------------------------------------------------------------- sentences */

static void describe_value(int64_t sequence, const struct kvg_check *check, const char *counted, char *text,
                           size_t size)
{
    char place[96];
    const int used = snprintf(place, sizeof place, "sequence %lld query %d head %d", (long long)sequence,
                              check->row.q_index, check->row.q_head);
    if (check->dim >= 0)
        snprintf(place + used, sizeof place - (size_t)used, " dim %lld", (long long)check->dim);
    if (isnan(check->reference))
        snprintf(text, size, "%s: %lld %s, first at %s: got %g", check->name, (long long)check->failures,
                 counted, place, check->got);
    else
        snprintf(
            text, size,
            "%s: %lld of %lld %s, worst at %s: got %.7g, reference %.7g, allowed error %.3g (%.3g times)",
            check->name, (long long)check->failures, (long long)check->of, counted, place, check->got,
            check->reference, check->allowed, check->ratio);
}

void kvg_check_describe(const struct kvg_prepared *p, enum kvg_check_id id, const struct kvg_check *check,
                        char *text, size_t size)
{
    const struct kvg_check_entry *entry = &kvg_check_table[id];
    const long long failures = (long long)check->failures, of = (long long)check->of;
    switch (entry->of) {
    case KVG_CHECK_OF_VALUES:
        describe_value(kvg_prepared_sequence(p, check->row.seq), check, entry->counted, text, size);
        break;
    case KVG_CHECK_OF_GROUPS:
        snprintf(text, size, "%s: %lld of %lld %s, worst at sequence %lld head %d: %.7g, expected %g +- %.3g",
                 entry->name, failures, of, entry->counted,
                 (long long)kvg_prepared_sequence(p, check->row.seq), check->row.q_head, check->got,
                 check->reference, check->allowed);
        break;
    case KVG_CHECK_OF_WHOLE:
        snprintf(text, size,
                 "%s: the root mean square error is %.3g, predicted %.3g, allowed %.3g (%.3g times)",
                 entry->name, check->got, check->reference, check->allowed, check->ratio);
        break;
    case KVG_CHECK_OF_KEYS:
        snprintf(text, size,
                 "%s: the output is off by %.3g %% of the contribution of %s, allowed %.3g %% (%lld of %lld "
                 "%s fail)",
                 entry->name, 100.0 * check->got, check->where, 100.0 * check->allowed, failures, of,
                 entry->counted);
        break;
    }
}
