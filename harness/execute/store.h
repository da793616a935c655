/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h: executes a case of store.
 */
#ifndef KVG_HARNESS_EXECUTE_STORE_H
#define KVG_HARNESS_EXECUTE_STORE_H

#include "execution.h"

/* Verifies and times the case, or runs it once for a profiler. The verdict is in the row. */
void kvg_execute_store(struct kvg_execution *x);

#endif
