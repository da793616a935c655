/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_roof.c: rates of matrix products by the vendor's library (cuBLASLt): bf16, and e4m3 with fast and
 * with promoted accumulation. The matrices are square, the operands random (zeros would draw less power and
 * run faster), the output is bf16.
 *
 * cuBLASLt is half a gigabyte, so it is neither linked nor bundled. It is opened at run time from the
 * loader's path, or from the usual places of the CUDA toolkit. Its header is needed at build time. Without
 * header or library the rates are NaN and the reason is reported.
 */
#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_why(struct kvg_device_roofs *out, const char *why)
{
    const size_t used = strlen(out->why);
    snprintf(out->why + used, sizeof out->why - used, "%s%s", used ? "; " : "", why);
}

#if defined(__has_include)
#if __has_include(<cublasLt.h>)
#define HAVE_HEADER 1
#endif
#endif

#ifndef HAVE_HEADER

int kvg_gpu_matrix_roofs(struct kvg_gpu *g, struct kvg_device_roofs *out)
{
    (void)g;
    add_why(out, "matrix rates: built without cublasLt.h");
    return 0;
}

#else

#include <cublasLt.h>
#include <dlfcn.h>
#include <glob.h>

enum {
    SIZE = 8192,            /* rows, columns and depth */
    ALGORITHMS = 2,         /* how many of the library's first choices are tried */
    BURST_PRODUCTS = 3,     /* products in a burst */
    BURSTS = 4,             /* the best one counts */
    SUSTAINED_SAMPLES = 32, /* the median counts */
    WORKSPACE = 64 << 20
};
#define SUSTAINED_SECONDS 0.25

/* ---------------------------------------------------------------- the library */

