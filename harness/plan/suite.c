/* SPDX-License-Identifier: Apache-2.0
 *
 * suite.c: libyaml's document tree to sweeps. Each node of the tree has its line and column for error
 * messages. The code descends a fixed number of levels, so that an alias to an enclosing node cannot make it
 * loop.
 */
#include "suite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "harness/case/words.h"

#define MAX_SUITE_BYTES (1 << 20)

struct reader {
    const char *path;
    const char *text;
    size_t length;
    yaml_document_t document;
    struct kvg_error *error;
};

/* ------------------------------------------------------------------------------------------ errors */

static int fail_at(const struct reader *r, const yaml_mark_t *mark, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail_at(const struct reader *r, const yaml_mark_t *mark, const char *format, ...)
{
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return kvg_fail(r->error, KVG_EXIT_USAGE, "%s:%zu:%zu: %s", r->path, mark->line + 1, mark->column + 1,
                    text);
}

static int out_of_memory(const struct reader *r)
{
    return kvg_fail(r->error, KVG_EXIT_TROUBLE, "%s: out of memory", r->path);
}

/* ------------------------------------------------------------------------------------------ the tree */

static yaml_node_t *node_of(struct reader *r, int id)
{
    return yaml_document_get_node(&r->document, id);
}

static const char *scalar_text(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

static int is_empty_scalar(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0;
}

static int want_scalar(const struct reader *r, const yaml_node_t *node, const char *what)
{
    if (node->type != YAML_SCALAR_NODE || is_empty_scalar(node))
        return fail_at(r, &node->start_mark, "%s: one value would be right here", what);
    if (strlen(scalar_text(node)) != node->data.scalar.length)
        return fail_at(r, &node->start_mark, "%s: a suite must not hold a NUL character", what);
    return 0;
}

/* Keys of a map: scalars, each once. */
static int check_keys(struct reader *r, const yaml_node_t *map)
{
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = node_of(r, p->key);
        if (want_scalar(r, key, "a key"))
            return -1;
        for (yaml_node_pair_t *q = map->data.mapping.pairs.start; q < p; q++) {
            const yaml_node_t *before = node_of(r, q->key);
            if (kvg_word_distance(scalar_text(before), scalar_text(key)) == 0)
                return fail_at(r, &key->start_mark, "'%s' stands twice in this map, first in line %zu",
                               scalar_text(key), before->start_mark.line + 1);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------ axes */

static int read_value(struct reader *r, enum kvg_axis axis, const yaml_node_t *node,
                      struct kvg_values *values)
{
    struct kvg_error why;
    if (want_scalar(r, node, kvg_axis_get_info(axis)->name))
        return -1;
    if (kvg_values_expand(axis, scalar_text(node), values, &why) == 0)
        return 0;
    return why.exit_code == KVG_EXIT_USAGE ? fail_at(r, &node->start_mark, "%s", why.text) : out_of_memory(r);
}

static int read_axis(struct reader *r, enum kvg_axis axis, const yaml_node_t *node, struct kvg_values *values)
{
    const char *name = kvg_axis_get_info(axis)->name;
    if (node->type == YAML_MAPPING_NODE)
        return fail_at(r, &node->start_mark, "%s: a value or a list of values would be right here, not a map",
                       name);
    if (node->type != YAML_SEQUENCE_NODE)
        return read_value(r, axis, node, values);
    if (node->data.sequence.items.start == node->data.sequence.items.top)
        return fail_at(r, &node->start_mark, "%s: the list is empty", name);
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++)
        if (read_value(r, axis, node_of(r, *i), values))
            return -1;
    return 0;
}

static int unknown_key(const struct reader *r, const yaml_node_t *key, const char *const *also,
                       int64_t n_also, const char *where)
{
    const char *names[KVG_AXIS_COUNT + 8];
    int64_t count = 0;
    for (int64_t i = 0; i < n_also; i++)
        names[count++] = also[i];
    if (strcmp(where, "a suite"))
        for (int a = 0; a < KVG_AXIS_COUNT; a++)
            names[count++] = kvg_axis_get_info((enum kvg_axis)a)->name;
    char hint[128];
    kvg_word_hint(scalar_text(key), names, count, hint, sizeof hint);
    return fail_at(r, &key->start_mark, "'%s' is no key of %s%s", scalar_text(key), where, hint);
}

static int read_text(struct reader *r, const yaml_node_t *node, const char *what, char **out)
{
    if (want_scalar(r, node, what))
        return -1;
    *out = strdup(scalar_text(node));
    return *out ? 0 : out_of_memory(r);
}

/* The values of the keys of a sweep that are not axes; NULL where the map lacks them. */
struct sweep_keys {
    const yaml_node_t *name, *like;
};
static const char *const other_keys[] = {"name", "like"};

static const yaml_node_t **find_sweep_key(struct sweep_keys *keys, const char *text)
{
    if (keys && strcmp(text, "name") == 0)
        return &keys->name;
    return keys && strcmp(text, "like") == 0 ? &keys->like : NULL;
}

/* A map of axes. `keys` receives the other keys of a sweep; NULL for defaults, which have none. */
static int read_axes(struct reader *r, const yaml_node_t *map, struct kvg_values axis[KVG_AXIS_COUNT],
                     struct sweep_keys *keys)
{
    const char *where = keys ? "a sweep" : "defaults";
    if (map->type != YAML_MAPPING_NODE)
        return fail_at(r, &map->start_mark,
                       "%s: a map of axes would be right here, as in {phase: decode, context: 8k}", where);
    if (check_keys(r, map))
        return -1;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = node_of(r, p->key), *value = node_of(r, p->value);
        const yaml_node_t **slot = find_sweep_key(keys, scalar_text(key));
        if (slot) {
            *slot = value;
            if (want_scalar(r, value, scalar_text(key)))
                return -1;
            continue;
        }
        int a = kvg_axis_find(scalar_text(key), NULL);
        if (a < 0)
            return unknown_key(r, key, other_keys, keys ? 2 : 0, where);
        if (read_axis(r, (enum kvg_axis)a, value, &axis[a]))
            return -1;
    }
    return 0;
}

static int copy_values(const struct reader *r, const struct kvg_values *from, struct kvg_values *to)
{
    for (int64_t i = 0; i < from->count; i++)
        if (kvg_values_add(to, from->text[i], (int64_t)strlen(from->text[i])))
            return out_of_memory(r);
    return 0;
}

/* Sets the axes that `to` does not have from `from`. */
static int fill_axes(const struct reader *r, const struct kvg_values from[KVG_AXIS_COUNT],
                     struct kvg_values to[KVG_AXIS_COUNT])
{
    for (int a = 0; a < KVG_AXIS_COUNT; a++)
        if (to[a].count == 0 && copy_values(r, &from[a], &to[a]))
            return -1;
    return 0;
}

/* ------------------------------------------------------------------------------------------ sweeps */

static const struct kvg_sweep *find_sweep(const struct kvg_suite *suite, const char *name)
{
    for (int64_t i = 0; i < suite->count; i++)
        if (suite->sweeps[i].name && strcmp(suite->sweeps[i].name, name) == 0)
            return &suite->sweeps[i];
    return NULL;
}

static int unknown_sweep(const struct reader *r, const yaml_node_t *like, const struct kvg_suite *suite)
{
    const char **names = calloc((size_t)suite->count + 1, sizeof *names);
    char hint[160];
    int64_t count = 0;
    if (!names)
        return out_of_memory(r);
    for (int64_t i = 0; i < suite->count; i++)
        if (suite->sweeps[i].name)
            names[count++] = suite->sweeps[i].name;
    kvg_word_hint(scalar_text(like), names, count, hint, sizeof hint);
    free(names);
    return fail_at(r, &like->start_mark, "like: no sweep above this one is called '%s'%s", scalar_text(like),
                   hint);
}

/* Reads one sweep; `suite` holds those above it. */
static int read_sweep(struct reader *r, const yaml_node_t *node,
                      const struct kvg_values defaults[KVG_AXIS_COUNT], const struct kvg_suite *suite,
                      struct kvg_sweep *sweep)
{
    struct sweep_keys keys = {NULL, NULL};
    sweep->line = (int64_t)node->start_mark.line + 1;
    if (read_axes(r, node, sweep->axis, &keys))
        return -1;
    if (keys.name) {
        const struct kvg_sweep *before = find_sweep(suite, scalar_text(keys.name));
        if (before)
            return fail_at(r, &keys.name->start_mark, "the sweep in line %" PRId64 " is called '%s' already",
                           before->line, scalar_text(keys.name));
        if (read_text(r, keys.name, "name", &sweep->name))
            return -1;
    }
    if (!keys.like)
        return fill_axes(r, defaults, sweep->axis);
    const struct kvg_sweep *like = find_sweep(suite, scalar_text(keys.like));
    return like ? fill_axes(r, like->axis, sweep->axis) : unknown_sweep(r, keys.like, suite);
}

static int read_sweeps(struct reader *r, const yaml_node_t *list,
                       const struct kvg_values defaults[KVG_AXIS_COUNT], struct kvg_suite *suite)
{
    if (list->type != YAML_SEQUENCE_NODE)
        return fail_at(r, &list->start_mark,
                       "sweeps: a list would be right here, each item beginning with '- '");
    int64_t count = list->data.sequence.items.top - list->data.sequence.items.start;
    if (count == 0)
        return fail_at(r, &list->start_mark, "sweeps is empty: nothing would run");
    suite->sweeps = calloc((size_t)count, sizeof *suite->sweeps);
    if (!suite->sweeps)
        return out_of_memory(r);
    int failed = 0;
    while (suite->count < count && !failed) {
        const yaml_node_t *node = node_of(r, list->data.sequence.items.start[suite->count]);
        failed = read_sweep(r, node, defaults, suite, &suite->sweeps[suite->count]);
        suite->count++; /* also after a failure, so that the half-read sweep is freed */
    }
    return failed;
}

/* ------------------------------------------------------------------------------------------ the suite */

static int read_name(struct reader *r, const yaml_node_t *node, struct kvg_suite *suite)
{
    if (want_scalar(r, node, "name"))
        return -1;
    if (strlen(scalar_text(node)) >= sizeof suite->name)
        return fail_at(r, &node->start_mark, "name is longer than %zu characters", sizeof suite->name - 1);
    snprintf(suite->name, sizeof suite->name, "%s", scalar_text(node));
    return 0;
}

static int read_root(struct reader *r, const yaml_node_t *root, struct kvg_values defaults[KVG_AXIS_COUNT],
                     struct kvg_suite *suite)
{
    static const char *const keys[] = {"name", "description", "defaults", "sweeps"};
    if (root->type != YAML_MAPPING_NODE)
        return fail_at(r, &root->start_mark, "a suite is a map with the key sweeps");
    if (check_keys(r, root))
        return -1;
    const yaml_node_t *sweeps = NULL;
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = node_of(r, p->key), *value = node_of(r, p->value);
        int failed = 0;
        if (strcmp(scalar_text(key), "name") == 0)
            failed = read_name(r, value, suite);
        else if (strcmp(scalar_text(key), "description") == 0)
            failed = read_text(r, value, "description", &suite->description);
        else if (strcmp(scalar_text(key), "defaults") == 0)
            failed = read_axes(r, value, defaults, NULL);
        else if (strcmp(scalar_text(key), "sweeps") == 0)
            sweeps = value;
        else
            failed = unknown_key(r, key, keys, 4, "a suite");
        if (failed)
            return -1;
    }
    if (!sweeps)
        return fail_at(r, &root->start_mark, "the key sweeps is missing: nothing would run");
    return read_sweeps(r, sweeps, defaults, suite);
}

static yaml_mark_t mark_of_byte(const struct reader *r, size_t offset)
{
    yaml_mark_t mark = {0};
    for (; mark.index < offset && mark.index < r->length; mark.index++) {
        mark.column++;
        if (r->text[mark.index] == '\n') {
            mark.line++;
            mark.column = 0;
        }
    }
    return mark;
}

static int fail_parser(const struct reader *r, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return out_of_memory(r);
    if (parser->error == YAML_READER_ERROR) { /* a byte that is not UTF-8: libyaml gives its offset only */
        yaml_mark_t mark = mark_of_byte(r, parser->problem_offset);
        return fail_at(r, &mark, "%s", parser->problem);
    }
    return fail_at(r, &parser->problem_mark, "%s%s%s", parser->problem, parser->context ? " " : "",
                   parser->context ? parser->context : "");
}

enum { DEEPEST = 16 }; /* a suite needs four levels */

/* Checks the nesting alone, because libyaml loads a document in time quadratic in its depth. Other errors are
 * reported when the document is loaded. */
static int check_depth(struct reader *r, const char *text, size_t length)
{
    yaml_parser_t parser;
    int64_t depth = 0;
    int failed = 0, end = 0;
    if (!yaml_parser_initialize(&parser))
        return out_of_memory(r);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    while (!failed && !end) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event))
            break;
        depth += event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        depth -= event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        end = event.type == YAML_STREAM_END_EVENT;
        if (depth > DEEPEST)
            failed =
                fail_at(r, &event.start_mark, "nested more than %d deep; a suite needs four levels", DEEPEST);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return failed;
}

