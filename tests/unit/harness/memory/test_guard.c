/* SPDX-License-Identifier: Apache-2.0
 *
 * test_guard.c: a write to any byte of a guard is detected, for any size of the buffer, and the error names
 * its place. Changes of sealed contents are detected, except in hidden buffers. A guard reads as NaN. Hashes
 * differ.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/memory/guard.h"
#include "reference/formats.h"

/* Every byte of the guards before and after a buffer, for buffers that end at different offsets in a page and
 * in the pattern. */
static void every_byte_counts(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 4077, 4078, 4079, 4096, 10000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct kvg_guard_list *list = kvg_guard_new();
        unsigned char *data = kvg_guard_alloc(list, "x", sizes[s], NULL);
        struct kvg_error error;
        char where[64];
        assert_non_null(data);
        assert_int_equal(kvg_guard_check(list, &error), 0);
        for (int64_t i = 1; i <= KVG_GUARD_BYTES; i += i < 5000 ? 1 : 997) {
            data[-i] ^= 0x40;
            assert_int_equal(kvg_guard_check(list, &error), -1);
            snprintf(where, sizeof where, "written %lld bytes before its start", (long long)i);
            assert_non_null(strstr(error.text, where));
            data[-i] ^= 0x40;
            data[sizes[s] + i - 1] ^= 0x01;
            assert_int_equal(kvg_guard_check(list, &error), -1);
            snprintf(where, sizeof where, "written %lld bytes past its end", (long long)(i - 1));
            assert_non_null(strstr(error.text, where));
            data[sizes[s] + i - 1] ^= 0x01;
        }
        assert_int_equal(kvg_guard_check(list, &error), 0);
        kvg_guard_free(list);
    }
}

/* The guards hold kvg_guard_pattern. Guards in device memory are made from the same function. */
static void guards_hold_the_pattern(void **state)
{
    (void)state;
    struct kvg_guard_list *list = kvg_guard_new();
    const unsigned char *data = kvg_guard_alloc(list, "x", 5001, NULL);
    int64_t ff = 0;
    assert_non_null(data);
    for (size_t i = 0; i < KVG_GUARD_BYTES; i++) {
        assert_int_equal(data[(int64_t)i - KVG_GUARD_BYTES], kvg_guard_pattern(i));
        assert_int_equal(data[5001 + i], kvg_guard_pattern(KVG_GUARD_BYTES + 5001 + i));
        ff += i % 2 == 1 && kvg_guard_pattern(i) == 0xff;
        assert_true(i % 2 ? kvg_guard_pattern(i) >= 0x7f : kvg_guard_pattern(i) == 0xff);
    }
    /* Both words are about equally frequent: 32768 tosses of a coin have a standard deviation of 90, and five
     * of them are allowed. */
    assert_true(ff > KVG_GUARD_BYTES / 4 - 450 && ff < KVG_GUARD_BYTES / 4 + 450);
    /* a pattern shifted by a power of two, as by a wrong stride of a kernel, is not the pattern */
    for (size_t step = 2; step <= 32768; step *= 2) {
        int64_t other = 0;
        for (size_t i = 1; i + step < 65536; i += 2)
            other += kvg_guard_pattern(i) != kvg_guard_pattern(i + step);
        assert_true(other > 0);
    }
    kvg_guard_free(list);
}

static void hidden_contents_wait_for_the_end(void **state)
{
    (void)state;
    struct kvg_guard_list *list = kvg_guard_new();
    struct kvg_error error = {0};
    unsigned char *shown = kvg_guard_alloc(list, "shown", 5000, NULL),
                  *hidden = kvg_guard_alloc(list, "hidden", 5000, NULL);
    assert_true(shown && hidden);
    memset(shown, 1, 5000);
    memset(hidden, 2, 5000);
    kvg_guard_seal_all(list);
    kvg_guard_hide(list, hidden);
    assert_int_equal(kvg_guard_check(list, &error), 0);
    assert_int_equal(kvg_guard_check_shown(list, &error), 0);
    hidden[3000] = 0;
    assert_int_equal(kvg_guard_check_shown(list, &error), 0);
    assert_int_equal(kvg_guard_check(list, &error), -1);
    assert_non_null(strstr(error.text, "hidden (5000 bytes) was changed"));
    hidden[3000] = 2;
    hidden[5000] ^= 1; /* its guards are checked nevertheless */
    assert_int_equal(kvg_guard_check_shown(list, &error), -1);
    assert_non_null(strstr(error.text, "hidden"));
    hidden[5000] ^= 1;
    shown[4999] = 0;
    assert_int_equal(kvg_guard_check_shown(list, &error), -1);
    assert_int_equal(kvg_guard_check(list, &error), -1);
    kvg_guard_seal(list, shown);
    assert_int_equal(kvg_guard_check(list, &error), 0);
    kvg_guard_free(list);
}

/* A read past the end of a buffer gives NaN in each format. */
static void guards_read_as_nan(void **state)
{
    (void)state;
    struct kvg_guard_list *list = kvg_guard_new();
    unsigned char *data = kvg_guard_alloc(list, "x", 4096, NULL);
    for (int i = 0; i < 512; i++) {
        uint16_t half;
        float single;
        memcpy(&half, data + 4096 + 2 * i, 2);
        memcpy(&single, data + 4096 + 4 * i, 4);
        assert_true(isnan(kvg_ref_bf16_decode(half)) && isnan(single));
        assert_true(isnan(kvg_ref_fp8_decode(KVG_REF_E4M3, data[4096 + i])));
        assert_true(isnan(kvg_ref_fp8_decode(KVG_REF_E5M2, data[4096 + i])));
    }
    assert_null(kvg_guard_alloc(list, "absurd", INT64_MAX / 4, NULL));
    assert_non_null(kvg_guard_alloc(list, "empty", 0, NULL));
    data[0] = 1; /* not sealed, so it may change */
    assert_int_equal(kvg_guard_check(list, NULL), 0);
    kvg_guard_free(list);
    kvg_guard_free(NULL);
}

static void every_byte_of_a_hash_counts(void **state)
{
    (void)state;
    int64_t bytes = (INT64_C(6) << 20) + 13;
    unsigned char *data = malloc((size_t)bytes);
    for (int64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    uint64_t hash = kvg_hash_bytes(data, bytes);
    assert_true(hash == kvg_hash_bytes(data, bytes));
    const int64_t at[] = {0, 63, 64, 1 << 20, (5 << 20) + 1, bytes - 1};
    for (int i = 0; i < 6; i++) {
        data[at[i]] ^= 0x10;
        assert_true(hash != kvg_hash_bytes(data, bytes));
        data[at[i]] ^= 0x10;
    }
    /* two pieces of 1 MiB exchanged */
    for (int64_t i = 0; i < 1 << 20; i++) {
        unsigned char x = data[i];
        data[i] = data[i + (1 << 20)];
        data[i + (1 << 20)] = x;
    }
    assert_true(hash != kvg_hash_bytes(data, bytes));
    assert_true(kvg_hash_bytes(data, 100) != kvg_hash_bytes(data, 101));
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_counts), cmocka_unit_test(guards_hold_the_pattern),
        cmocka_unit_test(hidden_contents_wait_for_the_end), cmocka_unit_test(guards_read_as_nan),
        cmocka_unit_test(every_byte_of_a_hash_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
