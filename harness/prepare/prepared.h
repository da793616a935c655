/* SPDX-License-Identifier: Apache-2.0
 *
 * prepared.h: a prepared case, which is the tensors, scales and pages that a kernel is given.
 *
 * All buffers are host memory and belong to the prepared case. The source tensors are bf16, the model's
 * dtype. The reference's quantiser fills the cache, so a wrong store kernel cannot affect attention kernels.
 * Every slot that no sequence owns (page tails, free pages) holds NaN. Guard regions surround every buffer
 * (harness/memory/guard.h). prepare.h makes, renews and frees prepared cases.
 *
 * Tensors and caches here are dense, for the reference. What the kernel is given may lie otherwise: views.h.
 */
#ifndef KVG_HARNESS_PREPARED_H
#define KVG_HARNESS_PREPARED_H

#include <stdint.h>

#include "harness/case/case.h"
#include "kernels/kernel.h"
#include "dtypes.h"
#include "options.h"
#include "reference/attention.h"
#include "results/error.h"
#include "views.h"

struct kvg_prepared_own; /* own.h */

/* The buffers of tensors and caches as the kernel is given them. If views are dense, they are the dense
 * tensors of the prepared case. Else they are copies in the places of kvg_prepared.views, and NULL where the
 * phase does not need them. K and V may be the same buffer. */
struct kvg_shown {
    void *q, *q8;            /* attention */
    void *k, *v;             /* store */
    void *k_cache, *v_cache; /* attention */
};

struct kvg_prepared {
    struct kvg_case c; /* in a part, c.batch is the number of its sequences */
    struct kvg_problem problem;
    float softmax_scale;

    /* Lengths. */
    int32_t *seq_lens;   /* [batch] */
    int32_t *cu_q_lens;  /* [batch + 1] */
    int64_t *cu_kv_lens; /* [batch + 1]: first row of each sequence in k and v below */
    int64_t total_q, total_kv;
    int32_t *prefix_lens; /* [batch] if the mask is prefix, else NULL */
    float *sinks;         /* [q_heads], or NULL without sinks */

    /* Unquantised tensors, bf16, contiguous. */
    uint16_t *q; /* [total_q, q_heads, head_dim]; no rows in phase store */
    uint16_t *k; /* [store_tokens, kv_heads, head_dim]: total_kv rows, then padding tokens, which are NaN */
    uint16_t *v; /* as k; k and v are NULL in a frame */

    /* Quantised tensors and scales. */
    uint8_t *q8;                        /* as q, e4m3; NULL unless path fp8 */
    float *q_scale, *k_scale, *v_scale; /* [kv_heads] (per_head) or [1]; all 1.0 where nothing is scaled */
    int64_t scale_stride;               /* 0 per_tensor, 1 per_head */

    /* The paged cache. Its pages are shuffled, and some are free. */
    void *k_cache, *v_cache;           /* both NULL in a frame */
    struct kvg_pages k_pages, v_pages; /* data = k_cache, v_cache; strides of the layout */
    int64_t num_blocks;                /* allocated pages, free ones included */
    int64_t cache_elements;            /* of each cache */
    int32_t *block_table; /* [batch, block_table_stride]. Entries after the last page of a sequence name
                                   a free page, so reads through them give NaN */
    int64_t
        block_table_stride; /* more than the longest sequence needs: by 1, or by 6 if views are not dense */
    int64_t *slot_mapping;  /* [store_tokens]: total_kv slots, then some padding tokens (-1). If lengths are
                                   gaps, a store has its slots in random order, and some are negative. A token of a shared
                               page that an earlier sequence has as well has none (-1) */
    int64_t store_tokens;

    struct kvg_views views; /* where the kernel finds the elements of each tensor in its buffer */
    struct kvg_shown shown;

    /* Losses, as shares from 0 to 1. Saturated: values whose magnitude over the scale is above the largest
     * code, of all values. Flushed: values that became zero, of those that were not zero. 0 for a bf16 cache,
     * NaN in a frame. Counted when the case is prepared, and not again when it is renewed. */
    double k_saturated, v_saturated, k_flushed, v_flushed;

    int frame; /* 1: made by kvg_prepared_make_frame */

    /* Of a part; zeros in any other case. */
    int64_t part_of;          /* batch of the whole case */
    struct kvg_problem whole; /* problem of the whole case, which the kernel is given */

    struct kvg_prepared_own *own; /* private to harness/prepare */
};

void kvg_prepared_free(struct kvg_prepared *p); /* p may be all zeros, or freed already */

/* The case that the present values come from: c, but with the seed or layer of the last renewal. */
const struct kvg_case *kvg_prepared_values(const struct kvg_prepared *p);
/* Number of sequence i in the whole case: i unless p is a part. */
int64_t kvg_prepared_sequence(const struct kvg_prepared *p, int64_t i);

/* Number of pages of sequence i that are shared. */
int64_t kvg_prepared_shared_pages(const struct kvg_prepared *p, int64_t i);

/* The sizes that the views of this case depend on. */
struct kvg_views_sizes kvg_prepared_sizes(const struct kvg_prepared *p);

/* The K cache (is_v 0) or V cache in `buffer`, which has the places of p->views. */
struct kvg_pages kvg_prepared_pages(const struct kvg_prepared *p, int is_v, void *buffer);
/* The address of the first element of a tensor of rows in `buffer`. */
void *kvg_rows_begin(const struct kvg_rows_view *view, int64_t element_bytes, const void *buffer);

/* The lse of a row of this query head that sees no key: its sink, or -infinity. */
double kvg_prepared_empty_lse(const struct kvg_prepared *p, int64_t q_head);

/* The mask, for the reference. */
struct kvg_ref_mask kvg_prepared_mask(const struct kvg_prepared *p);

/* Views for the reference: attention on the dequantised cache, and on the unquantised tensors. `threads` is
 * the case's. */
void kvg_prepared_dequantised(const struct kvg_prepared *p, struct kvg_ref_attention *a);
void kvg_prepared_unquantised(const struct kvg_prepared *p, struct kvg_ref_attention *a);
/* The view of one cache. */
struct kvg_ref_kv kvg_prepared_cache(const struct kvg_prepared *p, const struct kvg_pages *pages,
                                     const float *scale);

/* Attention: fills the gaps of p->shown with zeros (zero 1), or with NaN again (zero 0), and everything else
 * with what it should hold. Does nothing if views are dense. The buffers must have their first contents again
 * before the next check. */
void kvg_shown_fill_gaps(struct kvg_prepared *p, int zero);

/* Checks that no kernel wrote outside its buffers or changed its inputs, which were hashed at the end of
 * kvg_prepared_make. 0, or -1 with the name of the buffer. */
int kvg_prepared_check(const struct kvg_prepared *p, struct kvg_error *error);
/* The same, but the contents of buffers that the kernel is not given are not checked. These are the
 * unquantised K and V, except in a store. */
int kvg_prepared_check_shown(const struct kvg_prepared *p, struct kvg_error *error);

/* Host bytes of K, V (bf16) and their caches for one sequence of a case. */
int64_t kvg_sequence_bytes(const struct kvg_case *c, int64_t length);

#endif
