/* SPDX-License-Identifier: Apache-2.0
 *
 * nvtx.c: ranges through NVTX, a header-only library that looks for a profiler at run time. Without a
 * profiler a call costs one load and one branch.
 */
#include "nvtx.h"

#include <stdio.h>
#include <string.h>

void kvg_nvtx_name(const char *text, char *name, size_t size)
{
    snprintf(name, size, "%s", text);
    for (char *c = name; (c = strpbrk(c, "/[]@*")); c++)
        *c = ':';
}

static int depth;

int kvg_nvtx_depth(void)
{
    return depth;
}

#ifdef KVG_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

int kvg_nvtx_available(void)
{
    return 1;
}

void kvg_nvtx_push(const char *text)
{
    char name[1024];
    kvg_nvtx_name(text, name, sizeof name);
    nvtxRangePushA(name);
    depth++;
}

void kvg_nvtx_pop(void)
{
    nvtxRangePop();
    depth--;
}
#else
int kvg_nvtx_available(void)
{
    return 0;
}

void kvg_nvtx_push(const char *text)
{
    (void)text;
    depth++;
}

void kvg_nvtx_pop(void)
{
    depth--;
}
#endif
