/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.h: what a row that failed has to show for it.
 *
 * The worker sees the tensors, the person sees the row. So a small extract travels with the row, as text (a
 * JSON object) in the column `evidence`: the checks that broke, the elements that are farthest off, and a map
 * of the error over heads and positions. Two more columns name the suspected kind of fault and why.
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

/* An index that means nothing (an lse has no dim) is -1, a number that means nothing NaN. */
struct kvg_evidence_place {
    int64_t sequence, query, head, dim; /* phase store: query is the token */
};

/* One named check that broke. */
struct kvg_evidence_check {
    char name[16];                /* "bound", "probable", "lse", "gain", "store", ... */
    int64_t failed, of;           /* elements, rows or groups */
    struct kvg_evidence_place at; /* the worst of them */
    char where[32];               /* a class of keys instead ("slot 3 of a page": at says nothing), or "" */
    double got, reference, allowed, ratio; /* ratio: error over what is allowed; of a class: share of it by
                                              which the output is off */
};

/* One element of the output. */
struct kvg_evidence_element {
    struct kvg_evidence_place at;
    double got, reference, allowed, ratio;
};

/* Error over heads (down) and positions (across); many of them share a cell, which shows the worst. */
struct kvg_evidence_heat {
    int down, across;      /* cells; 0: no map */
    int64_t heads;         /* how many the cells down stand for */
    char across_words[64]; /* what goes across: "4 sequences", "queries 0 to 149 of sequence 0" */
    /* '-' not checked, '0' within its bound, 'n' (1 to 9) beyond it by 2^(n-1) or more, 'N' NaN or infinite,
     * and for codes, which are right or wrong: '1' to '9' the share that is wrong, rounded up */
    char cell[KVG_HEAT_DOWN][KVG_HEAT_ACROSS + 1];
};

struct kvg_evidence {
    char run[64];   /* which run of the kernel: "first run", "in pages far into the cache", ... */
    char dump[256]; /* file with the tensors; "" where none was asked for */
    int n_checks, n_worst;
    struct kvg_evidence_check checks[KVG_EVIDENCE_CHECKS];
    struct kvg_evidence_element worst[KVG_EVIDENCE_WORST]; /* the farthest off first */
    struct kvg_evidence_heat heat;
};

/* '0' to '9' for error over bound; 'N' for what is no number. */
char kvg_heat_level(double ratio);

/* The column's text (malloc'ed; NULL on out of memory), and back: -1 where the text is none of ours. */
char *kvg_evidence_to_text(const struct kvg_evidence *evidence);
int kvg_evidence_from_text(const char *text, struct kvg_evidence *evidence);

#endif
