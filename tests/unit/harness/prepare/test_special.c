/* SPDX-License-Identifier: Apache-2.0
 *
 * test_special.c: the special values of a store hold all kinds, and the caches made from them are right.
 *
 * What is expected is computed here, from the definition of the formats: quotients with integers, midpoints
 * with doubles, which hold them exactly.
 */
#include "tests/unit/prepare_fixture.h"

#include <stdio.h>

#include "harness/prepare/special.h"

enum { CODES = 128 };

/* A format, by its definition. */
struct format {
    enum kvg_cache_dtype dtype;
    enum kvg_ref_format ref;
    int mantissa, bias, last; /* explicit fraction bits, exponent bias, largest finite magnitude code */
};

static const struct format formats[] = {{KVG_CACHE_FP8_E4M3, KVG_REF_E4M3, 3, 7, 0x7e},
                                        {KVG_CACHE_FP8_E5M2, KVG_REF_E5M2, 2, 15, 0x7b},
                                        {KVG_CACHE_FP8_E4M3FNUZ, KVG_REF_E4M3FNUZ, 3, 8, 0x7f}};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static double code_value(const struct format *f, int code)
{
    const int exponent = code >> f->mantissa, fraction = code & ((1 << f->mantissa) - 1);
    return exponent == 0 ? ldexp(fraction, 1 - f->bias - f->mantissa)
                         : ldexp((1 << f->mantissa) + fraction, exponent - f->bias - f->mantissa);
}

/* The last bit of an FP32 value. */
static double last_bit(double x)
{
    int exponent;
    frexp(x, &exponent);
    return ldexp(1.0, exponent - 24);
}

/* x / scale, rounded to 24 bits, to nearest even, with integers. Both are positive and finite; the quotient
 * is normal in FP32. */
static double divide(float x, float scale)
{
    int ex, es;
    const uint64_t a = (uint64_t)ldexp(frexp((double)x, &ex), 24),
                   b = (uint64_t)ldexp(frexp((double)scale, &es), 24);
    const int shift = a >= b ? 23 : 24; /* the quotient has 24 bits */
    uint64_t quotient = (a << shift) / b;
    const uint64_t rest = (a << shift) % b;
    quotient += 2 * rest > b || (2 * rest == b && quotient % 2);
    return ldexp((double)quotient, ex - es - shift);
}

/* The code of a positive value: the nearest, of two nearest the even one, at most the largest. */
static int encode(const struct format *f, double x)
{
    int code = 0;
    for (int step = 64; step > 0; step /= 2)
        if (code + step <= f->last && code_value(f, code + step) <= x)
            code += step;
    if (code == f->last)
        return code;
    const double middle = (code_value(f, code) + code_value(f, code + 1)) / 2;
    return x > middle || (x == middle && code % 2) ? code + 1 : code;
}

/* What was seen of a tensor. */
struct seen {
    int at[3][CODES];   /* a midpoint after a code: exactly, one bit below, one bit above */
    int code[2][CODES]; /* codes, by sign */
    int nan, infinite[2], beyond_by_one_code;
};

static void look(const struct format *f, struct seen *s, uint16_t bits, float scale, uint8_t stored)
{
    const int negative = bits >> 15;
    const float x = fabsf(bf16(bits));
    if (isnan(x)) {
        assert_true(f->ref == KVG_REF_E4M3FNUZ ? stored == 0x80 : (stored & 0x7f) > f->last);
        s->nan = 1;
        return;
    }
    int code = f->last;
    if (x == 0.0f) {
        code = 0;
    } else if (isfinite(x)) {
        const double quotient =
            bits & 0x7f80 ? divide(x, scale) : 0.0; /* subnormal bf16: far below any code */
        code = encode(f, quotient);
        for (int c = code > 0 ? code - 1 : 0; c <= code && c < f->last; c++) {
            const double middle = (code_value(f, c) + code_value(f, c + 1)) / 2;
            s->at[0][c] |= quotient == middle;
            s->at[1][c] |= quotient == middle - last_bit(middle * (1 - 0x1p-30));
            s->at[2][c] |= quotient == middle + last_bit(middle);
        }
        const double largest = code_value(f, f->last);
        s->beyond_by_one_code |= quotient > largest && quotient < 1.05 * largest;
    } else
        s->infinite[negative] = 1;
    const int sign = negative && (code > 0 || f->ref != KVG_REF_E4M3FNUZ) ? 0x80 : 0;
    if (stored != (sign | code))
        fail_msg("%.9g / %.9g: stored 0x%02x, expected 0x%02x", (double)bf16(bits), (double)scale, stored,
                 (unsigned)(sign | code));
    s->code[negative][code] = 1;
}

