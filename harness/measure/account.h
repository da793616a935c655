/* SPDX-License-Identifier: Apache-2.0
 *
 * account.h: the memory that a case takes in one layer, by formula. The columns are:
 *
 *   kv_cache_bytes     K and V of the tokens held: 2 * held * kv_heads * head_dim * bytes per element.
 *   waste_bytes        the other slots of the pages in use: those after the last key of a sequence, and those
 *                      before its first key held. Free pages do not count, because another sequence can use
 *                      them.
 *                      A shared page counts once, here and in kv_cache_bytes, with the most keys that one
 *                      sequence holds of it.
 *   scale_bytes        float32 scales of K and V and, on path fp8, of Q: one of each (per_tensor) or one per
 *                      KV head (per_head). 0 for a bf16 cache.
 *   block_table_bytes  int32 [batch, pages of the longest sequence].
 *   workspace_bytes    the workspace that the kernel asked for. It does not grow with the number of tokens,
 *                      so the ratios below leave it out.
 *   bytes_per_token    (kv_cache_bytes + waste_bytes + scale_bytes + block_table_bytes) / tokens of all sequences, so
 *                      that sharing shows.
 *   tokens_per_gib     2^30 / bytes_per_token.
 *   bytes_vs_bf16      bytes_per_token, over bytes_per_token of the same lengths, pages and heads in bf16.
 *
 * Held are the keys that a query at the last position n - 1 of a sequence of n keys sees, or later queries can
 * see: [first, n), after the call, where
 *
 *   first = 0                          without a window and without a chunked mask, and in phase store
 *   first = max(0, n - window)         with a window
 *   first = (n - 1) rounded down to a  with a chunked mask: the start of the current chunk; with a window too
 *           multiple of the chunk      the larger of both
 *
 * Pages are given back whole: the pages [first / block_size, ceil(n / block_size)) are in use. The block table
 * keeps its length. The ratios divide by all n tokens, held or not: the length of text that the memory serves.
 *
 * kv_cache_bytes + waste_bytes is the number of pages in use times vLLM's AttentionSpec.page_size_bytes,
 * block_size * kv_heads * (head_dim_k + head_dim_v) * bytes per element.
 */
#ifndef KVG_HARNESS_ACCOUNT_H
#define KVG_HARNESS_ACCOUNT_H

#include "harness/prepare/prepared.h"

/* Fills the columns above. The ratios are NaN for a batch without tokens. */
void kvg_account_fill_row(const struct kvg_prepared *p, int64_t workspace_bytes, struct kvg_row *row);

#endif
