/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_doctor.c: `kvgauge doctor`: checks this machine and says what to do about what is missing. One verdict
 * a line; advice follows below its line.
 *
 *   ok        fine
 *   note      absent or unknown, but not needed
 *   noisy     measured times will vary more than necessary
 *   missing   kvgauge needs it: the exit code is KVG_EXIT_TROUBLE
 */
#include <argp.h>
#include <dlfcn.h>
#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <jansson.h>
#include <gsl/gsl_version.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <yaml.h>

#include "kernels/registry.h"
#include "commands.h"
#include "harness/device/device.h"
#include "doctor.h"
#include "harness/inputs/inputs.h"
#include "harness/machine/machine.h"
#include "harness/machine/nvtx.h"
#include "options.h"
#include "harness/machine/paths.h"
#include "harness/plan/shipped.h"
#include "results/table.h"
#include "results/table_text.h"

enum verdict { OK, NOTE, NOISY, MISSING };

#ifndef KVG_BENCHMARK_VERSION /* from the Makefile; Google Benchmark 1.7 has no function for it */
#define KVG_BENCHMARK_VERSION "(version unknown)"
#endif

enum { INDENT = 28 }; /* columns before the text of a line: the verdict, and what it is about */

struct report {
    int missing, noisy;
};

static void say(struct report *report, enum verdict verdict, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void say(struct report *report, enum verdict verdict, const char *what, const char *format, ...)
{
    static const char *const words[] = {"ok", "note", "noisy", "missing"};
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("%-8s %-18s ", words[verdict], what);
    kvg_text_wrap(stdout, text, INDENT, kvg_table_width(stdout, 0));
    putchar('\n');
    report->missing += verdict == MISSING;
    report->noisy += verdict == NOISY;
}

static void advise(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void advise(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("%*s-> ", INDENT, "");
    kvg_text_wrap(stdout, text, INDENT + 3, kvg_table_width(stdout, 0));
    putchar('\n');
}

#define MIB (1024.0 * 1024)
#define GIB (1024.0 * MIB)

static const char *text_of(const struct kvg_facts *facts, const char *name)
{
    const struct kvg_fact *fact = kvg_facts_find(facts, name);
    return fact && fact->text ? fact->text : "";
}

static double number_of(const struct kvg_facts *facts, const char *name)
{
    const struct kvg_fact *fact = kvg_facts_find(facts, name);
    return fact && !fact->text ? fact->number : 0;
}

/* ------------------------------------------------------------------------------------------ processor */

static void check_cpu(struct report *report, const struct kvg_facts *facts)
{
    char quota[64];
    say(report, OK, "cpu", "%s (%s)", text_of(facts, "cpu"), text_of(facts, "cpu_signature"));
    if (*text_of(facts, "isa"))
        say(report, OK, "isa", "%s", text_of(facts, "isa"));
    else
        say(report, NOTE, "isa", "no vector extension that kvgauge uses; only the scalar kernels run");
    int64_t usable = (int64_t)number_of(facts, "cpus_allowed"),
            online = (int64_t)number_of(facts, "cpus_online");
    say(report, OK, "cpus", "this process may use %" PRId64 " of %" PRId64 " (%s)", usable, online,
        text_of(facts, "affinity"));
    double cpus = kvg_doctor_read_cpu_quota(quota, sizeof quota);
    if (cpus > 0 && cpus < (double)usable) {
        say(report, NOISY, "cpu quota", "%s allows %.2f of the %" PRId64 " CPUs", quota, cpus, usable);
        advise("run with --threads %d, or raise the quota of the container", cpus < 1 ? 1 : (int)cpus);
    }
    if (number_of(facts, "smt") > 1) {
        say(report, NOTE, "smt", "%.0f CPUs share a core", number_of(facts, "smt"));
        advise("times vary less with one thread a core: taskset -c LIST kvgauge run, one CPU of each core in "
               "LIST");
    }
}

static void check_governor(struct report *report, const struct kvg_facts *facts)
{
    const char *governor = text_of(facts, "governor");
    if (strcmp(governor, "not visible") == 0) {
        say(report, NOTE, "governor", "not visible (usual in a virtual machine)");
        return;
    }
    int steady = strcmp(governor, "performance") == 0;
    say(report, steady ? OK : NOISY, "governor", "%s", governor);
    if (!steady)
        advise("the clock changes with the load; as root: cpupower frequency-set -g performance");
}

static void check_load(struct report *report)
{
    double load;
    if (getloadavg(&load, 1) != 1) {
        say(report, NOTE, "load", "not known");
        return;
    }
    say(report, load > 0.5 ? NOISY : OK, "load", "%.2f over the last minute", load);
    if (load > 0.5)
        advise("another process is or was running, and disturbs times and roofs; wait, or stop it");
}

static void check_virtual(struct report *report, const struct kvg_facts *facts)
{
    if (number_of(facts, "hypervisor") != 1)
        return;
    say(report, NOISY, "hypervisor", "a virtual machine: other guests share caches and memory");
    advise(
        "medians move most here: compare minima (column time_min) or CPU time (cpu_time_median), and let the "
        "table say which of them is steadiest");
}

static void check_memory(struct report *report, const struct kvg_facts *facts)
{
    double total = number_of(facts, "memory_bytes"), available = number_of(facts, "memory_available_bytes");
    /* Suite full takes about 2.5 GiB: K and V of 131072 tokens, 8 heads, head_dim 128 in bf16 (0.5 GiB), the
       quantised cache, the copies of the reference, and the buffer that evicts the caches. */
    int enough = available >= 3.0 * GIB;
    say(report, enough ? OK : NOTE, "memory", "%.1f GiB, %.1f GiB of it available", total / GIB,
        available / GIB);
    if (!enough)
        advise(
            "contexts of 128k need about 3 GiB: --suite full may run out of memory; use --context up to 32k");
}

static void check_caches(struct report *report, const struct kvg_facts *facts)
{
    double l1 = number_of(facts, "l1d_bytes"), l2 = number_of(facts, "l2_bytes"),
           l3 = number_of(facts, "l3_bytes");
    if (l1 > 0 && l3 > 0)
        say(report, OK, "caches", "L1d %.0f KiB, L2 %.0f KiB, L3 %.4g MiB", l1 / 1024, l2 / 1024, l3 / MIB);
    else if (l1 > 0)
        say(report, OK, "caches", "L1d %.0f KiB, L2 %.0f KiB, no L3 visible", l1 / 1024, l2 / 1024);
    else
        say(report, NOTE, "caches", "sizes not visible");
}

/* ------------------------------------------------------------------------------------------ GPU */

static void check_cuda_driver(struct report *report)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda) {
        say(report, NOTE, "CUDA driver", "absent: GPU kernels cannot run; CPU kernels need none");
        return;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*driver_version)(int *) = (int (*)(int *))dlsym(cuda, "cuDriverGetVersion");
    int (*device_count)(int *) = (int (*)(int *))dlsym(cuda, "cuDeviceGetCount");
    int (*device_name)(char *, int, int) = (int (*)(char *, int, int))dlsym(cuda, "cuDeviceGetName");
    int version = 0, count = 0;
    if (!init || !driver_version || !device_count || !device_name || driver_version(&version)) {
        say(report, NOTE, "CUDA driver", "found, but it lacks functions that kvgauge calls");
    } else if (init(0) || device_count(&count) || count == 0) {
        say(report, NOTE, "CUDA driver", "for CUDA %d.%d, no GPU visible", version / 1000,
            version % 1000 / 10);
        advise("in a container: start it with GPU access (docker run --gpus all); else see nvidia-smi");
    } else {
        char name[128] = "?";
        device_name(name, sizeof name, 0);
        say(report, OK, "CUDA driver", "for CUDA %d.%d, %d GPU%s, first: %s", version / 1000,
            version % 1000 / 10, count, count == 1 ? "" : "s", name);
    }
    /* The library stays open: an initialised driver must not be unloaded before the process ends. */
}

