/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: sweeps to cases. The product of the values of a sweep is walked axis by axis. Each case is
 * completed, its kernel is resolved, and it is kept unless the plan has it already or the filter rejects it.
 * At the end, cases that share their tensors are made neighbours.
 */
#include "results/results.h"
#include "plan.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <jansson.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/registry.h"
#include "ask_kernel.h"
#include "harness/case/expand.h"
#include "harness/inputs/inputs.h"
#include "harness/machine/machine.h"
#include "harness/case/words.h"
#include "order.h"
#include "plugins.h"
#include "shipped.h"
#include "suite.h"

#define MAX_CASES 100000 /* nearly three hours at a tenth of a second each: more is taken for a mistake */

struct builder {
    struct kvg_plan *plan;
    int64_t room; /* of plan->cases */
    json_t *seen; /* an object whose keys are case strings: true for plan->cases, false for rejected ones */
    int64_t rejected; /* by the filter */
    regex_t regex[1 + KVG_MORE_FILTERS];
    int negate[1 + KVG_MORE_FILTERS], filters;
    struct kvg_values override[KVG_AXIS_COUNT];
    int effective[KVG_AXIS_COUNT];                   /* 1 when some case has a value of the override */
    const struct kvg_values *values[KVG_AXIS_COUNT]; /* of the sweep being walked; NULL = the default */
    struct kvg_asker *asker;
    char where[1100];               /* "FILE:LINE: " of that sweep, or "" */
    struct kvg_error contradiction; /* the first in a case that the filter rejects; text "" when none */
    struct kvg_error *error;
    int no_rank; /* not 0: a kernel was asked for its rank and did not answer; *error says why */
};

static int out_of_memory(struct builder *b)
{
    return kvg_fail(b->error, KVG_EXIT_TROUBLE, "out of memory after %" PRId64 " cases", b->plan->count);
}

/* ------------------------------------------------------------------------------------------ filter */

static int compile_filter(struct builder *b, const char *filter)
{
    regex_t *regex = &b->regex[b->filters];
    b->negate[b->filters] = *filter == '-';
    if (kvg_pattern_check(filter + b->negate[b->filters], b->error))
        return -1;
    int code = regcomp(regex, filter + b->negate[b->filters], REG_EXTENDED | REG_NOSUB);
    if (code == 0) {
        b->filters++;
        return 0;
    }
    char why[256];
    regerror(code, regex, why, sizeof why);
    return kvg_fail(b->error, KVG_EXIT_USAGE, "--filter '%s' is not a POSIX extended regular expression: %s",
                    filter, why);
}

static int compile_filters(struct builder *b, const struct kvg_plan_request *request)
{
    int failed = request->filter ? compile_filter(b, request->filter) : 0;
    for (int i = 0; i < KVG_MORE_FILTERS && request->more_filters[i] && !failed; i++)
        failed = compile_filter(b, request->more_filters[i]);
    return failed;
}

static int passes_filter(const struct builder *b, const char *text)
{
    for (int i = 0; i < b->filters; i++)
        if ((regexec(&b->regex[i], text, 0, NULL, 0) == 0) == b->negate[i])
            return 0;
    return 1;
}

/* Counts a case that a filter rejects, each once, as the plan has each once. */
static int reject(struct builder *b, const char *text)
{
    if (json_object_get(b->seen, text))
        return 0;
    b->rejected++;
    return json_object_set_new_nocheck(b->seen, text, json_false()) ? out_of_memory(b) : 0;
}

/* ------------------------------------------------------------------------------------------ keeping cases */

static int grow(struct builder *b)
{
    int64_t room = b->room ? b->room * 2 : 256;
    struct kvg_case *cases = realloc(b->plan->cases, (size_t)room * sizeof *cases);
    if (!cases)
        return out_of_memory(b);
    b->plan->cases = cases;
    b->room = room;
    return 0;
}

