/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.h: where the data files of kvgauge are, and version and commit of this build.
 *
 * Data files are looked for in these places, in this order:
 *   1. the folder that the environment variable KVGAUGE_DATA names
 *   2. ../share/kvgauge, seen from the binary's folder: an installation (also a moved one) or a bundle
 *   3. if 2 does not exist, the source tree: the nearest folder above the binary that is a source tree, or in
 *      which the link `source` points to one. make writes this link into a build folder outside the tree
 *   4. $(datadir)/kvgauge, with datadir as given at build time
 */
#ifndef KVG_HARNESS_PATHS_H
#define KVG_HARNESS_PATHS_H

#include <stddef.h>

const char *kvg_version(void);
const char *kvg_git_sha(void); /* first 12 digits of the commit; "unknown" without git and git archive */
int kvg_git_dirty(void);       /* 1 if files differed from that commit, else 0 */

enum kvg_data_kind { KVG_DATA_SUITE, KVG_DATA_INPUT, KVG_DATA_PLOT };
/* Path of a data file, by its name ("quick.yaml", "smollm2.h5"). 0, or -1 when no place has it; text then
 * lists the paths that were tried. */
int kvg_data_path(enum kvg_data_kind kind, const char *name, char *text, size_t size);
/* Folder of the data files of a kind: the first that exists. 0, or -1 with the list of the places in text. */
int kvg_data_dir(enum kvg_data_kind kind, char *text, size_t size);
/* Default folders of outputs. Results: results/runs of the source tree (place 3), if it can be written,
 * else ./kvgauge-runs. Plots: plots/out of that tree, else ./kvgauge-plots. */
void kvg_default_run_dir(char *text, size_t size);
void kvg_default_plot_dir(char *text, size_t size);

#endif