static const char *fact_of(struct kvg_device *device, const char *key)
{
    const char *name, *value;
    for (int64_t i = 0; device->ops->fact(device, i, &name, &value) == 0; i++)
        if (strcmp(name, key) == 0)
            return value;
    return "";
}

static void describe_gpu(struct report *report, struct kvg_device *device)
{
    int64_t available = 0, total = 0;
    device->ops->memory(device, &available, &total);
    say(report, OK, "GPU", "%s, compute capability %s, %s multiprocessors, %.1f GiB (%.1f free), L2 %.0f MiB",
        device->name, fact_of(device, "gpu_compute_capability"), fact_of(device, "gpu_multiprocessors"),
        (double)total / GIB, (double)available / GIB, (double)device->cache_bytes / MIB);
    say(report, OK, "CUDA runtime", "%s, linked in", fact_of(device, "cuda_runtime"));
    const char *driver = fact_of(device, "nvidia_driver"), *limit = fact_of(device, "gpu_power_limit_w");
    if (*driver)
        say(report, OK, "NVML", "driver %s%s%s%s: clocks, power and temperature are recorded", driver,
            *limit ? ", power limit " : "", limit, *limit ? " W" : "");
    else
        say(report, NOTE, "NVML", "no usable libnvidia-ml.so.1: clocks and power are not recorded");
}

