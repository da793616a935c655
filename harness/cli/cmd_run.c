/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_run.c: `kvgauge run`: makes the plan, checks the files, runs each case in a worker and writes each row
 * to the journal at once. At the end, or when interrupted, it makes the result file, the table and the plots
 * from the journal.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/device/ask_device.h"
#include "plots/plot.h"
#include "results/disk.h"
#include "results/file.h"
#include "results/table.h"
#include "results/table_text.h"
#include "argv.h"
#include "commands.h"
#include "harness/diagnose/dump.h"
#include "harness/machine/machine.h"
#include "harness/execute/options.h"
#include "harness/execute/execute.h"
#include "harness/worker/worker.h"
#include "harness/machine/paths.h"
#include "harness/plan/check_missing.h"
#include "progress.h"
#include "repro.h"
#include "row_report.h"
#include "run_command.h"
#include "run_files.h"
#include "signals.h"

/* ---- a run ---- */

struct tally {
    int64_t done;    /* rows made by this call */
    int interrupted; /* by a signal */
};

/* A resumed run repeats such a case. */
static int failed_to_finish(const struct kvg_row *row)
{
    return row->status == KVG_TIMEOUT || row->status == KVG_CRASHED || row->status == KVG_OUT_OF_MEMORY;
}

/* How often a case was tried before; *stands says whether the last row is kept. */
static int64_t attempts_before(const struct kvg_results *earlier, const struct kvg_case *c, int *stands)
{
    char id[17];
    int64_t attempts = 0;
    *stands = 0;
    kvg_case_id(c, id);
    for (int64_t i = 0; i < earlier->count; i++) {
        if (strcmp(earlier->rows[i].case_id, id) != 0)
            continue;
        attempts = earlier->rows[i].attempt > attempts ? earlier->rows[i].attempt : attempts + 1;
        *stands = !failed_to_finish(&earlier->rows[i]);
    }
    return attempts;
}

/* The relative cost of a case, for the time left: timing takes one or two seconds, verifying a tenth of
 * that. */
static double weight(const struct kvg_run_command *command, const struct kvg_case *c)
{
    return c->cache_state == KVG_STATE_NONE || command->run.verify_only ? 1 : 10;
}

/* A case in a few words for the progress line, the most important axes first. */
static void label_case(const struct kvg_case *c, char *text, size_t size)
{
    static const enum kvg_axis axes[] = {KVG_AXIS_PHASE,   KVG_AXIS_PATH,        KVG_AXIS_KV_CACHE_DTYPE,
                                         KVG_AXIS_SCHEME,  KVG_AXIS_CALIBRATION, KVG_AXIS_INPUT,
                                         KVG_AXIS_CONTEXT, KVG_AXIS_CACHE_STATE};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof axes / sizeof axes[0] && used + 1 < size; i++) {
        char value[96];
        kvg_case_get(c, axes[i], value, sizeof value);
        if (strcmp(value, "none") != 0)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", value);
    }
}

static int set_repro(const struct kvg_run_options *run, const struct kvg_case *c, struct kvg_row *row)
{
    char *command = kvg_repro_make(c, run, row);
    int failed = !command || kvg_row_set_string(&row->repro, command);
    free(command);
    return failed ? -1 : 0;
}

/* Runs one case. 0, 1 when interrupted, or -1 with the error. */
static int run_one(const struct kvg_run_command *command, struct kvg_worker *worker,
                   struct kvg_run_files *files, const struct kvg_case *c, int64_t attempt,
                   struct kvg_progress *progress, struct kvg_error *error)
{
    struct kvg_row row;
    if (kvg_row_init(&row))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    int result = kvg_worker_run(worker, c, &row, error);
    if (result == 0) {
        row.attempt = attempt;
        if (set_repro(&command->run, c, &row))
            result = kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
        else if (kvg_journal_write(files->journal, &row, error) ||
                 kvg_run_files_add_benchmark(files, kvg_worker_report(worker), error))
            result = -1;
        kvg_progress_end_case(progress, weight(command, c),
                              row.status != KVG_PASSED && row.status != KVG_SKIPPED);
    }
    kvg_row_free(&row);
    return result;
}

