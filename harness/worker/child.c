/* SPDX-License-Identifier: Apache-2.0
 *
 * child.c: the child side of the worker: reads the options and then case strings, runs each case and sends its row
 * back. The messages (frame.h), by their type:
 *
 *   parent -> worker   O options (JSON), once; then C case string, or Q "THREADS MEASURE" (roofs); end: finish
 *   worker -> parent   B Google Benchmark's JSON, when the case was timed and --benchmark_out was given
 *                      S number: a run of this kind begins (enum kvg_run_kind)
 *                      R the row, or the roofs; the worker waits for the next question
 *                      T the row; this process must not run another case
 *
 * A kernel of a plug-in may fork, close descriptors and leave the process changed. So only the process that was
 * started as a worker speaks, only on the socket that it was given, and the state is put back after each row
 * (state.h).
 */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/registry.h"
#include "frame.h"
#include "harness/execute/execute.h"
#include "harness/machine/processes.h"
#include "results/journal.h"
#include "state.h"
#include "worker.h"

int kvg_is_worker(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], KVG_WORKER_COMMAND) == 0;
}

/* When memory runs out, the kernel shall end the worker, not the parent or another process. */
static void volunteer_for_oom(void)
{
    FILE *f = fopen("/proc/self/oom_score_adj", "w");
    if (!f)
        return;
    fputs("1000", f);
    fclose(f);
}

/* The connection to the parent. */
struct line {
    int socket;
    ino_t inode; /* of the socket */
    pid_t process;
    struct kvg_frame about; /* the question that is being answered */
};

/* A process that a kernel has forked does not answer. A descriptor that a kernel has closed may be another file now. */
static void send_text(struct line *line, char type, const char *text)
{
    struct stat s;
    if (getpid() != line->process)
        _exit(KVG_RETURNED_TWICE);
    if (fstat(line->socket, &s) || !S_ISSOCK(s.st_mode) || s.st_ino != line->inode)
        _exit(KVG_WORKER_CUT_OFF); /* stderr may be closed too */
    line->about.type = (unsigned char)type;
    if (kvg_frame_send(line->socket, &line->about, text))
        _exit(KVG_EXIT_TROUBLE);
}

/* What plug-ins change while they are loaded is put back, and stands in the rows of all their kernels. */
static int load_plugins(const struct kvg_run_options *options, const struct kvg_state *state, char *changed,
                        size_t size)
{
    const pid_t self = getpid();
    changed[0] = '\0';
    for (int64_t i = 0; options->plugins && options->plugins[i]; i++) {
        struct kvg_state_changes changes;
        const size_t used = strlen(changed);
        char why[512];
        if (kvg_registry_load(options->plugins[i], why, sizeof why)) {
            fprintf(stderr, "%s\n", why);
            return -1;
        }
        if (getpid() != self)
            _exit(KVG_RETURNED_TWICE); /* a constructor forked */
        kvg_state_mend(state, -1, &changes);
        if (changes.text[0])
            snprintf(changed + used, size - used, "%s%s changed %s when it was loaded", used ? "; " : "",
                     options->plugins[i], changes.text);
    }
    return 0;
}

/* The report of the library without its line breaks. */
static void send_report(struct line *line, const char *report)
{
    json_t *root = json_loads(report, 0, NULL);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text)
        send_text(line, 'B', text);
    free(text);
    json_decref(root);
}

/* 1 when the flags ask for the report of the library. */
static int wants_report(const struct kvg_run_options *options)
{
    static const char out[] = "--benchmark_out=";
    for (int64_t i = 0; options->benchmark_flags && options->benchmark_flags[i]; i++)
        if (strncmp(options->benchmark_flags[i], out, sizeof out - 1) == 0)
            return 1;
    return 0;
}

static void announce(void *line, int run)
{
    char text[16];
    snprintf(text, sizeof text, "%d", run);
    send_text(line, 'S', text);
}

/* What stays while a worker works. */
struct service {
    struct kvg_session *session;
    const struct kvg_run_options *options;
    struct kvg_state *state; /* as it shall be between rows */
    char loaded[1024];       /* what plug-ins changed when they were loaded */
    struct line line;
    int spoilt; /* 1: this process must not execute further cases */
};

static void remark(struct kvg_row *row, const char *text)
{
    char reason[2048];
    snprintf(reason, sizeof reason, "%s%s%s", row->reason, row->reason[0] ? "; " : "", text);
    kvg_row_set_string(&row->reason, reason);
}