/* Used for the matrix roofs only, which look for it with the loader and in these folders. */
static void check_cublaslt(struct report *report)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    static const char *const folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda*/lib64",
                                          "/usr/local/cuda*/targets/*/lib", "/opt/cuda/lib64", NULL};
    char path[1024];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (kvg_doctor_find_library(names[i], folders, path, sizeof path) == 0) {
            say(report, OK, "cuBLASLt", "%s", path);
            return;
        }
    say(report, NOTE, "cuBLASLt", "absent: the matrix roofs of a GPU are not measured");
}

static void check_gpu(struct report *report)
{
    char why[512];
    if (!kvg_cuda_open) {
        say(report, NOTE, "GPU", "not checked: this kvgauge was built without CUDA");
        advise("make builds GPU kernels where it finds nvcc and a GPU; make cuda needs nvcc only");
        return;
    }
    struct kvg_device *device = kvg_cuda_open(0, why, sizeof why);
    if (device) {
        describe_gpu(report, device);
        device->ops->close(device);
    } else {
        say(report, NOTE, "GPU", "%s", why);
    }
    check_cublaslt(report);
}

static void check_cuda_toolkit(struct report *report)
{
    char nvcc[1024];
    int found = kvg_doctor_find_program("nvcc", nvcc, sizeof nvcc) == 0;
    if (!found && access("/usr/local/cuda/bin/nvcc", X_OK) == 0) {
        snprintf(nvcc, sizeof nvcc, "/usr/local/cuda/bin/nvcc");
        found = 1;
    }
    if (found)
        say(report, OK, "CUDA toolkit", "%s", nvcc);
    else
        say(report, NOTE, "CUDA toolkit", "absent (no nvcc); only building GPU kernels needs it");
    if (kvg_nvtx_available())
        say(report, OK, "NVTX", "built in: run --profile names ranges for ncu and nsys");
    else
        say(report, NOTE, "NVTX", "absent when kvgauge was built: run --profile names no ranges");
}

/* ------------------------------------------------------------------------------------------ libraries */

static void check_libraries(struct report *report)
{
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    say(report, OK, "HDF5", "%u.%u.%u", major, minor, release);
    say(report, OK, "benchmark", "Google Benchmark %s", KVG_BENCHMARK_VERSION);
    say(report, OK, "libraries", "GSL %s, jansson %s, libyaml %s", gsl_version, jansson_version_str(),
        yaml_get_version_string());
}

static void check_gnuplot(struct report *report)
{
    char version[128], path[1024];
    if (kvg_doctor_find_program("gnuplot", path, sizeof path)) {
        say(report, NOTE, "gnuplot", "absent: no plots can be drawn; everything else works");
        advise("apt-get install gnuplot-nox, as root (make run does it); or draw elsewhere: kvgauge plot "
               "FILE.h5");
        return;
    }
    kvg_doctor_read_first_line("gnuplot --version 2>/dev/null", version, sizeof version);
    say(report, OK, "gnuplot", "%s", *version ? version : path);
}

/* ------------------------------------------------------------------------------------------ our own files */

static void check_kernels(struct report *report)
{
    int64_t count = kvg_registry_count();
    if (count == 0) {
        say(report, MISSING, "kernels", "none is built in");
        advise("build kvgauge again: make clean, make");
        return;
    }
    say(report, OK, "kernels",
        "%" PRId64 " built in; kvgauge list --kernels shows which of them this machine can run", count);
}

