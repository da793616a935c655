/* SPDX-License-Identifier: Apache-2.0
 *
 * nvtx.c: ranges through NVTX, a header-only library that looks for a profiler at run time. Without a
 * profiler a call costs one load and one branch.
 */
#include "nvtx.h"

#ifdef KVG_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

int kvg_nvtx_available(void)
{
    return 1;
}

void kvg_nvtx_push(const char *name)
{
    nvtxRangePushA(name);
}

void kvg_nvtx_pop(void)
{
    nvtxRangePop();
}
#else
int kvg_nvtx_available(void)
{
    return 0;
}

void kvg_nvtx_push(const char *name)
{
    (void)name;
}

void kvg_nvtx_pop(void)
{
}
#endif
