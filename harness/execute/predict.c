/* SPDX-License-Identifier: Apache-2.0
 *
 * predict.c: predicts the errors of attention with a model of Hopper's FP8 unit.
 *
 * The row gets the errors and gains that a kernel with this accumulator would have. No kernel is judged: the
 * status is always passed, and the columns of a verdict (ratios to a bound, limits) stay empty.
 */
#include "predict.h"

#include <math.h>
#include <stdlib.h>

#include "outputs.h"
#include "reference/attention_predict.h"
#include "verdict.h"

/* FlashAttention-3's fp8 path with FP32 sums: P in e4m3 relative to the running maximum, last tile first. */
static void arithmetic(const struct kvg_problem *problem, int64_t seq_len, struct kvg_arithmetic *out)
{
    (void)seq_len;
    *out = (struct kvg_arithmetic){.qk_operand = KVG_F32,
                                   .qk_accumulator_bits = 24,
                                   .exp2_rel_error = 0x1p-24,
                                   .p_format = KVG_E4M3,
                                   .p_offset_log2 = 8,
                                   .pv_operand = KVG_F32,
                                   .pv_accumulator_bits = 24,
                                   .tile = problem->head_dim <= 96 ? 128 : 96,
                                   .tile_last_first = 1,
                                   .deterministic = 1};
}

const struct kvg_kernel kvg_prediction = {.abi_version = KVG_KERNEL_ABI_VERSION,
                                          .struct_size = sizeof(struct kvg_kernel),
                                          .name = "predict",
                                          .summary = "the fp8 path on a model of the FP8 unit",
                                          .device = KVG_DEVICE_CPU,
                                          .arithmetic = arithmetic};

/* Every (query, head) of the case. */
struct predicted {
    struct kvg_ref_row *rows;
    float *out, *lse;
    uint16_t *rounded; /* out in bf16 */
    int64_t count;
};

static void free_predicted(struct predicted *p)
{
    free(p->rows);
    free(p->out);
    free(p->lse);
    free(p->rounded);
}

static int make_predicted(const struct kvg_prepared *prepared, struct predicted *p)
{
    const int64_t heads = prepared->problem.q_heads, count = prepared->total_q * heads;
    const size_t elements = (size_t)(count * prepared->problem.head_dim);
    *p = (struct predicted){.rows = malloc((size_t)count * sizeof *p->rows),
                            .out = malloc(elements * sizeof *p->out),
                            .lse = malloc((size_t)count * sizeof *p->lse),
                            .rounded = malloc(elements * sizeof *p->rounded),
                            .count = count};
    if (!p->rows || !p->out || !p->lse || !p->rounded)
        return -1;
    int64_t n = 0;
    for (int64_t b = 0; b < prepared->problem.batch; b++)
        for (int32_t i = 0; i < prepared->cu_q_lens[b + 1] - prepared->cu_q_lens[b]; i++)
            for (int64_t h = 0; h < heads; h++)
                p->rows[n++] = (struct kvg_ref_row){(int32_t)b, i, (int32_t)h};
    return 0;
}

static int predict(struct kvg_execution *x, struct predicted *p)
{
    struct kvg_ref_attention a;
    const struct kvg_ref_prediction how = {.mma = kvg_ref_mma_model_by_name("hopper_wgmma"),
                                           .flush_tiles = x->c->flush_tiles};
    kvg_prepared_dequantised(&x->prepared, &a);
    const int status = kvg_ref_attention_predict(&a, &how, p->rows, p->count, p->out, p->lse);
    if (status == -2)
        return kvg_verdict(x, KVG_SKIPPED, "the FP8 unit of Hopper does not take this case's formats");
    if (status)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the prediction");
    kvg_ref_store_row(KVG_REF_BF16, p->rounded, 0, p->count * x->prepared.problem.head_dim, p->out);
    return 0;
}

static void compare(struct kvg_execution *x, const struct predicted *p)
{
    struct kvg_expectation *expectation = NULL;
    struct kvg_error error;
    struct kvg_row *row = x->row;
    if (kvg_outputs_expect(x, &expectation))
        return;
    if (kvg_compare_attention(expectation, p->rounded, p->lse, row, &error))
        kvg_verdict_of_error(x, &error);
    else {
        row->bound_ratio_max = row->prob_ratio_max = row->lse_ratio_max = NAN;
        row->zero_ratio = row->gain_limit = NAN;
        kvg_verdict(x, KVG_PASSED, "prediction, not judged: Q K and P V on the model of Hopper's wgmma, %s",
                    x->c->flush_tiles ? "flushed to FP32" : "one chain");
    }
    kvg_expectation_free(expectation);
}

void kvg_execute_prediction(struct kvg_execution *x)
{
    struct predicted p = {0};
    if (make_predicted(&x->prepared, &p))
        kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the prediction");
    else if (predict(x, &p) == 0)
        compare(x, &p);
    free_predicted(&p);
}