static void check_suites(struct report *report)
{
    char folder[1024], **names;
    int64_t count;
    struct kvg_error error;
    if (kvg_shipped_list_suites(folder, sizeof folder, &names, &count, &error)) {
        say(report, MISSING, "suites", "%s", error.text);
        advise("run kvgauge where it was built or installed, or set KVGAUGE_DATA to its folder "
               "share/kvgauge");
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        char what[32];
        snprintf(what, sizeof what, "suite %s", names[i]);
        say(report, OK, what, "%s/%s.yaml", folder, names[i]);
    }
    kvg_shipped_free_names(names, count);
}

static void check_input(struct report *report)
{
    struct kvg_captured_info info;
    struct kvg_error error;
    if (kvg_captured_read_info("smollm2", &info, &error)) {
        say(report, MISSING, "input smollm2", "%s", error.text);
        advise(
            "the file belongs to the checkout (harness/inputs) and to an installation; git lfs is not used");
        return;
    }
    say(report, OK, "input smollm2", "%s (%s, %" PRId64 " layers, %" PRId64 " tokens)", info.path, info.model,
        info.n_layers, info.tokens);
}

static void check_results(struct report *report)
{
    char wanted[1024], folder[1024];
    kvg_default_run_dir(wanted, sizeof wanted);
    snprintf(folder, sizeof folder, "%s", wanted);
    kvg_doctor_cut_to_folder(folder);
    if (kvg_doctor_try_to_write(folder)) {
        say(report, MISSING, "results", "%s cannot be written: %s", wanted, strerror(errno));
        advise("name another file: kvgauge run --out FILE.h5");
        return;
    }
    struct statvfs disk;
    if (statvfs(folder, &disk))
        say(report, OK, "results", "%s", wanted);
    else
        say(report, OK, "results", "%s (%.1f GiB free)", wanted,
            (double)disk.f_bavail * (double)disk.f_frsize / GIB);
}

/* ------------------------------------------------------------------------------------------ command */

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)state;
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    argp_error(state, "'%s': doctor takes no arguments", arg);
    return 0;
}

static const struct argp argp = {NULL,
                                 parse,
                                 NULL,
                                 "Check this machine, and say what to do about what is missing.\v"
                                 "Verdicts: ok; note (absent, but not needed); noisy (measured times will "
                                 "vary more); missing (needed: exit "
                                 "code 3). Nothing is measured and nothing is changed.",
                                 NULL,
                                 NULL,
                                 NULL};

int kvg_cmd_doctor(int argc, char **argv)
{
    struct report report = {0};
    struct kvg_facts facts = {0};
    struct kvg_error error;
    kvg_options_parse(&argp, argc, argv, NULL);
    if (kvg_machine_facts(&facts)) {
        kvg_fail(&error, KVG_EXIT_TROUBLE, "out of memory");
        return kvg_error_report(&error);
    }
    say(&report, OK, "kvgauge", "%s (%s%s)", kvg_version(), kvg_git_sha(),
        kvg_git_dirty() ? ", modified" : "");
    check_cpu(&report, &facts);
    check_caches(&report, &facts);
    check_memory(&report, &facts);
    check_governor(&report, &facts);
    check_load(&report);
    check_virtual(&report, &facts);
    kvg_facts_free(&facts);
    check_cuda_driver(&report);
    check_gpu(&report);
    check_cuda_toolkit(&report);
    check_libraries(&report);
    check_gnuplot(&report);
    check_kernels(&report);
    check_suites(&report);
    check_input(&report);
    check_results(&report);
    if (report.missing)
        printf("\n%d thing%s kvgauge needs %s missing.\n", report.missing, report.missing == 1 ? "" : "s",
               report.missing == 1 ? "is" : "are");
    else if (report.noisy)
        printf("\nReady; %d condition%s measured times vary more.\n", report.noisy,
               report.noisy == 1 ? " makes" : "s make");
    else
        printf("\nReady.\n");
    return report.missing ? KVG_EXIT_TROUBLE : KVG_EXIT_OK;
}
