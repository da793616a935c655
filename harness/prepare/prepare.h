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
#include "harness/case/case.h"
#include "harness/memory/guard.h"
#include "reference/attention.h"

struct kvg_input_cache;

/* What is no axis of a case: what decides about its scales, and where inputs are kept from one to the next.
 */
struct kvg_prepare_options {
    float q_constant, k_constant, v_constant; /* random_tokens: scale = absmax / constant */
    struct kvg_input_cache *cache;            /* inputs/input_cache.h, borrowed; NULL: nothing is kept */
};
void kvg_prepare_options_default(struct kvg_prepare_options *options); /* 200, 200, 100, NULL */

/* Sequences in a part (kvg_prepare_part), at most. */
enum { KVG_PART_MOST = 4 };

struct kvg_prepared {
    struct kvg_case c;      /* of a part: batch is the part's */
    struct kvg_case values; /* c, but for the seed or layer that kvg_prepared_renew last took values from */
    struct kvg_prepare_options options;
    struct kvg_problem problem;
    float softmax_scale; /* 1 / sqrt(head_dim) */
    /* lengths */
    int32_t *seq_lens;   /* [batch] */
    int32_t *cu_q_lens;  /* [batch + 1] */
    int64_t *cu_kv_lens; /* [batch + 1], first row of each sequence in k and v below */
    int32_t *row_table;  /* [batch, problem.max_seq_len]: row of each token in k and v; NULL when uniform */
    int64_t total_q, total_kv;
    /* unquantised, bf16, contiguous */
    uint16_t *q; /* [total_q, q_heads, head_dim]; phase store: no rows */
    uint16_t *k; /* [store_tokens, kv_heads, head_dim]: total_kv rows, then NaN in the padding tokens' rows */
    uint16_t *v; /* as k; both NULL in a frame */
    /* quantised */
    uint8_t *q8;                        /* as q, e4m3; NULL unless path fp8 */
    float *q_scale, *k_scale, *v_scale; /* [kv_heads] (per_head) or [1]; all 1.0 where nothing is scaled */
    int64_t scale_stride;               /* 0 per_tensor, 1 per_head */
    /* paged cache: shuffled pages, some of them free */
    void *k_cache, *v_cache;           /* both NULL in a frame */
    struct kvg_pages k_pages, v_pages; /* data = k_cache, v_cache; strides of the layout */
    int64_t num_blocks;                /* allocated, free ones included */
    int64_t cache_elements;            /* per cache */
    int32_t *block_table;              /* [batch, block_table_stride]; entries past a sequence's pages name a
                                          free page, so that what is read through them is NaN */
    int64_t block_table_stride;        /* one more than the longest sequence needs */
    int64_t *slot_mapping; /* [store_tokens]: total_kv slots, with some -1 padding tokens at the end */
    int64_t store_tokens;
    /* how the scales treated the source: shares (0 to 1) of all values whose magnitude over the scale is
     * beyond the largest code, and of the non-zero values that became zero; 0 for a bf16 cache, NaN in a
     * frame. Of the case as it was prepared: a renewal does not count again. */
    double k_saturated, v_saturated, k_flushed, v_flushed;
    int frame; /* 1: made by kvg_prepare_frame */
    /* a part alone; else zeros */
    int64_t part_of;                 /* batch of the whole case */
    int64_t sequence[KVG_PART_MOST]; /* number of each of its sequences in the whole case */
    struct kvg_problem whole; /* the problem of the whole case: what the kernel is given and plans with */
    struct kvg_guard_list *guards; /* owns every buffer above; more may be added (unsealed) */
};

/* `c` is complete (kvg_case_complete); options may be NULL. 0, or -1 with the error and nothing to free. A
 * scale that is zero, negative, NaN or infinite is an error that names tensor and head (exit code 4, status
 * invalid). A case that this machine's memory cannot hold is refused before anything is allocated, and a size
 * beyond what the ABI's 32-bit fields hold likewise (exit code 3, with the sizes).
 *
 * lengths=ragged: sequence 0 is the longest; the others shrink towards the last and sit one below, at and one
 * above a multiple of the page or of 128 (a tile); with a batch of 4 or more, sequence 2 is empty. A sequence
 * has min(q_len, its keys) queries, but at least one in decode and append: an empty one then has a query that
 * sees nothing. */
