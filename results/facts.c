/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.c: see facts.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "facts.h"
#include "row.h"

static struct kvg_fact *find_or_add(struct kvg_facts *facts, const char *name)
{
    struct kvg_fact *found = (struct kvg_fact *)(uintptr_t)kvg_facts_find(facts, name);
    if (found)
        return found;
    size_t wanted = ((size_t)facts->count + 1) * sizeof(*facts->facts);
    struct kvg_fact *grown = realloc(facts->facts, wanted);
    if (!grown)
        return NULL;
    facts->facts = grown;
    struct kvg_fact *fact = &grown[facts->count];
    fact->name = kvg_utf8_copy(name);
    fact->text = NULL;
    fact->number = NAN;
    if (!fact->name)
        return NULL;
    facts->count++;
    return fact;
}

int kvg_facts_set_text(struct kvg_facts *facts, const char *name, const char *text)
{
    char *copy = kvg_utf8_copy(text ? text : "");
    struct kvg_fact *fact = copy ? find_or_add(facts, name) : NULL;
    if (!fact) {
        free(copy);
        return -1;
    }
    free(fact->text);
    fact->text = copy;
    fact->number = NAN;
    return 0;
}

int kvg_facts_set_number(struct kvg_facts *facts, const char *name, double number)
{
    struct kvg_fact *fact = find_or_add(facts, name);
    if (!fact)
        return -1;
    free(fact->text);
    fact->text = NULL;
    fact->number = number;
    return 0;
}

const struct kvg_fact *kvg_facts_find(const struct kvg_facts *facts, const char *name)
{
    for (int64_t i = 0; i < facts->count; i++)
        if (strcmp(facts->facts[i].name, name) == 0)
            return &facts->facts[i];
    return NULL;
}

void kvg_facts_free(struct kvg_facts *facts)
{
    for (int64_t i = 0; i < facts->count; i++) {
        free(facts->facts[i].name);
        free(facts->facts[i].text);
    }
    free(facts->facts);
    memset(facts, 0, sizeof(*facts));
}

int kvg_schema_check(const char *path, const struct kvg_facts *run, struct kvg_error *error)
{
    const struct kvg_fact *name = kvg_facts_find(run, "schema_name");
    const struct kvg_fact *version = kvg_facts_find(run, "schema_version");
    if (!name || !name->text || strcmp(name->text, KVG_SCHEMA_NAME) != 0)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: not a result file of kvgauge: schema_name is '%.60s', not '%s'", path,
                        name && name->text ? name->text : "", KVG_SCHEMA_NAME);
    char *end = NULL;
    long major = version && version->text ? strtol(version->text, &end, 10) : -1;
    if (!end || end == version->text || *end != '.' || major < 0)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: schema_version is '%.60s', which is not MAJOR.MINOR.PATCH", path,
                        version && version->text ? version->text : "");
    long ours = strtol(KVG_SCHEMA_VERSION, NULL, 10);
    if (major > ours)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: written with schema %.60s; this kvgauge reads up to %ld.x: use a newer kvgauge",
                        path, version->text, ours);
    return 0;
}
