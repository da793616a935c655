/* SPDX-License-Identifier: Apache-2.0
 *
 * test_journal.c: rows written to a journal are read back, even if the last line is incomplete.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/unit/results_sample.h"

#define ROWS 11

static char folder[64], path[128];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "%s", sample_folder());
    snprintf(path, sizeof(path), "%s/journal.jsonl", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static void write_journal(const struct kvg_results *results)
{
    struct kvg_error error = {0};
    struct kvg_journal *journal = kvg_journal_create(path, &results->run, &results->machine, &error);
    assert_non_null(journal);
    for (int64_t i = 0; i < results->count; i++)
        assert_int_equal(kvg_journal_write(journal, &results->rows[i], &error), 0);
    assert_int_equal(kvg_journal_close(journal, &error), 0);
}

static void round_trip_is_exact(void **state)
{
    (void)state;
    struct kvg_results in, out;
    struct kvg_error error = {0};
    sample_results(&in, ROWS);
    write_journal(&in);
    assert_int_equal(kvg_journal_read(path, &out, &error), 0);
    assert_same_results(&in, &out);
    kvg_results_free(&out);
    assert_int_equal(kvg_results_read(path, &out, &error), 0);
    assert_same_results(&in, &out);
    kvg_results_free(&in);
    kvg_results_free(&out);
}

/* Facts keep their bits as one line of JSON. */
static void facts_are_one_line_of_json(void **state)
{
    static const double numbers[] = {0.1, -0.0, 1e300, NAN, INFINITY, -INFINITY};
    struct kvg_facts facts = {0}, back = {0};
    struct kvg_error error;
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", (int)i);
        assert_int_equal(kvg_facts_set_number(&facts, name, numbers[i]), 0);
    }
    assert_int_equal(kvg_facts_set_text(&facts, "text", "two\nlines, \"quoted\""), 0);
    char *line = kvg_facts_to_json(&facts);
    assert_non_null(line);
    assert_null(strchr(line, '\n'));
    assert_int_equal(kvg_facts_from_json(line, &back, &error), 0);
    assert_int_equal(back.count, facts.count);
    for (int64_t i = 0; i < facts.count; i++) {
        const struct kvg_fact *a = &facts.facts[i], *b = kvg_facts_find(&back, a->name);
        assert_non_null(b);
        if (a->text)
            assert_string_equal(b->text, a->text);
        else
            assert_true(memcmp(&a->number, &b->number, sizeof a->number) == 0 ||
                        (isnan(a->number) && isnan(b->number)));
    }
    assert_int_equal(kvg_facts_from_json("[1]", &back, &error), -1);
    assert_int_equal(kvg_facts_from_json("{\"a\": [1]}", &back, &error), -1);
    free(line);
    kvg_facts_free(&facts);
    kvg_facts_free(&back);
}

static void a_row_is_one_line_of_json(void **state)
{
    (void)state;
    struct kvg_row row, back;
    struct kvg_error error = {0};
    for (int64_t i = 0; i < ROWS; i++) {
        sample_row(&row, i);
        char *text = kvg_row_to_json(&row);
        assert_non_null(text);
        assert_null(strchr(text, '\n'));
        assert_int_equal(kvg_row_from_json(text, &back, &error), 0);
        assert_same_row(&row, &back);
        free(text);
        kvg_row_free(&row);
        kvg_row_free(&back);
    }
}

/* Wherever the last line is cut, exactly the rows before it are read. */
static void a_torn_last_line_is_dropped(void **state)
{
    (void)state;
    struct kvg_results in, out;
    struct kvg_error error = {0};
    size_t size = 0;
    sample_results(&in, 2);
    write_journal(&in);
    char *text = sample_read(path, &size);
    size_t last = size - 1;
    while (text[last - 1] != '\n')
        last--;
    for (size_t cut = last; cut < size; cut += 37) {
        assert_int_equal(truncate(path, (off_t)size), 0);
        sample_write(path, text, cut);
        assert_int_equal(kvg_journal_read(path, &out, &error), 0);
        assert_int_equal(out.count, 1);
        assert_same_row(&in.rows[0], &out.rows[0]);
        kvg_results_free(&out);
    }
    sample_write(path, text, size - 1); /* without its newline the row does not count as complete */
    struct kvg_journal *journal = kvg_journal_append(path, &error);
    assert_non_null(journal);
    assert_int_equal(kvg_journal_write(journal, &in.rows[1], &error), 0);
    assert_int_equal(kvg_journal_close(journal, &error), 0);
    assert_int_equal(kvg_journal_read(path, &out, &error), 0);
    assert_same_results(&in, &out);
    kvg_results_free(&out);
    kvg_results_free(&in);
    free(text);
}