/* Looks at every stored element of K (tensor 0) or V (1). */
static void look_at(const struct format *f, const struct kvg_prepared *p, int tensor, struct seen *s)
{
    const struct kvg_pages *pages = tensor ? &p->v_pages : &p->k_pages;
    const int64_t size = p->problem.block_size, heads = p->c.kv_heads, dim = p->c.head_dim;
    for (int64_t t = 0; t < p->total_kv; t++)
        for (int64_t h = 0; h < heads && p->slot_mapping[t] >= 0; h++)
            for (int64_t d = 0; d < dim; d++) {
                const int64_t slot = p->slot_mapping[t];
                const uint8_t stored =
                    ((const uint8_t *)
                         pages->data)[slot / size * pages->stride_block + slot % size * pages->stride_slot +
                                      h * pages->stride_head + d];
                look(f, s, (tensor ? p->v : p->k)[(t * heads + h) * dim + d],
                     (tensor ? p->v_scale : p->k_scale)[h * p->scale_stride], stored);
            }
}

static void expect_all_kinds(const struct format *f, const struct seen *s, const char *where)
{
    static const char *const kinds[] = {"exactly", "one bit below", "one bit above"};
    for (int kind = 0; kind < 3; kind++)
        for (int c = 0; c < f->last; c++)
            if (!s->at[kind][c])
                fail_msg("%s: no quotient %s the midpoint after code 0x%02x", where, kinds[kind],
                         (unsigned)c);
    for (int c = 0; c <= f->last; c++)
        if (!s->code[0][c] && !s->code[1][c])
            fail_msg("%s: no code 0x%02x", where, (unsigned)c);
    for (int negative = 0; negative < 2; negative++)
        assert_true(s->infinite[negative] && s->code[negative][0] && s->code[negative][f->last]);
    assert_true(s->nan && s->beyond_by_one_code);
}

static void cover(const struct format *f, const struct kvg_special *special, const struct kvg_case *c,
                  int64_t most_rounds, int64_t most_stored)
{
    static struct seen seen[2];
    struct kvg_prepared p;
    char where[160];
    memset(seen, 0, sizeof seen);
    prepare(c, &p);
    const int64_t all = kvg_prepared_special_rounds(&p, special);
    assert_int_equal(all % KVG_SPECIAL_SCALES, 0);
    for (int64_t round = 0; round < (most_rounds ? most_rounds : all); round++) {
        int64_t stored = 0;
        kvg_prepared_special(&p, special, round);
        for (int tensor = 0; tensor < 2; tensor++)
            look_at(f, &p, tensor, &seen[tensor]);
        for (int64_t t = 0; t < p.total_kv; t++)
            stored += p.slot_mapping[t] >= 0;
        assert_true(stored > 0 && stored <= most_stored);
    }
    for (int tensor = 0; tensor < 2; tensor++) {
        snprintf(where, sizeof where,
                 "dtype %d, %s, context %lld, heads %lld, dim %lld, scheme %d, lengths %d", (int)f->dtype,
                 tensor ? "V" : "K", (long long)c->context, (long long)c->kv_heads, (long long)c->head_dim,
                 (int)c->scheme, (int)c->lengths);
        expect_all_kinds(f, &seen[tensor], where);
    }
    struct kvg_error error = {0};
    assert_int_equal(kvg_prepared_check(&p, &error), 0);
    assert_int_equal(kvg_prepared_renew(&p, c->seed, &error), 0); /* brings the slots back */
    for (int64_t t = 0, gaps = c->lengths == KVG_LENGTHS_GAPS; t < p.total_kv && !gaps; t++)
        assert_true(p.slot_mapping[t] >= 0);
    kvg_prepared_free(&p);
}

/* The smallest cases, a case with tokens that are not stored, and one with more tokens than the lists
 * need. */
static void k_and_v_of_every_store_hold_all_kinds(void **state)
{
    static const struct {
        int64_t batch, context, heads, dim;
        enum kvg_scheme scheme;
        enum kvg_lengths lengths;
        int64_t rounds,
            stored; /* rounds (0: as many as kvg_prepared_special_rounds says); most tokens stored */
    } shapes[] = {{1, 1, 1, 64, KVG_PER_TENSOR, KVG_LENGTHS_UNIFORM, 0, 1},
                  {1, 1, 1, 80, KVG_PER_HEAD, KVG_LENGTHS_UNIFORM, 0, 1},
                  {1, 3, 5, 64, KVG_PER_HEAD, KVG_LENGTHS_UNIFORM, 0, 3},
                  {1, 48, 1, 64, KVG_PER_TENSOR, KVG_LENGTHS_UNIFORM, 0, 48},
                  {3, 20, 2, 64, KVG_PER_HEAD, KVG_LENGTHS_GAPS, 0, 60},
                  {2, 300, 2, 128, KVG_PER_TENSOR, KVG_LENGTHS_RAGGED, KVG_SPECIAL_SCALES / 2, 18},
                  {2, 300, 2, 128, KVG_PER_HEAD, KVG_LENGTHS_RAGGED, KVG_SPECIAL_SCALES / 2, 35}};
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        struct kvg_special special;
        assert_int_equal(kvg_special_make(formats[i].ref, KVG_SPECIAL_DIVIDE, &special), 0);
        for (size_t j = 0; j < sizeof shapes / sizeof shapes[0]; j++) {
            struct kvg_case c = small_case();
            c.phase = KVG_PHASE_STORE;
            c.path = KVG_PATH_NONE;
            c.kv_cache_dtype = formats[i].dtype;
            c.calibration = KVG_CALIBRATION_NONE;
            c.q_len = c.context = shapes[j].context;
            c.batch = shapes[j].batch;
            c.q_heads = c.kv_heads = shapes[j].heads;
            c.head_dim = shapes[j].dim;
            c.scheme = shapes[j].scheme;
            c.lengths = shapes[j].lengths;
            cover(&formats[i], &special, &c, shapes[j].rounds, shapes[j].stored);
        }
        kvg_special_free(&special);
    }
}

