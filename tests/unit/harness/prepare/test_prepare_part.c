/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare_part.c: a frame is the whole case without K, V and caches, and a part is a few of its
 * sequences. Both are compared, bit by bit, with the same case prepared as a whole, before and after a
 * renewal.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "harness/prepare/prepare.h"

static struct kvg_case small_case(enum kvg_lengths lengths, enum kvg_phase phase)
{
    struct kvg_case c;
    memset(&c, 0, sizeof c);
    strcpy(c.kernel, "best");
    strcpy(c.input, "sink"); /* one token whose value depends on the length of its sequence */
    c.phase = phase;
    c.path = phase == KVG_PHASE_STORE ? KVG_PATH_NONE : KVG_PATH_FP8;
    c.kv_cache_dtype = KVG_CACHE_FP8_E4M3;
    c.scheme = KVG_PER_HEAD;
    c.calibration = KVG_CALIBRATION_DATASET;
    c.layer = -1;
    c.batch = 7;
    c.q_len = phase == KVG_PHASE_APPEND ? 5 : 1;
    c.context = 300;
    c.q_heads = 8;
    c.kv_heads = 4;
    c.head_dim = 64;
    c.block_size = 16;
    c.lengths = lengths;
    c.threads = 2;
    c.seed = 7;
    return c;
}

static void must(int failed, const struct kvg_error *error)
{
    if (failed)
        fail_msg("%s", error->text);
}

/* Codes of token t of sequence i, K or V. */
static const uint8_t *codes(const struct kvg_prepared *p, const struct kvg_pages *pages, int64_t i, int64_t t)
{
    const int64_t block = p->block_table[i * p->block_table_stride + t / p->c.block_size];
    return (const uint8_t *)pages->data + block * pages->stride_block +
           t % p->c.block_size * pages->stride_slot;
}

/* Compares sequence i of the part with the same sequence of the whole case. */
static void same_sequence(const struct kvg_prepared *part, const struct kvg_prepared *whole, int64_t i)
{
    const int64_t s = kvg_prepared_sequence(part, i), row = part->c.kv_heads * part->c.head_dim,
                  q_row = part->c.q_heads * part->c.head_dim,
                  q_len = part->cu_q_lens[i + 1] - part->cu_q_lens[i];
    assert_int_equal(part->seq_lens[i], whole->seq_lens[s]);
    assert_int_equal(q_len, whole->cu_q_lens[s + 1] - whole->cu_q_lens[s]);
    assert_memory_equal(part->q + part->cu_q_lens[i] * q_row, whole->q + whole->cu_q_lens[s] * q_row,
                        (size_t)(q_len * q_row) * sizeof *part->q);
    if (part->q8)
        assert_memory_equal(part->q8 + part->cu_q_lens[i] * q_row, whole->q8 + whole->cu_q_lens[s] * q_row,
                            (size_t)(q_len * q_row));
    const size_t bytes = (size_t)(part->seq_lens[i] * row) * sizeof *part->k;
    assert_memory_equal(part->k + part->cu_kv_lens[i] * row, whole->k + whole->cu_kv_lens[s] * row, bytes);
    assert_memory_equal(part->v + part->cu_kv_lens[i] * row, whole->v + whole->cu_kv_lens[s] * row, bytes);
    for (int64_t t = 0; t < part->seq_lens[i]; t++) {
        assert_memory_equal(codes(part, &part->k_pages, i, t), codes(whole, &whole->k_pages, s, t),
                            (size_t)row);
        assert_memory_equal(codes(part, &part->v_pages, i, t), codes(whole, &whole->v_pages, s, t),
                            (size_t)row);
    }
}

/* The inputs that a kernel gets from a frame equal those of the whole case. */
static void same_frame(const struct kvg_prepared *frame, const struct kvg_prepared *whole)
{
    const size_t batch = (size_t)whole->c.batch, heads = (size_t)whole->c.kv_heads;
    assert_null(frame->k);
    assert_null(frame->v);
    assert_null(frame->k_cache);
    assert_null(frame->v_cache);
    assert_true(isnan(frame->k_saturated) && isnan(frame->v_flushed));
    assert_memory_equal(&frame->problem, &whole->problem, sizeof whole->problem);
    assert_int_equal(frame->num_blocks, whole->num_blocks);
    assert_memory_equal(frame->seq_lens, whole->seq_lens, batch * sizeof(int32_t));
    assert_memory_equal(frame->cu_q_lens, whole->cu_q_lens, (batch + 1) * sizeof(int32_t));
    assert_memory_equal(frame->block_table, whole->block_table,
                        batch * (size_t)whole->block_table_stride * sizeof(int32_t));
    assert_memory_equal(frame->slot_mapping, whole->slot_mapping,
                        (size_t)whole->store_tokens * sizeof(int64_t));
    assert_memory_equal(frame->q_scale, whole->q_scale, heads * sizeof(float));
    assert_memory_equal(frame->k_scale, whole->k_scale, heads * sizeof(float));
    assert_memory_equal(frame->v_scale, whole->v_scale, heads * sizeof(float));
    assert_memory_equal(frame->q, whole->q,
                        (size_t)(whole->total_q * whole->c.q_heads * whole->c.head_dim) * 2);
}

