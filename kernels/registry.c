/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.c: one list of kernels: the built-ins of the CPU architecture, those of CUDA where the build has
 * them, and those of plug-ins. All built-ins are listed; `supports` says whether one runs on this machine.
 * The list lives as long as the process and only grows. One thread fills it before any measurement starts, so
 * it takes no lock.
 */
#include "registry.h"
#include "cpu/cpu.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct kvg_kernel *const cpu_kernels[] = {
    &kvg_cpu_store_scalar,
#if defined(__x86_64__)
    &kvg_cpu_store_avx2,     &kvg_cpu_store_avx512,
#elif defined(__aarch64__)
    &kvg_cpu_store_neon,
#endif
    &kvg_cpu_dequant_scalar,
#if defined(__x86_64__)
    &kvg_cpu_dequant_avx2,   &kvg_cpu_dequant_avx512,
#elif defined(__aarch64__)
    &kvg_cpu_dequant_neon,
#endif
    &kvg_cpu_fp8_scalar,
#if defined(__x86_64__)
    &kvg_cpu_fp8_avx2,       &kvg_cpu_fp8_avx512,     &kvg_cpu_dequant_avx512fp16,
    &kvg_cpu_fp8_avx512fp16, &kvg_cpu_dequant_amx,    &kvg_cpu_fp8_amx,
#elif defined(__aarch64__)
    &kvg_cpu_fp8_neon,
#endif
};
enum { CPU_KERNELS = sizeof cpu_kernels / sizeof *cpu_kernels };

/* Defined by kernels/cuda in a build with CUDA; absent (NULL) otherwise. Same contract as a plug-in's. */
__attribute__((weak)) const struct kvg_kernel *const *kvg_cuda_kernels(int64_t *count);

/* Kernels of plug-ins, in order of loading. */
static struct {
    const struct kvg_kernel **kernel;
    int64_t count;
} plugins;

static const struct kvg_kernel *const *cuda_kernels(int64_t *count)
{
    *count = 0;
    return kvg_cuda_kernels ? kvg_cuda_kernels(count) : NULL;
}

int kvg_registry_has_cuda(void)
{
    return kvg_cuda_kernels != NULL;
}

int64_t kvg_registry_count(void)
{
    int64_t cuda;

    cuda_kernels(&cuda);
    return CPU_KERNELS + cuda + plugins.count;
}

const struct kvg_kernel *kvg_registry_get(int64_t i)
{
    int64_t cuda;
    const struct kvg_kernel *const *list = cuda_kernels(&cuda);

    if (i < 0 || i >= CPU_KERNELS + cuda + plugins.count)
        return NULL;
    if (i < CPU_KERNELS)
        return cpu_kernels[i];
    return i < CPU_KERNELS + cuda ? list[i - CPU_KERNELS] : plugins.kernel[i - CPU_KERNELS - cuda];
}

const struct kvg_kernel *kvg_registry_find(const char *name)
{
    const struct kvg_kernel *kernel;

    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++)
        if (strcmp(kernel->name, name) == 0)
            return kernel;
    return NULL;
}

/* Bytes of the first struct kvg_kernel of this ABI. A plug-in with a larger one has fields that mean nothing here. */
#define SMALLEST_KERNEL (offsetof(struct kvg_kernel, features) + sizeof(uint64_t))

