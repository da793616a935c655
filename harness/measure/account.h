/* SPDX-License-Identifier: Apache-2.0
 *
 * account.h: what a case occupies in memory, by formula, for one layer.
 *
 *   kv_cache_bytes     K and V of the tokens held: 2 * tokens * kv_heads * head_dim * bytes per element.
 *   waste_bytes        page tails: slots of the last page of each sequence that no token fills. Free pages
 * are no waste: another sequence can have them. scale_bytes        float32 k and v scales, and on path fp8
 * the q scale: one each (per_tensor) or one per KV head (per_head). A bf16 cache has none. block_table_bytes
 * int32 [batch, pages of the longest sequence]. workspace_bytes    what the kernel asked for; in no sum
 * below, since it does not grow with the tokens held. bytes_per_token    (kv_cache + waste + scale +
 * block_table) / tokens. tokens_per_gib     2^30 / bytes_per_token. bytes_vs_bf16      bytes_per_token over
 * that of the same lengths, pages and heads held in bf16.
 *
 * K, V and page tails together are vLLM's AttentionSpec.page_size_bytes,
 * block_size * kv_heads * (head_dim_k + head_dim_v) * bytes per element, times the pages in use.
 */
#ifndef KVG_HARNESS_ACCOUNT_H
#define KVG_HARNESS_ACCOUNT_H

#include "harness/prepare/prepared.h"

/* Fills the memory columns named above. A batch without tokens leaves the ratios NaN. */
void kvg_account_fill_row(const struct kvg_prepared *p, int64_t workspace_bytes, struct kvg_row *row);

#endif
