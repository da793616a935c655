/* SPDX-License-Identifier: Apache-2.0
 *
 * time_cuda.c: the stream, times measured by events on it, the flush of the caches, and recorded calls as
 * CUDA graphs.
 */
#include "gpu.h"

#include <math.h>
#include <stdlib.h>

void *kvg_gpu_stream(struct kvg_device *d)
{
    return kvg_gpu_of(d)->stream;
}

/* A rejected launch leaves its error in the runtime (cudaGetLastError), not in the stream, so both are
 * asked. */
int kvg_gpu_finish(struct kvg_device *d)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    cudaError_t e = cudaStreamSynchronize(g->stream);
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "waiting for the device");
    e = cudaGetLastError();
    return e == cudaSuccess ? 0 : kvg_gpu_fail(g, e, "a call since the last wait");
}

int kvg_gpu_flush(struct kvg_device *d)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    const cudaError_t e = kvg_launch_flush(g->flush, g->flush_written, g->flush_read, g->word + 4,
                                           g->multiprocessors, g->stream);
    return e == cudaSuccess ? 0 : kvg_gpu_fail(g, e, "flush of the caches");
}

int kvg_gpu_start(struct kvg_device *d, int hold)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    cudaError_t e = hold ? kvg_launch_spin(g->hold_ticks, g->stream) : cudaSuccess;
    if (e == cudaSuccess)
        e = cudaEventRecord(g->begin, g->stream);
    return e == cudaSuccess ? 0 : kvg_gpu_fail(g, e, "start of a timed region");
}

int kvg_gpu_stop(struct kvg_device *d, double *seconds)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    float ms = 0;
    *seconds = NAN;
    cudaError_t e = cudaEventRecord(g->end, g->stream);
    if (e == cudaSuccess)
        e = cudaEventSynchronize(g->end);
    if (e == cudaSuccess)
        e = cudaEventElapsedTime(&ms, g->begin, g->end);
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "end of a timed region");
    e = cudaGetLastError();
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "a call in a timed region");
    *seconds = (double)ms * 1e-3;
    return 0;
}

double kvg_gpu_time(struct kvg_gpu *g, int cold, cudaError_t (*launch)(struct kvg_gpu *, void *),
                    void *context)
{
    double seconds;
    if ((cold && kvg_gpu_flush(&g->device)) || kvg_gpu_start(&g->device, !cold))
        return NAN;
    const cudaError_t e = launch(g, context);
    if (e != cudaSuccess) {
        (void)kvg_gpu_fail(g, e, "a launch of the roofs");
        return NAN;
    }
    return kvg_gpu_stop(&g->device, &seconds) ? NAN : seconds;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double kvg_gpu_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

/* ---------------------------------------------------------------- graphs */

static int instantiate(struct kvg_gpu *g, cudaGraph_t graph, void **recording)
{
    cudaGraphExec_t executable = NULL;
    cudaError_t e = cudaGraphInstantiate(&executable, graph, 0);
    (void)cudaGraphDestroy(graph);
    if (e == cudaSuccess)
        e = cudaGraphUpload(executable, g->stream);
    if (e == cudaSuccess) {
        *recording = executable;
        return 0;
    }
    if (executable)
        (void)cudaGraphExecDestroy(executable);
    return kvg_gpu_fail(g, e, "making a graph of a call");
}

/* The capture is ended even when the call failed; otherwise the stream could not be used again. */
int kvg_gpu_record(struct kvg_device *d, int (*call)(void *), void *context, void **recording)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    cudaGraph_t graph = NULL;
    *recording = NULL;
    cudaError_t e = cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal);
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "start of a recording");
    const int code = call(context);
    e = cudaStreamEndCapture(g->stream, &graph);
    if (e == cudaSuccess && !code && graph)
        return instantiate(g, graph, recording);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "recording a call (which returned %d)", code);
    (void)cudaGetLastError();
    return kvg_gpu_refuse(g, "recording a call: it returned %d", code);
}

int kvg_gpu_replay(struct kvg_device *d, void *recording)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    const cudaError_t e = cudaGraphLaunch((cudaGraphExec_t)recording, g->stream);
    return e == cudaSuccess ? 0 : kvg_gpu_fail(g, e, "replay of a recorded call");
}

void kvg_gpu_forget(struct kvg_device *d, void *recording)
{
    const cudaError_t e = recording ? cudaGraphExecDestroy((cudaGraphExec_t)recording) : cudaSuccess;
    if (e != cudaSuccess)
        (void)kvg_gpu_fail(kvg_gpu_of(d), e, "end of a recording");
}
