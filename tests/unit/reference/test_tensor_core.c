/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tensor_core.c: the models of FP8 matrix units.
 *
 * Oracle: the PyPI package mmasim. tests/vectors/tensor_core_mmasim.inc holds its results for 10,200 random
 * cases. The scalar definition must return the same bits, and the tile function must return the bits of the
 * definition. In addition there are cases worked out by hand in the comments, and properties that follow from
 * the arithmetic.
 */
#include "reference/tensor_core.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/vectors/tensor_core_mmasim.inc"

enum { K_MAX = 64, COUNT = (int)(sizeof mmasim_sets / sizeof *mmasim_sets) };

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---------------------------------------------------------------- the same draws as tensor_core_mmasim.py */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(next(state) >> 32) % n;
}

static int special(enum kvg_ref_format format, uint32_t code)
{
    if (format == KVG_REF_E4M3FNUZ)
        return code == 0x80;
    return (code & 0x7f) >= (format == KVG_REF_E4M3 ? 0x7fu : 0x7cu);
}

static uint8_t finite_code(uint64_t *state, enum kvg_ref_format format)
{
    const uint32_t code = below(state, 256);
    return special(format, code) ? 0 : (uint8_t)code;
}

/* A NaN, or for e5m2 mostly an infinity, with the sign of `raw`. */
static uint8_t special_code(enum kvg_ref_format format, uint32_t raw)
{
    if (format == KVG_REF_E4M3FNUZ)
        return 0x80;
    if (format == KVG_REF_E4M3)
        return (uint8_t)(0x7f | (raw & 0x80));
    return (uint8_t)((raw % 8 == 0 ? 0x7d + raw / 8 % 3 : 0x7c) | (raw & 0x80));
}

static uint32_t exponent_between(uint64_t *state, int low, int high)
{
    const uint32_t sign = below(state, 2), field = below(state, (uint32_t)(high - low + 1));
    return sign << 31 | (uint32_t)((int)field + low + 127) << 23 | below(state, 1u << 23);
}

static uint8_t code_of(uint64_t *state, int kind, enum kvg_ref_format format, int i)
{
    const uint32_t one = format == KVG_REF_E4M3 ? 0x38 : format == KVG_REF_E5M2 ? 0x3c : 0x40;
    uint32_t code;
    switch (kind) {
    case 2: /* about 1, positive */
        return (uint8_t)(one - 8 + below(state, 16));
    case 4: /* subnormal */
        code = below(state, format == KVG_REF_E5M2 ? 4 : 8);
        code |= below(state, 2) << 7;
        return special(format, code) ? 0 : (uint8_t)code;
    case 5: /* one large pair among small ones */
        return (uint8_t)(i == 3 ? one + 0x30 + below(state, 4) : below(state, 0x20));
    case 6: /* three of four operands are zero */
        code = finite_code(state, format);
        return below(state, 4) == 0 ? (uint8_t)code : 0;
    case 7: /* zeros of both signs */
        return format == KVG_REF_E4M3FNUZ ? 0 : (uint8_t)(below(state, 2) << 7);
    case 8: { /* a few NaNs and infinities */
        const uint32_t raw = below(state, 256);
        code = finite_code(state, format);
        return below(state, 64) == 0 ? special_code(format, raw) : (uint8_t)code;
    }
    default:
        return finite_code(state, format);
    }
}

struct drawn {
    int kind, k;
    uint8_t a[K_MAX], b[K_MAX];
    float c;
};

static void draw_case(int set, int number, struct drawn *drawn)
{
    const enum kvg_ref_format a = mmasim_sets[set].a, b = mmasim_sets[set].b;
    uint64_t state = (uint64_t)set << 40 | (uint64_t)number;
    const int kind = number / 2 % 10, k = number & 1 ? 64 : 32;
    *drawn = (struct drawn){.kind = kind, .k = k};
    for (int i = 0; i < k; i++)
        drawn->a[i] = code_of(&state, kind, a, i);
    for (int i = 0; i < k; i++)
        drawn->b[i] = code_of(&state, kind, b, i);
    for (int i = 0; i < k && kind == 3; i++) /* the second half of every 32 cancels the first, except one */
        if (i & 16 && i % 32 != 29 && drawn->a[i - 16] & 0x7f) {
            drawn->a[i] = drawn->a[i - 16] ^ 0x80;
            drawn->b[i] = drawn->b[i - 16];
        }
    uint32_t c = 0;
    if (kind == 2)
        c = exponent_between(&state, 0, 16) & 0x7fffffff;
    else if (kind == 4)
        c = exponent_between(&state, -30, -10);
    else if (kind == 6 || kind == 7)
        c = (uint32_t)(next(&state) >> 32);
    else if (kind == 9)
        c = exponent_between(&state, 124, 127);
    else if (kind != 0)
        c = exponent_between(&state, -20, 20);
    drawn->c = float_of(c);
}

