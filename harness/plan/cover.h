/* SPDX-License-Identifier: Apache-2.0
 *
 * cover.h: few combinations of values that hold every pair of values of two axes.
 *
 * The algorithm is that of AETG (Cohen, Dalal, Fredman, Patton, "The AETG system", IEEE Transactions on
 * Software Engineering 23(7), 1997) without its random choices: combinations are made one at a time. Each
 * begins with a pair that no combination has yet; then every other axis takes the value that adds most of the
 * missing pairs. A combination must be allowed as a whole.
 *
 * Which combinations are allowed is known by asking only, so that no search can prove a pair impossible. The
 * search is therefore wide: see kvg_cover_make.
 */
#ifndef KVG_HARNESS_PLAN_COVER_H
#define KVG_HARNESS_PLAN_COVER_H

#include <stdint.h>

struct kvg_cover_space {
    int axes;         /* number of axes */
    const int *sizes; /* [axes]: number of values of each, from 1 */
    /* 1 if the combination (a value number for each axis) may be used. */
    int (*allowed)(void *context, const int *values);
    void *context;
    /* [n_starts][axes]: allowed combinations that are known beforehand, each unlike the others. Searches
     * begin there, and at the first values of all axes. */
    const int *starts;
    int64_t n_starts;
};

enum kvg_pair { KVG_PAIR_MISSING = 0, KVG_PAIR_COVERED, KVG_PAIR_IMPOSSIBLE };

struct kvg_cover {
    int axes, all;     /* all: number of values of all axes together */
    int *first;        /* [axes]: number of an axis's first value among all */
    int *combinations; /* [count][axes] */
    int64_t count;
    unsigned char *pairs; /* [all][all]: enum kvg_pair; symmetric */
};

/* Makes the combinations, those with most new pairs first. A pair is impossible if no allowed combination
 * was found that differs, beside the pair itself, from a start in at most one axis, from the first start in
 * at most two, from a combination made so far in none, or from one of them in the axes of KVG_COVER_TRIES
 * random changes. Impossible pairs are tried again at the end, when there are more combinations. 0, or -1 on
 * out of memory, with nothing to free. */
#define KVG_COVER_TRIES 1000
int kvg_cover_make(const struct kvg_cover_space *space, struct kvg_cover *cover);
void kvg_cover_free(struct kvg_cover *cover);

enum kvg_pair kvg_cover_pair(const struct kvg_cover *cover, int axis_a, int value_a, int axis_b, int value_b);
/* Number of pairs in a state. */
int64_t kvg_cover_count(const struct kvg_cover *cover, enum kvg_pair state);
/* 1 if one of the first `combinations` combinations has the pair. */
int kvg_cover_holds(const struct kvg_cover *cover, int64_t combinations, int axis_a, int value_a, int axis_b,
                    int value_b);

#endif