static int run_cases(const struct kvg_run_command *command, const struct kvg_plan *plan,
                     const struct kvg_results *earlier, struct kvg_worker *worker,
                     struct kvg_run_files *files, struct tally *tally, struct kvg_error *error)
{
    struct kvg_progress progress;
    int failed = 0;
    double total_weight = 0;
    for (int64_t i = 0; i < plan->count; i++)
        total_weight += weight(command, &plan->cases[i]);
    kvg_progress_begin(&progress, stderr, plan->count, total_weight, command->quiet);
    for (int64_t i = 0; i < plan->count && !failed; i++) {
        char text[256];
        int stands;
        int64_t attempt = 1 + attempts_before(earlier, &plan->cases[i], &stands);
        if (stands) {
            progress.total--;
            progress.total_weight -= weight(command, &plan->cases[i]);
            continue;
        }
        label_case(&plan->cases[i], text, sizeof text);
        kvg_progress_show_case(&progress, text);
        failed = run_one(command, worker, files, &plan->cases[i], attempt, &progress, error);
        tally->done += failed == 0;
    }
    kvg_progress_end(&progress);
    tally->interrupted = failed == 1;
    return failed < 0 ? -1 : 0;
}

/* ---- what comes out ---- */

/* 1 when a later row repeats the case. Such a row does not count. */
static int superseded(const struct kvg_results *results, int64_t i)
{
    for (int64_t j = i + 1; j < results->count; j++)
        if (strcmp(results->rows[i].case_id, results->rows[j].case_id) == 0)
            return 1;
    return 0;
}

/* The first kernel that --kernel names, and not by a glob, and that ran no row; NULL if there is none. One that
 * the user named and that was only skipped must not look like success. */
static const char *named_but_idle(const struct kvg_run_command *command, const struct kvg_results *results,
                                  char *name, size_t size)
{
    const char *list = command->plan.request.axis[KVG_AXIS_KERNEL];
    while (list && *list) {
        const size_t length = strcspn(list, ",");
        int64_t ran = 0;
        snprintf(name, size, "%.*s", (int)length, list);
        for (int64_t i = 0; i < results->count; i++)
            ran += strcmp(results->rows[i].kernel, name) == 0 && results->rows[i].status != KVG_SKIPPED;
        if (ran == 0 && *name && strcmp(name, "best") != 0 && !strpbrk(name, "*?["))
            return name;
        list += length + (list[length] == ',');
    }
    return NULL;
}

static int exit_code(const struct kvg_run_command *command, const struct kvg_results *results)
{
    int code = KVG_EXIT_OK;
    int64_t ran = 0;
    char name[128];
    for (int64_t i = 0; i < results->count; i++) {
        if (superseded(results, i))
            continue;
        int asked = kvg_status_exit_code((enum kvg_status)results->rows[i].status);
        code = asked > code ? asked : code;
        ran += results->rows[i].status != KVG_SKIPPED;
    }
    const char *idle = ran > 0 ? named_but_idle(command, results, name, sizeof name) : NULL;
    if (idle)
        fprintf(stderr, "kvgauge: kernel %s ran no row\n", idle);
    return (ran == 0 || idle) && code < KVG_EXIT_TROUBLE ? KVG_EXIT_TROUBLE : code;
}

static int all_planned_done(const struct kvg_plan *plan, const struct kvg_results *earlier,
                            const struct tally *tally)
{
    int64_t standing = 0;
    for (int64_t i = 0; i < plan->count; i++) {
        int stands;
        attempts_before(earlier, &plan->cases[i], &stands);
        standing += stands;
    }
    return standing + tally->done >= plan->count;
}

/* Draws plots into a folder of this run. A failure is reported and does not change the exit code. */
static void draw(const struct kvg_run_command *command, const struct kvg_results *results, const char *file)
{
    char scripts[KVG_PATH_MAX], folder[KVG_PATH_MAX], of_run[2 * KVG_PATH_MAX];
    struct kvg_error error = {0};
    int wanted = command->plots >= 0 ? command->plots : !command->plan.request.case_string && !command->quiet;
    if (!wanted)
        return;
    const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    kvg_default_plot_dir(folder, sizeof folder);
    snprintf(of_run, sizeof of_run, "%s/%.*s", folder, (int)strcspn(name, "."), name);
    struct kvg_plot_options plot = {
        .script_dir = scripts, .out_dir = of_run, .only = NULL, .svg = 1, .png = 1, .report = NULL};
    if (kvg_data_dir(KVG_DATA_PLOT, scripts, sizeof scripts))
        fprintf(stderr, "kvgauge: no plots: the plot scripts are in none of these folders: %s\n", scripts);
    else if (kvg_plot_all(results, &plot, &error))
        fprintf(stderr, "kvgauge: no plots: %s\n", error.text);
    else if (!command->quiet)
        printf("plots    %s\n", of_run);
}

