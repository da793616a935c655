/* SPDX-License-Identifier: Apache-2.0
 *
 * test_captured.c: captured input. The test writes a small file in which every value encodes its place, so
 * that it is known which rows the reader takes. Damaged copies test that the reader checks everything.
 */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <hdf5.h>
#include "harness/inputs/captured.h"
#include "harness/inputs/inputs.h"
#include "harness/inputs/parts.h"

#ifdef __SANITIZE_ADDRESS__
/* On a damaged file HDF5 calls malloc with absurd sizes, handles NULL, and leaks memory. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}
#endif

#define TOKENS 64
#define STEP 16
#define TAIL 2
#define FIRST 8
#define LAST 4
#define Q_HEADS 4
#define KV_HEADS 2
#define DIM 8
#define SAMPLES 3

static char folder[64];
static char path[128];

/* ---------------------------------------------------------------------------------------- the small file */

static void put_int(hid_t object, const char *name, int64_t value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t a = H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, H5T_NATIVE_INT64, &value);
    H5Aclose(a);
    H5Sclose(space);
}

static void put_text(hid_t object, const char *name, const char *text)
{
    hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(text) + 1);
    hid_t a = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, type, text);
    H5Aclose(a);
    H5Tclose(type);
    H5Sclose(space);
}

static void put(hid_t file, const char *name, hid_t type, hid_t memory, int rank, const hsize_t *extent,
                const void *data)
{
    hid_t links = H5Pcreate(H5P_LINK_CREATE), space = H5Screate_simple(rank, extent, NULL);
    H5Pset_create_intermediate_group(links, 1);
    hid_t d = H5Dcreate2(file, name, type, space, links, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(d, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    H5Dclose(d);
    H5Sclose(space);
    H5Pclose(links);
}

static int has_q(int64_t position)
{
    return position < FIRST || position >= TOKENS - LAST || position % STEP >= STEP - TAIL;
}

/* A value that encodes its place: tensor (2 bits), layer (1), position (6), head (2), dim (3). */
static uint16_t place(int tensor, int layer, int64_t position, int64_t head, int64_t dim)
{
    return (uint16_t)(tensor << 12 | layer << 11 | position << 5 | head << 3 | dim);
}

static void put_layer(hid_t file, int layer, const int64_t *positions, int64_t n_positions)
{
    static uint16_t q[TOKENS * Q_HEADS * DIM], kv[2][TOKENS * KV_HEADS * DIM];
    char name[64];
    for (int64_t i = 0; i < n_positions * Q_HEADS * DIM; i++)
        q[i] = place(0, layer, positions[i / (Q_HEADS * DIM)], i / DIM % Q_HEADS, i % DIM);
    for (int tensor = 0; tensor < 2; tensor++)
        for (int64_t i = 0; i < TOKENS * KV_HEADS * DIM; i++)
            kv[tensor][i] = place(tensor + 1, layer, i / (KV_HEADS * DIM), i / DIM % KV_HEADS, i % DIM);
    const hsize_t q_extent[] = {(hsize_t)n_positions, Q_HEADS, DIM}, kv_extent[] = {TOKENS, KV_HEADS, DIM};
    snprintf(name, sizeof name, "evaluation/layer_%02d/q", layer * 7);
    put(file, name, H5T_STD_U16LE, H5T_NATIVE_UINT16, 3, q_extent, q);
    snprintf(name, sizeof name, "evaluation/layer_%02d/k", layer * 7);
    put(file, name, H5T_STD_U16LE, H5T_NATIVE_UINT16, 3, kv_extent, kv[0]);
    snprintf(name, sizeof name, "evaluation/layer_%02d/v", layer * 7);
    put(file, name, H5T_STD_U16LE, H5T_NATIVE_UINT16, 3, kv_extent, kv[1]);
    static const char *const sets[] = {"random_tokens", "calibration"}, *const tensors[] = {"q", "k", "v"};
    for (int set = 0; set < 2; set++)
        for (int t = 0; t < 3; t++) {
            float absmax[SAMPLES * Q_HEADS];
            int64_t heads = t ? KV_HEADS : Q_HEADS;
            for (int64_t i = 0; i < SAMPLES * heads; i++)
                absmax[i] = (float)(1000 * set + 100 * t + 50 * layer + i + 1);
            const hsize_t extent[] = {SAMPLES, (hsize_t)heads};
            snprintf(name, sizeof name, "%s/layer_%02d/%s_absmax", sets[set], layer * 7, tensors[t]);
            put(file, name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, extent, absmax);
        }
}

/* Layers 0 and 7. */
static void write_small_file(void)
{
    int64_t positions[TOKENS], n = 0, layers[2] = {0, 7};
    hsize_t extent;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    put_text(file, "schema_name", KVG_CAPTURED_SCHEMA);
    put_text(file, "schema_version", "1.2.3");
    put_text(file, "model", "made up");
    put_int(file, "q_heads", Q_HEADS);
    put_int(file, "kv_heads", KV_HEADS);
    put_int(file, "head_dim", DIM);
    extent = 2;
    put(file, "layers", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &extent, layers);
    for (int64_t p = 0; p < TOKENS; p++)
        if (has_q(p))
            positions[n++] = p;
    extent = (hsize_t)n;
    put(file, "evaluation/q_positions", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &extent, positions);
    put_layer(file, 0, positions, n);
    put_layer(file, 1, positions, n);
    hid_t evaluation = H5Gopen2(file, "evaluation", H5P_DEFAULT);
    put_int(evaluation, "tokens", TOKENS);
    put_int(evaluation, "q_first", FIRST);
    put_int(evaluation, "q_last", LAST);
    put_int(evaluation, "window_step", STEP);
    put_int(evaluation, "q_tail", TAIL);
    H5Gclose(evaluation);
    H5Fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/kvg_captured_XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/small.h5", folder);
    write_small_file();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static struct kvg_input_shape small_shape(void)
{
    return (struct kvg_input_shape){.input = path,
                                    .layer = 7,
                                    .context = 16,
                                    .q_len = 1,
                                    .q_heads = Q_HEADS,
                                    .kv_heads = KV_HEADS,
                                    .head_dim = DIM};
}

/* ---------------------------------------------------------------------------------------- reading it */

static void test_info(void **state)
{
    (void)state;
    struct kvg_captured_info info;
    assert_int_equal(kvg_captured_read_info(path, &info, NULL), 0);
    assert_string_equal(info.path, path);
    assert_string_equal(info.model, "made up");
    assert_int_equal(info.n_layers, 2);
    assert_int_equal(info.layers[1], 7);
    assert_int_equal(info.q_heads, Q_HEADS);
    assert_int_equal(info.kv_heads, KV_HEADS);
    assert_int_equal(info.head_dim, DIM);
    assert_int_equal(info.tokens, TOKENS);
    assert_int_equal(info.q_first, FIRST);
    assert_int_equal(info.q_last, LAST);
    assert_int_equal(info.window_step, STEP);
    assert_int_equal(info.q_tail, TAIL);
}

/* Rows [first, first + count) of the text, for tensor t. */
static void expect_rows(const struct kvg_input_shape *s, enum kvg_tensor t, int64_t first, int64_t count)
{
    uint16_t out[TOKENS * Q_HEADS * DIM];
    struct kvg_error error = {0};
    int64_t heads = t == KVG_TENSOR_Q ? Q_HEADS : KV_HEADS;
    memset(out, 0xee, sizeof out);
    if (kvg_input_fill(s, t, 2, out, &error))
        fail_msg("%s", error.text);
    for (int64_t i = 0; i < count * heads * DIM; i++)
        assert_int_equal(out[i],
                         place((int)t, s->layer == 7, first + i / (heads * DIM), i / DIM % heads, i % DIM));
    if (count < TOKENS)
        assert_int_equal(out[count * heads * DIM], 0xeeee); /* and no more */
}

static void expect_failure(const struct kvg_input_shape *s, enum kvg_tensor t, const char *what)
{
    uint16_t out[TOKENS * Q_HEADS * DIM];
    struct kvg_error error = {0};
    assert_int_equal(kvg_input_fill(s, t, 1, out, &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
    if (!strstr(error.text, what) || !strstr(error.text, path))
        fail_msg("%s", error.text);
}

static void test_windows(void **state)
{
    (void)state;
    struct kvg_input_shape s = small_shape();
    for (s.seq = 0; s.seq < 4; s.seq++) { /* four disjoint windows of 16 */
        expect_rows(&s, KVG_TENSOR_K, 16 * s.seq, 16);
        expect_rows(&s, KVG_TENSOR_V, 16 * s.seq, 16);
        expect_rows(&s, KVG_TENSOR_Q, 16 * s.seq + 15, 1);
    }
    s.layer = 0;
    s.seq = 1;
    s.q_len = 2;
    expect_rows(&s, KVG_TENSOR_Q, 30, 2);
    s.span = 20; /* a shorter sequence of a ragged batch: windows of 32, its last 16 tokens */
    expect_rows(&s, KVG_TENSOR_K, 48, 16);
    expect_rows(&s, KVG_TENSOR_Q, 62, 2);
    s.context = 17; /* rounded up to 32 */
    s.span = 0;
    expect_rows(&s, KVG_TENSOR_V, 47, 17);
    s.seq = 0;
    s.context = s.q_len =
        8; /* prefill needs Q of every position, and the first 16 positions have only 8 and 2 */
    expect_failure(&s, KVG_TENSOR_Q, "no Q for positions 8 to 15");
    s.context = s.q_len = 64;
    expect_rows(&s, KVG_TENSOR_K, 0, 64);
    expect_failure(&s, KVG_TENSOR_Q, "no Q for positions 0 to 63");
}

/* Replaces one value of layer 7 in the file. */
static void set_value(const char *tensor, int64_t index, uint16_t value)
{
    static uint16_t all[TOKENS * Q_HEADS * DIM];
    char name[64];
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    snprintf(name, sizeof name, "evaluation/layer_07/%s", tensor);
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT);
    assert_true(file >= 0 && d >= 0);
    assert_true(H5Dread(d, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0);
    all[index] = value;
    assert_true(H5Dwrite(d, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0);
    H5Dclose(d);
    H5Fclose(file);
}

/* bf16 0x7fc0 is NaN, 0xff80 is minus infinity, 0x7f7f the largest finite value. Q holds positions
 * 0 to 7, 14, 15, ...: its row 9 is token 15. */
static void test_values_that_are_not_finite(void **state)
{
    (void)state;
    struct kvg_input_shape s = small_shape();
    uint16_t out[TOKENS * Q_HEADS * DIM];
    write_small_file();
    set_value("k", (20 * KV_HEADS + 1) * DIM + 3, 0x7fc0);
    set_value("v", (5 * KV_HEADS + 0) * DIM + 7, 0xff80);
    set_value("q", (9 * Q_HEADS + 2) * DIM, 0x7f81);
    set_value("k", (50 * KV_HEADS + 1) * DIM, 0x7f7f);
    s.seq = 1; /* tokens 16 to 31 */
    expect_failure(&s, KVG_TENSOR_K, "k of layer 7 holds NaN at token 20, head 1");
    assert_int_equal(kvg_input_fill(&s, KVG_TENSOR_V, 1, out, NULL), 0);
    s.seq = 0;
    assert_int_equal(kvg_input_fill(&s, KVG_TENSOR_K, 1, out, NULL), 0);
    expect_failure(&s, KVG_TENSOR_V, "v of layer 7 holds an infinity at token 5, head 0");
    s.seq = 3;
    assert_int_equal(kvg_input_fill(&s, KVG_TENSOR_K, 1, out, NULL), 0);
    assert_int_equal(kvg_input_fill(&s, KVG_TENSOR_Q, 1, out, NULL), 0); /* token 63 */
    s.seq = 0;
    expect_failure(&s, KVG_TENSOR_Q, "q of layer 7 holds NaN at token 15, head 2");
    write_small_file();
}

static void test_limits(void **state)
{
    (void)state;
    struct kvg_input_shape s = small_shape();
    s.context = 65;
    expect_failure(&s, KVG_TENSOR_K, "context 65 is beyond the captured text of 64 tokens");
    s.context = 16;
    s.seq = 4;
    expect_failure(&s, KVG_TENSOR_K, "batch entry 5");
    s = small_shape();
    s.layer = 3;
    expect_failure(&s, KVG_TENSOR_V, "no layer 3; it has 0, 7");
    s = small_shape();
    s.head_dim = 16;
    expect_failure(&s, KVG_TENSOR_V, "head_dim 8, not 4/2 and 16");
    s = small_shape();
    s.q_len = 17;
    expect_failure(&s, KVG_TENSOR_Q, "no Q for positions -1 to 15");
}

static void test_absmax(void **state)
{
    (void)state;
    struct kvg_input_shape s = small_shape();
    for (int set = 0; set < 2; set++)
        for (int t = 0; t < 3; t++) {
            float *absmax;
            int64_t samples, heads = t ? KV_HEADS : Q_HEADS;
            assert_int_equal(
                kvg_input_absmax(&s, (enum kvg_tensor)t, (enum kvg_token_set)set, &absmax, &samples, NULL),
                0);
            assert_int_equal(samples, SAMPLES);
            for (int64_t i = 0; i < samples * heads; i++)
                assert_true(absmax[i] == (float)(1000 * set + 100 * t + 50 + i + 1));
            free(absmax);
        }
}

/* ---------------------------------------------------------------------------------------- damage */

/* The reader has closed every HDF5 object. */
static void expect_nothing_open(void)
{
    assert_int_equal(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
}

static void expect_bad_file(const char *what)
{
    struct kvg_captured_info info;
    struct kvg_error error = {0};
    struct kvg_input_shape s = small_shape();
    uint16_t out[TOKENS * Q_HEADS * DIM];
    int failed = kvg_captured_read_info(path, &info, &error);
    if (!failed)
        failed = kvg_input_fill(&s, KVG_TENSOR_K, 1, out, &error);
    assert_int_equal(failed, -1);
    assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
    if (!strstr(error.text, what) || !strstr(error.text, path))
        fail_msg("%s", error.text);
    expect_nothing_open();
}

static hid_t reopen(void)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

static void test_missing_and_foreign_files(void **state)
{
    (void)state;
    unlink(path);
    expect_bad_file("cannot be opened: No such file");
    FILE *f = fopen(path, "w");
    fputs("not HDF5 at all\n", f);
    fclose(f);
    expect_bad_file("not an HDF5 file");
    truncate(path, 0);
    expect_bad_file("not an HDF5 file");
    unlink(path);
    mkdir(path, 0755);
    expect_bad_file(path);
    rmdir(path);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    expect_bad_file("attribute schema_name is missing");
    file = reopen();
    put_text(file, "schema_name", "kvgauge");
    H5Fclose(file);
    expect_bad_file("schema_name is not kvgauge-captured");
    write_small_file();
}

/* A file that is truncated anywhere gives an error, never a crash. */
static void test_truncated_files(void **state)
{
    (void)state;
    struct stat st;
    stat(path, &st);
    for (off_t cut = st.st_size - 1; cut > 0; cut -= 997) {
        struct kvg_captured_info info;
        struct kvg_error error = {0};
        write_small_file();
        assert_int_equal(truncate(path, cut), 0);
        assert_int_equal(kvg_captured_read_info(path, &info, &error), -1);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        assert_non_null(strstr(error.text, path));
    }
    write_small_file();
}

/* Random bytes are overwritten: an error or any values, but no crash. */
static void test_scribbled_files(void **state)
{
    (void)state;
    struct stat st;
    stat(path, &st);
    uint32_t random = 1;
    for (int i = 0; i < 200; i++) {
        struct kvg_input_shape s = small_shape();
        struct kvg_error error = {0};
        uint16_t out[TOKENS * Q_HEADS * DIM];
        write_small_file();
        FILE *f = fopen(path, "r+");
        for (int j = 0; j < 8; j++) {
            random = random * 1664525u + 1013904223u;
            fseek(f, (long)(random % (uint32_t)(st.st_size < 8192 ? st.st_size : 8192)), SEEK_SET);
            fputc((int)(random >> 24), f);
        }
        fclose(f);
        for (int t = 0; t < 3; t++)
            if (kvg_input_fill(&s, (enum kvg_tensor)t, 1, out, &error))
                assert_true(error.exit_code == KVG_EXIT_USAGE && error.text[0]);
        float *absmax = NULL;
        int64_t samples;
        if (!kvg_input_absmax(&s, KVG_TENSOR_K, KVG_SET_CALIBRATION, &absmax, &samples, &error))
            free(absmax);
        expect_nothing_open();
    }
    write_small_file();
}

/* HDF5 1.10 crashes on some wrong lengths and addresses, so a child process reads the file first. */
static void look_and_crash(const char *file)
{
    (void)file;
    raise(SIGSEGV);
}

static void look_for_ever(const char *file)
{
    (void)file;
    for (volatile uint64_t i = 0;; i++)
        ;
}

static void look_and_live(const char *file)
{
    (void)file;
}

static void test_files_that_crash_their_reader(void **state)
{
    (void)state;
    write_small_file();
    assert_int_equal(kvg_captured_survives(path, look_and_crash), 0);
    assert_int_equal(kvg_captured_survives(path, look_for_ever), 0);
    assert_int_equal(kvg_captured_survives(path, look_and_live), 1);
}

static void replace_int(const char *group, const char *name, int64_t value)
{
    hid_t file = reopen(), object = H5Gopen2(file, group, H5P_DEFAULT);
    H5Adelete(object, name);
    put_int(object, name, value);
    H5Gclose(object);
    H5Fclose(file);
}

static void test_contradictions(void **state)
{
    (void)state;
    replace_int("evaluation", "tokens", 65);
    expect_bad_file("wrong shape");
    replace_int("evaluation", "tokens", 0);
    expect_bad_file("attribute tokens is 0, not 1 to");
    write_small_file();
    replace_int("evaluation", "window_step", 0);
    expect_bad_file("attribute window_step is 0");
    write_small_file();
    replace_int("/", "kv_heads", 3);
    expect_bad_file("not a multiple of kv_heads");
    write_small_file();
    replace_int("/", "head_dim", -64);
    expect_bad_file("attribute head_dim is -64");
    write_small_file();
    hid_t file = reopen();
    H5Adelete(file, "schema_version");
    put_text(file, "schema_version", "2.0.0");
    H5Fclose(file);
    expect_bad_file("schema_version");
    write_small_file();
    file = reopen();
    H5Adelete(file, "q_heads");
    put_text(file, "q_heads", "four");
    H5Fclose(file);
    expect_bad_file("attribute q_heads is missing or not a whole number");
    write_small_file();
    file = reopen();
    H5Ldelete(file, "evaluation/layer_07/k", H5P_DEFAULT);
    H5Fclose(file);
    expect_bad_file("no dataset evaluation/layer_07/k");
    file = reopen(); /* the right shape in the wrong type */
    const hsize_t extent[] = {TOKENS, KV_HEADS, DIM};
    static float wrong[TOKENS * KV_HEADS * DIM];
    put(file, "evaluation/layer_07/k", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 3, extent, wrong);
    H5Fclose(file);
    expect_bad_file("wrong shape or type");
    write_small_file();
}

int main(void)
{
    H5dont_atexit(); /* as the reader does; but here the test is the first to call HDF5 */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_values_that_are_not_finite),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_absmax),
        cmocka_unit_test(test_missing_and_foreign_files),
        cmocka_unit_test(test_truncated_files),
        cmocka_unit_test(test_scribbled_files),
        cmocka_unit_test(test_files_that_crash_their_reader),
        cmocka_unit_test(test_contradictions),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
