/* SPDX-License-Identifier: Apache-2.0
 *
 * benchmark_flags.h: the --benchmark_* flags of Google Benchmark that kvgauge takes.
 */
#ifndef KVG_HARNESS_BENCHMARK_FLAGS_H
#define KVG_HARNESS_BENCHMARK_FLAGS_H

#include "harness/execute/options.h"
#include "results/error.h"

/* --benchmark_* flags a user may give. Each is checked; those that kvgauge itself answers (min_time,
 * repetitions, out) are taken into options and *out_path. -1 with the error (exit code 4). */
int kvg_benchmark_flags(const char *const *flags, struct kvg_run_options *options, const char **out_path,
                        struct kvg_error *error);

#endif