static int keep(struct builder *b, const struct kvg_case *asked)
{
    struct kvg_case c = *asked;
    char text[KVG_CASE_STRING_MAX];
    if (kvg_case_on_gpu(&c))
        c.threads = kvg_cpus_allowed();
    kvg_case_format(&c, text);
    if (!passes_filter(b, text))
        return reject(b, text);
    if (json_object_get(b->seen, text))
        return 0;
    if (b->plan->count == MAX_CASES)
        return kvg_fail(b->error, KVG_EXIT_USAGE,
                        "%sthe plan has more than %d cases; give fewer values of an axis, or --filter",
                        b->where, MAX_CASES);
    if (b->plan->count == b->room && grow(b))
        return -1;
    /* _nocheck: the name of a captured file may hold bytes that are not UTF-8 */
    if (json_object_set_new_nocheck(b->seen, text, json_true()))
        return out_of_memory(b);
    b->plan->cases[b->plan->count++] = c;
    return 0;
}

/* ------------------------------------------------------------------------------------------ kernels */

static int is_glob(const char *name)
{
    return strpbrk(name, "*?[") != NULL;
}

static int unknown_kernel(struct builder *b, const char *name)
{
    int64_t count = kvg_registry_count();
    const char **names = calloc((size_t)count + 1, sizeof *names);
    if (!names)
        return out_of_memory(b);
    for (int64_t i = 0; i < count; i++)
        names[i] = kvg_registry_get(i)->name;
    char hint[128];
    kvg_word_hint(name, names, count, hint, sizeof hint);
    free(names);
    return kvg_fail(b->error, KVG_EXIT_USAGE, "%sno kernel %s '%s'%s (kvgauge list --kernels names all)",
                    b->where, is_glob(name) ? "matches" : "is called", name, hint);
}

/* One case for each kernel that matches the glob and takes the case; the case with the glob when none
 * does. */
static int keep_glob(struct builder *b, const struct kvg_case *c)
{
    struct kvg_problem problem;
    int64_t taken = 0;
    kvg_case_problem(c, &problem);
    for (int64_t i = 0; i < kvg_registry_count(); i++) {
        const struct kvg_kernel *kernel = kvg_registry_get(i);
        char why[256];
        if (fnmatch(c->kernel, kernel->name, 0) || !kvg_kernel_has_entry(kernel, c->phase) ||
            !kvg_asker_ask(b->asker, kernel, &problem, why, sizeof why))
            continue;
        struct kvg_case named = *c;
        snprintf(named.kernel, sizeof named.kernel, "%s", kernel->name);
        if (keep(b, &named))
            return -1;
        taken++;
    }
    return taken ? 0 : keep(b, c);
}

static int ask(void *builder, const struct kvg_kernel *kernel, const struct kvg_problem *problem, char *why,
               size_t size)
{
    return kvg_asker_ask(((struct builder *)builder)->asker, kernel, problem, why, size);
}

/* Without a rank nothing can be called the best. */
static int rank(void *builder, const struct kvg_kernel *kernel, const struct kvg_problem *problem)
{
    struct builder *b = builder;
    char why[256];
    int rank;
    if (kvg_plugins_rank(kernel, problem, &rank, why, sizeof why))
        b->no_rank = kvg_fail(b->error, KVG_EXIT_USAGE, "kernel %s: %s", kernel->name, why);
    return rank;
}

static int keep_best(struct builder *b, const struct kvg_case *c)
{
    struct kvg_problem problem;
    struct kvg_case named = *c;
    char why[256];
    kvg_case_problem(c, &problem);
    const struct kvg_registry_questions questions = {ask, rank, b};
    const struct kvg_kernel *best = kvg_registry_best_by(&problem, &questions, why, sizeof why);
    if (b->no_rank)
        return -1;
    if (best)
        snprintf(named.kernel, sizeof named.kernel, "%s", best->name);
    return keep(b, &named);
}

