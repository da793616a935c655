/* SPDX-License-Identifier: Apache-2.0
 *
 * suite.h: a suite file (YAML) as a list of sweeps.
 *
 *     name: quick                 # optional; the file's name otherwise
 *     description: one line       # optional
 *     defaults: {head_dim: 128}   # optional: axes of every sweep that does not set them
 *     sweeps:
 *       - name: decode            # optional, each name once
 *         phase: decode
 *         context: [1k, 8k]       # or "1k,8k", or 1k:8k:*8
 *       - like: decode            # optional: the axes of a sweep above, where this one does not set them
 *         path: fp8
 *
 * Values are text, parsed by the same code as the command line's. `like` names a sweep above, so that chains
 * end and a sweep is read in one pass. Every error names file, line and column. Unknown and duplicate keys, a
 * second document and axes without value are errors.
 */
#ifndef KVG_HARNESS_SUITE_H
#define KVG_HARNESS_SUITE_H

#include <stdint.h>
#include "harness/case/expand.h"

struct kvg_sweep {
    char *name;                             /* owned, or NULL */
    int64_t line;                           /* where it begins */
    struct kvg_values axis[KVG_AXIS_COUNT]; /* `like` and defaults filled in; count 0 = not set */
};
struct kvg_suite {
    char name[64];
    char *description; /* owned, or NULL */
    struct kvg_sweep *sweeps;
    int64_t count; /* of sweeps */
};

/* 0, or -1 with the error and nothing to free. */
int kvg_suite_read(const char *path, struct kvg_suite *suite, struct kvg_error *error);
/* The same from memory; errors call it `path`. */
int kvg_suite_parse(const char *path, const char *text, size_t length, struct kvg_suite *suite,
                    struct kvg_error *error);
void kvg_suite_free(struct kvg_suite *suite);

#endif