static void show(const struct kvg_run_command *command, const struct kvg_results *results,
                 const struct kvg_run_files *files)
{
    if (command->quiet)
        return;
    char *quoted = kvg_argv_quote_word(files->h5);
    struct kvg_table_options table = {.path = quoted ? quoted : files->h5, .all = 0, .colour = -1};
    if (command->plan.request.case_string)
        kvg_row_print_report(stdout, &results->rows[results->count - 1]);
    else
        kvg_table_print(stdout, results, &table);
    free(quoted);
    printf("\nresults  %s\n", files->h5);
    printf("journal  %s\n", files->journal_path);
    if (command->benchmark_out)
        printf("benchmark  %s\n", command->benchmark_out);
    fflush(stdout);
}

/* One line for each kernel whose cases, chosen by hand, leave something at a value that hides faults. */
static void say_not_covered(const struct kvg_run_command *command, const struct kvg_plan *plan)
{
    const struct kvg_plan_request *request = &command->plan.request;
    struct kvg_case *own = malloc((size_t)plan->count * sizeof *own);
    if (command->quiet || request->suite || request->case_string || !own ||
        strcmp(plan->name, "options") != 0) {
        free(own);
        return;
    }
    for (int64_t i = 0; i < plan->count; i++) {
        int64_t n = 0;
        char missing[130]; /* one line of 200 columns, with what stands around it */
        struct kvg_error error;
        int seen = 0;
        for (int64_t j = 0; j < plan->count; j++)
            if (strcmp(plan->cases[j].kernel, plan->cases[i].kernel) == 0) {
                seen |= j < i;
                own[n++] = plan->cases[j];
            }
        if (seen || kvg_case_predicts(&plan->cases[i]) ||
            kvg_check_missing(plan->cases[i].kernel, own, n, missing, sizeof missing, &error) || !missing[0])
            continue;
        char text[600];
        snprintf(text, sizeof text, "Not covered: %s; kvgauge check %s covers them.", missing,
                 plan->cases[i].kernel);
        fputs("\n  ", stdout);
        kvg_text_wrap(stdout, text, 2, kvg_table_width(stdout, 0));
        putchar('\n');
    }
    free(own);
}

static int times_anything(const struct kvg_run_command *command, const struct kvg_plan *plan)
{
    for (int64_t i = 0; i < plan->count; i++)
        if (plan->cases[i].cache_state != KVG_STATE_NONE)
            return !command->run.verify_only && !command->run.profile;
    return 0;
}

/* read_roof of /machine is that of the CPU, also in a run on a GPU, where the name misleads: there it is also
 * called host_read_roof. */
static int add_host_roof(struct kvg_facts *machine, struct kvg_error *error)
{
    const struct kvg_fact *gpu = kvg_facts_find(machine, "gpu"), *read = kvg_facts_find(machine, "read_roof");
    if (!gpu || !gpu->text || strcmp(gpu->text, "none") == 0 || !read || read->text)
        return 0;
    if (kvg_facts_set_number(machine, "host_read_roof", read->number))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    return 0;
}

