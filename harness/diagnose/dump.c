/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.c: which arrays a dump holds. HDF5 has no type for bf16 and e4m3: outputs and Q are written as
 * float32, exactly; caches as codes (uint8) or the bits of bf16 (uint16), as they lie in memory.
 */
#include "dump.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "results/disk.h"
#include "results/dump.h"
#include "harness/prepare/prepared.h"

#define DUMP_SCHEMA "kvgauge-dump"
#define DUMP_VERSION "1.0.0"

int kvg_dump_name(const char *to, const char *case_id, char *path, size_t size, struct kvg_error *error)
{
    const size_t length = strlen(to);
    int used;
    if (length > 3 && strcmp(to + length - 3, ".h5") == 0) {
        used = snprintf(path, size, "%s", to);
    } else {
        if (kvg_make_folders(to, error))
            return -1;
        used = snprintf(path, size, "%s/%s.h5", to, case_id);
    }
    return used < (int)size ? 0
                            : kvg_fail(error, KVG_EXIT_TROUBLE, "%.200s...: the file name is too long", to);
}

/* bf16 or e4m3 to float32; NULL on out of memory. */
static float *decoded(enum kvg_ref_format format, const void *data, int64_t count)
{
    float *values = malloc((size_t)(count > 0 ? count : 1) * sizeof *values);
    if (values && data)
        kvg_ref_load_row(format, data, 0, count, values);
    return values;
}

static void put_decoded(struct kvg_dump *d, const char *name, const char *what, enum kvg_ref_format format,
                        const void *data, const int64_t shape[3], int *out_of_memory)
{
    if (!data)
        return;
    float *values = decoded(format, data, shape[0] * shape[1] * shape[2]);
    *out_of_memory |= !values;
    kvg_dump_array(d, name, what, KVG_DUMP_F32, 3, shape, values);
    free(values);
}

static void put_header(struct kvg_dump *d, const struct kvg_prepared *p, const char *kernel,
                       enum kvg_run_kind run, const char *reason)
{
    char text[KVG_CASE_STRING_MAX];
    const struct kvg_problem *problem = &p->problem;
    kvg_case_format(&p->c, text);
    kvg_dump_text(d, "schema_name", DUMP_SCHEMA);
    kvg_dump_text(d, "schema_version", DUMP_VERSION);
    kvg_dump_text(d, "case_string", text);
    kvg_dump_text(d, "kernel", kernel);
    kvg_dump_text(d, "run", kvg_run_words(run));
    kvg_dump_text(d, "reason", reason);
    kvg_dump_text(d, "kv_format", kvg_ref_format_get_info(kvg_ref_format_of(problem->kv_dtype))->name);
    kvg_dump_text(d, "layout", problem->layout == KVG_HND ? "HND" : "NHD");
    kvg_dump_number(d, "softmax_scale", (double)p->softmax_scale);
    kvg_dump_number(d, "soft_cap", (double)problem->soft_cap);
    kvg_dump_number(d, "window", (double)problem->window);
    kvg_dump_number(d, "causal", problem->mask != KVG_MASK_FULL);
    kvg_case_get(&p->c, KVG_AXIS_MASK, text, sizeof text);
    kvg_dump_text(d, "mask", text);
    kvg_dump_number(d, "chunk", (double)problem->chunk);
    kvg_dump_number(d, "block_size", (double)problem->block_size);
    kvg_dump_number(d, "values_seed", (double)kvg_prepared_values(p)->seed);
}

static void put_cache(struct kvg_dump *d, const struct kvg_prepared *p, const char *name, const char *what,
                      const void *data)
{
    const struct kvg_problem *problem = &p->problem;
    const int64_t heads = problem->kv_heads, dim = problem->head_dim, size = problem->block_size;
    const int hnd = problem->layout == KVG_HND;
    const int64_t dense[4] = {p->num_blocks, hnd ? heads : size, hnd ? size : heads, dim};
    const int64_t flat[1] = {p->cache_elements};
    const int is_dense = p->num_blocks * heads * size * dim == p->cache_elements;
    kvg_dump_array(d, name, what, problem->kv_dtype == KVG_BF16 ? KVG_DUMP_U16 : KVG_DUMP_U8,
                   is_dense ? 4 : 1, is_dense ? dense : flat, data);
}

