/* SPDX-License-Identifier: Apache-2.0
 *
 * signals.h: SIGINT, SIGTERM and SIGHUP during a command that runs cases. The worker loop sees them and
 * stops; the command must live on to write its files and to report.
 */
#ifndef KVG_HARNESS_SIGNALS_H
#define KVG_HARNESS_SIGNALS_H

#include <signal.h>

/* Blocks them. `old` keeps the mask of before. */
void kvg_signals_hold(sigset_t *old);
/* Drops those that have come meanwhile, because the command has acted on them, and restores the mask. */
void kvg_signals_release(const sigset_t *old);

#endif