/* kill -9 while writing: every row that was acknowledged is read back. */
static void a_killed_writer_loses_at_most_one_row(void **state)
{
    (void)state;
    struct kvg_results in;
    struct kvg_error error = {0};
    sample_results(&in, 1);
    for (int round = 0; round < 20; round++) {
        int acknowledge[2];
        unlink(path);
        assert_int_equal(pipe(acknowledge), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct kvg_journal *journal = kvg_journal_create(path, &in.run, &in.machine, &error);
            while (journal && kvg_journal_write(journal, &in.rows[0], &error) == 0)
                if (write(acknowledge[1], "r", 1) != 1)
                    _exit(1);
            _exit(1);
        }
        char c;
        int64_t acknowledged = 0;
        close(acknowledge[1]);
        for (int i = 0; i < 1 + round % 5; i++)
            acknowledged += read(acknowledge[0], &c, 1) == 1;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(acknowledge[0], &c, 1) == 1)
            acknowledged++;
        close(acknowledge[0]);
        struct kvg_results out;
        assert_int_equal(kvg_journal_read(path, &out, &error), 0);
        assert_in_range(out.count, acknowledged, acknowledged + 1);
        kvg_results_free(&out);
    }
    kvg_results_free(&in);
}

static void expect_refusal(const char *text, size_t size, int exit_code, const char *part)
{
    struct kvg_results out;
    struct kvg_error error = {0};
    sample_write(path, text, size);
    assert_int_equal(kvg_journal_read(path, &out, &error), -1);
    assert_int_equal(error.exit_code, exit_code);
    assert_non_null(strstr(error.text, path));
    if (!strstr(error.text, part))
        fail_msg("expected '%s' in: %s", part, error.text);
    assert_int_equal(out.count, 0);
    assert_null(out.rows);
}

#define HEADER                                                                                               \
    "{\"kvgauge_journal\":1,\"run\":{\"schema_name\":\"kvgauge\",\"schema_version\":\"1.0.0\"},\"machine\":" \
    "{}}\n"

static void bad_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {HEADER "{\"case_id\":\"a\"}\n{\"case_id\":\n{\"case_id\":\"b\"}\n", ":3: not JSON"},
        {HEADER "[1]\n", ":2: not a JSON object"},
        {HEADER "\n", ":2: not JSON"},
        {HEADER "{\"case_id\":7}\n", ":2: case_id is not a string"},
        {HEADER "{\"batch\":1}\n", ":2: not a row: case_id is missing"},
        {HEADER "{\"case_id\":\"a\",\"batch\":1.5}\n", ":2: batch is not an integer"},
        {HEADER "{\"case_id\":\"a\",\"batch\":99999999999999999999}\n", ":2: not JSON"},
        {HEADER "{\"case_id\":\"a\",\"time_median\":\"fast\"}\n", ":2: time_median is neither"},
        {HEADER "{\"case_id\":\"a\",\"time_median\":null}\n", ":2: time_median is neither"},
        {HEADER "{\"case_id\":\"a\",\"time_samples\":7}\n", ":2: time_samples is not an array"},
        {HEADER "{\"case_id\":\"a\",\"time_samples\":[1,\"x\"]}\n", ":2: time_samples[1] is not a number"},
        {HEADER "{\"case_id\":\"a\",\"case_id\":\"b\"}\n", ":2: not JSON"},
        {"hello\n", ":1: not the header"},
        {"{\"case_id\":\"a\"}\n", ":1: not the header"},
        {"{\"kvgauge_journal\":2,\"run\":{},\"machine\":{}}\n", "newer"},
        {"{\"kvgauge_journal\":1,\"run\":{\"schema_name\":\"other\"},\"machine\":{}}\n",
         "schema_name is 'other'"},
        {"{\"kvgauge_journal\":1,\"run\":{\"schema_name\":\"kvgauge\",\"schema_version\":\"2.0.0\"},"
         "\"machine\":{}}\n",
         "schema 2.0.0"},
        {"{\"kvgauge_journal\":1,\"run\":{\"schema_name\":\"kvgauge\",\"schema_version\":\"one\"},"
         "\"machine\":{}}\n",
         "not MAJOR.MINOR.PATCH"},
        {"{\"kvgauge_journal\":1,\"run\":{\"x\":[]},\"machine\":{}}\n", "run.x is neither text nor a number"},
        {"", "the first line is missing or incomplete"},
        {"{\"kvgauge_journal\":1", "the first line is missing or incomplete"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refusal(cases[i].text, strlen(cases[i].text), KVG_EXIT_USAGE, cases[i].part);
    static const char nul[] = HEADER "{\"case_id\":\"a\0b\"}\n";
    expect_refusal(nul, sizeof(nul) - 1, KVG_EXIT_USAGE, ":2: not JSON");
    char many[8192] = HEADER "{\"case_id\":\"a\",\"time_samples\":[0";
    for (int i = 0; i < KVG_MAX_SAMPLES; i++)
        strcat(many, ",0");
    strcat(many, "]}\n");
    expect_refusal(many, strlen(many), KVG_EXIT_USAGE, "at most 256");
}