static int refuse(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int refuse(char *why, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return -1;
}

/* A name stands in case strings, in lists of the command line and in globs. So its characters are letters, digits
 * and a few marks, in parts between slashes. */
static int check_name(const char *path, const char *name, char *why, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-";
    const char *part = name;
    const size_t length = strnlen(name, KVG_KERNEL_NAME_MAX + 1);

    if (length > KVG_KERNEL_NAME_MAX)
        return refuse(why, size, "%s: the kernel name '%.*s...' has more than %d characters", path, 20, name,
                      KVG_KERNEL_NAME_MAX);
    for (;;) {
        const size_t n = strspn(part, letters);
        const unsigned char c = (unsigned char)part[n];
        if (c && c != '/' && (c < 33 || c > 126)) /* not printed: it may be a newline */
            return refuse(
                why, size,
                "%s: the name of a kernel, '%.*s...', has a byte 0x%02x; letters, digits, '_', '.', "
                "'+', '-' and '/' would be right",
                path, (int)(part + n - name), name, c);
        if (c && c != '/')
            return refuse(why, size,
                          "%s: the kernel name '%.*s...' has a '%c'; letters, digits, '_', '.', '+', '-' and "
                          "'/' would be right",
                          path, (int)(part + n - name), name, c);
        if (n == 0)
            return refuse(why, size, "%s: the kernel name '%s' has an empty part", path, name);
        if (!c)
            break;
        part += n + 1;
    }
    if (strcmp(name, "best") == 0 || strncmp(name, "predict/", 8) == 0)
        return refuse(why, size,
                      "%s: the kernel name '%s' is reserved: kernel=best and kernel=predict/... "
                      "mean no kernel of that name",
                      path, name);
    return 0;
}

/* 0 if entry i of a plug-in may be listed. No field after abi_version is read before the version matches. */
static int check_kernel(const char *path, const struct kvg_kernel *const *list, int64_t i, char *why,
                        size_t size)
{
    const struct kvg_kernel *kernel = list[i];

    if (!kernel)
        return refuse(why, size, "%s: kernel %lld of the plug-in is NULL", path, (long long)i);
    if (kernel->abi_version == 3)
        return refuse(
            why, size,
            "%s: built for kernel ABI 3: in a scale the pointer is now scales.k.data and the stride "
            "scales.k.stride_head, `causal` is now `mask`, and `features` may stay empty; change these and "
            "rebuild it against this kernel.h",
            path);
    if (kernel->abi_version != KVG_KERNEL_ABI_VERSION || kernel->struct_size < SMALLEST_KERNEL)
        return refuse(
            why, size,
            "%s: built for kernel ABI %u (struct of %u bytes), this kvgauge has ABI %u (%zu bytes); "
            "rebuild it against this kernel.h",
            path, kernel->abi_version, kernel->struct_size, KVG_KERNEL_ABI_VERSION,
            sizeof(struct kvg_kernel));

    if (!kernel->name || !kernel->name[0] || !kernel->summary || !kernel->supports)
        return refuse(why, size, "%s: kernel %lld lacks a name, a summary or `supports`", path, (long long)i);
    if (check_name(path, kernel->name, why, size))
        return -1;
    for (const char *c = kernel->summary; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            return refuse(why, size, "%s: the summary of kernel '%s' is not one line of text", path,
                          kernel->name);
    if (!kernel->store && !kernel->quantize_q && !kernel->attention) {
        return refuse(why, size, "%s: kernel '%s' has no entry point (store, quantize_q or attention)", path,
                      kernel->name);
    }
    if (kernel->attention && !kernel->arithmetic) {
        return refuse(why, size, "%s: kernel '%s' attends but does not declare its arithmetic", path,
                      kernel->name);
    }
    if (kvg_registry_find(kernel->name))
        return refuse(why, size, "%s: the kernel name '%s' is taken", path, kernel->name);
    for (int64_t j = 0; j < i; j++)
        if (strcmp(list[j]->name, kernel->name) == 0)
            return refuse(why, size, "%s: the plug-in has two kernels named '%s'", path, kernel->name);
    return 0;
}

/* All kernels of a plug-in or none. */
int kvg_registry_add(const char *path, const struct kvg_kernel *const *list, int64_t count, char *why,
                     size_t size)
{
    const struct kvg_kernel **grown;

    if (!list || count < 1)
        return refuse(why, size, "%s: %s returned no kernels", path, KVG_PLUGIN_SYMBOL);
    for (int64_t i = 0; i < count; i++)
        if (check_kernel(path, list, i, why, size) != 0)
            return -1;
    grown = realloc(plugins.kernel, (size_t)(plugins.count + count) * sizeof(struct kvg_kernel *));
    if (!grown)
        return refuse(why, size, "%s: out of memory", path);
    for (int64_t i = 0; i < count; i++)
        grown[plugins.count + i] = list[i];
    plugins.kernel = grown;
    plugins.count += count;
    return 0;
}

/* 1 if the symbol at this address is a function, as far as its object says. */
static int is_function(const void *address)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;

    if (!dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
        return 1;
    const int type = symbol->st_info & 15;
    return type != STT_OBJECT && type != STT_TLS && type != STT_COMMON;
}

static void *open_object(const char *path)
{
    char here[4096];

    if (strchr(path, '/'))
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    /* without a slash dlopen would search the library path instead of this folder */
    snprintf(here, sizeof here, "./%s", path);
    return dlopen(here, RTLD_NOW | RTLD_LOCAL);
}

int kvg_registry_open(const char *path, const struct kvg_kernel *const **list, int64_t *count, char *why,
                      size_t size)
{
    kvg_plugin_kernels_fn kernels;
    void *object = open_object(path);

    *count = 0;
    if (!object)
        return refuse(why, size, "cannot load the plug-in: %s", dlerror());
    *(void **)&kernels = dlsym(object, KVG_PLUGIN_SYMBOL);
    if (!kernels)
        refuse(why, size, "%s: no symbol %s; see kernels/README.md", path, KVG_PLUGIN_SYMBOL);
    else if (!is_function(*(void **)&kernels))
        refuse(why, size, "%s: %s is a variable; a function would be right; see kernels/README.md", path,
               KVG_PLUGIN_SYMBOL);
    else {
        *list = kernels(count);
        return 0; /* stays loaded until the process ends: the list points into it */
    }
    dlclose(object);
    return -1;
}

int kvg_registry_load(const char *path, char *why, size_t size)
{
    const struct kvg_kernel *const *list = NULL;
    int64_t count = 0;

    return kvg_registry_open(path, &list, &count, why, size) || kvg_registry_add(path, list, count, why, size)
               ? -1
               : 0;
}

int kvg_registry_is_builtin(const struct kvg_kernel *kernel)
{
    for (int64_t i = 0; i < plugins.count; i++)
        if (plugins.kernel[i] == kernel)
            return 0;
    return 1;
}

int kvg_kernel_has_entry(const struct kvg_kernel *kernel, enum kvg_phase phase)
{
    return phase == KVG_PHASE_STORE ? kernel->store != NULL : kernel->attention != NULL;
}

int kvg_kernel_rank(const struct kvg_kernel *kernel, const struct kvg_problem *problem)
{
    return kernel->rank_for ? kernel->rank_for(problem) : kernel->rank;
}

int kvg_kernel_takes(const struct kvg_kernel *kernel, const struct kvg_problem *problem, char *why,
                     size_t size)
{
    static const struct {
        uint64_t bit;
        const char *words;
    } features[] = {{KVG_FEATURE_SINKS, "attention sinks"},
                    {KVG_FEATURE_CHUNKED_MASK, "the chunked mask"},
                    {KVG_FEATURE_PREFIX_MASK, "the prefix mask"},
                    {KVG_FEATURE_SHARED_PAGES, "pages that belong to several sequences"},
                    {KVG_FEATURE_SMALL_PAGES, "pages whose size is no multiple of 8"}};
    const uint64_t missing = problem->features & ~kernel->features;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (missing & features[i].bit) {
            snprintf(why, size, "the kernel does not take %s", features[i].words);
            return 0;
        }
    if (missing)
        snprintf(why, size, "the kernel lacks a feature that the problem has");
    return missing ? 0 : kernel->supports(problem, why, size);
}

static int ask_itself(void *context, const struct kvg_kernel *kernel, const struct kvg_problem *problem,
                      char *why, size_t size)
{
    (void)context;
    return kvg_kernel_takes(kernel, problem, why, size);
}

static int rank_itself(void *context, const struct kvg_kernel *kernel, const struct kvg_problem *problem)
{
    (void)context;
    return kvg_kernel_rank(kernel, problem);
}

const struct kvg_kernel *kvg_registry_best_by(const struct kvg_problem *problem,
                                              const struct kvg_registry_questions *ask, char *why,
                                              size_t size)
{
    const struct kvg_kernel *best = NULL, *kernel;
    int best_rank = 0;

    refuse(why, size, "no kernel has the entry point that this phase needs");
    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++) {
        if (!kvg_kernel_has_entry(kernel, problem->phase))
            continue;
        const int rank = ask->rank(ask->context, kernel, problem);
        /* The rank first: `supports` may start a process to find its answer. */
        if ((!best || rank > best_rank) && ask->supports(ask->context, kernel, problem, why, size)) {
            best = kernel;
            best_rank = rank;
        }
    }
    return best;
}

const struct kvg_kernel *kvg_registry_best(const struct kvg_problem *problem, kvg_supports_fn supports,
                                           void *context, char *why, size_t size)
{
    const struct kvg_registry_questions ask = {supports ? supports : ask_itself, rank_itself, context};

    return kvg_registry_best_by(problem, &ask, why, size);
}