/* A build without CUDA does not know the names of the CUDA kernels. Such a case is kept and its row is
 * skipped. */
static int may_exist(const char *name)
{
    return !kvg_registry_has_cuda() && strncmp(name, "cuda/", 5) == 0;
}

static int keep_kernels(struct builder *b, const struct kvg_case *c)
{
    char why[256];
    if (kvg_case_predicts(c))
        return keep(b, c);
    if (!is_glob(c->kernel) && strcmp(c->kernel, "best")) {
        if (!kvg_registry_find(c->kernel) && !may_exist(c->kernel))
            return unknown_kernel(b, c->kernel);
        return keep(b, c);
    }
    if (kvg_case_without_meaning(c, why, sizeof why))
        return keep(b, c); /* its row is skipped with the reason */
    return is_glob(c->kernel) ? keep_glob(b, c) : keep_best(b, c);
}

/* ------------------------------------------------------------------------------------------ the product */

static void note_effective(struct builder *b, const struct kvg_case *c)
{
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        char value[KVG_CASE_VALUE_MAX];
        if (b->effective[a] || !b->override[a].count)
            continue;
        kvg_case_get(c, (enum kvg_axis)a, value, sizeof value);
        for (int64_t i = 0; i < b->override[a].count && !b->effective[a]; i++)
            b->effective[a] = strcmp(value, b->override[a].text[i]) == 0;
    }
}

static int finish_case(struct builder *b, const struct kvg_case *asked)
{
    struct kvg_case c = *asked;
    struct kvg_error why;
    if (kvg_case_complete(&c, &why) == 0) {
        note_effective(b, &c);
        return keep_kernels(b, &c);
    }
    char text[KVG_CASE_STRING_MAX];
    kvg_case_format(asked, text);
    if (passes_filter(b, text))
        return kvg_fail(b->error, why.exit_code, "%s%s [in the case: %s]", b->where, why.text, text);
    if (!*b->contradiction.text)
        kvg_fail(&b->contradiction, why.exit_code, "%s%s", b->where, why.text);
    return reject(b, text);
}

static int walk(struct builder *b, int axis, const struct kvg_case *so_far);

static int walk_all_layers(struct builder *b, const struct kvg_case *so_far)
{
    struct kvg_case c = *so_far;
    struct kvg_captured_info info;
    /* Without the file kvg_case_complete reports the error, unless the filter rejects the case. */
    if (kvg_input_is_synthetic(c.input) || kvg_captured_read_info(c.input, &info, NULL))
        return walk(b, KVG_AXIS_LAYER + 1, &c);
    for (int64_t i = 0; i < info.n_layers; i++) {
        c.layer = info.layers[i];
        if (walk(b, KVG_AXIS_LAYER + 1, &c))
            return -1;
    }
    return 0;
}

/* Makes the product of the axes from `axis` on; so_far has the values of the axes before. */
static int walk(struct builder *b, int axis, const struct kvg_case *so_far)
{
    if (axis == KVG_AXIS_COUNT)
        return finish_case(b, so_far);
    const struct kvg_values *values = b->values[axis];
    int fixed_by_phase = axis == KVG_AXIS_Q_LEN && so_far->phase != KVG_PHASE_APPEND;
    if (!values || fixed_by_phase)
        return walk(b, axis + 1, so_far);
    for (int64_t i = 0; i < values->count; i++) {
        struct kvg_case c = *so_far;
        if (axis == KVG_AXIS_LAYER && strcmp(values->text[i], "all") == 0) {
            if (walk_all_layers(b, &c))
                return -1;
            continue;
        }
        if (kvg_case_set(&c, (enum kvg_axis)axis, values->text[i], b->error) || walk(b, axis + 1, &c))
            return -1;
    }
    return 0;
}

static int walk_sweep(struct builder *b, const struct kvg_sweep *sweep)
{
    struct kvg_case start;
    kvg_case_default(&start);
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        b->values[a] = NULL;
        if (b->override[a].count)
            b->values[a] = &b->override[a];
        else if (sweep && sweep->axis[a].count)
            b->values[a] = &sweep->axis[a];
    }
    return walk(b, 0, &start);
}

