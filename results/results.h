/* SPDX-License-Identifier: Apache-2.0
 *
 * results.h: everything that a journal or a result file holds.
 */
#ifndef KVG_RESULTS_RESULTS_H
#define KVG_RESULTS_RESULTS_H

#include "facts.h"
#include "row.h"

struct kvg_results {
    struct kvg_facts run;     /* schema_name, schema_version, run_uuid, created_utc, generator, git_sha,
                                 git_dirty, argv, seed, suite, complete */
    struct kvg_facts machine; /* cpu, isa, governor, memory, caches, roofs, fingerprint */
    struct kvg_row *rows;     /* [count], owned */
    int64_t count;
};
void kvg_results_free(struct kvg_results *results); /* also zeroes the results */

/* Keeps the rows whose case string matches the POSIX extended regex `filter`, and frees the others. A leading
 * '-' keeps the rows that do not match. A filter of 8 to 16 hexadecimal digits is the start of a case id. */
int kvg_results_filter(struct kvg_results *results, const char *filter, struct kvg_error *error);

/* Makes control characters in the texts of the rows and facts visible, as in \x1b and \x0a: a terminal obeys
 * them. For printing only: a file keeps the text as it is. */
int kvg_results_make_printable(struct kvg_results *results, struct kvg_error *error);

/* May regcomp see this pattern? -1 with the error for one that is longer than 1000 characters, or whose counts
 * in {} multiply to more than 1000: the C library copies what it repeats, and a{255} thrice nested takes
 * gigabytes. */
int kvg_pattern_check(const char *pattern, struct kvg_error *error);

#endif
