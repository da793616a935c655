/* SPDX-License-Identifier: Apache-2.0
 *
 * device_check_errors.c: checks that errors are reported, and that only a final error marks the device as
 * lost. The illegal address comes last, because afterwards nothing works in this process.
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
          "an allocation larger than the memory fails, device not lost");
    void *data = c->d->ops->allocate(c->d, 1 << 20);
    check(c, data && !c->d->ops->finish(c->d), "an allocation that fits succeeds afterwards");
    c->d->ops->release(c->d, data);
    none = c->d->ops->allocate(c->d, -1);
    check(c, !none && !c->d->lost, "an allocation of a negative size fails");
    data = c->d->ops->allocate(c->d, 0);
    check(c, data != NULL, "an allocation of 0 bytes succeeds");
    c->d->ops->release(c->d, data);
}

/* A launch that was refused: `finish` and `stop` report it once. */
static void check_refused_launch(struct checks *c)
{
    double seconds;
    cudaStream_t stream = c->d->ops->stream(c->d);
    (void)kvg_launch_noise(KVG_BF16, NULL, 0, 0, 0, stream); /* a grid of no blocks: the function clears its
                                                                own error */
    check(c, !c->d->ops->finish(c->d), "an error that was handled is not reported again");
    (void)cudaMemcpyAsync(NULL, NULL, 16, (enum cudaMemcpyKind)77, stream);
    const int told = c->d->ops->finish(c->d);
    printf("  reported: %s\n", c->d->error);
    check(c, told && !c->d->lost && !c->d->ops->finish(c->d), "finish reports a failed call once");
    int bad = c->d->ops->start(c->d, 0);
    (void)cudaMemcpyAsync(NULL, NULL, 16, (enum cudaMemcpyKind)77, stream);
    bad = bad || !c->d->ops->stop(c->d, &seconds);
    check(c, !bad && isnan(seconds) && !c->d->lost, "stop reports a failed call");
}

static void check_illegal_address(struct checks *c)
{
    char byte = 0;
    void *data = c->d->ops->allocate(c->d, 16);
    (void)kvg_launch_poke((void *)(uintptr_t)0x7000000000000000u, c->d->ops->stream(c->d));
    const int told = c->d->ops->finish(c->d);
    printf("  reported: %s\n", c->d->error);
    check(c, told && c->d->lost, "an illegal address makes the device lost");
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