static void unknown_members_and_missing_columns_are_fine(void **state)
{
    (void)state;
    static const char text[] =
        HEADER "{\"case_id\":\"a\",\"from_the_future\":{\"x\":[1]},\"kernel_rel_l2\":2}\n";
    struct kvg_results out;
    struct kvg_error error = {0};
    sample_write(path, text, sizeof(text) - 1);
    assert_int_equal(kvg_journal_read(path, &out, &error), 0);
    assert_int_equal(out.count, 1);
    assert_true(out.rows[0].kernel_rel_l2 == 2.0);
    assert_true(isnan(out.rows[0].time_median));
    assert_true(out.rows[0].batch == -1);
    kvg_results_free(&out);
}

static void create_never_overwrites_and_append_never_cuts_foreign_files(void **state)
{
    (void)state;
    struct kvg_results in;
    struct kvg_error error = {0};
    size_t size = 0;
    static const char foreign[] = "a diary\nwithout a newline at the end";
    sample_results(&in, 0);
    sample_write(path, foreign, sizeof(foreign) - 1);
    assert_null(kvg_journal_create(path, &in.run, &in.machine, &error));
    assert_int_equal(error.exit_code, KVG_EXIT_TROUBLE);
    assert_non_null(strstr(error.text, path));
    assert_null(kvg_journal_append(path, &error));
    assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
    char *text = sample_read(path, &size);
    assert_string_equal(text, foreign);
    free(text);
    assert_null(kvg_journal_append("/nonexistent/journal.jsonl", &error));
    assert_int_equal(error.exit_code, KVG_EXIT_TROUBLE);
    kvg_results_free(&in);
}

static void two_writers_are_one_too_many(void **state)
{
    (void)state;
    struct kvg_results in;
    struct kvg_error error = {0};
    sample_results(&in, 0);
    struct kvg_journal *first = kvg_journal_create(path, &in.run, &in.machine, &error);
    assert_non_null(first);
    assert_null(kvg_journal_append(path, &error));
    assert_non_null(strstr(error.text, "another kvgauge"));
    assert_int_equal(kvg_journal_close(first, &error), 0);
    struct kvg_journal *second = kvg_journal_append(path, &error);
    assert_non_null(second);
    assert_int_equal(kvg_journal_close(second, &error), 0);
    kvg_results_free(&in);
}

/* A limit on the file size acts as the full disk. A write that does not fit leaves no incomplete line. */
static void a_full_disk_leaves_whole_lines(void **state)
{
    (void)state;
    struct kvg_results in, out;
    struct kvg_error error = {0};
    struct rlimit old, tight;
    sample_results(&in, 1);
    write_journal(&in);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    struct kvg_journal *journal = kvg_journal_append(path, &error);
    assert_non_null(journal);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = (rlim_t)info.st_size + 100;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    int failed = kvg_journal_write(journal, &in.rows[0], &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(failed, -1);
    assert_int_equal(error.exit_code, KVG_EXIT_TROUBLE);
    assert_non_null(strstr(error.text, strerror(EFBIG)));
    assert_int_equal(kvg_journal_write(journal, &in.rows[0], &error), 0); /* the limit is gone */
    assert_int_equal(kvg_journal_close(journal, &error), 0);
    assert_int_equal(kvg_journal_read(path, &out, &error), 0);
    assert_int_equal(out.count, 2);
    kvg_results_free(&in);
    kvg_results_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip_is_exact, setup, teardown),
        cmocka_unit_test(facts_are_one_line_of_json),
        cmocka_unit_test(a_row_is_one_line_of_json),
        cmocka_unit_test_setup_teardown(a_torn_last_line_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_killed_writer_loses_at_most_one_row, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_lines_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_members_and_missing_columns_are_fine, setup, teardown),
        cmocka_unit_test_setup_teardown(create_never_overwrites_and_append_never_cuts_foreign_files, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(two_writers_are_one_too_many, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_whole_lines, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