int kvg_prepare(const struct kvg_case *c, const struct kvg_prepare_options *options, struct kvg_prepared *out,
                struct kvg_error *error);
void kvg_prepared_free(struct kvg_prepared *p); /* twice is fine */

/* For a synthetic case whose K and V are made where the kernel runs, because they are too large for the host:
 *   frame  lengths, tables, slots, scales, Q: everything but K, V and their caches;
 *   part   a few sequences of the frame's case as a case of their own, complete, in pages of their own. Each
 * has the length and the values, bit by bit, that it has in the whole case (and the whole case's scales):
 *          those of the frame's present seed, where it was renewed. `sequences` [count <= KVG_PART_MOST] are
 *          their numbers, all different.
 * Errors as for kvg_prepare. A part cannot be renewed: make another one. */
int kvg_prepare_frame(const struct kvg_case *c, const struct kvg_prepare_options *options,
                      struct kvg_prepared *out, struct kvg_error *error);
int kvg_prepare_part(const struct kvg_prepared *frame, const int64_t *sequences, int64_t count,
                     struct kvg_prepared *out, struct kvg_error *error);
/* Number in the whole case of sequence i: i itself unless p is a part. */
int64_t kvg_prepared_sequence(const struct kvg_prepared *p, int64_t i);
/* Bytes of K, V (bf16) and their caches that a sequence of a case takes on the host. */
int64_t kvg_sequence_bytes(const struct kvg_case *c, int64_t length);

/* Views for the reference: the dequantised cache, and the unquantised tensors. `threads` as the case's. */
void kvg_prepared_dequantised(const struct kvg_prepared *p, struct kvg_ref_attention *a);
void kvg_prepared_unquantised(const struct kvg_prepared *p, struct kvg_ref_attention *a);
/* Format of reference/ for a dtype of the ABI. */
enum kvg_ref_format kvg_ref_format_of(enum kvg_dtype dtype);
/* Fills a cache of `elements` elements with NaN of its dtype, as unowned slots hold it: what phase store
 * starts from. */
/* A byte that makes NaN of a dtype when repeated: 0x7f in e4m3 and e5m2, 0x80 in e4m3fnuz, else 0xff. */
int kvg_poison_byte(enum kvg_dtype dtype);
void kvg_poison_cache(enum kvg_dtype dtype, void *cache, int64_t elements);
/* Bytes of an element of a dtype of the ABI. */
int64_t kvg_dtype_bytes(enum kvg_dtype dtype);

/* Did a kernel write outside its buffers, or change its inputs? 0 = no; -1 with the buffer's name. The inputs
 * are hashed at the end of kvg_prepare. */
int kvg_prepared_check(const struct kvg_prepared *p, struct kvg_error *error);
/* The same, but for the content of what the case's kernel is not told of: the unquantised K and V, unless it
 * is a store's. */
int kvg_prepared_check_shown(const struct kvg_prepared *p, struct kvg_error *error);
/* Not for a part. Gives Q, K, V, scales and caches other values in place, deals the pages anew and, in a
 * ragged batch, moves the lengths on by one sequence (same problem, same buffers): a kernel that remembers
 * its answer, its scales or where the pages lie is found out. Synthetic: the values of `seed`, which should
 * differ from the present one; the case's own brings everything back. Captured: another layer, or the signs
 * flipped where the file has one layer. p->c stays as it is. After a failure p can only be freed. */
int kvg_prepared_renew(struct kvg_prepared *p, uint64_t seed, struct kvg_error *error);
/* The nth scale under which a quotient is a tie between two codes but its product with the reciprocal is not:
 * x / (x / m) for m half way between codes. Few scales have such a quotient among the bf16 values. */
float kvg_scale_with_ties(enum kvg_ref_format format, int64_t nth);
/* Gives K and V every bf16 value in turn, NaN, infinities and both zeros among them, and scales under which
 * some of their quotients are ties between two codes that a product with the reciprocal misses; in place and
 * with the caches to match: for phase store. Q and pages stay. kvg_prepared_renew ends it. */
void kvg_prepared_special(struct kvg_prepared *p);

#endif