static void put_inputs(struct kvg_dump *d, const struct kvg_prepared *p, int *out_of_memory)
{
    const struct kvg_problem *problem = &p->problem;
    const int64_t scales[1] = {p->scale_stride ? problem->kv_heads : 1};
    const int64_t batch[1] = {problem->batch}, starts[1] = {problem->batch + 1},
                  tokens[1] = {p->store_tokens};
    const int64_t table[2] = {problem->batch, p->block_table_stride};
    const int64_t q[3] = {p->total_q, problem->q_heads, problem->head_dim}, heads[1] = {problem->q_heads};
    const int64_t kv[3] = {p->store_tokens, problem->kv_heads, problem->head_dim};
    kvg_dump_array(d, "inputs/k_scale", "value = code * scale; one for each KV head, or one for all",
                   KVG_DUMP_F32, 1, scales, p->k_scale);
    kvg_dump_array(d, "inputs/v_scale", "as k_scale", KVG_DUMP_F32, 1, scales, p->v_scale);
    kvg_dump_array(d, "inputs/seq_lens", "keys of each sequence", KVG_DUMP_I32, 1, batch, p->seq_lens);
    if (p->prefix_lens)
        kvg_dump_array(d, "inputs/prefix_lens", "mask prefix: keys that every query of the sequence sees",
                       KVG_DUMP_I32, 1, batch, p->prefix_lens);
    if (problem->phase == KVG_PHASE_STORE) {
        put_decoded(d, "inputs/k", "K of each token, bf16", KVG_REF_BF16, p->k, kv, out_of_memory);
        put_decoded(d, "inputs/v", "V of each token, bf16", KVG_REF_BF16, p->v, kv, out_of_memory);
        kvg_dump_array(d, "inputs/slot_mapping", "slot of each token; -1 is not stored", KVG_DUMP_I64, 1,
                       tokens, p->slot_mapping);
        return;
    }
    put_decoded(d, "inputs/q",
                p->q8 ? "Q as the kernel gets it, without its scale" : "Q as the kernel gets it",
                p->q8 ? KVG_REF_E4M3 : KVG_REF_BF16, p->q8 ? (const void *)p->q8 : (const void *)p->q, q,
                out_of_memory);
    if (p->q8) {
        kvg_dump_array(d, "inputs/q_codes", "Q, codes of e4m3", KVG_DUMP_U8, 3, q, p->q8);
        kvg_dump_array(d, "inputs/q_scale", "as k_scale", KVG_DUMP_F32, 1, scales, p->q_scale);
    }
    put_cache(d, p, "inputs/k_cache", "pages of K; slots that no sequence owns hold NaN", p->k_pages.data);
    put_cache(d, p, "inputs/v_cache", "pages of V; slots that no sequence owns hold NaN", p->v_pages.data);
    kvg_dump_array(d, "inputs/block_table", "page of each run of block_size keys of a sequence", KVG_DUMP_I32,
                   2, table, p->block_table);
    kvg_dump_array(d, "inputs/cu_q_lens", "first query row of each sequence, then the number of rows",
                   KVG_DUMP_I32, 1, starts, p->cu_q_lens);
    if (p->sinks)
        kvg_dump_array(d, "inputs/sinks", "sink of each query head, neither scaled nor capped", KVG_DUMP_F32,
                       1, heads, p->sinks);
}

/* ---------------------------------------------------------------- attention */

static void put_reference(struct kvg_dump *d, const struct kvg_expectation *e)
{
    const int64_t elements[2] = {e->sample.count, e->p->problem.head_dim}, rows[1] = {e->sample.count};
    const int64_t places[2] = {e->sample.count, 3};
    kvg_dump_array(d, "reference/rows", "sequence, query, head of each row that was checked", KVG_DUMP_I32, 2,
                   places, e->sample.rows);
    kvg_dump_array(d, "reference/exact", "FP32 attention on the dequantised tensors", KVG_DUMP_F32, 2,
                   elements, e->exact);
    kvg_dump_array(d, "reference/emulated", "the same with the roundings that the kernel declares",
                   KVG_DUMP_F32, 2, elements, e->emulated);
    kvg_dump_array(d, "reference/bound", "largest allowed error against exact", KVG_DUMP_F64, 2, elements,
                   e->worst);
    kvg_dump_array(d, "reference/probable", "largest allowed error against emulated", KVG_DUMP_F64, 2,
                   elements, e->probable);
    kvg_dump_array(d, "reference/lse_exact", "natural logarithm of the row sum", KVG_DUMP_F32, 1, rows,
                   e->lse_exact);
    kvg_dump_array(d, "reference/lse_emulated", "the same, emulated", KVG_DUMP_F32, 1, rows, e->lse_emulated);
    kvg_dump_array(d, "reference/lse_bound", "largest allowed error against lse_exact", KVG_DUMP_F64, 1, rows,
                   e->lse_worst);
    kvg_dump_array(d, "reference/lse_probable", "largest allowed error against lse_emulated", KVG_DUMP_F64, 1,
                   rows, e->lse_probable);
}

int kvg_dump_attention(const char *path, const struct kvg_failure *f, const char *reason,
                       struct kvg_error *error)
{
    const struct kvg_prepared *p = f->expectation->p;
    const int64_t out[3] = {p->total_q, p->problem.q_heads, p->problem.head_dim};
    struct kvg_dump *d = kvg_dump_create(path, error);
    int out_of_memory = 0;
    if (!d)
        return -1;
    put_header(d, p, f->kernel->name, f->run, reason);
    put_inputs(d, p, &out_of_memory);
    put_decoded(d, "output/out", "what the kernel wrote, bf16", KVG_REF_BF16, f->out, out, &out_of_memory);
    kvg_dump_array(d, "output/lse", "what the kernel wrote", KVG_DUMP_F32, 2, out, f->lse);
    put_reference(d, f->expectation);
    if (out_of_memory)
        kvg_dump_text(d, "incomplete", "out of memory while the file was written: some arrays are missing");
    return kvg_dump_close(d, error);
}

/* ---------------------------------------------------------------- store */

int kvg_dump_store(const char *path, const struct kvg_prepared *p, const char *kernel, const void *k_cache,
                   const void *v_cache, enum kvg_run_kind run, const char *reason, struct kvg_error *error)
{
    struct kvg_dump *d = kvg_dump_create(path, error);
    int out_of_memory = 0;
    if (!d)
        return -1;
    put_header(d, p, kernel, run, reason);
    put_inputs(d, p, &out_of_memory);
    put_cache(d, p, "output/k_cache", "what the kernel left in a cache of NaN", k_cache);
    put_cache(d, p, "output/v_cache", "what the kernel left in a cache of NaN", v_cache);
    put_cache(d, p, "reference/k_cache", "what the kernel should have left", p->k_pages.data);
    put_cache(d, p, "reference/v_cache", "what the kernel should have left", p->v_pages.data);
    if (out_of_memory)
        kvg_dump_text(d, "incomplete", "out of memory while the file was written: some arrays are missing");
    return kvg_dump_close(d, error);
}