/* ------------------------------------------------------------------------------------------ overrides */

static int expand_overrides(struct builder *b, const struct kvg_plan_request *request)
{
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        if (!request->axis[a])
            continue;
        if (kvg_values_expand((enum kvg_axis)a, request->axis[a], &b->override[a], b->error))
            return -1;
        for (int64_t i = 0; i < b->override[a].count; i++) {
            /* "fp8" becomes "fp8_e4m3" and "8k" 8192, so that they compare equal with values of cases */
            struct kvg_case scratch;
            char value[KVG_CASE_VALUE_MAX];
            kvg_case_default(&scratch);
            if (kvg_case_set(&scratch, (enum kvg_axis)a, b->override[a].text[i], NULL))
                continue; /* layer=all */
            kvg_case_get(&scratch, (enum kvg_axis)a, value, sizeof value);
            char *copy = strdup(value);
            if (!copy)
                return out_of_memory(b);
            free(b->override[a].text[i]);
            b->override[a].text[i] = copy;
            if (kvg_axis_get_info((enum kvg_axis)a)->optional &&
                !strcmp(value, kvg_axis_get_info((enum kvg_axis)a)->fallback))
                b->effective[a] = 1; /* the default need not have an effect */
        }
    }
    return 0;
}

/* A glob on the command line that matches no kernel is an error. In a suite it may be meant for the kernels
 * of another machine. */
static int check_kernel_globs(struct builder *b)
{
    const struct kvg_values *names = &b->override[KVG_AXIS_KERNEL];
    for (int64_t i = 0; i < names->count; i++) {
        int64_t matches = !is_glob(names->text[i]) || may_exist(names->text[i]);
        for (int64_t k = 0; k < kvg_registry_count(); k++)
            matches += fnmatch(names->text[i], kvg_registry_get(k)->name, 0) == 0;
        if (!matches)
            return unknown_kernel(b, names->text[i]);
    }
    return 0;
}

static const char *why_without_effect(enum kvg_axis axis)
{
    switch (axis) {
    case KVG_AXIS_PATH:
        return "phase store has no path";
    case KVG_AXIS_SCHEME:
    case KVG_AXIS_CALIBRATION:
        return "kv_cache_dtype auto has no scales";
    case KVG_AXIS_OBSERVER:
        return "only calibration dataset has an observer";
    case KVG_AXIS_LAYER:
        return "synthetic input has no layers";
    case KVG_AXIS_Q_LEN:
        return "q_len follows from phase unless that is append";
    case KVG_AXIS_HEADS:
    case KVG_AXIS_HEAD_DIM:
        return "a captured input fixes it";
    default:
        return "no case takes it";
    }
}

static int check_effective(struct builder *b, const struct kvg_plan_request *request)
{
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        int exempt = a == KVG_AXIS_KERNEL ||
                     (a == KVG_AXIS_LAYER && b->override[a].count && !strcmp(b->override[a].text[0], "all"));
        if (request->axis[a] && !b->effective[a] && !exempt)
            return kvg_fail(b->error, KVG_EXIT_USAGE, "%s %s has no effect on any case: %s",
                            kvg_axis_get_info((enum kvg_axis)a)->name, request->axis[a],
                            why_without_effect((enum kvg_axis)a));
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------ the plan */

/* --case: completing the case must not change an axis that the string gives. */
static int plan_case(struct builder *b, const char *text)
{
    struct kvg_case asked, c;
    uint32_t given;
    snprintf(b->plan->name, sizeof b->plan->name, "case");
    if (kvg_case_parse_given(text, &asked, &given, b->error))
        return -1;
    c = asked;
    if (kvg_case_complete(&c, b->error))
        return -1;
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        char before[KVG_CASE_VALUE_MAX], after[KVG_CASE_VALUE_MAX];
        kvg_case_get(&asked, (enum kvg_axis)a, before, sizeof before);
        kvg_case_get(&c, (enum kvg_axis)a, after, sizeof after);
        int asks_nothing = kvg_axis_get_info((enum kvg_axis)a)->optional &&
                           !strcmp(before, kvg_axis_get_info((enum kvg_axis)a)->fallback);
        if ((given & (UINT32_C(1) << a)) && strcmp(before, after) && !asks_nothing)
            return kvg_fail(b->error, KVG_EXIT_USAGE,
                            "--case: %s=%s contradicts the rest, which makes it %s: %s",
                            kvg_axis_get_info((enum kvg_axis)a)->name, before, after,
                            why_without_effect((enum kvg_axis)a));
    }
    return keep_kernels(b, &c);
}

