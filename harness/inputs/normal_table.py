#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes normal_table.c: the quantile function of the standard normal distribution as line segments.

Usage: python3 normal_table.py > normal_table.c

The table is committed, so no bit of a generated value depends on the libm of a machine. Only Python's standard library
is needed: NormalDist.inv_cdf is Wichura's AS 241, accurate to about 1e-16.

Segment i covers upper tail probabilities p = m / 2^32 for m in [2^e (1 + s/64), 2^e (1 + (s + 1)/64)) with
e = i / 64 and s = i % 64. Over a segment the quantile falls from `base` by `slope` (negative), linearly.
"""
from statistics import NormalDist
import struct

OCTAVES, STEPS = 31, 64
normal = NormalDist()


def single(x):
    """x rounded to float32."""
    return struct.unpack("f", struct.pack("f", x))[0]


def quantile(numerator, denominator):
    """x with P(N > x) = numerator / denominator."""
    return 0.0 if 2 * numerator == denominator else -normal.inv_cdf(numerator / denominator)


def literal(x):
    """x as an exact C float literal."""
    digits, exponent = x.hex().split("p")
    return f"{digits.rstrip('0').rstrip('.')}p{exponent}f" if x else "0.0f"


def main():
    print("""/* SPDX-License-Identifier: Apache-2.0
 *
 * normal_table.c: quantiles of the standard normal distribution, written by normal_table.py. Do not edit.
 */
#include "generate.h"

/* clang-format off */
const struct kvg_normal_segment kvg_normal_table[KVG_NORMAL_SEGMENTS] = {""")
    for e in range(OCTAVES):
        for s in range(STEPS):
            left = quantile((STEPS + s) << e, STEPS << 32)
            right = quantile((STEPS + s + 1) << e, STEPS << 32)
            base = single(left)
            print(f"    {{{literal(base)}, {literal(single(right - base))}}},")
    print("};\n/* clang-format on */")


if __name__ == "__main__":
    main()