static const struct kvg_ref_mma_model *model_of(int set)
{
    const struct kvg_ref_mma_model *model = kvg_ref_mma_model_by_name(mmasim_sets[set].model);
    assert_non_null(model);
    return model;
}

/* ---------------------------------------------------------------- against mmasim */

static void test_definition_is_mmasim(void **state)
{
    (void)state;
    int special_results = 0, cut = 0;
    for (int set = 0; set < COUNT; set++) {
        const struct kvg_ref_mma_model *model = model_of(set);
        for (int i = 0; i < MMASIM_CASES; i++) {
            struct drawn d;
            draw_case(set, i, &d);
            const float got =
                kvg_ref_mma_fp8(model, d.c, mmasim_sets[set].a, d.a, mmasim_sets[set].b, d.b, d.k);
            const uint32_t want = mmasim_sets[set].results[i];
            if (bits_of(got) != want)
                fail_msg("%s set %d case %d (kind %d): 0x%08x, mmasim has 0x%08x", model->name, set, i,
                         d.kind, bits_of(got), want);
            special_results += !isfinite(got);
            double exact = (double)d.c;
            for (int l = 0; l < d.k; l++)
                exact += (double)kvg_ref_fp8_decode(mmasim_sets[set].a, d.a[l]) *
                         (double)kvg_ref_fp8_decode(mmasim_sets[set].b, d.b[l]);
            cut += isfinite(got) && (double)got != exact;
        }
    }
    /* If all results were exact, or all NaN, the vectors would test nothing. */
    assert_true(special_results > 500 && special_results < 3000);
    assert_true(cut > 4000);
}

/* Each column of a tile is a case of a set, with its own c. Each row uses the same B with another A; the A of
 * the last row is zero. All vector widths are tested. */
static void test_tile_is_the_definition(void **state)
{
    (void)state;
    enum { ROWS = 4, COLUMNS = 83, K = 64 };
    static uint8_t a[ROWS][K + 5], b[K][COLUMNS], b_transposed[COLUMNS][K];
    static float c[ROWS][COLUMNS + 2], start[ROWS][COLUMNS];
    const int64_t lengths[] = {64, 32, 57, 16, 1, 0};
    for (int set = 0; set < COUNT; set++)
        for (int round = 0; round < 40; round++) {
            struct drawn d;
            const int64_t k = lengths[round % 6];
            for (int i = 0; i < ROWS; i++) {
                draw_case(set, 10000 + 2 * (round + 40 * i) + 1, &d);
                memcpy(a[i], d.a, K);
            }
            memset(a[ROWS - 1], round % 2 ? 0 : 0x80, K);
            for (int j = 0; j < COLUMNS; j++) {
                draw_case(set, 20000 + 2 * (round * COLUMNS + j) + 1, &d);
                for (int l = 0; l < K; l++)
                    b[l][j] = b_transposed[j][l] = d.b[l];
                for (int i = 0; i < ROWS; i++)
                    start[i][j] = i == 1 ? -d.c : d.c;
            }
            for (int way = 0; way < 6; way++) {
                const int transposed = way % 2, width = way / 2;
                for (int i = 0; i < ROWS; i++) {
                    memcpy(c[i], start[i], sizeof start[i]);
                    c[i][COLUMNS] = 12345; /* outside the tile: must not change */
                }
                const struct kvg_ref_mma_tile tile = {.model = model_of(set),
                                                      .m = ROWS,
                                                      .n = COLUMNS,
                                                      .k = k,
                                                      .a_format = mmasim_sets[set].a,
                                                      .b_format = mmasim_sets[set].b,
                                                      .a = a[0],
                                                      .a_stride = K + 5,
                                                      .b = transposed ? b_transposed[0] : b[0],
                                                      .b_stride_k = transposed ? 1 : COLUMNS,
                                                      .b_stride_n = transposed ? K : 1,
                                                      .c = c[0],
                                                      .c_stride = COLUMNS + 2};
                if (kvg_ref_mma_fp8_tile_as(&tile, width) != 0) {
                    assert_true(width > 0);
                    break; /* this CPU has no more widths */
                }
                for (int i = 0; i < ROWS; i++) {
                    assert_true(c[i][COLUMNS] == 12345);
                    for (int j = 0; j < COLUMNS; j++) {
                        const float want = kvg_ref_mma_fp8(model_of(set), start[i][j], mmasim_sets[set].a,
                                                           a[i], mmasim_sets[set].b, b_transposed[j], k);
                        if (bits_of(want) != bits_of(c[i][j]) && !(k == 0 && isnan(want)))
                            fail_msg("%s set %d round %d row %d column %d: 0x%08x, defined as 0x%08x",
                                     model_of(set)->name, set, round, i, j, bits_of(c[i][j]), bits_of(want));
                    }
                }
            }
        }
}

