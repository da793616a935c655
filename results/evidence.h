/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.h: an extract of the tensors of a failed row.
 *
 * Only the worker has the tensors. So it adds a small extract to the row, as a JSON object in the column
 * `evidence`: the failed checks, the elements with the largest errors, and a map of the error over heads and
 * positions. Two more columns, `suspected` and `suspicion`, name the suspected kind of fault and the reason.
 */
#ifndef KVG_RESULTS_EVIDENCE_H
#define KVG_RESULTS_EVIDENCE_H

#include <stdint.h>
#include "row.h"

enum {
    KVG_EVIDENCE_CHECKS = 16,
    KVG_EVIDENCE_WORST = 6,
    KVG_HEAT_DOWN = 16,
    KVG_HEAT_ACROSS = 32,
};

/* An index without meaning (a log-sum-exp has no dim) is -1; a number without meaning is NaN. */
struct kvg_evidence_place {
    int64_t sequence, query, head, dim; /* phase store: query is the token */
};

/* One failed check. */
struct kvg_evidence_check {
    char name[16];                /* "bound", "probable", "lse", "gain", "store", ... */
    int64_t failed, of;           /* number of failed elements, rows or groups, and of all */
    struct kvg_evidence_place at; /* the one with the worst error */
    char where[32]; /* a class of keys ("slot 3 of a page"), where `at` is unused; otherwise "" */
    /* Output, reference, allowed error, and error over allowed error. For a class of keys `got` is the error
     * of its share of the output, relative to that share, and `reference` is 0. */
    double got, reference, allowed, ratio;
};

/* One element of the output. */
struct kvg_evidence_element {
    struct kvg_evidence_place at;
    double got, reference, allowed, ratio;
};

/* Map of the error over heads (down) and positions (across). A cell shows the worst of its heads and
 * positions. */
struct kvg_evidence_heat {
    int down, across;      /* cells; 0: no map */
    int64_t heads;         /* number of heads that the cells down stand for */
    char across_words[64]; /* the positions: "4 sequences", "queries 0 to 149 of sequence 0" */
    /* '-'          not checked
     * '0'          within its bound
     * '1' to '9'   n: the error is at least 2^(n-1) times its bound
     *              for codes, which are right or wrong: share of wrong codes, rounded up
     * 'N'          NaN or infinite */
    char cell[KVG_HEAT_DOWN][KVG_HEAT_ACROSS + 1];
};

struct kvg_evidence {
    char run[64];   /* the failed run of the kernel: "first run", "in pages far into the cache", ... */
    char dump[256]; /* file with the tensors; "" without --dump */
    int n_checks, n_worst;
    struct kvg_evidence_check checks[KVG_EVIDENCE_CHECKS];
    struct kvg_evidence_element worst[KVG_EVIDENCE_WORST]; /* largest error first */
    struct kvg_evidence_heat heat;
};

/* The character of a ratio of error to bound: '0' to '9', or 'N' if it is not finite. */
char kvg_heat_level(double ratio);

/* The text of the column (malloc'ed; NULL on out of memory), and back: -1 if the text is not such an
 * object. */
char *kvg_evidence_to_text(const struct kvg_evidence *evidence);
int kvg_evidence_from_text(const char *text, struct kvg_evidence *evidence);

#endif