static int plan_suite(struct builder *b, const char *name)
{
    char path[1024] = "";
    struct kvg_suite suite;
    if (kvg_shipped_find_suite(name, path, sizeof path, b->error) || kvg_suite_read(path, &suite, b->error))
        return -1;
    snprintf(b->plan->name, sizeof b->plan->name, "%s", suite.name);
    int failed = 0;
    for (int64_t i = 0; i < suite.count && !failed; i++) {
        snprintf(b->where, sizeof b->where, "%s:%" PRId64 ": ", path, suite.sweeps[i].line);
        failed = walk_sweep(b, &suite.sweeps[i]);
    }
    kvg_suite_free(&suite);
    b->where[0] = '\0';
    return failed;
}

static int plan_cases(struct builder *b, const struct kvg_plan_request *request)
{
    if (compile_filters(b, request))
        return -1;
    if (request->case_string)
        return plan_case(b, request->case_string);
    if (expand_overrides(b, request) || check_kernel_globs(b))
        return -1;
    if (request->suite) {
        if (plan_suite(b, request->suite))
            return -1;
    } else {
        snprintf(b->plan->name, sizeof b->plan->name, "options");
        if (walk_sweep(b, NULL))
            return -1;
    }
    return b->plan->count ? check_effective(b, request) : 0;
}

static int nothing_would_run(struct builder *b, const struct kvg_plan_request *request)
{
    if (*b->contradiction.text) /* the filter may name a value that this case would have */
        return kvg_fail(b->error, b->contradiction.exit_code, "%s", b->contradiction.text);
    return kvg_fail(
        b->error, KVG_EXIT_TROUBLE, "nothing would run: --filter '%s'%s rejects all %" PRId64 " case%s",
        request->filter ? request->filter : "", request->more_filters[0] ? " with the other filters" : "",
        b->rejected, b->rejected == 1 ? "" : "s");
}

int kvg_plan_make(const struct kvg_plan_request *request, struct kvg_plan *plan, struct kvg_error *error)
{
    *plan = (struct kvg_plan){0};
    struct builder *b = calloc(1, sizeof *b);
    if (!b)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    b->plan = plan;
    b->error = error;
    b->asker = kvg_asker_new();
    b->seen = json_object();
    int failed = b->asker && b->seen ? plan_cases(b, request) : out_of_memory(b);
    if (!failed && plan->count == 0)
        failed = nothing_would_run(b, request);
    if (!failed)
        failed = kvg_plan_order_cases(plan->cases, plan->count) ? out_of_memory(b) : 0;
    for (int i = 0; i < b->filters; i++)
        regfree(&b->regex[i]);
    for (int a = 0; a < KVG_AXIS_COUNT; a++)
        kvg_values_free(&b->override[a]);
    kvg_asker_free(b->asker);
    json_decref(b->seen);
    free(b);
    if (failed)
        kvg_plan_free(plan);
    return failed;
}

void kvg_plan_free(struct kvg_plan *plan)
{
    free(plan->cases);
    *plan = (struct kvg_plan){0};
}
