/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: the command line's first word. What follows belongs to the subcommand (commands.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "harness/case/words.h"
#include "options.h"
#include "harness/machine/paths.h"
#include "harness/execute/run.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {{"run", kvg_cmd_run},       {"list", kvg_cmd_list},
                                          {"show", kvg_cmd_show},     {"plot", kvg_cmd_plot},
                                          {"doctor", kvg_cmd_doctor}, {"man-page", kvg_cmd_man_page}};
#define N_COMMANDS ((int64_t)(sizeof commands / sizeof commands[0]))

static const char doc[] =
    "kvgauge measures quantised KV-cache attention: every FP8 scheme, calibration, dtype and arithmetic path "
    "against an FP32 reference.\n\n"
    "Commands:\n"
    "  run      measure cases: an HDF5 file, a table and plots\n"
    "  list     print the cases a suite holds; kernels, inputs, suites and axes\n"
    "  show     print a result file as a table, CSV, JSON or Markdown\n"
    "  plot     draw a result file\n"
    "  doctor   say what this machine has and lacks, and what to do\n"
    "\vkvgauge COMMAND --help tells more. Exit codes: 0 fine; 2 a kernel is incorrect; 3 crashed, timed out, "
    "suspect, mistrusted, out of memory, an I/O error or nothing ran; 4 usage or bad input; 130 interrupted.";

struct choice {
    int index; /* of the command's name in argv, 0 = none yet */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct choice *choice = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_ARG:
        choice->index = state->next - 1;
        state->next = state->argc; /* the rest is the command's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_state_help(state, stderr, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK);
        exit(KVG_EXIT_USAGE);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp top = {NULL, parse, "COMMAND [OPTION...]", doc, NULL, NULL, NULL};

static const struct command *find_command(const char *name)
{
    const char *names[N_COMMANDS];
    for (int64_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, names[i]) == 0)
            return &commands[i];
    }
    char hint[64];
    kvg_did_you_mean(name, names, N_COMMANDS, hint, sizeof hint);
    fprintf(stderr, "kvgauge: there is no command '%s'%s\nTry `kvgauge --help'.\n", name, hint);
    return NULL;
}

/* A full disk or a closed stdout is seen when the buffer is written out. */
static int close_stdout(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "kvgauge: cannot write to standard output: %s\n", strerror(errno));
    return code > KVG_EXIT_TROUBLE ? code : KVG_EXIT_TROUBLE;
}

int main(int argc, char **argv)
{
    if (kvg_is_worker(argc, argv))
        return kvg_worker_main();
    char version[128], name[64];
    struct choice choice = {0};
    snprintf(version, sizeof version, "kvgauge %s (%s%s)", kvg_version(), kvg_git_sha(),
             kvg_git_dirty() ? ", modified" : "");
    argp_program_version = version;
    argp_err_exit_status = KVG_EXIT_USAGE;
    if (argc > 1 && strcmp(argv[1], "-h") == 0)
        argv[1] = "--help";
    char *shown = argc > 0 ? argv[0] : NULL;
    if (argc > 0)
        argv[0] = "kvgauge"; /* in messages, wherever the binary lies */
    if (argp_parse(&top, argc, argv, ARGP_IN_ORDER, NULL, &choice) || choice.index == 0)
        return KVG_EXIT_USAGE;
    if (argc > 0)
        argv[0] = shown;
    const struct command *command = find_command(argv[choice.index]);
    if (!command)
        return KVG_EXIT_USAGE;
    snprintf(name, sizeof name, "kvgauge %s", command->name);
    argv[choice.index] = name;
    return close_stdout(command->run(argc - choice.index, argv + choice.index));
}
