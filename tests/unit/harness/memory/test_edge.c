/* SPDX-License-Identifier: Apache-2.0
 *
 * test_edge.c: a read beside a buffer ends the process, and one inside does not.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "harness/memory/edge.h"

/* Reads one byte in a child process. Returns the signal that ended it, 0 if none; *said is its stderr. */
static int read_in_child(const struct kvg_edges *edges, const unsigned char *at, char *said, size_t size)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL); /* not cmocka's handler */
        kvg_edges_watch(edges);
        const unsigned char byte = *(const volatile unsigned char *)at;
        _exit(byte == 255 ? 1 : 0);
    }
    close(ends[1]);
    const ssize_t n = read(ends[0], said, size - 1);
    said[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void reads_beside_a_buffer_end_the_process(void **state)
{
    static const int64_t sizes[] = {1, 4, 100, 4096, 65536, 70000};
    (void)state;
    if (getenv("KVG_TEST_SANITIZED"))
        skip(); /* AddressSanitizer has a handler of its own */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int which = KVG_EDGE_END; which <= KVG_EDGE_START; which++) {
            struct kvg_edges edges = {.count = 0};
            unsigned char *content = malloc((size_t)sizes[i]);
            char said[200], wanted[100];
            assert_non_null(content);
            memset(content, 7, (size_t)sizes[i]);
            const unsigned char *b =
                kvg_edges_add(&edges, "block_table", (enum kvg_edge)which, content, sizes[i]);
            assert_non_null(b);
            assert_memory_equal(b, content, (size_t)sizes[i]);
            assert_int_equal(read_in_child(&edges, b, said, sizeof said), 0);
            assert_int_equal(read_in_child(&edges, b + sizes[i] - 1, said, sizeof said), 0);
            const int end = which == KVG_EDGE_END;
            assert_int_equal(read_in_child(&edges, end ? b + sizes[i] : b - 1, said, sizeof said), SIGSEGV);
            snprintf(wanted, sizeof wanted, "block_table (%lld bytes) was read or written %s",
                     (long long)sizes[i], end ? "0 bytes past its end\n" : "1 bytes before its start\n");
            assert_string_equal(said, wanted);
            kvg_edges_free(&edges);
            free(content);
        }
}

static void an_address_elsewhere_is_not_described(void **state)
{
    struct kvg_edges edges = {.count = 0};
    char text[100];
    (void)state;
    assert_non_null(kvg_edges_add(&edges, "q", KVG_EDGE_END, "abcd", 4));
    assert_int_equal(kvg_edges_describe(&edges, text, text, sizeof text), 0);
    assert_null(kvg_edges_add(&edges, "none", KVG_EDGE_END, "", 0));
    kvg_edges_free(&edges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_beside_a_buffer_end_the_process),
                                       cmocka_unit_test(an_address_elsewhere_is_not_described)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