/* ---------------------------------------------------------------- worked out by hand */

static float call(const char *name, float c, uint8_t a, uint8_t b, int64_t k)
{
    uint8_t as[K_MAX], bs[K_MAX];
    memset(as, a, sizeof as);
    memset(bs, b, sizeof bs);
    return kvg_ref_mma_fp8(kvg_ref_mma_model_by_name(name), c, KVG_REF_E4M3, as, KVG_REF_E4M3, bs, k);
}

static void test_by_hand(void **state)
{
    (void)state;
    const uint8_t one = 0x38, tiny = 0x01; /* 1, 2^-9 */
    /* 2^14 + 32 * 1: with 13 fraction bits the unit is 2, so each of the 32 products of 1 is cut to 0. With
     * 25 bits nothing is lost. */
    assert_true(call("hopper_wgmma", 16384, one, one, 32) == 16384);
    assert_true(call("ada_mma", 16384, one, one, 32) == 16384);
    assert_true(call("hopper_mma", 16384, one, one, 32) == 16416);
    assert_true(call("blackwell", 16384, one, one, 32) == 16416);
    /* 2^13: the unit is 1 and all 32 survive. */
    assert_true(call("hopper_wgmma", 8192, one, one, 32) == 8224);
    /* -2^14 - 32: the products are cut towards zero as well. */
    assert_true(call("hopper_wgmma", -16384, one, 0xb8, 32) == -16384);
    /* c = 16383 is below 2^14, so the unit of the sum is 1 and the sum 16383 + 32 = 16415 is exact. It is
     * above 2^14, where 13 fraction bits hold even numbers only, so the result is cut to 16414. */
    assert_true(call("hopper_wgmma", 16383, one, one, 32) == 16414);
    /* e4m3 subnormals: products of 2^-18; 32 of them make 2^-13, exact in every model. */
    assert_true(call("hopper_wgmma", 0, tiny, tiny, 32) == 0x1p-13f);
    assert_true(call("hopper_mma", 0, tiny, tiny, 32) == 0x1p-13f);
    /* In the FP8 unit a subnormal has the exponent of the smallest normal, 2^-6. So the products count as
     * 2^-12, which is above c = 2^-14, and the unit is 2^-25: nothing is lost. */
    assert_true(call("hopper_wgmma", 0x1p-14f, tiny, tiny, 32) == 0x1p-14f + 0x1p-13f);
    /* 0 * NaN, a negative zero, the largest c, and no product. */
    assert_int_equal(bits_of(call("hopper_wgmma", 0, 0, 0x7f, 32)), 0x7fffffff);
    assert_true(call("hopper_wgmma", -0.0f, 0x80, one, 32) == 0);
    assert_int_equal(bits_of(call("hopper_wgmma", -0.0f, 0x80, one, 32)), 0);
    assert_true(call("hopper_wgmma", 3.4028235e38f, one, one, 32) == 0x1.fff8p127f);
    assert_true(call("hopper_wgmma", 1.2345678f, one, one, 0) == 1.2345678f);
}

/* The order within HALVES: k = 0, 1 (mod 4) in the first HMMA, k = 2, 3 in the second. 2^-12 is lost beside a
 * product or a sum of 2^14: they are 26 binades apart and 25 fraction bits survive. The products of one HMMA
 * are added before the cut to FP32. So 2^-12 survives only in the second HMMA, after 2^14 - 2^14 = 0 in the
 * first. */
static void test_halves_order(void **state)
{
    (void)state;
    uint8_t a[32] = {0}, b[32] = {0};
    const struct kvg_ref_mma_model *model = kvg_ref_mma_model_by_name("hopper_mma");
    const uint8_t one = 0x38, big = 0x70 /* 2^7 */, small = 0x08 /* 2^-6 */;
    /* 2^14 - 2^14 in the first HMMA, 2^-12 in the second: nothing is lost. */
    a[0] = a[1] = b[0] = big, b[1] = big | 0x80, a[2] = b[2] = small;
    assert_true(kvg_ref_mma_fp8(model, 0, KVG_REF_E4M3, a, KVG_REF_E4M3, b, 32) == 0x1p-12f);
    /* 2^14 and 2^-12 in the first: 2^-12 is 26 binades below and cut; -2^14 in the second leaves 0. */
    memset(a, 0, sizeof a), memset(b, 0, sizeof b);
    a[0] = a[2] = b[0] = big, b[2] = big | 0x80, a[1] = b[1] = small;
    assert_true(kvg_ref_mma_fp8(model, 0, KVG_REF_E4M3, a, KVG_REF_E4M3, b, 32) == 0);
    /* The accumulator is added last, in FP32 and to nearest: 2^24 + 3 (three products of 1) = 2^24 + 4. */
    memset(a, 0, sizeof a), memset(b, 0, sizeof b);
    a[0] = a[1] = a[2] = b[0] = b[1] = b[2] = one;
    assert_true(kvg_ref_mma_fp8(model, 0x1p24f, KVG_REF_E4M3, a, KVG_REF_E4M3, b, 32) == 0x1p24f + 4);
}

