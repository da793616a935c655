/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.h: where the files are that kvgauge needs, and which build this is.
 *
 * Looked for in order: the folder in the environment variable KVGAUGE_DATA, the source tree (while the binary
 * lies in it), ../share/kvgauge from the binary (an installation wherever it was moved, or a bundle),
 * $PREFIX/share/kvgauge as given at build time, and last the source tree the binary was built from.
 */
#ifndef KVG_HARNESS_PATHS_H
#define KVG_HARNESS_PATHS_H

#include <stddef.h>

const char *kvg_version(void);
const char *kvg_git_sha(void); /* "unknown" outside a checkout */
int kvg_git_dirty(void);

enum kvg_data_kind { KVG_DATA_SUITE, KVG_DATA_INPUT, KVG_DATA_PLOT };
/* Path of a data file by its name ("quick.yaml", "smollm2.h5"). 0, or -1 when no place has it (text then
 * names the places looked at). */
int kvg_data_path(enum kvg_data_kind kind, const char *name, char *text, size_t size);
/* Folder of all data files of a kind, first that exists. */
int kvg_data_dir(enum kvg_data_kind kind, char *text, size_t size);
/* Where `run` writes by default: results/runs of the source tree, else ./kvgauge-runs. Plots likewise:
 * plots/out or ./kvgauge-plots. */
void kvg_default_run_dir(char *text, size_t size);
void kvg_default_plot_dir(char *text, size_t size);

#endif
