#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tensor_core_mmasim.inc: results of FP8 matrix units from the PyPI package mmasim.

    pip install mmasim==2.1.1 torch==2.15.0 numpy && python3 tensor_core_mmasim.py > tensor_core_mmasim.inc
    python3 tensor_core_mmasim.py CASES LIBRARY    # compares that many cases a set with a compiled tensor_core.c

The file holds the FP32 bits of every result, but no inputs: test_tensor_core.c draws the same inputs from the same
generator (splitmix64; see draw_case() here and there). There are ten kinds of case, in turn. Even cases have
k = 32, odd cases k = 64.

mmasim has no FP8 mma.sync for Hopper, because ptxas compiles it to HMMA. hopper_mma() does what the SASS does: two
steps of 16 products in f16 from zero, k = 0, 1 and then k = 2, 3 (mod 4), and an FP32 addition.
"""
import sys

import numpy as np
import torch
from mmasim.amd import MFMA
from mmasim.nv_ptx import MMA, WGMMA, TCGen05MMA

CASES = 600
MASK = (1 << 64) - 1
DTYPE = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e4m3fnuz": torch.float8_e4m3fnuz}
FRACTION = {"e4m3": 3, "e5m2": 2, "e4m3fnuz": 3}
PAIRS = [(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]


class Draw:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return (self.next() >> 32) % n


def special(fmt, code):
    if fmt == "e4m3fnuz":
        return code == 0x80
    return (code & 0x7f) >= (0x7f if fmt == "e4m3" else 0x7c)


def finite(draw, fmt):
    code = draw.below(256)
    return 0 if special(fmt, code) else code


def special_code(fmt, raw):
    """A NaN, or for e5m2 mostly an infinity, with the sign of `raw`."""
    if fmt == "e4m3fnuz":
        return 0x80
    if fmt == "e4m3":
        return 0x7f | (raw & 0x80)
    return (0x7d + raw // 8 % 3 if raw % 8 == 0 else 0x7c) | (raw & 0x80)


def c_bits(draw, low, high):
    """A float of exponent low .. high, any sign and fraction."""
    sign, field, fraction = draw.below(2), draw.below(high - low + 1) + low + 127, draw.below(1 << 23)
    return sign << 31 | field << 23 | fraction


def code_of(draw, kind, fmt, i):
    one = {"e4m3": 0x38, "e5m2": 0x3c, "e4m3fnuz": 0x40}[fmt]
    if kind == 2:  # about 1, positive
        return one - 8 + draw.below(16)
    if kind == 4:  # subnormal
        code = draw.below(1 << FRACTION[fmt]) | draw.below(2) << 7
        return 0 if special(fmt, code) else code
    if kind == 5:  # one large pair among small ones
        return one + 0x30 + draw.below(4) if i == 3 else draw.below(0x20)
    if kind == 6:  # three of four are zero
        code = finite(draw, fmt)
        return code if draw.below(4) == 0 else 0
    if kind == 7:  # zeros of both signs
        return draw.below(2) << 7 if fmt != "e4m3fnuz" else 0
    if kind == 8:  # a few NaNs and infinities
        raw = draw.below(256)
        code = finite(draw, fmt)
        return special_code(fmt, raw) if draw.below(64) == 0 else code
    return finite(draw, fmt)


def draw_case(set_number, case, a_fmt, b_fmt):
    draw = Draw(set_number << 40 | case)
    kind, k = case // 2 % 10, 64 if case & 1 else 32
    a = [code_of(draw, kind, a_fmt, i) for i in range(k)]
    b = [code_of(draw, kind, b_fmt, i) for i in range(k)]
    if kind == 3:  # the second half of every 32 cancels the first, but for one product
        for i in range(k):
            if i & 16 and i % 32 != 29 and a[i - 16] & 0x7f:
                a[i], b[i] = a[i - 16] ^ 0x80, b[i - 16]
    if kind == 0:
        c = 0
    elif kind == 2:
        c = c_bits(draw, 0, 16) & 0x7fffffff
    elif kind == 4:
        c = c_bits(draw, -30, -10)
    elif kind in (6, 7):
        c = draw.next() >> 32
    elif kind == 9:
        c = c_bits(draw, 124, 127)
    else:
        c = c_bits(draw, -20, 20)
    return a, b, c


def hopper_mma(a, b, c):
    hmma = MMA("Hopper", "m16n8k16.f32.f16.f16.f32")
    a, b = a.float().half(), b.float().half()
    for at in range(0, a.shape[-1], 32):
        d = torch.zeros_like(c)
        for half in range(2):
            k = [at + i for i in range(32) if (i & 2) == 2 * half]
            d = hmma.dpa(a[:, k].contiguous(), b[:, k].contiguous(), d)
        c = c + d
    bits = c.view(torch.int32)
    bits[c.isnan()] = 0x7fffffff
    return bits.view(torch.float32)


def unit(model, a, b):
    if model == "hopper_wgmma":
        return WGMMA("Hopper", f"m64n8k32.f32.{a}.{b}").dpa
    if model == "hopper_mma":
        return hopper_mma
    if model == "ada_mma":
        return MMA("Ada Lovelace", f"m16n8k32.f32.{a}.{b}.f32").dpa
    if model == "blackwell":
        return TCGen05MMA("Blackwell", f"m128n8k32.kind::f8f6f4.f32.{a}.{b}").dpa
    return MFMA("CDNA3", "f32_16x16x32_fp8_fp8").dpa


SETS = [(m, a, b) for m in ("hopper_wgmma", "hopper_mma", "ada_mma", "blackwell") for a, b in PAIRS]
SETS += [("cdna3_mfma", "e4m3fnuz", "e4m3fnuz")]


def results(number, cases):
    model, a_fmt, b_fmt = SETS[number]
    drawn = [draw_case(number, i, a_fmt, b_fmt) for i in range(cases)]
    out = np.zeros(cases, np.uint32)
    for odd in (0, 1):
        chosen = drawn[odd::2]
        a = torch.tensor([x[0] for x in chosen], dtype=torch.uint8).view(DTYPE[a_fmt])
        b = torch.tensor([x[1] for x in chosen], dtype=torch.uint8).view(DTYPE[b_fmt])
        c = torch.from_numpy(np.array([x[2] for x in chosen], np.uint32).view(np.float32).copy())
        out[odd::2] = unit(model, a_fmt, b_fmt)(a, b, c).numpy().view(np.uint32)
    return drawn, out


def compare(cases, path):
    import ctypes
    library = ctypes.CDLL(path)
    library.kvg_ref_mma_model_by_name.restype = ctypes.c_void_p
    library.kvg_ref_mma_fp8.restype = ctypes.c_float
    formats = {"e4m3": 3, "e5m2": 4, "e4m3fnuz": 5}
    for number, (model, a_fmt, b_fmt) in enumerate(SETS):
        handle = ctypes.c_void_p(library.kvg_ref_mma_model_by_name(model.encode()))
        drawn, want = results(number, cases)
        wrong = 0
        for i, (a, b, c) in enumerate(drawn):
            start = ctypes.c_float.from_buffer_copy(np.uint32(c).tobytes())
            got = library.kvg_ref_mma_fp8(handle, start, formats[a_fmt], bytes(a), formats[b_fmt], bytes(b),
                                          ctypes.c_int64(len(a)))
            bits = int(np.float32(got).view(np.uint32))
            same = bits == want[i] or (got != got and want[i] == 0x7fffffff)
            wrong += not same
            if not same and wrong <= 5:
                print(f"{model} {a_fmt} {b_fmt} case {i} kind {i // 2 % 10}: {bits:08x}, mmasim {want[i]:08x}")
        print(f"{model} {a_fmt} {b_fmt}: {wrong} of {cases} differ")


def main():
    if len(sys.argv) == 3:
        compare(int(sys.argv[1]), sys.argv[2])
        return
    print("/* SPDX-License-Identifier: Apache-2.0")
    print(" *")
    print(f" * Made by tensor_core_mmasim.py with mmasim 2.1.1 and torch {torch.__version__.split('+')[0]}. Do not edit.")
    print(" * Bits of the FP32 result of every case; the inputs are drawn by draw_case(). */")
    print(f"enum {{ MMASIM_CASES = {CASES} }};")
    for number, (model, a_fmt, b_fmt) in enumerate(SETS):
        print(f"static const uint32_t {model}_{a_fmt}_{b_fmt}[MMASIM_CASES] = {{")
        _, out = results(number, CASES)
        for i in range(0, CASES, 8):
            print("    " + " ".join(f"0x{v:08x}," for v in out[i:i + 8]))
        print("};")
    print("static const struct mmasim_set {")
    print("    const char *model;\n    enum kvg_ref_format a, b;\n    const uint32_t *results;\n} mmasim_sets[] = {")
    for model, a, b in SETS:
        print(f'    {{"{model}", KVG_REF_{a.upper()}, KVG_REF_{b.upper()}, {model}_{a}_{b}}},')
    print("};")


main()