/* Names the files and opens the journal of a new run or of an earlier one. */
static int open_files(const struct kvg_run_command *command, int argc, char **argv,
                      const struct kvg_plan *plan, struct kvg_worker *worker, struct kvg_run_files *files,
                      struct kvg_results *earlier, struct kvg_error *error)
{
    const int64_t threads = kvg_cpus_allowed();
    struct kvg_facts run = {0}, machine = {0};
    memset(files, 0, sizeof *files);
    files->benchmark_path = command->benchmark_out;
    if (kvg_run_files_name(files, command->resume ? command->resume : command->out, plan->name, error))
        return -1;
    if (command->resume)
        return kvg_run_files_resume(files, earlier, error);
    int64_t bytes = (INT64_C(1) << 20) + plan->count * 8192;
    if (kvg_run_files_try(files, bytes, error)) /* before the roofs, which take time */
        return -1;
    int failed = 0;
    if (kvg_run_facts_add(&run, "run", argc, argv, plan->name, plan->cases[0].seed) ||
        kvg_machine_facts(&machine) || kvg_device_facts(&machine) ||
        kvg_facts_set_number(&machine, "roof_threads", (double)threads))
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    if (!failed)
        failed = kvg_worker_add_roofs(worker, threads, times_anything(command, plan), &machine, error);
    if (!failed)
        failed = add_host_roof(&machine, error);
    if (!failed)
        failed = kvg_run_files_create(files, &run, &machine, error);
    kvg_facts_free(&run);
    kvg_facts_free(&machine);
    return failed;
}

/* With --quiet, in place of the table: one line with the reason of the exit code. */
static void say_failures(const struct kvg_results *results, const struct kvg_run_files *files)
{
    int64_t failed = 0, ran = 0;
    const struct kvg_row *first = NULL;
    for (int64_t i = 0; i < results->count; i++) {
        const struct kvg_row *row = &results->rows[i];
        ran += row->status != KVG_SKIPPED;
        failed += row->status != KVG_SKIPPED && row->status != KVG_PASSED;
        if (!first && row->status != KVG_SKIPPED && row->status != KVG_PASSED)
            first = row;
    }
    char *file = kvg_argv_quote_word(files->h5);
    if (ran == 0 && results->count > 0)
        fprintf(stderr,
                "kvgauge: nothing ran: %lld skipped, the first because %s; `kvgauge show %s` shows all\n",
                (long long)results->count, results->rows[0].reason, file ? file : "FILE");
    else if (failed > 0)
        fprintf(
            stderr,
            "kvgauge: %lld of %lld rows did not pass, the first %s%s%s: %s; `kvgauge show %s` shows all\n",
            (long long)failed, (long long)ran, kvg_status_name((enum kvg_status)first->status),
            first->suspected[0] ? ", suspected: " : "", first->suspected, first->reason,
            file ? file : "FILE");
    free(file);
}

/* Prints what the run has made. `lost` is the error of writing the result file, or NULL; `code` the exit code
 * so far. The exit code. */
static int report_run(const struct kvg_run_command *command, const struct kvg_plan *plan,
                      const struct kvg_run_files *files, const struct kvg_results *results,
                      const struct tally *tally, const struct kvg_error *lost, int code)
{
    char *quoted = kvg_argv_quote_word(files->journal_path);
    const char *journal = quoted ? quoted : "FILE";
    if (lost) {
        code = kvg_error_report(lost);
        if (access(files->journal_path, F_OK) == 0)
            fprintf(stderr,
                    "kvgauge: the rows are safe in %s; `kvgauge run --resume %s` makes the result file\n",
                    files->journal_path, journal);
        else
            fprintf(stderr, "kvgauge: the journal %s was removed during the run; the rows are lost\n",
                    files->journal_path);
    } else if (results->count > 0) {
        show(command, results, files);
        if (!tally->interrupted)
            draw(command, results, files->h5);
        say_not_covered(command, plan);
    }
    if (tally->interrupted) {
        fprintf(stderr,
                "kvgauge: interrupted after %lld of %lld cases; `kvgauge run --resume %s` continues\n",
                (long long)results->count, (long long)plan->count, journal);
        code = KVG_EXIT_INTERRUPTED;
    } else if (!lost) {
        int asked = exit_code(command, results);
        code = asked > code ? asked : code;
        if (command->quiet)
            say_failures(results, files);
    }
    free(quoted);
    return code;
}

