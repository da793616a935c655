/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_faults.c: kernels with one fault each, and a case that the device makes wrong, on a loopback
 * device. The check that is meant for the fault finds it, whether the host or the device made the case.
 */
#include "tests/unit/loopback_case.h"
#include "harness/prepare/prepared.h"
#include "harness/execute/execute.h"

/* Runs on a stream of its own, so it does not wait for the caller's stream. */
static int own_stream(const struct kvg_attention_args *args)
{
    overtakes = 1;
    const int code = dequant(args);
    overtakes = 0;
    return code;
}

/* A plain kernel whose head 1 is too large by 0.1 %. */
static int plain_wrong(const struct kvg_attention_args *args)
{
    const int code = plain(args);
    const struct kvg_attention_args a = inside(args);
    for (int64_t row = 0; row < a.problem->total_q; row++)
        for (int64_t d = 0; d < a.problem->head_dim; d++)
            ((float *)a.out)[row * a.out_stride_token + a.out_stride_head + d] *= 1.001f;
    return code;
}

static int past_end(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    ((uint8_t *)a.out)[a.problem->total_q * a.out_stride_token * 2] = 1;
    return code;
}

static int changes_input(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    ((uint8_t *)a.k_cache.data)[0] ^= 1;
    return code;
}

static uint16_t *remembered;
static float *remembered_lse;

static void forget(void)
{
    free(remembered);
    free(remembered_lse);
    remembered = NULL;
    remembered_lse = NULL;
}

/* Returns its first output again in every later call. */
static int stale(const struct kvg_attention_args *args)
{
    const struct kvg_attention_args a = inside(args);
    const size_t rows = (size_t)(a.problem->total_q * a.problem->q_heads);
    const size_t elements = rows * (size_t)a.problem->head_dim;
    int code = KVG_OK;
    if (!remembered) {
        code = dequant(args);
        remembered = malloc(elements * sizeof *remembered);
        remembered_lse = malloc(rows * sizeof *remembered_lse);
        memcpy(remembered, a.out, elements * sizeof *remembered);
        memcpy(remembered_lse, a.lse, rows * sizeof *remembered_lse);
    }
    memcpy(a.out, remembered, elements * sizeof *remembered);
    if (a.lse)
        memcpy(a.lse, remembered_lse, rows * sizeof *remembered_lse);
    return code;
}

/* Sequence 3, head 5 is too large by 2 %. */
static int one_sequence(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    uint16_t *out = (uint16_t *)a.out + a.cu_q_lens[3] * a.out_stride_token + 5 * a.out_stride_head;
    for (int64_t d = 0; d < a.problem->head_dim; d++)
        out[d] = kvg_ref_bf16_encode(1.02f * kvg_ref_bf16_decode(out[d]));
    return code;
}

/* The log-sum-exp of sequence 3, head 5 is too large by 0.001. */
static int one_lse(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    if (a.lse)
        a.lse[a.cu_q_lens[3] * a.lse_stride_token + 5] += 1e-3f;
    return code;
}

/* The query of an empty sequence gets a 1 instead of zeros. Sequence 2 of a ragged batch is empty. */
static int empty_row(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    ((uint16_t *)a.out)[a.cu_q_lens[2] * a.out_stride_token] = 0x3f80;
    return code;
}

/* Has offsets of 32 bits: for pages after the first 2^32 elements of the cache it reads the beginning. */
static int narrow_offsets(const struct kvg_attention_args *args)
{
    struct kvg_attention_args a = inside(args);
    const struct kvg_problem *p = a.problem;
    const int64_t entries = p->batch * a.block_table_stride;
    int32_t *table = malloc((size_t)entries * sizeof *table);
    for (int64_t i = 0; i < entries; i++)
        table[i] = (int32_t)((uint32_t)((uint64_t)a.block_table[i] * (uint64_t)a.k_cache.stride_block) /
                             (uint64_t)a.k_cache.stride_block);
    a.block_table = table;
    const int code = kvg_cpu_dequant_scalar.attention(&a);
    free(table);
    return code;
}

