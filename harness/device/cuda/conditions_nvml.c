/* SPDX-License-Identifier: Apache-2.0
 *
 * conditions_nvml.c: clocks, power, energy, temperature and throttling while a row's samples run, read from
 * the driver's management library (NVML), which is opened together with the device. A thread takes a sample
 * every 10 ms between begin and end. One more sample is taken at the end, so that a short measurement has
 * one too. The prototypes are copied from NVML's public documentation; its header is not needed to build.
 */
#include "gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0 };
enum { FIELD_POWER_INSTANT = 186, VALUE_UNSIGNED_INT = 1 };
enum { MOST_SAMPLES = 1024, PERIOD_NS = 10 * 1000 * 1000 };

typedef struct nvml_device *nvml_device;

/* nvmlFieldValue_t */
struct field_value {
    unsigned field, scope;
    long long timestamp, latency;
    int type, status;
    union {
        double d;
        unsigned ui;
        unsigned long ul;
        unsigned long long ull;
        long long sll;
    } value;
};

struct entry_points {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int);
    int (*driver_version)(char *, unsigned);
    int (*by_bus_id)(const char *, nvml_device *);
    int (*clock)(nvml_device, int, unsigned *);            /* MHz */
    int (*power)(nvml_device, unsigned *);                 /* mW, on newer boards averaged over some time */
    int (*power_limit)(nvml_device, unsigned *);           /* mW */
    int (*fields)(nvml_device, int, struct field_value *); /* here: the instantaneous power */
    int (*energy)(nvml_device, unsigned long long *);      /* mJ since the driver was loaded */
    int (*temperature)(nvml_device, int, unsigned *);      /* degrees Celsius */
    int (*throttle)(nvml_device, unsigned long long *);    /* bits, below */
};

struct sample {
    unsigned sm, memory; /* MHz; 0: not known */
};

struct kvg_nvml {
    void *library;
    struct entry_points call;
    nvml_device device;
    /* state of one row */
    pthread_t thread;
    int running;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int stop;
    struct sample samples[MOST_SAMPLES];
    int n;            /* samples kept: one of `every`; when the array is full, every second one is dropped */
    int every, taken; /* taken: samples so far, kept or not */
    double power_sum; /* W */
    int64_t power_n;
    unsigned long long throttle;
    int throttle_known;
    unsigned long long energy_before; /* mJ */
    int energy_known;
};

/* ---------------------------------------------------------------- open and close */

static int load(void *library, struct entry_points *c)
{
    const struct {
        const char *name;
        void *to;
        int needed;
    } wanted[] = {
        {"nvmlInit_v2", &c->init, 1},
        {"nvmlShutdown", &c->shutdown, 1},
        {"nvmlErrorString", &c->error_string, 1},
        {"nvmlDeviceGetHandleByPciBusId_v2", &c->by_bus_id, 1},
        {"nvmlSystemGetDriverVersion", &c->driver_version, 0},
        {"nvmlDeviceGetClockInfo", &c->clock, 0},
        {"nvmlDeviceGetPowerUsage", &c->power, 0},
        {"nvmlDeviceGetEnforcedPowerLimit", &c->power_limit, 0},
        {"nvmlDeviceGetFieldValues", &c->fields, 0},
        {"nvmlDeviceGetTotalEnergyConsumption", &c->energy, 0},
        {"nvmlDeviceGetTemperature", &c->temperature, 0},
        {"nvmlDeviceGetCurrentClocksEventReasons", &c->throttle, 0},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *symbol = dlsym(library, wanted[i].name);
        if (!symbol && wanted[i].to == (void *)&c->throttle) /* the older name, before driver 535 */
            symbol = dlsym(library, "nvmlDeviceGetCurrentClocksThrottleReasons");
        if (!symbol && wanted[i].needed)
            return -1;
        memcpy(wanted[i].to, &symbol, sizeof symbol);
    }
    return 0;
}

/* Facts that do not change between rows. */
static void board_facts(struct kvg_gpu *g, const struct kvg_nvml *n)
{
    char version[96] = "";
    unsigned limit = 0;
    if (n->call.driver_version && n->call.driver_version(version, sizeof version) == SUCCESS)
        kvg_gpu_add_fact(g, "nvidia_driver", "%s", version);
    if (n->call.power_limit && n->call.power_limit(n->device, &limit) == SUCCESS)
        kvg_gpu_add_fact(g, "gpu_power_limit_w", "%.0f", limit * 1e-3);
}

void kvg_gpu_nvml_open(struct kvg_gpu *g)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    struct kvg_nvml *n = library ? calloc(1, sizeof *n) : NULL;
    if (!n) {
        snprintf(g->nvml_why, sizeof g->nvml_why, "%s",
                 library ? "out of memory" : "libnvidia-ml.so.1 could not be opened");
        if (library)
            dlclose(library);
        return;
    }
    n->library = library;
    int status = load(library, &n->call) ? -1 : n->call.init();
    if (status == SUCCESS) {
        status = n->call.by_bus_id(g->bus_id, &n->device);
        if (status != SUCCESS)
            (void)n->call.shutdown();
    }
    if (status != SUCCESS) {
        snprintf(g->nvml_why, sizeof g->nvml_why, "NVML: %s",
                 status < 0 ? "functions are missing" : n->call.error_string(status));
        dlclose(library);
        free(n);
        return;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    g->nvml = n;
    board_facts(g, n);
}

