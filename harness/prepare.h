/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.h: from a case to the tensors a kernel is given.
 *
 * All buffers are host memory, owned by the prepared case. The source tensors are bf16 (the model's dtype);
 * the cache is filled by the reference's quantiser, so that attention kernels are judged apart from store
 * kernels. Every slot that no sequence owns (page tails, free pages) holds NaN. Around every buffer lie
 * guard regions (harness/guard.h).
 */
#ifndef KVG_HARNESS_PREPARE_H
#define KVG_HARNESS_PREPARE_H

#include <stdint.h>
#include "case.h"
#include "../reference/attention.h"

struct kvg_prepared {
    struct kvg_case c;
    struct kvg_problem problem;
    float softmax_scale; /* 1 / sqrt(head_dim) */
    /* lengths */
    int32_t *seq_lens;  /* [batch] */
    int32_t *cu_q_lens; /* [batch + 1] */
    int64_t *cu_kv_lens; /* [batch + 1], first row of each sequence in k and v below */
    int64_t total_q, total_kv;
    /* unquantised, bf16, contiguous */
    uint16_t *q; /* [total_q, q_heads, head_dim] */
    uint16_t *k; /* [total_kv, kv_heads, head_dim] */
    uint16_t *v; /* [total_kv, kv_heads, head_dim] */
    /* quantised */
    uint8_t *q8;                      /* as q, e4m3; NULL unless path fp8 */
    float *q_scale, *k_scale, *v_scale; /* [kv_heads] (per_head) or [1]; all 1.0 where nothing is scaled */
    int64_t scale_stride;             /* 0 per_tensor, 1 per_head */
    /* paged cache: shuffled pages, some of them free */
    void *k_cache, *v_cache;
    struct kvg_pages k_pages, v_pages; /* data = k_cache, v_cache; strides of the layout */
    int64_t num_blocks;                /* allocated, free ones included */
    int64_t cache_elements;            /* per cache */
    int32_t *block_table;              /* [batch, block_table_stride] */
    int64_t block_table_stride;
    int64_t *slot_mapping; /* [store_tokens]: total_kv slots, with some -1 padding tokens at the end */
    int64_t store_tokens;
    /* how the scales treated the source */
    double k_saturated, v_saturated, k_flushed, v_flushed;
    struct kvg_guard_list *guards;
};

/* 0, or -1 with the error; a scale that is zero, negative, NaN or infinite is an error that names tensor and
 * head (exit code 4, status invalid). */
int kvg_prepare(const struct kvg_case *c, struct kvg_prepared *out, struct kvg_error *error);
void kvg_prepared_free(struct kvg_prepared *p);

/* Views for the reference: the dequantised cache, and the unquantised tensors. `threads` as the case's. */
void kvg_prepared_dequantised(const struct kvg_prepared *p, struct kvg_ref_attention *a);
void kvg_prepared_unquantised(const struct kvg_prepared *p, struct kvg_ref_attention *a);
/* Format of reference/ for a dtype of the ABI. */
enum kvg_ref_format kvg_ref_format_of(enum kvg_dtype dtype);

/* Did a kernel write outside its buffers, or change its inputs? 0 = no; -1 with the buffer's name. The inputs
 * are hashed at the end of kvg_prepare. */
int kvg_prepared_check(const struct kvg_prepared *p, struct kvg_error *error);
/* Changes Q, or K and V with the cache, in place (fresh seed, same shape): a kernel that remembers its answer
 * is found out. */
int kvg_prepared_renew(struct kvg_prepared *p, uint64_t seed, struct kvg_error *error);

#endif
