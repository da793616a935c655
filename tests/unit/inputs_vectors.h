/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs_vectors.h: checksums of synthetic tensors, written by inputs_vectors.py. Do not edit.
 */
/* clang-format off */
#define VECTOR_SEED UINT64_C(0x123456789abcdef0)
#define VECTOR_SEQUENCE 3
#define VECTOR_TOKENS 40
#define VECTOR_Q_HEADS 4
#define VECTOR_KV_HEADS 2
#define VECTOR_DIM 96
/* FNV-1a over the bf16 values, a value a step; [input][Q, K, V] */
static const struct {
    const char *input;
    uint64_t checksum[3];
} vectors[] = {
    {"normal", {UINT64_C(0xc22b30a2eb40077e), UINT64_C(0xfa1c5ff70a04573f), UINT64_C(0x3a36273ec48f208f)}},
    {"outlier", {UINT64_C(0x2a61e8dcd6ef6cb9), UINT64_C(0x486137a40e6e3bf9), UINT64_C(0x7341f8fdcebc217e)}},
    {"channel_outlier", {UINT64_C(0xcfa2051818b36f7e), UINT64_C(0xda957504dbcb6101), UINT64_C(0x3a36273ec48f208f)}},
    {"sink", {UINT64_C(0xb6e7cb9853620e20), UINT64_C(0xcc609046df510c31), UINT64_C(0x284d5d37412ef78f)}},
    {"v_nonneg", {UINT64_C(0xc22b30a2eb40077e), UINT64_C(0xfa1c5ff70a04573f), UINT64_C(0x0b95e912804a208f)}},
    {"v_shift", {UINT64_C(0xc22b30a2eb40077e), UINT64_C(0xfa1c5ff70a04573f), UINT64_C(0x4da70f182e8618f8)}},
    {"v_small", {UINT64_C(0xc22b30a2eb40077e), UINT64_C(0xfa1c5ff70a04573f), UINT64_C(0x9ed4a40228f64b8f)}},
    {"k_wide", {UINT64_C(0x78664ea1cb63847e), UINT64_C(0xde83399ba0fdb63f), UINT64_C(0x3a36273ec48f208f)}},
    {"q_wide", {UINT64_C(0xfb302aace9b8bc7e), UINT64_C(0xe066a3e2cdebea3f), UINT64_C(0x3a36273ec48f208f)}},
    {"far_logits", {UINT64_C(0xa8aaecf8ba2c3774), UINT64_C(0xb4d371625be7be54), UINT64_C(0x4da70f182e8618f8)}},
    {"faint", {UINT64_C(0x44afe21d139c01d5), UINT64_C(0x41b27be538ba01b0), UINT64_C(0x0cd4366d02672a45)}},
    {"needle:0.25", {UINT64_C(0x44afe21d139c01d5), UINT64_C(0xaeb6acaae1d9b9cf), UINT64_C(0x0b0fbec5ce4984a9)}},
};
/* clang-format on */
