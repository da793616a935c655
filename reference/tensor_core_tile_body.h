/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_core_tile_body.h: the steps of tensor_core_tile.c for one vector width. tensor_core_tile.c includes
 * it once for each width, with these macros defined:
 *
 *   NAME(x)     x with a suffix for this width
 *   VEC         bytes of a vector
 *   MAX8(x, y)  the larger of each pair of signed bytes
 *
 * The macros are undefined at the end. target_clones would not do here, because values of a vector type that
 * is wider than the machine's registers are kept in memory.
 */
typedef float NAME(floats) __attribute__((vector_size(VEC), may_alias));
typedef int32_t NAME(ints) __attribute__((vector_size(VEC), may_alias));
typedef int8_t NAME(bytes) __attribute__((vector_size(VEC), may_alias));

/* For each column: the largest exponent among the products of a step; below NO_PRODUCT when all are zero. */
static inline __attribute__((always_inline)) void
NAME(largest)(const struct block *block, const struct row *row, int at, int n, int8_t *top)
{
    for (int j = 0; j < COLUMNS; j += VEC) {
        NAME(bytes) most = (NAME(bytes)){0} + INT8_MIN;
        for (int l = at; l < at + n; l++)
            most = MAX8(most, *(const NAME(bytes) *)(block->exponent[l] + j) + row->exponent[l]);
        *(NAME(bytes) *)(top + j) = most;
    }
}

enum { NAME(AT_ONCE) = 4, NAME(LANES) = VEC / 4 };

/* For each column: the terms in whole units, cut towards zero and added to sum (with `split`, to sum and
 * low). */
static inline __attribute__((always_inline)) void
NAME(add_terms)(const struct block *block, const struct row *row, int at, int n, int split, struct step *s)
{
    for (int j = 0; j < COLUMNS; j += NAME(AT_ONCE) * NAME(LANES)) {
        NAME(ints) sum[NAME(AT_ONCE)], low[NAME(AT_ONCE)];
        NAME(floats) per_unit[NAME(AT_ONCE)];
        for (int i = 0; i < NAME(AT_ONCE); i++) {
            sum[i] = *(const NAME(ints) *)(s->sum + j + i * NAME(LANES));
            low[i] = *(const NAME(ints) *)(s->low + j + i * NAME(LANES));
            per_unit[i] = *(const NAME(floats) *)(s->per_unit + j + i * NAME(LANES));
        }
        for (int l = at; l < at + n; l++)
            for (int i = 0; i < NAME(AT_ONCE); i++) {
                const NAME(floats) value = *(const NAME(floats) *)(block->value[l] + j + i * NAME(LANES));
                const NAME(ints) term =
                    __builtin_convertvector(row->value[l] * value * per_unit[i], NAME(ints));
                sum[i] += split ? term >> LOW : term;
                if (split)
                    low[i] += term & ((1 << LOW) - 1);
            }
        for (int i = 0; i < NAME(AT_ONCE); i++) {
            *(NAME(ints) *)(s->sum + j + i * NAME(LANES)) = sum[i];
            *(NAME(ints) *)(s->low + j + i * NAME(LANES)) = low[i];
        }
    }
}

/* One step: `n` products from `at` on, for all columns of a block. `align` and `result` are the fraction bits
 * of the alignment and of the result. They are constants where this function is inlined. */
static inline __attribute__((always_inline)) void NAME(step)(const struct block *block, const struct row *row,
                                                             int at, int n, float *c, int align, int result)
{
    struct step s;
    NAME(largest)(block, row, at, n, s.top);
    begin_step(c, align, &s);
    NAME(add_terms)(block, row, at, n, align > WHOLE_BITS, &s);
    end_step(c, align, result, &s);
}

static void NAME(step_13)(const struct block *block, const struct row *row, int at, int n, float *c)
{
    NAME(step)(block, row, at, n, c, 13, 13);
}

static void NAME(step_25)(const struct block *block, const struct row *row, int at, int n, float *c)
{
    NAME(step)(block, row, at, n, c, 25, 23);
}

#undef NAME
#undef VEC
#undef MAX8