static int run_plan(const struct kvg_run_command *command, int argc, char **argv, const struct kvg_plan *plan)
{
    struct kvg_run_files files = {.journal = NULL};
    struct kvg_results earlier = {0}, results = {0};
    struct kvg_error error, file_error;
    struct tally tally = {0};
    sigset_t old;
    kvg_signals_hold(&old);
    struct kvg_worker *worker = kvg_worker_start(&command->run, &error);
    struct kvg_progress starting; /* a first sign while the roofs of the machine are measured */
    kvg_progress_begin(&starting, stderr, plan->count, 1, command->quiet);
    kvg_progress_show_case(&starting, "starting: files, machine, roofs");
    if (!worker || open_files(command, argc, argv, plan, worker, &files, &earlier, &error)) {
        kvg_progress_end(&starting);
        kvg_worker_stop(worker);
        kvg_signals_release(&old);
        kvg_run_files_abandon(&files);
        kvg_results_free(&earlier);
        return kvg_error_report(&error);
    }
    int failed = run_cases(command, plan, &earlier, worker, &files, &tally, &error);
    kvg_worker_stop(worker);
    int complete = !failed && !tally.interrupted && all_planned_done(plan, &earlier, &tally);
    int code = failed ? kvg_error_report(&error) : KVG_EXIT_OK;
    int lost = kvg_run_files_finish(&files, complete, &results, &file_error);
    kvg_signals_release(&old);
    code = report_run(command, plan, &files, &results, &tally, lost ? &file_error : NULL, code);
    kvg_results_free(&earlier);
    kvg_results_free(&results);
    return code;
}

/* ---- the other ways to run ---- */

static int dry_run(const struct kvg_plan *plan)
{
    kvg_plan_print_cases(plan);
    fprintf(stderr, "%lld case%s would run\n", (long long)plan->count, plan->count == 1 ? "" : "s");
    return KVG_EXIT_OK;
}

/* Runs the cases in this process, so that a profiler need not follow a child process. */
static int profile(const struct kvg_run_command *command, const struct kvg_plan *plan)
{
    struct kvg_session *session = kvg_session_new();
    int64_t ran = 0;
    for (int64_t i = 0; session && i < plan->count; i++) {
        struct kvg_row row;
        if (kvg_row_init(&row))
            break;
        const enum kvg_ended ended = kvg_execute_in(session, &plan->cases[i], &command->run, &row, NULL);
        const int profiled = ended == KVG_ENDED_PROFILED;
        ran += profiled;
        printf("%-10s %s%s%s\n", profiled ? "profiled" : kvg_status_name((enum kvg_status)row.status),
               row.case_string, profiled ? "" : ": ", profiled ? "" : row.reason);
        kvg_row_free(&row);
    }
    kvg_session_free(session);
    return ran > 0 ? KVG_EXIT_OK : KVG_EXIT_TROUBLE;
}

/* A FILE.h5 takes one case only. A place that cannot be written is reported before the run. */
static int check_dump(const struct kvg_run_command *command, const struct kvg_plan *plan,
                      struct kvg_error *error)
{
    char path[KVG_PATH_MAX];
    const char *to = command->run.dump;
    if (!to || command->dry_run)
        return 0;
    if (!*to)
        return kvg_fail(error, KVG_EXIT_USAGE, "--dump '': the name of a folder would be right");
    if (kvg_dump_name(to, "0000000000000000", path, sizeof path, error))
        return -1;
    if (strcmp(path, to) == 0 && plan->count > 1)
        return kvg_fail(error, KVG_EXIT_USAGE, "--dump %s: one file cannot hold %lld cases; name a folder",
                        to, (long long)plan->count);
    for (int64_t i = 0; i < plan->count && strcmp(path, to) == 0; i++)
        if (kvg_check_output(to, plan->cases[i].input, 1, error))
            return -1;
    return 0;
}

static int run_as_asked(int argc, char **argv, const struct kvg_run_command *command)
{
    struct kvg_plan plan;
    struct kvg_error error;
    int code;
    if (kvg_plan_options_make_plan(&command->plan, &plan, &error))
        return kvg_error_report(&error);
    if (check_dump(command, &plan, &error))
        code = kvg_error_report(&error);
    else if (command->dry_run)
        code = dry_run(&plan);
    else if (command->run.profile)
        code = profile(command, &plan);
    else
        code = run_plan(command, argc, argv, &plan);
    kvg_plan_free(&plan);
    return code;
}

int kvg_cmd_run(int argc, char **argv)
{
    struct kvg_run_command command;
    struct kvg_error error;
    int code = kvg_run_command_read(argc, argv, &command, &error) ? kvg_error_report(&error)
                                                                  : run_as_asked(argc, argv, &command);
    kvg_run_command_free(&command);
    return code;
}
