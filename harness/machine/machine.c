/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.c: facts about the machine, from /proc, /sys and the C library. A fact that cannot be read is
 * recorded as unknown. The only error is out of memory.
 */
#include "machine.h"

#include <gnu/libc-version.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "caches.h"
#include "nvtx.h"

/* Value of the first line "key : value" of a file, without leading blanks; "" when there is no such line. */
static void read_key(const char *path, const char *key, char *text, size_t size)
{
    char line[4096];
    text[0] = '\0';
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    size_t length = strlen(key);
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, length) != 0 || !colon ||
            line + length + strspn(line + length, " \t") != colon)
            continue;
        colon++;
        colon += strspn(colon, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(text, size, "%s", colon);
        break;
    }
    fclose(f);
}

static int64_t memory_key(const char *key)
{
    char text[64];
    read_key("/proc/meminfo", key, text, sizeof text);
    return text[0] ? strtoll(text, NULL, 10) * 1024 : -1;
}

int64_t kvg_memory_available(void)
{
    return memory_key("MemAvailable");
}

int64_t kvg_cpus_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* cpu_set_t is too small for this machine */
    return online > 0 ? online : 1;
}

/* Count of the numbers in a list such as "0-3,8" (5 numbers). */
static int64_t list_count(const char *list)
{
    int64_t count = 0;
    while (*list) {
        char *end;
        long first = strtol(list, &end, 10), last = first;
        if (end == list)
            break;
        if (*end == '-') {
            char *past;
            last = strtol(end + 1, &past, 10);
            end = past;
        }
        count += last - first + 1;
        list = *end == ',' ? end + 1 : end;
    }
    return count;
}

/* The extensions in `names` that the CPU's flags contain, separated by spaces. */
static void isa_line(const char *flags, char *text, size_t size)
{
    static const char *const names[] = {
        "sse4_2",      "avx",      "f16c",     "fma",         "avx2",        "avx_vnni",   "avx512f",
        "avx512bw",    "avx512vl", "avx512dq", "avx512_vnni", "avx512_vbmi", "avx512vbmi", "avx512_bf16",
        "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",    "asimd",       "sve"};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *at = flags;
        size_t length = strlen(names[i]);
        while ((at = strstr(at, names[i]))) {
            if ((at == flags || at[-1] == ' ') && (at[length] == ' ' || !at[length])) {
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", names[i]);
                break;
            }
            at += length;
        }
        if (used + 16 >= size)
            return;
    }
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211); /* FNV-1a */
    return (hash ^ 0xff) * UINT64_C(1099511628211);
}

static uint64_t hash_number(uint64_t hash, double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", x);
    return hash_text(hash, text);
}

/* What is known about the CPU. */
struct cpu {
    char model[128], signature[192], flags[4096], isa[256], governor[64];
    double max_frequency;
    int64_t smt, nodes;
};

static void read_cpu(struct cpu *cpu)
{
    static const char *const info = "/proc/cpuinfo";
    char vendor[64], family[32], model[32], stepping[32], text[256];
    read_key(info, "model name", cpu->model, sizeof cpu->model);
    read_key(info, "flags", cpu->flags, sizeof cpu->flags);
    if (!cpu->flags[0])
        read_key(info, "Features", cpu->flags, sizeof cpu->flags); /* Arm */
    read_key(info, "vendor_id", vendor, sizeof vendor);
    read_key(info, "cpu family", family, sizeof family);
    read_key(info, "model", model, sizeof model);
    read_key(info, "stepping", stepping, sizeof stepping);
    snprintf(cpu->signature, sizeof cpu->signature, "%s family %s model %s stepping %s", vendor, family,
             model, stepping);
    if (!cpu->model[0])
        snprintf(cpu->model, sizeof cpu->model, "unknown");
    isa_line(cpu->flags, cpu->isa, sizeof cpu->isa);
    kvg_read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", cpu->governor,
                  sizeof cpu->governor);
    if (!cpu->governor[0])
        snprintf(cpu->governor, sizeof cpu->governor, "not visible");
    kvg_read_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", text, sizeof text);
    cpu->max_frequency = text[0] ? 1000.0 * strtod(text, NULL) : NAN;
    kvg_read_line("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", text, sizeof text);
    cpu->smt = text[0] ? list_count(text) : 1;
    kvg_read_line("/sys/devices/system/node/online", text, sizeof text);
    cpu->nodes = text[0] ? list_count(text) : 1;
}

