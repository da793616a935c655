/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: the options that choose cases, and a check of long options before argp sees them.
 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/plan/plugins.h"
#include "results/file.h"
#include "results/journal.h"
#include "harness/case/words.h"

enum {
    KEY_SUITE = KVG_OPTION_FIRST,
    KEY_FILTER,
    KEY_CASE,
    KEY_FILE,
    KEY_PLUGIN,
    KEY_AXIS /* + enum kvg_axis */
};

static const struct argp_option plan_options[] = {
    {"suite", KEY_SUITE, "SUITE", 0,
     "A suite of kvgauge list --suites, or a FILE.yaml (default quick, unless --case or an axis is given). "
     "With an axis and no suite the cases are the product of the given axes, the others at their defaults.",
     1},
    {"filter", KEY_FILTER, "REGEX", 0,
     "Only the cases whose string matches the POSIX extended regular expression; after a leading -, only "
     "those that do not match. Given again, up to 16 times: a case must pass all.",
     1},
    {"case", KEY_CASE, "CASE", 0,
     "Exactly this case. CASE is a line of kvgauge list, a value of the column case_string, or an id as "
     "tables "
     "print it (8 to 16 digits) of a case of --file or of --suite.",
     1},
    {"file", KEY_FILE, "FILE", 0, "The result file or journal that has a row of the id that --case gives.",
     1},
    {"plugin", KEY_PLUGIN, "FILE.so", 0, "Load kernels from a shared object. May be given up to 16 times.",
     1},
    {NULL, 0, NULL, 0,
     "Axes: each overrides this axis in every sweep of the suite. A list (1k,8k) is multiplied with the "
     "other axes. Whole numbers take k (1024) and M (1024 k), and ranges: 1k:128k:*2 multiplies, 16:64:+16 "
     "adds.",
     2},
#define KVG_AXIS(id, name, option, arg, fallback, optional, help)                                            \
    {option, KEY_AXIS + KVG_AXIS_##id, arg, 0, help " (default " fallback ")", 2},
#include "harness/case/axes.def"
    {0}};

/* 1 for 8 to 16 hexadecimal digits: the id of a case, or its beginning. */
static int is_case_id(const char *text)
{
    const size_t length = strlen(text);
    return length >= 8 && length <= 16 && strspn(text, "0123456789abcdef") == length;
}

static void finish(const struct kvg_plan_options *o, struct argp_state *state)
{
    const struct kvg_plan_request *r = &o->request;
    int axis = -1;
    for (int a = 0; a < KVG_AXIS_COUNT && axis < 0; a++)
        if (r->axis[a])
            axis = a;
    if (r->case_string && r->suite && !is_case_id(r->case_string))
        argp_error(state, "--case names one case; --suite does not go with it");
    if (o->file && (!r->case_string || !is_case_id(r->case_string) || r->suite))
        argp_error(state, "--file goes with the id of a case, as in --case 0123abcd --file run.h5");
    if (r->case_string && axis >= 0)
        argp_error(state, "--case names one case; change %s= in the string instead of giving an option",
                   kvg_axis_get_info((enum kvg_axis)axis)->name);
    if (r->case_string && r->filter)
        argp_error(state, "--case names one case; --filter does not go with it");
}

static error_t parse_plan(int key, char *arg, struct argp_state *state)
{
    struct kvg_plan_options *o = state->input;
    if (key >= KEY_AXIS && key < KEY_AXIS + KVG_AXIS_COUNT) {
        if (o->request.axis[key - KEY_AXIS])
            argp_error(state, "%s is given twice; a list is one option, as in --context 1k,8k",
                       kvg_axis_get_info((enum kvg_axis)(key - KEY_AXIS))->name);
        o->request.axis[key - KEY_AXIS] = arg;
        return 0;
    }
    switch (key) {
    case ARGP_KEY_INIT:
        *o = (struct kvg_plan_options){0};
        return 0;
    case KEY_SUITE:
        o->request.suite = arg;
        return 0;
    case KEY_FILTER:
        if (o->n_filters > KVG_MORE_FILTERS)
            argp_error(state, "more than %d filters", 1 + KVG_MORE_FILTERS);
        if (o->n_filters++)
            o->request.more_filters[o->n_filters - 2] = arg;
        else
            o->request.filter = arg;
        return 0;
    case KEY_FILE:
        o->file = arg;
        return 0;
    case KEY_CASE:
        o->request.case_string = arg;
        return 0;
    case KEY_PLUGIN:
        if (o->n_plugins == KVG_MAX_PLUGINS)
            argp_error(state, "more than %d plug-ins", KVG_MAX_PLUGINS);
        o->plugins[o->n_plugins++] = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; a suite is --suite %s", arg, arg);
        return 0;
    case ARGP_KEY_SUCCESS:
        finish(o, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp kvg_plan_argp = {plan_options, parse_plan, NULL, NULL, NULL, NULL, NULL};
const struct argp_child kvg_plan_children[] = {{&kvg_plan_argp, 0, "Which cases:", 9}, {0}};
_Static_assert(KVG_MAX_PLUGINS == 16, "the text of --plugin says 16");

/* ------------------------------------------------------------------------------------------ long options */

#define MAX_LONG 128
struct long_options {
    const char *name[MAX_LONG];
    int takes_argument[MAX_LONG];
    int64_t count;
};

static void collect(const struct argp *argp, struct long_options *all)
{
    for (const struct argp_option *o = argp->options; o && (o->name || o->key || o->doc || o->group); o++)
        if (o->name && !(o->flags & OPTION_DOC) && all->count < MAX_LONG) {
            all->name[all->count] = o->name;
            all->takes_argument[all->count++] = o->arg && !(o->flags & OPTION_ARG_OPTIONAL);
        }
    for (const struct argp_child *c = argp->children; c && c->argp; c++)
        collect(c->argp, all);
}

/* Index of a long option by name or unambiguous beginning, as getopt takes it; -1 unknown, -2 ambiguous. */
static int64_t find_long(const struct long_options *all, const char *name, size_t length)
{
    int64_t found = -1;
    for (int64_t i = 0; i < all->count; i++) {
        if (strncmp(all->name[i], name, length))
            continue;
        if (strlen(all->name[i]) == length)
            return i;
        found = found == -1 ? i : -2;
    }
    return found;
}

static void usage_error(const char *command, const char *format, const char *what, const char *hint)
{
    fprintf(stderr, "%s: ", command);
    fprintf(stderr, format, what, hint);
    fprintf(stderr, "\nTry `%s --help'.\n", command);
    exit(KVG_EXIT_USAGE);
}

/* "--kv_cache_dtype" -> "--kv-cache-dtype", in place: columns are written with '_'. */
static void hyphenate(char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (name[i] == '_')
            name[i] = '-';
}

/* Checks each long option: hyphens for underscores, and an error with the nearest name for an unknown one. */
static void check_long_options(const struct argp *argp, int argc, char **argv)
{
    static const char *const argp_own[] = {"help", "usage", "version"};
    struct long_options all = {.count = 0};
    collect(argp, &all);
    for (int i = 0; i < 3; i++)
        all.name[all.count++] = argp_own[i];
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (strcmp(argv[i], "-h") == 0)
            argv[i] = "--help"; /* argp itself knows only -? */
        if (strncmp(argv[i], "--", 2))
            continue;
        char *name = argv[i] + 2;
        size_t length = strcspn(name, "=");
        hyphenate(name, length);
        int64_t found = find_long(&all, name, length);
        if (found == -1) {
            char word[128], hint[160] = "";
            snprintf(word, sizeof word, "%.*s", (int)length, name);
            const char *near = kvg_word_nearest(word, all.name, all.count);
            if (near)
                snprintf(hint, sizeof hint, "; did you mean '--%s'?", near);
            usage_error(argv[0], "there is no option '--%s'%s", word, hint);
        }
        if (found >= 0 && all.takes_argument[found] && name[length] != '=')
            i++; /* the next word is its argument, even if it begins with "--" */
    }
}

void kvg_options_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    argp_err_exit_status = KVG_EXIT_USAGE;
    check_long_options(argp, argc, argv);
    if (argp_parse(argp, argc, argv, 0, NULL, input))
        exit(KVG_EXIT_USAGE);
}

/* ------------------------------------------------------------------------------------------ to a plan */

/* Time to load a plug-in and to answer a question about a kernel, for a command that has no --timeout. */
#define PLUGIN_SECONDS 60

int kvg_plan_options_load_plugins(const struct kvg_plan_options *options, struct kvg_error *error)
{
    const double seconds = options->plugin_seconds > 0 ? options->plugin_seconds : PLUGIN_SECONDS;
    return options->plugins_here ? kvg_plugins_load(options->plugins, options->n_plugins, seconds, error)
                                 : kvg_plugins_list(options->plugins, options->n_plugins, seconds, error);
}

static int look_up_in_file(const char *file, const char *id, char text[KVG_CASE_STRING_MAX],
                           struct kvg_error *error)
{
    struct kvg_results results;
    int found = 0;
    if (kvg_results_read(file, &results, error))
        return -1;
    for (int64_t i = 0; i < results.count && !found; i++)
        if (strncmp(results.rows[i].case_id, id, strlen(id)) == 0) {
            snprintf(text, KVG_CASE_STRING_MAX, "%s", results.rows[i].case_string);
            found = 1;
        }
    kvg_results_free(&results);
    return found ? 0 : kvg_fail(error, KVG_EXIT_USAGE, "--case %s: no row of %.300s has that id", id, file);
}

static int look_up_in_suite(const char *suite, const char *id, char text[KVG_CASE_STRING_MAX],
                            struct kvg_error *error)
{
    const struct kvg_plan_request request = {.suite = suite};
    struct kvg_plan plan;
    int found = 0;
    if (kvg_plan_make(&request, &plan, error))
        return -1;
    for (int64_t i = 0; i < plan.count && !found; i++) {
        char of_case[17];
        kvg_case_id(&plan.cases[i], of_case);
        if (strncmp(of_case, id, strlen(id)) == 0) {
            kvg_case_format(&plan.cases[i], text);
            found = 1;
        }
    }
    kvg_plan_free(&plan);
    return found
               ? 0
               : kvg_fail(error, KVG_EXIT_USAGE,
                          "--case %s: no case of suite %.100s has that id; --suite SUITE or --file FILE says "
                          "where to look for it",
                          id, suite);
}

int kvg_plan_options_make_plan(const struct kvg_plan_options *options, struct kvg_plan *plan,
                               struct kvg_error *error)
{
    struct kvg_plan_request request = options->request;
    char text[KVG_CASE_STRING_MAX];
    int axes = 0;
    if (kvg_plan_options_load_plugins(options, error))
        return -1;
    if (request.case_string && is_case_id(request.case_string)) {
        if (options->file
                ? look_up_in_file(options->file, request.case_string, text, error)
                : look_up_in_suite(request.suite ? request.suite : "quick", request.case_string, text, error))
            return -1;
        request.case_string = text;
        request.suite = NULL;
    }
    for (int a = 0; a < KVG_AXIS_COUNT; a++)
        axes += request.axis[a] != NULL;
    if (!request.suite && !request.case_string && !axes)
        request.suite = "quick";
    return kvg_plan_make(&request, plan, error);
}

void kvg_plan_print_cases(const struct kvg_plan *plan)
{
    for (int64_t i = 0; i < plan->count; i++) {
        char text[KVG_CASE_STRING_MAX];
        kvg_case_format(&plan->cases[i], text);
        puts(text);
    }
}

int kvg_error_report(const struct kvg_error *error)
{
    fflush(stdout); /* so that on a terminal the message comes after what was printed */
    fputs("kvgauge: ", stderr);
    for (const char *c = error->text; *c; c++) /* a message may quote a file, and a terminal obeys controls */
        if (((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f)
            fprintf(stderr, "\\x%02x", (unsigned char)*c);
        else
            putc(*c, stderr);
    putc('\n', stderr);
    return (int)error->exit_code;
}