static int quantize_by_division(const struct kvg_quantize_q_args *args)
{
    const struct kvg_problem *p = args->problem;
    kvg_ref_quantize_q(KVG_REF_E4M3, KVG_REF_DIVIDE, KVG_REF_BF16, IN(args->q), p->total_q, p->q_heads,
                       p->kv_heads, p->head_dim, IN(args->scales.q.data), args->scales.q.stride_head,
                       IN(args->q8));
    return KVG_OK;
}

/* Does not store the last token. */
static int store_forgets(const struct kvg_store_args *args)
{
    struct kvg_store_args a = *args;
    a.tokens -= 4; /* three padding tokens and one token */
    return store(&a);
}

/* Multiplies by the reciprocal instead of dividing. */
static int store_by_reciprocal(const struct kvg_store_args *args)
{
    const struct kvg_problem *p = args->problem;
    const int64_t *slots = IN(args->slot_mapping);
    const enum kvg_ref_format format = kvg_ref_format_of(p->kv_dtype);
    const struct kvg_pages *pages[2] = {&args->k_cache, &args->v_cache};
    const void *sources[2] = {IN(args->k), IN(args->v)};
    const float *scales[2] = {IN(args->scales.k.data), IN(args->scales.v.data)};
    for (int tensor = 0; tensor < 2; tensor++)
        for (int64_t t = 0; t < args->tokens; t++)
            for (int64_t i = 0; slots[t] >= 0 && i < p->kv_heads * p->head_dim; i++) {
                const int64_t head = i / p->head_dim;
                const float x =
                    kvg_ref_load(KVG_REF_BF16, sources[tensor], t * p->kv_heads * p->head_dim + i) *
                    (1.0f / scales[tensor][head * args->scales.k.stride_head]);
                kvg_ref_store_row(format, IN(pages[tensor]->data),
                                  slots[t] / p->block_size * pages[tensor]->stride_block +
                                      slots[t] % p->block_size * pages[tensor]->stride_slot +
                                      head * pages[tensor]->stride_head + i % p->head_dim,
                                  1, &x);
            }
    return KVG_OK;
}

static const struct kvg_kernel kernels[] = {
    DEQUANT("own_stream", own_stream),
    DEQUANT("past_end", past_end),
    DEQUANT("changes_input", changes_input),
    DEQUANT("stale", stale),
    DEQUANT("one_sequence", one_sequence),
    DEQUANT("one_lse", one_lse),
    DEQUANT("empty_row", empty_row),
    DEQUANT("narrow_offsets", narrow_offsets),
    {HEAD("fp8_dividing"), .supports = supports_fp8, .arithmetic = arithmetic_fp8,
     .workspace_bytes = workspace_fp8, .quantize_q = quantize_by_division, .attention = fp8},
    PLAIN("plain_wrong", plain_wrong),
    STORE("store_forgets", store_forgets, quantize_q),
    STORE("store_by_reciprocal", store_by_reciprocal, quantize_q),
};

static int set_up(void **state)
{
    (void)state;
    return loopback_set_up(kernels, (int)(sizeof kernels / sizeof kernels[0]));
}

/* ---------------------------------------------------------------- the checks that find them */

static void stray_writes_are_found(void **state)
{
    struct setting s;
    (void)state;
    for (int there = 0; there < 2; there++) {
        begin_where(&s, there);
        expect(&s, "past_end", "", KVG_INCORRECT, "out (6144 bytes) was written 0 bytes past its end");
        assert_int_equal(kvg_session_tainted(s.session), 1);
        end(&s);
        begin_where(&s, there);
        expect(&s, "changes_input", "", KVG_INCORRECT, "k_cache");
        assert_int_equal(kvg_session_tainted(s.session), 1);
        end(&s);
    }
}

/* A kernel that is right only while the stream is idle. */
static void a_stream_of_its_own_is_found(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    expect(&s, "own_stream", "", KVG_INCORRECT, "queued behind other work on its stream: nonfinite: ");
    end(&s);
}

static void remembered_answers_are_found(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    expect(&s, "stale", "", KVG_INCORRECT, "after its inputs changed in place");
    end(&s);
    forget();
    begin_where(&s, 1);
    expect(&s, "stale", "cache_state=hot", KVG_INCORRECT, "after its inputs changed in place");
    end(&s);
    forget();
}

