/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.h: where the files are that kvgauge needs, and which build this is.
 *
 * Data is looked for in this order:
 *   1. the folder in the environment variable KVGAUGE_DATA;
 *   2. ../share/kvgauge from the binary: an installation, wherever it was moved, or a bundle;
 *   3. without 2, the source tree: the nearest folder above the binary that is one, or that the link `source`
 *      in such a folder points to (make writes it into a build folder outside the tree);
 *   4. $(datadir)/kvgauge as configured at build time.
 */
#ifndef KVG_HARNESS_PATHS_H
#define KVG_HARNESS_PATHS_H

#include <stddef.h>

const char *kvg_version(void);
const char *kvg_git_sha(void); /* first 12 digits; "unknown" when neither git nor an archive of it tells */
int kvg_git_dirty(void);       /* 1: files differed from that commit */

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
