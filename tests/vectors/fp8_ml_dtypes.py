#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fp8_ml_dtypes.inc: FP8 codes and values from the PyPI package ml_dtypes.

    pip install ml_dtypes==0.6.0 numpy && python3 fp8_ml_dtypes.py > fp8_ml_dtypes.inc

For each format it writes the values of all 256 codes, and the codes of these floats:
  - every midpoint between neighbouring codes, and the next float on each side of it;
  - random floats over all binades of the format, and some below them.
No float is beyond the largest finite value, because ml_dtypes does not saturate.
"""
import ml_dtypes
import numpy as np

FORMATS = [
    ("e4m3", ml_dtypes.float8_e4m3fn),
    ("e5m2", ml_dtypes.float8_e5m2),
    ("e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
]


def rows(values, per_line, fmt):
    for i in range(0, len(values), per_line):
        print("    " + " ".join(fmt(v) + "," for v in values[i:i + per_line]))


def inputs(dtype, rng):
    table = np.arange(128, dtype=np.uint8).view(dtype).astype(np.float64)
    table = np.unique(table[np.isfinite(table)])
    middle = ((table[1:] + table[:-1]) / 2).astype(np.float32)
    near = np.concatenate([middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(1e9))])
    low, high = np.log2(table[1]) - 3, np.log2(table[-1])
    spread = np.exp2(rng.uniform(low, high, 512)).astype(np.float32)
    floats = np.concatenate([near, spread[spread <= table[-1]], np.float32([0, 1e-30, 1e-42, table[-1]])])
    return np.concatenate([floats, -floats])


print("/* SPDX-License-Identifier: Apache-2.0")
print(" *")
print(f" * Made by fp8_ml_dtypes.py with ml_dtypes {ml_dtypes.__version__} and numpy {np.__version__}. Do not edit.")
print(" * NAME_values[code]: bits of the FP32 value, NaN as 0x7fc00000; NAME_inputs: FP32 bits; NAME_codes. */")
for name, dtype in FORMATS:
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    bits = np.where(np.isnan(values), np.uint32(0x7fc00000), values.view(np.uint32))
    print(f"static const uint32_t {name}_values[256] = {{")
    rows(bits, 8, lambda v: f"0x{v:08x}")
    floats = inputs(dtype, np.random.default_rng(2024))
    print(f"}};\nstatic const uint32_t {name}_inputs[{len(floats)}] = {{")
    rows(floats.view(np.uint32), 8, lambda v: f"0x{v:08x}")
    print(f"}};\nstatic const uint8_t {name}_codes[{len(floats)}] = {{")
    rows(floats.astype(dtype).view(np.uint8), 16, lambda v: f"0x{v:02x}")
    print("};")
