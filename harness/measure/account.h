/* SPDX-License-Identifier: Apache-2.0
 *
 * account.h: the memory that a case takes in one layer, by formula. The columns are:
 *
 *   kv_cache_bytes     K and V of the stored tokens: 2 * tokens * kv_heads * head_dim * bytes per element.
 *   waste_bytes        page tails: empty slots in the last page of each sequence. Free pages do not count,
 *                      because another sequence can use them.
 *                      Shared pages count once, here and in kv_cache_bytes.
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
 * kv_cache_bytes + waste_bytes is the number of pages in use times vLLM's AttentionSpec.page_size_bytes,
 * block_size * kv_heads * (head_dim_k + head_dim_v) * bytes per element.
 */
#ifndef KVG_HARNESS_ACCOUNT_H
#define KVG_HARNESS_ACCOUNT_H

#include "harness/prepare/prepared.h"

/* Fills the columns above. The ratios are NaN for a batch without tokens. */
void kvg_account_fill_row(const struct kvg_prepared *p, int64_t workspace_bytes, struct kvg_row *row);

#endif