static void join(struct kvg_nvml *n)
{
    if (!n->running)
        return;
    pthread_mutex_lock(&n->lock);
    n->stop = 1;
    pthread_cond_signal(&n->wake);
    pthread_mutex_unlock(&n->lock);
    pthread_join(n->thread, NULL);
    n->running = 0;
}

void kvg_gpu_nvml_close(struct kvg_gpu *g)
{
    struct kvg_nvml *n = g->nvml;
    if (!n)
        return;
    join(n);
    (void)n->call.shutdown();
    pthread_cond_destroy(&n->wake);
    pthread_mutex_destroy(&n->lock);
    dlclose(n->library);
    free(n);
    g->nvml = NULL;
}

/* ---------------------------------------------------------------- one sample */

static double power_now(const struct kvg_nvml *n)
{
    struct field_value f = {.field = FIELD_POWER_INSTANT};
    unsigned mw = 0;
    if (n->call.fields && n->call.fields(n->device, 1, &f) == SUCCESS && f.status == SUCCESS &&
        f.type == VALUE_UNSIGNED_INT && f.value.ui > 0)
        return f.value.ui * 1e-3;
    if (n->call.power && n->call.power(n->device, &mw) == SUCCESS)
        return mw * 1e-3;
    return NAN;
}

static void keep(struct kvg_nvml *n, struct sample s)
{
    if (n->taken++ % n->every)
        return;
    if (n->n == MOST_SAMPLES) {
        for (int i = 0; i < MOST_SAMPLES / 2; i++)
            n->samples[i] = n->samples[2 * i];
        n->n = MOST_SAMPLES / 2;
        n->every *= 2;
    }
    n->samples[n->n++] = s;
}

static void take_sample(struct kvg_nvml *n)
{
    struct sample s = {0, 0};
    unsigned long long reasons = 0;
    const double power = power_now(n);
    if (!n->call.clock || n->call.clock(n->device, CLOCK_SM, &s.sm) != SUCCESS)
        s.sm = 0;
    if (!n->call.clock || n->call.clock(n->device, CLOCK_MEMORY, &s.memory) != SUCCESS)
        s.memory = 0;
    if (n->call.throttle && n->call.throttle(n->device, &reasons) == SUCCESS) {
        n->throttle |= reasons;
        n->throttle_known = 1;
    }
    if (!isnan(power)) {
        n->power_sum += power;
        n->power_n++;
    }
    keep(n, s);
}

static void *watch(void *context)
{
    struct kvg_nvml *n = context;
    pthread_mutex_lock(&n->lock);
    while (!n->stop) {
        struct timespec until;
        take_sample(n);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PERIOD_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (!n->stop && pthread_cond_timedwait(&n->wake, &n->lock, &until) != ETIMEDOUT)
            ;
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* ---------------------------------------------------------------- a row */

void kvg_gpu_conditions_begin(struct kvg_device *d)
{
    struct kvg_nvml *n = kvg_gpu_of(d)->nvml;
    if (!n)
        return;
    join(n);
    n->stop = n->n = n->taken = 0;
    n->every = 1;
    n->power_sum = 0;
    n->power_n = 0;
    n->throttle = 0;
    n->throttle_known = 0;
    n->energy_known = n->call.energy && n->call.energy(n->device, &n->energy_before) == SUCCESS;
    n->running = !pthread_create(&n->thread, NULL, watch, n);
}

static void name_reasons(unsigned long long reasons, char *out, size_t size)
{
    static const struct {
        unsigned long long bit;
        const char *name;
    } known[] = {
        {0x2, "applications_clocks"}, {0x4, "power_cap"},         {0x8, "hw_slowdown"},
        {0x10, "sync_boost"},         {0x20, "thermal_slowdown"}, {0x40, "hw_thermal_slowdown"},
        {0x80, "power_brake"},        {0x100, "display_clocks"},
    }; /* 0x1 means idle, which is no limit */
    size_t length = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (reasons & known[i].bit && length < size)
            length += (size_t)snprintf(out + length, size - length, "%s%s", length ? "," : "", known[i].name);
    if (!length)
        snprintf(out, size, "none");
}

void kvg_gpu_conditions_end(struct kvg_device *d, struct kvg_device_conditions *out)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    struct kvg_nvml *n = g->nvml;
    *out = (struct kvg_device_conditions){NAN, NAN, NAN, NAN, NAN, "", ""};
    if (!n) {
        snprintf(out->why, sizeof out->why, "%s", g->nvml_why);
        return;
    }
    unsigned degrees = 0;
    unsigned long long energy = 0;
    join(n);
    if (!n->n)
        n->every = 1;
    take_sample(n);
    const struct sample middle = n->samples[n->n / 2];
    out->sm_clock = middle.sm ? middle.sm * 1e6 : NAN;
    out->memory_clock = middle.memory ? middle.memory * 1e6 : NAN;
    out->power = n->power_n ? n->power_sum / (double)n->power_n : NAN;
    if (n->energy_known && n->call.energy(n->device, &energy) == SUCCESS && energy >= n->energy_before)
        out->energy = (double)(energy - n->energy_before) * 1e-3;
    if (n->call.temperature && n->call.temperature(n->device, SENSOR_GPU, &degrees) == SUCCESS)
        out->temperature = degrees;
    if (n->throttle_known)
        name_reasons(n->throttle, out->throttle, sizeof out->throttle);
}
