/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.h: named strings and numbers that describe a run or a machine, and the schema that they name.
 *
 * In a result file the facts of the run are the attributes of the root, and the facts of the machine are the
 * attributes of /machine.
 */
#ifndef KVG_RESULTS_FACTS_H
#define KVG_RESULTS_FACTS_H

#include <stdint.h>
#include "error.h"

#define KVG_SCHEMA_NAME "kvgauge"
#define KVG_SCHEMA_VERSION "1.5.0" /* semver; a reader refuses a newer major version */

struct kvg_fact {
    char *name;
    char *text;    /* NULL for a number */
    double number; /* used when text is NULL */
};
/* In the order in which they were set. A name that is set again keeps its place. */
struct kvg_facts {
    struct kvg_fact *facts;
    int64_t count;
};
/* Both copy `name` (and `text`). -1 on out of memory. */
int kvg_facts_set_text(struct kvg_facts *facts, const char *name, const char *text);
int kvg_facts_set_number(struct kvg_facts *facts, const char *name, double number);
const struct kvg_fact *kvg_facts_find(const struct kvg_facts *facts, const char *name); /* or NULL */
void kvg_facts_free(struct kvg_facts *facts);

/* One line of JSON, malloc'ed; NULL on out of memory. Numbers keep their bits, NaN and infinities included. */
char *kvg_facts_to_json(const struct kvg_facts *facts);
/* Adds the facts of such a line. 0, or -1 with the error; what was added before stays. */
int kvg_facts_from_json(const char *line, struct kvg_facts *facts, struct kvg_error *error);

/* Fails unless the facts of a run name this schema and a major version that this program reads. `path` is for
 * the message. */
int kvg_schema_check(const char *path, const struct kvg_facts *run, struct kvg_error *error);

#endif
