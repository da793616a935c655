/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: finds the command that the first word names and runs it with the rest of the command line.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "harness/case/words.h"
#include "options.h"
#include "harness/machine/paths.h"
#include "harness/worker/worker.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"run", kvg_cmd_run},   {"check", kvg_cmd_check},   {"list", kvg_cmd_list},        {"show", kvg_cmd_show},
    {"plot", kvg_cmd_plot}, {"doctor", kvg_cmd_doctor}, {"man-page", kvg_cmd_man_page}};
#define N_COMMANDS ((int64_t)(sizeof commands / sizeof commands[0]))

static const char doc[] =
    "kvgauge measures quantised KV-cache attention: every FP8 scheme, calibration, dtype and arithmetic path "
    "against an FP32 reference.\n\n"
    "Commands:\n"
    "  run      Measure cases; write a result file (HDF5), a table and plots.\n"
    "  check    Check a kernel on all pairs of values that it takes; for authors of kernels.\n"
    "  list     Print the cases of a suite; or the kernels, inputs, suites, axes.\n"
    "  show     Print a result file as a table, CSV, JSON or Markdown.\n"
    "  plot     Draw a result file.\n"
    "  doctor   Check this machine, and say what to do about what is missing.\n"
    "  help     Print this text, or the options of the command that follows.\n"
    "\vkvgauge COMMAND --help prints the options of a command. Exit codes: 0 fine; 2 a kernel is incorrect; "
    "3 "
    "crashed, timed out, out of memory, suspect, mistrusted, an I/O error, or nothing ran; 4 usage or bad "
    "input; "
    "130 interrupted.";

struct choice {
    int index; /* of the command's name in argv; 0 = none found yet */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct choice *choice = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_ARG:
        choice->index = state->next - 1;
        state->next = state->argc; /* the command parses the rest */
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
    kvg_word_hint(name, names, N_COMMANDS, hint, sizeof hint);
    fprintf(stderr, "kvgauge: there is no command '%s'%s\nTry `kvgauge --help'.\n", name, hint);
    return NULL;
}

/* A full disk or a closed stdout shows only when the buffer is written out. */
static int close_stdout(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "kvgauge: cannot write to standard output: %s\n", strerror(errno));
    return code > KVG_EXIT_TROUBLE ? code : KVG_EXIT_TROUBLE;
}

/* "help" becomes "--help", and "help COMMAND" becomes "COMMAND --help". */
static void turn_help(int argc, char **argv)
{
    static char help[] = "--help";
    if (argc < 2 || strcmp(argv[1], "help") != 0)
        return;
    argv[1] = argc > 2 ? argv[2] : help;
    if (argc > 2)
        argv[2] = help;
}

int main(int argc, char **argv)
{
    if (kvg_is_worker(argc, argv))
        return kvg_worker_main();
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit of the shell (ulimit -f) gives an error of write(2) */
    char version[128], name[64];
    struct choice choice = {0};
    snprintf(version, sizeof version, "kvgauge %s (%s%s)", kvg_version(), kvg_git_sha(),
             kvg_git_dirty() ? ", modified" : "");
    argp_program_version = version;
    argp_err_exit_status = KVG_EXIT_USAGE;
    if (argc > 1 && strcmp(argv[1], "-h") == 0)
        argv[1] = "--help";
    turn_help(argc, argv);
    char *shown = argc > 0 ? argv[0] : NULL;
    if (argc > 0)
        argv[0] = "kvgauge"; /* for messages, without the path of the binary */
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