static void narrow_offsets_are_found(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    expect(&s, "narrow_offsets", "", KVG_INCORRECT, "in pages far into the cache");
    end(&s);
    begin(&s);
    device.capacity = INT64_C(1) << 30; /* without room for such a cache there is no run in far pages */
    expect(&s, "narrow_offsets", "", KVG_PASSED, "");
    end(&s);
}

/* Sequence 3 is not in the part, so only the comparison with the plain kernel can find the fault. */
static void a_fault_in_one_sequence_is_found(void **state)
{
    struct setting s;
    struct kvg_row row;
    (void)state;
    begin_where(&s, 1);
    expect(&s, "one_sequence", "", KVG_INCORRECT,
           "whole: 2 faults in 48 (sequence, head) groups, worst at sequence 3 head 5");
    expect(&s, "one_lse", "", KVG_INCORRECT, "worst at sequence 3 head 5: lse error");
    expect(&s, "empty_row", "lengths=ragged", KVG_INCORRECT,
           "sequence 2 head 0: a row without a visible key");
    end(&s);
    begin_where(&s, 1);
    s.source.plain = "cuda/loop_absent"; /* not found, and the row says what was not checked */
    run(&s, "one_sequence", "", &row);
    expect_row(&row, KVG_PASSED, "4 of 6 sequences checked: there is no kernel 'cuda/loop_absent'");
    assert_int_equal(row.n_device_checked, -1);
    kvg_row_free(&row);
    end(&s);
    begin(&s);
    expect(&s, "one_sequence", "", KVG_INCORRECT,
           "sequence 3"); /* mirrored: the reference covers all sequences */
    end(&s);
}

static void a_wrong_plain_kernel_is_not_believed(void **state)
{
    struct setting s;
    (void)state;
    begin_where(&s, 1);
    s.source.plain = "cuda/loop_plain_wrong";
    expect(&s, "dequant", "", KVG_MISTRUSTED, "cuda/loop_plain_wrong is itself wrong: sequence 1 head 1");
    end(&s);
}

/* The device makes one value of one sequence wrong. The part has sequences 1, 0, 5 and 4, and the comparison
 * of their pages finds it. In any other sequence it would not be found, because kernel and plain kernel read
 * the same wrong value. */
static void a_case_made_wrong_is_found(void **state)
{
    struct setting s;
    (void)state;
    begin_where(&s, 1);
    device.spoil_sequence = 4;
    expect(&s, "dequant", "", KVG_MISTRUSTED,
           "so the kernel cannot be judged: K cache made on the device: sequence 4 token 75 dim 0");
    end(&s);
    begin_where(&s, 1);
    device.spoil_sequence = 0;
    expect(&s, "store", "phase=store path=none", KVG_MISTRUSTED, "sequence 0 token 75 dim 0");
    end(&s);
}

static void wrong_stores_are_found(void **state)
{
    struct setting s;
    (void)state;
    for (int there = 0; there < 2; there++) {
        begin_where(&s, there);
        expect(&s, "store_forgets", "phase=store path=none", KVG_INCORRECT, "(sequence 5 token 149)");
        end(&s);
    }
    begin(&s); /* with scale 1 both rules give the same codes, with special values they differ */
    expect(&s, "store_by_reciprocal", "phase=store path=none calibration=none scheme=per_tensor",
           KVG_INCORRECT, "with special values");
    expect(&s, "fp8_dividing", "path=fp8 calibration=none scheme=per_tensor", KVG_INCORRECT,
           "a Q of special values");
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stray_writes_are_found),
        cmocka_unit_test(a_stream_of_its_own_is_found),
        cmocka_unit_test(remembered_answers_are_found),
        cmocka_unit_test(narrow_offsets_are_found),
        cmocka_unit_test(a_fault_in_one_sequence_is_found),
        cmocka_unit_test(a_wrong_plain_kernel_is_not_believed),
        cmocka_unit_test(a_case_made_wrong_is_found),
        cmocka_unit_test(wrong_stores_are_found),
    };
    return cmocka_run_group_tests_name("device faults", tests, set_up, NULL);
}