struct lt {
    __typeof__(&cublasLtCreate) create;
    __typeof__(&cublasLtDestroy) destroy;
    __typeof__(&cublasLtGetVersion) version;
    __typeof__(&cublasLtMatmul) matmul;
    __typeof__(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    __typeof__(&cublasLtMatmulDescCreate) description_create;
    __typeof__(&cublasLtMatmulDescDestroy) description_destroy;
    __typeof__(&cublasLtMatmulDescSetAttribute) description_set;
    __typeof__(&cublasLtMatrixLayoutCreate) layout_create;
    __typeof__(&cublasLtMatrixLayoutDestroy) layout_destroy;
    __typeof__(&cublasLtMatmulPreferenceCreate) preference_create;
    __typeof__(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    __typeof__(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

/* Opens the last match of a pattern that can be opened: the newest version. */
static void *open_newest(const char *pattern)
{
    glob_t found;
    void *library = NULL;
    if (glob(pattern, 0, NULL, &found))
        return NULL;
    for (size_t i = found.gl_pathc; i > 0 && !library; i--)
        library = dlopen(found.gl_pathv[i - 1], RTLD_LAZY | RTLD_LOCAL);
    globfree(&found);
    return library;
}

static void *open_library(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    static const char *const folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda*/lib64",
                                          "/usr/local/cuda*/targets/*/lib", "/opt/cuda/lib64"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        void *library = dlopen(names[n], RTLD_LAZY | RTLD_LOCAL);
        for (size_t f = 0; f < sizeof folders / sizeof folders[0] && !library; f++) {
            char pattern[128];
            snprintf(pattern, sizeof pattern, "%s/%s", folders[f], names[n]);
            library = open_newest(pattern);
        }
        if (library)
            return library;
    }
    return NULL;
}

static int find(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    memcpy(to, &symbol, sizeof symbol);
    return symbol ? 0 : -1;
}

static int load(void *library, struct lt *lt)
{
    return find(library, "cublasLtCreate", &lt->create) || find(library, "cublasLtDestroy", &lt->destroy) ||
           find(library, "cublasLtGetVersion", &lt->version) ||
           find(library, "cublasLtMatmul", &lt->matmul) ||
           find(library, "cublasLtMatmulAlgoGetHeuristic", &lt->heuristic) ||
           find(library, "cublasLtMatmulDescCreate", &lt->description_create) ||
           find(library, "cublasLtMatmulDescDestroy", &lt->description_destroy) ||
           find(library, "cublasLtMatmulDescSetAttribute", &lt->description_set) ||
           find(library, "cublasLtMatrixLayoutCreate", &lt->layout_create) ||
           find(library, "cublasLtMatrixLayoutDestroy", &lt->layout_destroy) ||
           find(library, "cublasLtMatmulPreferenceCreate", &lt->preference_create) ||
           find(library, "cublasLtMatmulPreferenceDestroy", &lt->preference_destroy) ||
           find(library, "cublasLtMatmulPreferenceSetAttribute", &lt->preference_set);
}

/* ---------------------------------------------------------------- one kind of product */

struct product {
    const struct lt *lt;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t factor, result;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    int n_found, chosen;
    void *a, *b, *c, *workspace;
    cublasStatus_t status; /* the last one that was not success */
};

static int ok(struct product *x, cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        x->status = status;
    return status == CUBLAS_STATUS_SUCCESS;
}

/* A transposed times B, both SIZE by SIZE and column-major: the only form that cuBLASLt supports for FP8. */
static int describe(struct product *x, cudaDataType_t type, int fast)
{
    const struct lt *lt = x->lt;
    const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    const int8_t fast_accumulation = (int8_t)fast;
    return ok(x, lt->description_create(&x->description, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
           ok(x, lt->description_set(x->description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                     sizeof transposed)) &&
           ok(x, lt->description_set(x->description, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain)) &&
           (type != CUDA_R_8F_E4M3 ||
            ok(x, lt->description_set(x->description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast_accumulation,
                                      sizeof fast_accumulation))) &&
           ok(x, lt->layout_create(&x->factor, type, SIZE, SIZE, SIZE)) &&
           ok(x, lt->layout_create(&x->result, CUDA_R_16BF, SIZE, SIZE, SIZE));
}

static int choose(struct product *x)
{
    const struct lt *lt = x->lt;
    const uint64_t workspace = WORKSPACE;
    cublasLtMatmulPreference_t preference = NULL;
    const int good = ok(x, lt->preference_create(&preference)) &&
                     ok(x, lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace, sizeof workspace)) &&
                     ok(x, lt->heuristic(x->handle, x->description, x->factor, x->factor, x->result,
                                         x->result, preference, ALGORITHMS, x->found, &x->n_found));
    if (preference)
        (void)lt->preference_destroy(preference);
    return good && x->n_found > 0;
}

static void forget(struct product *x)
{
    if (x->description)
        (void)x->lt->description_destroy(x->description);
    if (x->factor)
        (void)x->lt->layout_destroy(x->factor);
    if (x->result)
        (void)x->lt->layout_destroy(x->result);
    x->description = NULL;
    x->factor = x->result = NULL;
}

static int multiply(struct kvg_gpu *g, struct product *x, int times)
{
    const float one = 1, zero = 0;
    for (int i = 0; i < times; i++)
        if (!ok(x, x->lt->matmul(x->handle, x->description, &one, x->a, x->factor, x->b, x->factor, &zero,
                                 x->c, x->result, x->c, x->result, &x->found[x->chosen].algo, x->workspace,
                                 WORKSPACE, g->stream)))
            return -1;
    return 0;
}

/* Seconds per product in a run of `times`; NaN when the library or the device failed. */
static double time_products(struct kvg_gpu *g, struct product *x, int times)
{
    double seconds = NAN;
    if (kvg_gpu_start(&g->device, 1) || multiply(g, x, times) || kvg_gpu_stop(&g->device, &seconds)) {
        (void)cudaGetLastError(); /* clears the error of a launch inside the library */
        return NAN;
    }
    return seconds / times;
}

/* Seconds per product of the fastest algorithm, which becomes x->chosen. The first run of each algorithm
 * loads its code and does not count. */
static double burst(struct kvg_gpu *g, struct product *x)
{
    double best = INFINITY;
    int best_algorithm = 0;
    for (x->chosen = 0; x->chosen < x->n_found; x->chosen++)
        for (int i = 0; i <= BURSTS; i++) {
            const double t = time_products(g, x, i ? BURST_PRODUCTS : 1);
            if (g->device.lost)
                return NAN;
            if (isnan(t))
                break; /* this algorithm does not work */
            if (i && t < best) {
                best = t;
                best_algorithm = x->chosen;
            }
        }
    x->chosen = best_algorithm;
    return best < INFINITY ? best : NAN;
}

/* Median seconds per product, run back to back: events are recorded between the samples, and the host waits
 * only after the last one. `one` is the time of one product in a burst. */
static double sustained(struct kvg_gpu *g, struct product *x, double one)
{
    const int times = (int)ceil(SUSTAINED_SECONDS / SUSTAINED_SAMPLES / one);
    cudaEvent_t mark[SUSTAINED_SAMPLES + 1] = {NULL};
    double t[SUSTAINED_SAMPLES];
    int failed = 0;
    cudaError_t e = cudaSuccess;
    for (int i = 0; i <= SUSTAINED_SAMPLES && e == cudaSuccess; i++)
        e = cudaEventCreate(&mark[i]);
    for (int i = 0; i <= SUSTAINED_SAMPLES && e == cudaSuccess && !failed; i++) {
        e = cudaEventRecord(mark[i], g->stream);
        failed = e == cudaSuccess && i < SUSTAINED_SAMPLES && multiply(g, x, times);
    }
    const cudaError_t end = cudaStreamSynchronize(g->stream);
    e = e == cudaSuccess ? end : e;
    for (int i = 0; i < SUSTAINED_SAMPLES && e == cudaSuccess && !failed; i++) {
        float ms = 0;
        e = cudaEventElapsedTime(&ms, mark[i], mark[i + 1]);
        t[i] = (double)ms * 1e-3 / times;
    }
    for (int i = 0; i <= SUSTAINED_SAMPLES; i++)
        if (mark[i])
            (void)cudaEventDestroy(mark[i]);
    if (e != cudaSuccess)
        (void)kvg_gpu_fail(g, e, "a run of matrix products");
    if (e != cudaSuccess || failed)
        return NAN;
    return kvg_gpu_median(t, SUSTAINED_SAMPLES);
}

/* Rates of one kind of product. sustained_rate may be NULL. -1 when the device failed. */
static int measure(struct kvg_gpu *g, struct product *x, const char *name, cudaDataType_t type, int fast,
                   struct kvg_device_roofs *out, double *burst_rate, double *sustained_rate)
{
    const double operations = 2.0 * SIZE * SIZE * SIZE;
    const enum kvg_dtype dtype = type == CUDA_R_16BF ? KVG_BF16 : KVG_E4M3;
    char why[96];
    x->status = CUBLAS_STATUS_SUCCESS;
    x->n_found = x->chosen = 0;
    cudaError_t e = kvg_launch_noise(dtype, x->a, (int64_t)SIZE * SIZE, 7, g->multiprocessors, g->stream);
    if (e == cudaSuccess)
        e = kvg_launch_noise(dtype, x->b, (int64_t)SIZE * SIZE, 8, g->multiprocessors, g->stream);
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "operands of matrix products");
    if (describe(x, type, fast) && choose(x)) {
        const double one = burst(g, x);
        *burst_rate = operations / one;
        if (sustained_rate && !isnan(one))
            *sustained_rate = operations / sustained(g, x, one);
    }
    forget(x);
    if (isnan(*burst_rate)) {
        snprintf(why, sizeof why, "%s: cuBLASLt has no product (status %d)", name, (int)x->status);
        add_why(out, why);
    }
    return g->device.lost ? -1 : 0;
}

static int measure_all(struct kvg_gpu *g, struct product *x, struct kvg_device_roofs *out)
{
    /* The kind without a sustained run comes first, while the GPU is cool. */
    return measure(g, x, "e4m3 promoted", CUDA_R_8F_E4M3, 0, out, &out->fp8_promoted, NULL) ||
                   measure(g, x, "e4m3", CUDA_R_8F_E4M3, 1, out, &out->fp8_burst, &out->fp8_sustained) ||
                   measure(g, x, "bf16", CUDA_R_16BF, 0, out, &out->bf16_burst, &out->bf16_sustained)
               ? -1
               : 0;
}

/* Allocates operands, result and workspace as one buffer, and measures. */
static int with_memory(struct kvg_gpu *g, struct product *x, struct kvg_device_roofs *out)
{
    const int64_t matrix = 2LL * SIZE * SIZE;
    char *data = kvg_gpu_allocate(&g->device, 3 * matrix + WORKSPACE);
    if (!data && g->device.lost)
        return -1;
    if (!data) {
        add_why(out, "matrix rates: too little free device memory");
        g->device.error[0] = 0; /* reported in `why`; this is no failure */
        return 0;
    }
    x->a = data;
    x->b = data + matrix;
    x->c = data + 2 * matrix;
    x->workspace = data + 3 * matrix;
    const int failed = measure_all(g, x, out);
    kvg_gpu_release(&g->device, data);
    return failed;
}

/* The library stays open: a library that holds GPU code cannot be closed safely. */
int kvg_gpu_matrix_roofs(struct kvg_gpu *g, struct kvg_device_roofs *out)
{
    struct lt lt;
    struct product x = {.lt = &lt};
    void *library = open_library();
    if (!library || load(library, &lt)) {
        add_why(out, library ? "matrix rates: libcublasLt lacks functions"
                             : "matrix rates: libcublasLt.so.13 or .12 not found in the loader's path or "
                               "/usr/local/cuda*/lib64");
        return 0;
    }
    kvg_gpu_add_fact(g, "cublaslt", "%zu", lt.version());
    const cublasStatus_t status = lt.create(&x.handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        char why[64];
        snprintf(why, sizeof why, "matrix rates: cublasLtCreate gave status %d", (int)status);
        add_why(out, why);
        return 0;
    }
    const int failed = with_memory(g, &x, out);
    (void)lt.destroy(x.handle);
    return failed;
}

#endif