/* Q: the same kinds for the product with the reciprocal. 1 / scale and the product are each rounded once. */
static void products_with_the_reciprocal_hit_the_midpoints(void **state)
{
    const struct format *f = &formats[0];
    static struct seen seen;
    struct kvg_special special;
    (void)state;
    assert_int_equal(kvg_special_make(KVG_REF_E4M3, KVG_SPECIAL_RECIPROCAL, &special), 0);
    for (int i = 0; i < KVG_SPECIAL_SCALES; i++) {
        const double reciprocal = divide(1.0f, special.scale[i]);
        for (int64_t n = 0; n < special.telling; n++) {
            const double x = (double)fabsf(bf16(kvg_special_value(&special, i, n)));
            const double product = (double)(float)(x * reciprocal); /* 8 and 24 bits: exact in a double */
            for (int c = 0; c < f->last; c++) {
                const double middle = (code_value(f, c) + code_value(f, c + 1)) / 2;
                seen.at[0][c] |= product == middle;
                seen.at[1][c] |= product == middle - last_bit(middle * (1 - 0x1p-30));
                seen.at[2][c] |= product == middle + last_bit(middle);
            }
        }
    }
    for (int kind = 0; kind < 3; kind++)
        for (int c = 0; c < f->last; c++)
            assert_true(seen.at[kind][c]);
    kvg_special_free(&special);
}

/* The decoded value of a code, NaN included. */
static double decoded(const struct format *f, uint8_t code)
{
    const int magnitude = code & 0x7f;
    if (magnitude > f->last || (f->ref == KVG_REF_E4M3FNUZ && code == 0x80))
        return NAN;
    return code & 0x80 ? -code_value(f, magnitude) : code_value(f, magnitude);
}

static void special_codes_are_numbers_of_the_promised_kinds(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++)
        for (int which = 0; which < 2; which++) {
            struct kvg_case c = small_case();
            struct kvg_prepared p;
            struct kvg_error error = {0};
            int seen[2][256] = {{0}}, subnormal = 0, normal = 0;
            const struct format *f = &formats[i];
            c.kv_cache_dtype = f->dtype;
            prepare(&c, &p);
            const float scale = p.k_scale[0];
            kvg_prepared_special_codes(&p, which ? KVG_CODES_SUBNORMALS : KVG_CODES_LARGEST);
            for (int64_t b = 0; b < c.batch; b++)
                for (int64_t t = 0; t < p.seq_lens[b]; t++)
                    for (int64_t at = 0; at < c.kv_heads * c.head_dim; at++) {
                        const int64_t page = p.block_table[b * p.block_table_stride + t / c.block_size];
                        const int64_t place =
                            page * p.k_pages.stride_block + t % c.block_size * p.k_pages.stride_slot + at;
                        for (int tensor = 0; tensor < 2; tensor++) {
                            const uint8_t code = ((const uint8_t *)(tensor ? p.v_cache : p.k_cache))[place];
                            assert_false(isnan(decoded(f, code)));
                            seen[tensor][code] = 1;
                            subnormal += fabs(decoded(f, code)) < ldexp(1.0, 1 - f->bias);
                            normal += fabs(decoded(f, code)) >= ldexp(1.0, 1 - f->bias);
                        }
                    }
            for (int tensor = 0; tensor < 2; tensor++) {
                assert_true(seen[tensor][0x01] && seen[tensor][0x81]);
                assert_true(seen[tensor][0x80] == (f->ref != KVG_REF_E4M3FNUZ)); /* -0, in fnuz NaN */
                assert_true(which || (seen[tensor][f->last] && seen[tensor][f->last | 0x80]));
            }
            assert_true(subnormal > 0 && (which ? normal == 0 : normal > 0));
            assert_true(which ? p.k_scale[0] != scale : p.k_scale[0] == scale);
            assert_true(isfinite(p.k_scale[0]) && p.k_scale[0] > 0.0f);
            assert_int_equal(kvg_prepared_check(&p, &error), 0);
            assert_int_equal(kvg_prepared_renew(&p, c.seed, &error), 0);
            assert_true(p.k_scale[0] == scale);
            kvg_prepared_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k_and_v_of_every_store_hold_all_kinds),
        cmocka_unit_test(products_with_the_reciprocal_hit_the_midpoints),
        cmocka_unit_test(special_codes_are_numbers_of_the_promised_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
