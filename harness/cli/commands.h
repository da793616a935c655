/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.h: the subcommands of kvgauge, one file each.
 *
 * A command is called with argv[0] = "kvgauge COMMAND", so that messages and --help name what the user typed.
 * It returns an exit code of results/error.h. Results go to stdout, everything else to stderr. main flushes
 * stdout at the end and turns a failed write into KVG_EXIT_TROUBLE.
 *
 * The argp tables are the one definition of the options: --help prints them, and cmd_man_page.c writes the
 * option sections of kvgauge.1 from them.
 */
#ifndef KVG_HARNESS_COMMANDS_H
#define KVG_HARNESS_COMMANDS_H

#include <argp.h>
#include <stdint.h>
#include "results/error.h"

int kvg_cmd_run(int argc, char **argv);
int kvg_cmd_check(int argc, char **argv);
int kvg_cmd_list(int argc, char **argv);
int kvg_cmd_show(int argc, char **argv);
int kvg_cmd_plot(int argc, char **argv);
int kvg_cmd_doctor(int argc, char **argv);
int kvg_cmd_man_page(int argc, char **argv);

extern const struct argp kvg_run_argp, kvg_check_argp, kvg_list_argp, kvg_show_argp, kvg_plot_argp;

#endif