/* Nothing may follow the first document. */
static int check_end(struct reader *r, yaml_parser_t *parser)
{
    yaml_document_t second;
    if (!yaml_parser_load(parser, &second))
        return fail_parser(r, parser);
    const yaml_node_t *root = yaml_document_get_root_node(&second);
    int failed =
        root ? fail_at(r, &second.start_mark, "a second document begins here; a suite is one document") : 0;
    yaml_document_delete(&second);
    return failed;
}

static int read_document(struct reader *r, yaml_parser_t *parser, struct kvg_suite *suite)
{
    struct kvg_values defaults[KVG_AXIS_COUNT] = {{0}};
    if (!yaml_parser_load(parser, &r->document))
        return fail_parser(r, parser);
    const yaml_node_t *root = yaml_document_get_root_node(&r->document);
    int failed;
    if (!root)
        failed = kvg_fail(r->error, KVG_EXIT_USAGE,
                          "%s:1:1: the file is empty; a suite is a map with the key sweeps", r->path);
    else
        failed = read_root(r, root, defaults, suite);
    yaml_document_delete(&r->document);
    for (int a = 0; a < KVG_AXIS_COUNT; a++)
        kvg_values_free(&defaults[a]);
    return failed || !root ? failed : check_end(r, parser);
}

/* "dir/quick.yaml" -> "quick" */
static void name_from_path(const char *path, char *name, size_t size)
{
    const char *slash = strrchr(path, '/');
    snprintf(name, size, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
}

int kvg_suite_parse(const char *path, const char *text, size_t length, struct kvg_suite *suite,
                    struct kvg_error *error)
{
    struct reader r = {.path = path, .text = text, .length = length, .error = error};
    yaml_parser_t parser;
    *suite = (struct kvg_suite){0};
    name_from_path(path, suite->name, sizeof suite->name);
    if (check_depth(&r, text, length))
        return -1;
    if (!yaml_parser_initialize(&parser))
        return out_of_memory(&r);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    int failed = read_document(&r, &parser, suite);
    yaml_parser_delete(&parser);
    if (failed)
        kvg_suite_free(suite);
    return failed;
}

/* Whole file into *text (malloc'ed). */
static int slurp(const char *path, char **text, size_t *length, struct kvg_error *error)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (!file)
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: cannot open the suite: %s", path, strerror(errno));
    if (fstat(fileno(file), &info) || S_ISDIR(info.st_mode)) {
        fclose(file);
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: is a folder, not a suite file", path);
    }
    *text = malloc(MAX_SUITE_BYTES + 1);
    *length = *text ? fread(*text, 1, MAX_SUITE_BYTES + 1, file) : 0;
    int failed = ferror(file);
    fclose(file);
    if (*text && !failed && *length <= MAX_SUITE_BYTES)
        return 0;
    int too_long = *length > MAX_SUITE_BYTES;
    free(*text);
    if (too_long)
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: longer than %d bytes, the most a suite may have", path,
                        MAX_SUITE_BYTES);
    return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot read the suite", path);
}

int kvg_suite_read(const char *path, struct kvg_suite *suite, struct kvg_error *error)
{
    char *text = NULL;
    size_t length = 0;
    if (slurp(path, &text, &length, error))
        return -1;
    int failed = kvg_suite_parse(path, text, length, suite, error);
    free(text);
    return failed;
}

void kvg_suite_free(struct kvg_suite *suite)
{
    for (int64_t i = 0; i < suite->count; i++) {
        for (int a = 0; a < KVG_AXIS_COUNT; a++)
            kvg_values_free(&suite->sweeps[i].axis[a]);
        free(suite->sweeps[i].name);
    }
    free(suite->sweeps);
    free(suite->description);
    *suite = (struct kvg_suite){0};
}
