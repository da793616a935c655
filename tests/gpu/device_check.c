/* SPDX-License-Identifier: Apache-2.0
 *
 * device_check.c: compares every operation of the CUDA device with the host, on a real GPU. Prints one line
 * for each check, then the number of failures. Exit code: 0 none, 1 a check failed, 3 no GPU. Speeds are
 * printed and not judged.
 */
#include "device_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void check(struct checks *c, int good, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf(good ? ": ok\n" : ": FAILED%s%s\n", c->d->error[0] ? ", last error: " : "", c->d->error);
    fflush(stdout);
    c->failures += !good;
    c->d->error[0] = 0;
}

void *must_allocate(struct checks *c, int64_t bytes)
{
    void *data = c->d->ops->allocate(c->d, bytes);
    if (!data) {
        fprintf(stderr, "device_check: %s\n", c->d->error);
        exit(3);
    }
    return data;
}

void *must_malloc(int64_t bytes)
{
    void *data = malloc((size_t)bytes);
    if (!data) {
        fprintf(stderr, "device_check: out of memory for %lld bytes\n", (long long)bytes);
        exit(3);
    }
    return data;
}

void random_bytes(void *data, int64_t bytes, uint32_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        ((unsigned char *)data)[i] = (unsigned char)(x >> 24);
    }
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(void)
{
    char why[512];
    const double begin = now();
    struct checks c = {kvg_cuda_open ? kvg_cuda_open(0, why, sizeof why) : NULL, 0};
    if (!c.d) {
        printf("no device: %s\n", kvg_cuda_open ? why : "built without CUDA");
        return 3;
    }
    printf("%s, last cache %lld bytes, opened in %.2f s\n", c.d->name, (long long)c.d->cache_bytes,
           now() - begin);
    const char *key, *value;
    for (int64_t i = 0; !c.d->ops->fact(c.d, i, &key, &value); i++)
        printf("%s: %s\n", key, value);
    check_memory(&c);
    check_inputs(&c);
    check_store(&c);
    check_times(&c);
    check_roofs(&c);
    check_errors(&c);
    c.d->ops->close(c.d);
    printf("%.1f s\n%d failures\n", now() - begin, c.failures);
    return c.failures ? 1 : 0;
}
