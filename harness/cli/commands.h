/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.h: the subcommands of kvgauge, one file each.
 *
 * argv[0] is "kvgauge COMMAND", so that messages and --help name what the user typed. Each returns an exit
 * code of results/error.h. Results go to stdout, everything else to stderr. main flushes stdout at the end
 * and turns a failed write into KVG_EXIT_TROUBLE.
 */
#ifndef KVG_HARNESS_COMMANDS_H
#define KVG_HARNESS_COMMANDS_H

#include "results/error.h"

int kvg_cmd_run(int argc, char **argv);
int kvg_cmd_list(int argc, char **argv);
int kvg_cmd_show(int argc, char **argv);
int kvg_cmd_plot(int argc, char **argv);
int kvg_cmd_doctor(int argc, char **argv);

#endif
