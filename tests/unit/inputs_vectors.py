#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes inputs_vectors.h: checksums of synthetic tensors, from an independent implementation.

Usage: python3 inputs_vectors.py > inputs_vectors.h

Nothing here is shared with the C code: Philox in Python integers, the quantile table from statistics.NormalDist,
floats rounded to single precision by struct, 2^x by math. A machine, compiler or GPU with a different checksum would
measure different tensors.
"""
import math
import struct
from statistics import NormalDist

SEED, SEQUENCE, TOKENS, Q_HEADS, KV_HEADS, DIM = 0x123456789ABCDEF0, 3, 40, 4, 2, 96
Q, K, V = 0, 1, 2
EVALUATION = 2
NAMES = ["normal", "outlier", "channel_outlier", "sink", "v_nonneg", "v_shift", "v_small", "k_wide", "q_wide", "far_logits",
         "faint", "needle:0.25"]
normal = NormalDist()


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def philox(counter, seed):
    c, k = list(counter), [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


def bits(stream, sequence, token, head, dim):
    words = philox([token, (head << 16) + dim // 64 * 16 + dim % 16, sequence, stream], SEED)
    return words[dim // 16 % 4]


def quantile(p):
    return 0.0 if p == 0.5 else -normal.inv_cdf(p)


def deviate(word):
    m = word & 0x7FFFFFFF | 1
    if m >= 1 << 24:
        m &= ~0x7F
    octave = m.bit_length() - 1
    position = (m - (1 << octave)) / (1 << octave) * 64
    step, t = int(position), position - int(position)
    left = quantile((64 + step) * 2.0**octave / 64 / 2**32)
    right = quantile((65 + step) * 2.0**octave / 64 / 2**32)
    base = single(left)
    slope = single(right - base)
    x = single(base + single(slope * single(t)))
    return -x if word >> 31 else x


def uniform(tensor, head, half):
    return (bits(0x3000 + tensor, 0, 0, head, 0) / 2**31 - 1) * half


def factor(name, tensor, head):
    if tensor != Q:
        return single(2 ** uniform(tensor, head, 2.0))
    own = 0 if name.startswith(("sink", "needle", "far_logits", "faint")) else uniform(Q, head, 0.5)
    return single(2 ** (own - uniform(K, head // (Q_HEADS // KV_HEADS), 2.0)))


def wide(kv_head, dim):
    return dim % 32 == bits(0x4000, 0, dim // 32, kv_head, 0) % 32


def sign(which, kv_head, dim):
    return 1.0 if bits(0x5000, 0, which, kv_head, dim) & 1 else -1.0


def log(n):
    whole = n.bit_length() - 1
    return single((whole + n / 2**whole - 1) * math.log(2))


def channel(name, tensor, kv_head, token, dim):
    """Factor of the deviate, and offset."""
    a, b = 1.0, 0.0
    special = {"sink": 0, "needle:0.25": int(0.25 * (TOKENS - 1) + 0.5),
               "faint": int(0.5 * (TOKENS - 1) + 0.5)}.get(name) == token
    if name == "channel_outlier" and wide(kv_head, dim):
        a = {Q: 0.25, K: 20.0, V: 1.0}[tensor]
    if name == "k_wide" and wide(kv_head, dim):
        a = {Q: 2.0**-9, K: 2048.0, V: 1.0}[tensor]
    if name == "q_wide" and wide(kv_head, dim):
        a = {Q: 2048.0, K: 2.0**-9, V: 1.0}[tensor]
    if name == "far_logits" and tensor == Q:
        a, b = 0.25, 112.0 * sign(0, kv_head, dim)
    if name == "far_logits" and tensor == K:
        size = single(single(single(5.6e4) / 112.0) / single(math.sqrt(DIM)))
        a, b = single(0.02), (1.0 if kv_head % 2 else -1.0) * single(size * (0.5 + 0.140625 * (dim % 8) + 0.0078125)) * sign(0, kv_head, dim)
    if name in ("sink", "needle:0.25", "faint"):
        if tensor == Q:
            a, b = (0.5 if name == "sink" else 0.25), sign(0, kv_head, dim)
        elif special and tensor == K:
            logit = single(log(TOKENS) + 2.0) if name == "sink" else 10.75 if name == "faint" else 24.0
            a, b = 0.0, single(single(logit / single(math.sqrt(DIM))) * sign(0, kv_head, dim))
        elif special:
            a, b = (0.125, 0.0) if name == "sink" else (0.0, 2.0 * sign(1, kv_head, dim))
            if name == "faint":
                b = 0.0
    if tensor == V and name == "v_small":
        a = 2.0**-9
    if tensor == V and name == "faint" and not special:
        a = 0.25
    if tensor == V and (name in ("v_shift", "far_logits") or (name == "faint" and not special)):
        b = 1.0
    return a, b


def value(name, tensor, token, head, dim):
    stream = tensor * 16 + EVALUATION
    z = deviate(bits(stream, SEQUENCE, token, head, dim))
    if name == "outlier" and bits(stream + 0x1000, SEQUENCE, token, head, dim) < 4294967:
        z = single(z + single(10 * deviate(bits(stream + 0x2000, SEQUENCE, token, head, dim))))
    if name == "v_nonneg" and tensor == V:
        z = abs(z)
    a, b = channel(name, tensor, head // (Q_HEADS // KV_HEADS) if tensor == Q else head, token, dim)
    f = factor(name, tensor, head)
    return single(single(z * single(a * f)) + single(b * f))


def bf16(x):
    (word,) = struct.unpack("I", struct.pack("f", x))
    return word + 0x7FFF + (word >> 16 & 1) >> 16


def checksum(name, tensor):
    total = 14695981039346656037
    for token in range(TOKENS):
        for head in range(Q_HEADS if tensor == Q else KV_HEADS):
            for dim in range(DIM):
                total = (total ^ bf16(value(name, tensor, token, head, dim))) * 1099511628211 % 2**64
    return total


def main():
    print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs_vectors.h: checksums of synthetic tensors, written by inputs_vectors.py. Do not edit.
 */
/* clang-format off */""")
    print(f"#define VECTOR_SEED UINT64_C({SEED:#x})")
    for name, number in (("SEQUENCE", SEQUENCE), ("TOKENS", TOKENS), ("Q_HEADS", Q_HEADS), ("KV_HEADS", KV_HEADS),
                         ("DIM", DIM)):
        print(f"#define VECTOR_{name} {number}")
    print("/* FNV-1a over the bf16 values, a value a step; [input][Q, K, V] */")
    print("static const struct {\n    const char *input;\n    uint64_t checksum[3];\n} vectors[] = {")
    for name in NAMES:
        print(f'    {{"{name}", {{' + ", ".join(f"UINT64_C({checksum(name, t):#018x})" for t in (Q, K, V)) + "}},")
    print("};\n/* clang-format on */")


if __name__ == "__main__":
    main()