/* ---------------------------------------------------------------- properties */

/* The order of the products does not matter within a step, a half of HALVES, or a parity of CDNA3. */
static void test_permutation(void **state)
{
    (void)state;
    for (int set = 0; set < COUNT; set++) {
        const struct kvg_ref_mma_model *model = model_of(set);
        for (int i = 0; i < 200; i++) {
            struct drawn d, p;
            draw_case(set, 2 * i, &d);
            p = d;
            for (int l = 0; l < 32; l++) {
                /* FUSED: 5 l + 3 modulo the step is a permutation of the step. The other families distinguish
                 * k & 2 or k & 1, so there the products move by 4. */
                const int size = model->step, base = l / size * size;
                int from = model->family == KVG_REF_MMA_FUSED ? base + (5 * (l - base) + 3) % size
                                                              : base + (l - base + 4) % size;
                p.a[l] = d.a[from];
                p.b[l] = d.b[from];
            }
            const float x = kvg_ref_mma_fp8(model, d.c, mmasim_sets[set].a, d.a, mmasim_sets[set].b, d.b, 32);
            const float y = kvg_ref_mma_fp8(model, p.c, mmasim_sets[set].a, p.a, mmasim_sets[set].b, p.b, 32);
            assert_int_equal(bits_of(x), bits_of(y));
        }
    }
}

/* Twice the operands (normal before and after) and four times c give four times the result. */
static void test_power_of_two(void **state)
{
    (void)state;
    for (int set = 0; set < COUNT; set++)
        for (int i = 0; i < 300; i++) {
            struct drawn d;
            draw_case(set, 20 * i + 5, &d); /* kind 2: normal, about 1 */
            const enum kvg_ref_format fa = mmasim_sets[set].a, fb = mmasim_sets[set].b;
            const float x = kvg_ref_mma_fp8(model_of(set), d.c, fa, d.a, fb, d.b, d.k);
            for (int l = 0; l < d.k; l++) {
                d.a[l] = kvg_ref_fp8_encode(fa, 2 * kvg_ref_fp8_decode(fa, d.a[l]));
                d.b[l] = kvg_ref_fp8_encode(fb, 2 * kvg_ref_fp8_decode(fb, d.b[l]));
            }
            const float y = kvg_ref_mma_fp8(model_of(set), 4 * d.c, fa, d.a, fb, d.b, d.k);
            assert_int_equal(bits_of(4 * x), bits_of(y));
        }
}

/* A chain of products of 1: once the sum reaches 2^14 they are lost, so it stops there. In FP32 it would go
 * on. */
static void test_chain_saturates(void **state)
{
    (void)state;
    float wgmma = 0, blackwell = 0;
    for (int i = 0; i < 1024; i++) {
        wgmma = call("hopper_wgmma", wgmma, 0x38, 0x38, 32);
        blackwell = call("blackwell", blackwell, 0x38, 0x38, 32);
    }
    assert_true(wgmma == 16384);
    assert_true(blackwell == 32768);
}

static void test_models(void **state)
{
    (void)state;
    int count = 0;
    for (const struct kvg_ref_mma_model *m; (m = kvg_ref_mma_model_get(count)) != NULL; count++) {
        assert_ptr_equal(kvg_ref_mma_model_by_name(m->name), m);
        assert_int_equal(kvg_ref_mma_takes(m, KVG_REF_E4M3), strcmp(m->name, "cdna3_mfma") != 0);
        assert_int_equal(kvg_ref_mma_takes(m, KVG_REF_E4M3FNUZ), strcmp(m->name, "cdna3_mfma") == 0);
        assert_int_equal(kvg_ref_mma_takes(m, KVG_REF_BF16), 0);
    }
    assert_int_equal(count, 5);
    assert_null(kvg_ref_mma_model_get(-1));
    assert_null(kvg_ref_mma_model_by_name("hopper"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition_is_mmasim),
        cmocka_unit_test(test_tile_is_the_definition),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_halves_order),
        cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_power_of_two),
        cmocka_unit_test(test_chain_saturates),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