/* Puts the state back after a row of a plug-in's kernel, and says in the row what had changed. */
static void mend(struct service *s, const struct kvg_case *c, struct kvg_row *row)
{
    const struct kvg_kernel *kernel = kvg_registry_find(c->kernel);
    struct kvg_state_changes changes;
    char text[1024];
    if (!kernel || kvg_registry_is_builtin(kernel))
        return;
    if (getpid() != s->line.process)
        _exit(KVG_RETURNED_TWICE);
    kvg_state_mend(s->state, kernel->device == KVG_DEVICE_CPU ? c->threads : -1, &changes);
    if (changes.text[0]) {
        snprintf(text, sizeof text, "the kernel left changed or behind: %s (%s)", changes.text,
                 changes.lasting ? "the process was replaced" : "put back");
        if (changes.forbidden && (row->status == KVG_PASSED || row->status == KVG_MISTRUSTED))
            row->status = KVG_INCORRECT;
        remark(row, text);
    }
    if (s->loaded[0])
        remark(row, s->loaded);
    s->spoilt |= changes.lasting;
}

static void run_case(struct service *s, const char *text)
{
    struct kvg_case c;
    struct kvg_row row;
    struct kvg_error error;
    char *report = NULL;
    if (kvg_row_init(&row))
        _exit(KVG_EXIT_TROUBLE);
    if (kvg_case_parse(text, &c, &error)) {
        row.status = KVG_INVALID;
        kvg_row_set_string(&row.reason, error.text);
    } else {
        kvg_execute_in(s->session, &c, s->options, &row, wants_report(s->options) ? &report : NULL);
        mend(s, &c, &row);
    }
    s->spoilt |= kvg_session_tainted(s->session);
    char *json = kvg_row_to_json(&row);
    if (!json)
        _exit(KVG_EXIT_TROUBLE);
    if (report)
        send_report(&s->line, report);
    send_text(&s->line, s->spoilt ? 'T' : 'R', json);
    free(json);
    free(report);
    kvg_row_free(&row);
}

/* Answers "THREADS MEASURE". */
static void send_roofs(struct service *s, const char *request)
{
    struct kvg_facts facts = {0};
    char *end;
    const int64_t threads = strtoll(request, &end, 10);
    const int measure = (int)strtol(end, NULL, 10);
    char *json =
        kvg_session_add_roofs(s->session, threads, measure, &facts) ? NULL : kvg_facts_to_json(&facts);
    if (!json)
        _exit(KVG_EXIT_TROUBLE);
    send_text(&s->line, 'R', json);
    free(json);
    kvg_facts_free(&facts);
}

static void answer_questions(struct service *s)
{
    char *text = NULL;
    while (!s->spoilt && kvg_frame_read(s->line.socket, &s->line.about, &text) == 0) {
        if (s->line.about.type == 'Q')
            send_roofs(s, text);
        else
            run_case(s, text);
        free(text);
        text = NULL;
    }
}

/* The state to which every row returns is that after loading, with what plug-ins changed then put back. */
static int begin(struct service *s)
{
    struct kvg_state *before = kvg_state_take();
    const int failed = !before || load_plugins(s->options, before, s->loaded, sizeof s->loaded);
    kvg_state_free(before);
    s->state = failed ? NULL : kvg_state_take();
    s->session = s->state ? kvg_session_new() : NULL;
    return s->session ? 0 : -1;
}

static int serve(int socket)
{
    struct kvg_run_options options;
    struct kvg_error error;
    struct stat about;
    char *text = NULL;
    struct service s = {.options = &options, .line = {.socket = socket, .process = getpid()}};
    if (fstat(socket, &about) || kvg_frame_read(socket, &s.line.about, &text) ||
        kvg_run_options_from_json(text, &options, &error)) {
        free(text);
        return KVG_EXIT_TROUBLE;
    }
    free(text);
    s.line.inode = about.st_ino;
    const int failed = begin(&s);
    if (!failed) {
        kvg_session_announce(s.session, announce, &s.line);
        answer_questions(&s);
    }
    kvg_session_free(s.session);
    kvg_state_free(s.state);
    kvg_run_options_free(&options);
    return failed ? KVG_EXIT_TROUBLE : KVG_EXIT_OK;
}

/* Moves the socket away from the low numbers, which a careless kernel closes or writes to. */
static int take_socket(void)
{
    struct stat s;
    if (fstat(KVG_WORKER_FD, &s) || !S_ISSOCK(s.st_mode))
        return -1;
    const int high = fcntl(KVG_WORKER_FD, F_DUPFD_CLOEXEC, 200);
    if (high < 0)
        return KVG_WORKER_FD;
    close(KVG_WORKER_FD);
    return high;
}

int kvg_worker_main(void)
{
    signal(SIGPIPE, SIG_IGN);
    volunteer_for_oom();
    kvg_processes_adopt();
    const int socket = take_socket();
    if (socket < 0) {
        fprintf(stderr, "%s is for kvgauge itself; use kvgauge run\n", KVG_WORKER_COMMAND);
        return KVG_EXIT_USAGE;
    }
    return serve(socket);
}
