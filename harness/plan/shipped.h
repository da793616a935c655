/* SPDX-License-Identifier: Apache-2.0
 *
 * shipped.h: the suites that come with kvgauge, found by name.
 */
#ifndef KVG_HARNESS_SHIPPED_H
#define KVG_HARNESS_SHIPPED_H

#include <stddef.h>
#include <stdint.h>
#include "results/error.h"

/* "quick" -> the path of the file shipped with kvgauge; a path that ends in .yaml or .yml stays as it is. -1
 * with the error, which names the nearest suite. */
int kvg_shipped_find_suite(const char *suite, char *path, size_t size, struct kvg_error *error);

/* The folder of the shipped suites and their names in alphabetical order, without ".yaml". -1 with the error;
 * otherwise kvg_shipped_free_names is due. */
int kvg_shipped_list_suites(char *folder, size_t size, char ***names, int64_t *count,
                            struct kvg_error *error);
void kvg_shipped_free_names(char **names, int64_t count);

#endif
