/* SPDX-License-Identifier: Apache-2.0
 *
 * signals.c: see signals.h.
 */
#include "signals.h"

#include <time.h>

static sigset_t our_signals(void)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    return ours;
}

void kvg_signals_hold(sigset_t *old)
{
    const sigset_t ours = our_signals();
    sigprocmask(SIG_BLOCK, &ours, old);
}

void kvg_signals_release(const sigset_t *old)
{
    const sigset_t ours = our_signals();
    const struct timespec now = {0, 0};
    while (sigtimedwait(&ours, NULL, &now) > 0)
        ;
    sigprocmask(SIG_SETMASK, old, NULL);
}
