/* SPDX-License-Identifier: Apache-2.0
 *
 * device_check_errors.c: what goes wrong is told, and only what is final makes the device lost. An illegal
 * address comes last: nothing works in this process afterwards.
 */
#include "device_check.h"
#include "harness/device/cuda/launch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void check_no_memory(struct checks *c)
{
    int64_t available = 0, total = 0;
    int bad = c->d->ops->memory(c->d, &available, &total);
    void *none = c->d->ops->allocate(c->d, 2 * total);
    printf("  refused: %s\n", c->d->error);
    check(c, !bad && !none && c->d->error[0] && !c->d->lost,
          "more memory than there is: none, device not lost");
    void *data = c->d->ops->allocate(c->d, 1 << 20);
    check(c, data && !c->d->ops->finish(c->d), "memory that there is, afterwards");
    c->d->ops->release(c->d, data);
    none = c->d->ops->allocate(c->d, -1);
    check(c, !none && !c->d->lost, "a negative size");
    data = c->d->ops->allocate(c->d, 0);
    check(c, data != NULL, "a size of nothing");
    c->d->ops->release(c->d, data);
}

/* A launch that was refused: `finish` and `stop` tell of it once. */
static void check_refused_launch(struct checks *c)
{
    double seconds;
    cudaStream_t stream = c->d->ops->stream(c->d);
    (void)kvg_launch_noise(KVG_BF16, NULL, 0, 0, 0,
                           stream); /* a grid of no blocks: takes its own error away */
    check(c, !c->d->ops->finish(c->d), "an error that was seen is over");
    (void)cudaMemcpyAsync(NULL, NULL, 16, (enum cudaMemcpyKind)77, stream);
    const int told = c->d->ops->finish(c->d);
    printf("  told: %s\n", c->d->error);
    check(c, told && !c->d->lost && !c->d->ops->finish(c->d), "finish tells of a call that failed, once");
    int bad = c->d->ops->start(c->d, 0);
    (void)cudaMemcpyAsync(NULL, NULL, 16, (enum cudaMemcpyKind)77, stream);
    bad = bad || !c->d->ops->stop(c->d, &seconds);
    check(c, !bad && isnan(seconds) && !c->d->lost, "stop tells of a call that failed");
}

static void check_illegal_address(struct checks *c)
{
    char byte = 0;
    void *data = c->d->ops->allocate(c->d, 16);
    (void)kvg_launch_poke((void *)(uintptr_t)0x7000000000000000u, c->d->ops->stream(c->d));
    const int told = c->d->ops->finish(c->d);
    printf("  told: %s\n", c->d->error);
    check(c, told && c->d->lost, "an illegal address: the device is lost");
    int64_t a, t;
    uint64_t hash;
    check(c,
          c->d->ops->download(c->d, &byte, data, 1) && c->d->ops->hash(c->d, data, 16, &hash) &&
              c->d->ops->memory(c->d, &a, &t) && !c->d->ops->allocate(c->d, 16) && c->d->ops->finish(c->d),
          "every operation fails on a lost device");
    c->d->ops->release(c->d, data);
}

void check_errors(struct checks *c)
{
    check_no_memory(c);
    check_refused_launch(c);
    check_illegal_address(c);
}