/* The word in brackets of a line such as "always [madvise] never"; "unknown" without brackets. */
static void bracketed(const char *line, char *text, size_t size)
{
    const char *open = strchr(line, '[');
    snprintf(text, size, "%.*s", open ? (int)strcspn(open + 1, "]") : 7, open ? open + 1 : "unknown");
}

static int is_guest(const struct cpu *cpu)
{
    return strstr(cpu->flags, " hypervisor") != NULL;
}

static void fingerprint(const struct cpu *cpu, char text[17])
{
    uint64_t h = UINT64_C(14695981039346656037);
    h = hash_text(h, cpu->model);
    h = hash_text(h, cpu->signature);
    h = hash_text(h, cpu->isa);
    h = hash_text(h, cpu->governor);
    h = hash_number(h, (double)kvg_cpus_allowed());
    h = hash_number(h, (double)cpu->smt);
    h = hash_number(h, (double)cpu->nodes);
    for (int level = 1; level <= 3; level++)
        h = hash_number(h, (double)kvg_cache_bytes(level));
    h = hash_number(h, is_guest(cpu));
    h = hash_number(h, round((double)memory_key("MemTotal") / 1073741824.0));
    snprintf(text, 17, "%016llx", (unsigned long long)h);
}

static int cpu_facts(struct kvg_facts *facts, const struct cpu *cpu)
{
    char affinity[256];
    read_key("/proc/self/status", "Cpus_allowed_list", affinity, sizeof affinity);
    return kvg_facts_set_text(facts, "cpu", cpu->model) ||
           kvg_facts_set_text(facts, "cpu_signature", cpu->signature) ||
           kvg_facts_set_text(facts, "isa", cpu->isa) ||
           kvg_facts_set_number(facts, "cpus_online", (double)sysconf(_SC_NPROCESSORS_ONLN)) ||
           kvg_facts_set_number(facts, "cpus_allowed", (double)kvg_cpus_allowed()) ||
           kvg_facts_set_text(facts, "affinity", affinity) ||
           kvg_facts_set_number(facts, "smt", (double)cpu->smt) ||
           kvg_facts_set_number(facts, "numa_nodes", (double)cpu->nodes) ||
           kvg_facts_set_number(facts, "l1d_bytes", (double)kvg_cache_bytes(1)) ||
           kvg_facts_set_number(facts, "l2_bytes", (double)kvg_cache_bytes(2)) ||
           kvg_facts_set_number(facts, "l3_bytes", (double)kvg_cache_bytes(3)) ||
           kvg_facts_set_text(facts, "governor", cpu->governor) ||
           kvg_facts_set_number(facts, "max_frequency", cpu->max_frequency) ||
           kvg_facts_set_number(facts, "hypervisor", is_guest(cpu));
}

static int system_facts(struct kvg_facts *facts)
{
    struct utsname os;
    char os_text[160] = "unknown", libc[64], line[256], huge_pages[32];
    if (uname(&os) == 0)
        snprintf(os_text, sizeof os_text, "%s %s", os.sysname, os.release);
    snprintf(libc, sizeof libc, "glibc %s", gnu_get_libc_version());
    kvg_read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
    bracketed(line, huge_pages, sizeof huge_pages);
    return kvg_facts_set_number(facts, "memory_bytes", (double)memory_key("MemTotal")) ||
           kvg_facts_set_number(facts, "memory_available_bytes", (double)kvg_memory_available()) ||
           kvg_facts_set_text(facts, "huge_pages", huge_pages) || kvg_facts_set_text(facts, "os", os_text) ||
           kvg_facts_set_text(facts, "libc", libc) ||
           kvg_facts_set_text(facts, "compiler", "gcc " __VERSION__) ||
           kvg_facts_set_text(facts, "benchmark_library", "Google Benchmark 1.7.1") ||
           kvg_facts_set_number(facts, "nvtx", kvg_nvtx_available());
}

int kvg_machine_facts(struct kvg_facts *facts)
{
    char print[17];
    struct cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return -1;
    read_cpu(cpu);
    fingerprint(cpu, print);
    int failed =
        cpu_facts(facts, cpu) || system_facts(facts) || kvg_facts_set_text(facts, "fingerprint", print);
    free(cpu);
    return failed ? -1 : 0;
}