static void same_part(const struct kvg_prepared *frame, const struct kvg_prepared *whole,
                      const int64_t *sequences, int64_t count)
{
    struct kvg_prepared part;
    struct kvg_error error = {0};
    int64_t keys = 0;
    must(kvg_prepared_make_part(frame, sequences, count, &part, &error), &error);
    assert_int_equal(part.problem.batch, count);
    assert_int_equal(part.part_of, whole->c.batch);
    assert_memory_equal(&part.whole, &whole->problem, sizeof whole->problem);
    assert_int_equal(part.problem.max_seq_len, whole->problem.max_seq_len);
    assert_memory_equal(part.k_scale, whole->k_scale, (size_t)whole->c.kv_heads * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(kvg_prepared_sequence(&part, i), sequences[i]);
        keys += whole->seq_lens[sequences[i]];
        same_sequence(&part, whole, i);
    }
    assert_int_equal(part.total_kv, keys);
    assert_int_equal(kvg_prepared_check(&part, NULL), 0);
    kvg_prepared_free(&part);
}

static void parts_and_frames_are_the_whole(void **state)
{
    static const int64_t chosen[3][KVG_PART_MOST] = {{6}, {0, 6, 3, 5}, {4, 1}};
    static const int64_t counts[3] = {1, 4, 2};
    static const enum kvg_phase phases[3] = {KVG_PHASE_DECODE, KVG_PHASE_APPEND, KVG_PHASE_STORE};
    (void)state;
    for (int l = 0; l < 2; l++)
        for (int f = 0; f < 3; f++) {
            const struct kvg_case c = small_case(l ? KVG_LENGTHS_RAGGED : KVG_LENGTHS_UNIFORM, phases[f]);
            struct kvg_prepared whole, frame;
            struct kvg_error error = {0};
            must(kvg_prepared_make(&c, NULL, &whole, &error), &error);
            must(kvg_prepared_make_frame(&c, NULL, &frame, &error), &error);
            for (uint64_t seed = c.seed; seed < c.seed + 2; seed++) {
                if (seed != c.seed) {
                    must(kvg_prepared_renew(&whole, seed, &error), &error);
                    must(kvg_prepared_renew(&frame, seed, &error), &error);
                }
                same_frame(&frame, &whole);
                for (int i = 0; i < 3; i++)
                    same_part(&frame, &whole, chosen[i], counts[i]);
            }
            kvg_prepared_free(&whole);
            kvg_prepared_free(&frame);
        }
}

/* 300 keys of 4 heads of 64: K and V of 2 bytes, and of 1 or 2 in the cache. */
static void bytes_of_a_sequence(void **state)
{
    struct kvg_case c = small_case(KVG_LENGTHS_UNIFORM, KVG_PHASE_DECODE);
    (void)state;
    assert_int_equal(kvg_sequence_bytes(&c, 300), 2 * 300 * 4 * 64 * 3);
    c.kv_cache_dtype = KVG_CACHE_AUTO;
    assert_int_equal(kvg_sequence_bytes(&c, 300), 2 * 300 * 4 * 64 * 4);
}

/* A case whose K and V do not fit the host's memory. The frame does not need them. */
static void a_frame_may_be_larger_than_memory(void **state)
{
    struct kvg_case c = small_case(KVG_LENGTHS_UNIFORM, KVG_PHASE_DECODE);
    struct kvg_prepared frame, part;
    struct kvg_error error = {0};
    const int64_t last = 31;
    (void)state;
    c.batch = 32;
    c.context = 65536;
    c.kv_heads = 8;
    c.q_heads = 8;
    c.head_dim = 256;
    c.calibration = KVG_CALIBRATION_NONE;
    c.kv_cache_dtype = KVG_CACHE_AUTO;
    c.path = KVG_PATH_DEQUANT;
    must(kvg_prepared_make_frame(&c, NULL, &frame, &error), &error);
    assert_true(frame.cache_elements == frame.num_blocks * 16 * 8 * 256);
    assert_int_equal(frame.total_kv, 32 * 65536);
    frame.c.context = 64; /* shorter sequences, so that the test stays small */
    must(kvg_prepared_make_part(&frame, &last, 1, &part, &error), &error);
    assert_int_equal(part.total_kv, 64);
    kvg_prepared_free(&part);
    kvg_prepared_free(&frame);
}

static void captured_input_has_no_frame(void **state)
{
    struct kvg_case c = small_case(KVG_LENGTHS_UNIFORM, KVG_PHASE_DECODE);
    struct kvg_prepared frame;
    struct kvg_error error = {0};
    (void)state;
    strcpy(c.input, "smollm2");
    assert_int_equal(kvg_prepared_make_frame(&c, NULL, &frame, &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
    assert_non_null(strstr(error.text, "smollm2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_and_frames_are_the_whole),
        cmocka_unit_test(bytes_of_a_sequence),
        cmocka_unit_test(a_frame_may_be_larger_than_memory),
        cmocka_unit_test(captured_input_has_no_frame),
    };
    return cmocka_run_group_tests_name("frames and parts", tests, NULL, NULL);
}
