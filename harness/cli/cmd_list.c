/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_list.c: `kvgauge list`: prints the cases that would run, one canonical case string a line and nothing
 * else, so that the output can be piped; or a table of the kernels, inputs, suites or axes.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/registry.h"
#include "commands.h"
#include "harness/inputs/inputs.h"
#include "options.h"
#include "harness/plan/plugins.h"
#include "harness/plan/shipped.h"
#include "harness/plan/suite.h"

/* Keys beyond the range of characters, so that there are no short options. */
enum what { LIST_CASES = 0, LIST_KERNELS = 0x100, LIST_INPUTS, LIST_SUITES, LIST_AXES };

struct list_options {
    struct kvg_plan_options plan;
    enum what what;
};

static const struct argp_option options[] = {
    {"kernels", LIST_KERNELS, NULL, 0,
     "List the kernels: what each does, its rank (one number, or three for decode, append and prefill; "
     "--kernel best takes the highest) and whether this machine can run it. With --kernel, those that match.",
     0},
    {"inputs", LIST_INPUTS, NULL, 0, "List the synthetic distributions and the captured inputs.", 0},
    {"suites", LIST_SUITES, NULL, 0,
     "List the suites shipped with kvgauge, with their number of cases and of timed cases.", 0},
    {"axes", LIST_AXES, NULL, 0, "List the axes, with their defaults and values.", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct list_options *o = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->plan;
        return 0;
    case LIST_KERNELS:
    case LIST_INPUTS:
    case LIST_SUITES:
    case LIST_AXES:
        if (o->what && o->what != (enum what)key)
            argp_error(state, "--kernels, --inputs, --suites and --axes exclude each other");
        o->what = (enum what)key;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp kvg_list_argp = {
    options,
    parse,
    NULL,
    "Print the case strings that `kvgauge run` with the same options would run, one a line; or one of the "
    "tables.\v"
    "kvgauge run --case 'LINE' runs the case of a line.",
    kvg_plan_children,
    NULL,
    NULL};

/* ------------------------------------------------------------------------------------------ cases */

static int list_cases(const struct list_options *o)
{
    struct kvg_plan plan;
    struct kvg_error error;
    if (kvg_plan_options_make_plan(&o->plan, &plan, &error))
        return kvg_error_report(&error);
    kvg_plan_print_cases(&plan);
    kvg_plan_free(&plan);
    return KVG_EXIT_OK;
}

/* ------------------------------------------------------------------------------------------ kernels */

/* 1 when the kernel takes some problem on this machine; -1 when the process that asked it died or hung. Tried are default problems of every phase that it has
 * an entry point for, with every path and dtype that go together. `why` receives the last refusal. */
static int runs_here(const struct kvg_kernel *kernel, char *why, size_t size)
{
    snprintf(why, size, "has neither store nor attention");
    for (int phase = KVG_PHASE_STORE; phase <= KVG_PHASE_PREFILL; phase++)
        for (int path = KVG_PATH_DEQUANT; path <= KVG_PATH_FP8; path++)
            for (int dtype = KVG_CACHE_AUTO; dtype <= KVG_CACHE_FP8_E4M3FNUZ; dtype++) {
                struct kvg_problem problem;
                struct kvg_case c;
                char unused[256];
                kvg_case_default(&c);
                c.phase = (enum kvg_phase)phase;
                c.path = (enum kvg_path)path;
                c.kv_cache_dtype = (enum kvg_cache_dtype)dtype;
                if (!kvg_kernel_has_entry(kernel, c.phase) || kvg_case_complete(&c, NULL) ||
                    kvg_case_without_meaning(&c, unused, sizeof unused))
                    continue;
                kvg_case_problem(&c, &problem);
                const int takes = kvg_plugins_take(kernel, &problem, why, size);
                if (takes)
                    return takes;
            }
    return 0;
}

static const char *what_it_does(const struct kvg_kernel *kernel)
{
    if (kernel->store && kernel->attention)
        return "store, attention";
    if (kernel->attention)
        return "attention";
    return kernel->store ? "store" : kernel->quantize_q ? "quantize_q" : "nothing";
}

/* "40", or "33/40/40": the ranks in decode, append and prefill, each of the default case. -1 with the reason if the
 * kernel was asked and did not answer. */
static int rank_text(const struct kvg_kernel *kernel, char *text, size_t size, char *why, size_t why_size)
{
    int rank[3];
    for (int i = 0; i < 3; i++) {
        struct kvg_problem problem;
        struct kvg_case c;
        kvg_case_default(&c);
        c.phase = (enum kvg_phase)(KVG_PHASE_DECODE + i);
        kvg_case_complete(&c, NULL); /* cannot fail for the default case */
        kvg_case_problem(&c, &problem);
        if (kvg_plugins_rank(kernel, &problem, &rank[i], why, why_size)) {
            snprintf(text, size, "?");
            return -1;
        }
    }
    if (kvg_plugins_has_rank_for(kernel))
        snprintf(text, size, "%d/%d/%d", rank[0], rank[1], rank[2]);
    else
        snprintf(text, size, "%d", rank[0]);
    return 0;
}

/* One line of the table. -1 with the reason if the kernel was asked and did not answer. */
static int print_kernel(const struct kvg_kernel *kernel, int width, char *why, size_t size)
{
    char rank[48], refusal[256];
    const int here = runs_here(kernel, refusal, sizeof refusal);
    const int ranked = rank_text(kernel, rank, sizeof rank, why, size);
    if (here < 0)
        snprintf(why, size, "%s", refusal);
    printf("%-*s  %-16s  %8s  %-4s  %s%s%s%s\n", width, kernel->name, what_it_does(kernel), rank,
           here > 0 ? "yes" : "no", kernel->summary, here > 0 ? "" : " (", here > 0 ? "" : refusal,
           here > 0 ? "" : ")");
    return here < 0 || ranked < 0 ? -1 : 0;
}

/* 1 if one of the globs that --kernel gives, separated by commas, matches; also without --kernel. */
static int is_wanted(const struct list_options *o, const char *name)
{
    const char *globs = o->plan.request.axis[KVG_AXIS_KERNEL];
    int found = globs == NULL;
    while (globs && *globs && !found) {
        char glob[128];
        const size_t length = strcspn(globs, ",");
        snprintf(glob, sizeof glob, "%.*s", (int)length, globs);
        found = fnmatch(glob, name, 0) == 0;
        globs += length + (globs[length] == ',');
    }
    return found;
}

static int list_kernels(const struct list_options *o)
{
    int width = (int)strlen("kernel"), wanted = 0, code = KVG_EXIT_OK;
    struct kvg_error error;
    if (kvg_plan_options_load_plugins(&o->plan, &error))
        return kvg_error_report(&error);
    for (int64_t i = 0; i < kvg_registry_count(); i++) {
        const char *name = kvg_registry_get(i)->name;
        if (!is_wanted(o, name))
            continue;
        wanted++;
        if ((int)strlen(name) > width)
            width = (int)strlen(name);
    }
    if (!wanted) {
        kvg_fail(&error, KVG_EXIT_USAGE, "no kernel matches '%s' (kvgauge list --kernels names all)",
                 o->plan.request.axis[KVG_AXIS_KERNEL]);
        return kvg_error_report(&error);
    }
    printf("%-*s  %-16s  %8s  %-4s  %s\n", width, "kernel", "does", "rank", "here", "summary");
    for (int64_t i = 0; i < kvg_registry_count(); i++) {
        const struct kvg_kernel *kernel = kvg_registry_get(i);
        char why[256];
        if (!is_wanted(o, kernel->name))
            continue;
        if (print_kernel(kernel, width, why, sizeof why)) {
            kvg_fail(&error, KVG_EXIT_USAGE, "kernel %s: %s", kernel->name, why);
            code = kvg_error_report(&error);
        }
    }
    kvg_plugins_rest();
    return code;
}

/* ------------------------------------------------------------------------------------------ inputs */

static int list_inputs(void)
{
    struct kvg_captured_info info;
    struct kvg_error error;
    char layers[512];
    printf("%-16s  %s\n", "input", "what it is");
    const struct kvg_input_info *input;
    for (int64_t i = 0; (input = kvg_input_synthetic(i)); i++)
        printf("%-16s  %s\n", input->name, input->help);
    if (kvg_captured_read_info("smollm2", &info, &error)) {
        printf("%-16s  captured tensors, not to be had here: %s\n", "smollm2", error.text);
        return KVG_EXIT_OK;
    }
    kvg_captured_list_layers(&info, layers, sizeof layers);
    printf("%-16s  captured from %s: layers %s; heads %" PRId64 "/%" PRId64 ", head_dim %" PRId64 ", %" PRId64
           " tokens\n",
           "smollm2", info.model, layers, info.q_heads, info.kv_heads, info.head_dim, info.tokens);
    printf("%-16s  captured tensors of your own, made by harness/inputs/capture.py\n", "FILE.h5");
    return KVG_EXIT_OK;
}

/* ------------------------------------------------------------------------------------------ suites */

static int list_suite(const char *folder, const char *name)
{
    char path[2048];
    struct kvg_suite suite;
    struct kvg_plan plan;
    struct kvg_error error;
    snprintf(path, sizeof path, "%s/%s.yaml", folder, name);
    const struct kvg_plan_request request = {.suite = path};
    if (kvg_suite_read(path, &suite, &error))
        return kvg_error_report(&error);
    if (kvg_plan_make(&request, &plan, &error)) {
        kvg_suite_free(&suite);
        return kvg_error_report(&error);
    }
    int64_t timed = 0;
    for (int64_t i = 0; i < plan.count; i++)
        timed += plan.cases[i].cache_state != KVG_STATE_NONE;
    printf("%-12s  %6" PRId64 "  %6" PRId64 "  %s\n", name, plan.count, timed,
           suite.description ? suite.description : "");
    kvg_plan_free(&plan);
    kvg_suite_free(&suite);
    return KVG_EXIT_OK;
}

static int list_suites(void)
{
    char folder[1024], **names;
    int64_t count;
    struct kvg_error error;
    if (kvg_shipped_list_suites(folder, sizeof folder, &names, &count, &error))
        return kvg_error_report(&error);
    int code = KVG_EXIT_OK;
    printf("%-12s  %6s  %6s  %s\n", "suite", "cases", "timed", "what it shows");
    for (int64_t i = 0; i < count; i++) {
        int one = list_suite(folder, names[i]);
        code = one > code ? one : code;
    }
    kvg_shipped_free_names(names, count);
    printf("\nFolder: %s. A suite of your own: kvgauge run --suite FILE.yaml.\n", folder);
    return code;
}

/* ------------------------------------------------------------------------------------------ axes */

static int list_axes(void)
{
    printf("%-15s  %-13s  %s\n", "axis", "default", "what it takes");
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        const struct kvg_axis_info *info = kvg_axis_get_info((enum kvg_axis)a);
        printf("%-15s  %-13s  %s\n", info->name, info->fallback, info->help);
    }
    return KVG_EXIT_OK;
}

int kvg_cmd_list(int argc, char **argv)
{
    struct list_options o = {.what = LIST_CASES};
    kvg_options_parse(&kvg_list_argp, argc, argv, &o);
    switch (o.what) {
    case LIST_KERNELS:
        return list_kernels(&o);
    case LIST_INPUTS:
        return list_inputs();
    case LIST_SUITES:
        return list_suites();
    case LIST_AXES:
        return list_axes();
    case LIST_CASES:
        break;
    }
    return list_cases(&o);
}
