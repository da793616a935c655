/* SPDX-License-Identifier: Apache-2.0
 *
 * test_edge.c: a buffer with an edge can be read whole, and the byte beside its edge ends the process by
 * SIGSEGV. The line on stderr names the buffer, the side and the distance. Any other bad access ends the
 * process without such a line. Starts are aligned as well as the size allows.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/memory/edge.h"

static const int64_t sizes[] = {1, 4, 20, 48, 4096, 65535, 65536, 65537, 200000};
enum { SIZES = sizeof sizes / sizeof sizes[0], LARGEST = 200000 };

static unsigned char *content(void)
{
    unsigned char *bytes = malloc(LARGEST);
    assert_non_null(bytes);
    for (int64_t i = 0; i < LARGEST; i++)
        bytes[i] = (unsigned char)(i * 7 + 1);
    return bytes;
}

/* Reads `address` in a child process that watches the edges. Returns the signal that ended the child (0 =
 * none), and what it wrote to stderr. */
static int read_in_child(const struct kvg_edges *edges, const volatile unsigned char *address, char *text,
                         size_t size)
{
    int pipe_ends[2], status;
    size_t used = 0;
    ssize_t n;
    assert_int_equal(pipe(pipe_ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL); /* neither a sanitizer nor cmocka reports this access */
        dup2(pipe_ends[1], STDERR_FILENO);
        close(pipe_ends[0]);
        kvg_edges_watch(edges);
        const unsigned char byte = *address;
        kvg_edges_unwatch();
        _exit(byte == 0 ? 2 : 3); /* the byte is used, so that the access remains */
    }
    close(pipe_ends[1]);
    while (used + 1 < size && (n = read(pipe_ends[0], text + used, size - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    close(pipe_ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* The content is whole, and the start of a buffer at an end is a multiple of each power of two that divides
 * its size. */
static void content_and_alignment(void **state)
{
    (void)state;
    unsigned char *from = content();
    for (int which = KVG_EDGE_END; which <= KVG_EDGE_START; which++) {
        struct kvg_edges edges = {.count = 0};
        for (int s = 0; s < SIZES; s++) {
            const unsigned char *data = kvg_edges_add(&edges, "x", (enum kvg_edge)which, from, sizes[s]);
            assert_non_null(data);
            assert_memory_equal(data, from, (size_t)sizes[s]);
            const uintptr_t unit =
                which == KVG_EDGE_START ? 4096 : (uintptr_t)sizes[s] & -(uintptr_t)sizes[s];
            assert_int_equal((uintptr_t)data % (unit < 4096 ? unit : 4096), 0);
        }
        kvg_edges_free(&edges);
        assert_int_equal(edges.count, 0);
    }
    free(from);
}

static void read_past_the_end(void **state)
{
    (void)state;
    unsigned char *from = content();
    char text[300];
    for (int s = 0; s < SIZES; s++) {
        struct kvg_edges edges = {.count = 0};
        assert_non_null(kvg_edges_add(&edges, "other", KVG_EDGE_END, from, 64));
        const unsigned char *data = kvg_edges_add(&edges, "k_scale", KVG_EDGE_END, from, sizes[s]);
        assert_non_null(data);
        assert_int_equal(read_in_child(&edges, data + sizes[s] - 1, text, sizeof text), 0);
        assert_string_equal(text, "");
        assert_int_equal(read_in_child(&edges, data + sizes[s], text, sizeof text), SIGSEGV);
        assert_non_null(strstr(text, "k_scale ("));
        assert_non_null(strstr(text, " bytes) was read or written 0 bytes past its end\n"));
        assert_int_equal(read_in_child(&edges, data + sizes[s] + 4097, text, sizeof text), SIGSEGV);
        assert_non_null(strstr(text, "written 4097 bytes past its end\n"));
        kvg_edges_free(&edges);
    }
    free(from);
}

static void read_before_the_start(void **state)
{
    (void)state;
    unsigned char *from = content();
    char text[300];
    for (int s = 0; s < SIZES; s++) {
        struct kvg_edges edges = {.count = 0};
        const unsigned char *data = kvg_edges_add(&edges, "q", KVG_EDGE_START, from, sizes[s]);
        assert_non_null(data);
        assert_int_equal(read_in_child(&edges, data, text, sizeof text), 0);
        assert_int_equal(read_in_child(&edges, data - 16, text, sizeof text), SIGSEGV);
        assert_non_null(strstr(text, "q ("));
        assert_non_null(strstr(text, " bytes) was read or written 16 bytes before its start\n"));
        kvg_edges_free(&edges);
    }
    free(from);
}

/* An access that belongs to no buffer. */
static void others_are_not_named(void **state)
{
    (void)state;
    struct kvg_edges edges = {.count = 0};
    char text[300];
    int64_t number = 5;
    volatile uintptr_t low = 16; /* hidden from the compiler, which knows that nothing lies there */
    const unsigned char *data = kvg_edges_add(&edges, "seq_lens", KVG_EDGE_END, &number, sizeof number);
    assert_non_null(data);
    assert_int_equal(read_in_child(&edges, (const unsigned char *)low, text, sizeof text), SIGSEGV);
    assert_null(strstr(text, "seq_lens"));
    assert_int_equal(kvg_edges_describe(&edges, &number, text, sizeof text), 0);
    /* the number of bytes, and a text that is too long for its place */
    assert_int_equal(kvg_edges_describe(&edges, data + 8, text, sizeof text), 59);
    assert_string_equal(text, "seq_lens (8 bytes) was read or written 0 bytes past its end");
    assert_int_equal(kvg_edges_describe(&edges, data + 8, text, 9), 8);
    assert_string_equal(text, "seq_lens");
    kvg_edges_free(&edges);
}

/* A full list and sizes that are not positive. */
static void refusals(void **state)
{
    (void)state;
    struct kvg_edges edges = {.count = 0};
    const char byte = 1;
    assert_null(kvg_edges_add(&edges, "x", KVG_EDGE_END, &byte, 0));
    assert_null(kvg_edges_add(&edges, "x", KVG_EDGE_END, &byte, -1));
    for (int i = 0; i < KVG_EDGES_MOST; i++)
        assert_non_null(kvg_edges_add(&edges, "x", KVG_EDGE_END, &byte, 1));
    assert_null(kvg_edges_add(&edges, "x", KVG_EDGE_END, &byte, 1));
    kvg_edges_free(&edges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_and_alignment),
        cmocka_unit_test(read_past_the_end),
        cmocka_unit_test(read_before_the_start),
        cmocka_unit_test(others_are_not_named),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
