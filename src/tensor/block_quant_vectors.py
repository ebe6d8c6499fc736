#!/usr/bin/env python3
"""Writes block_quant_vectors.inc: blocks and what the PyPI package `gguf` makes of them.

    python3 -m venv VENV && VENV/bin/pip install gguf==0.19.0 numpy
    VENV/bin/python src/tensor/block_quant_vectors.py

Decoding: three random blocks per type and one for each remarkable scale (f16: zero, negative zero,
smallest subnormal, largest finite, infinite, NaN; MXFP4: exponents). Of blocks of 256 only a
checksum of the values is kept. Encoding: a row of five blocks, of which one is constant, one all
zero, and one tiny, against the package's quantiser, for the types that it has one for.
"""

import importlib.metadata
import pathlib

import gguf
import numpy as np

# Where the f16 scale and minimum lie.
TYPES = {
    "Q4_0": (0, None), "Q4_1": (0, 2), "Q5_0": (0, None), "Q5_1": (0, 2), "Q8_0": (0, None),
    "Q2_K": (80, 82), "Q3_K": (108, None), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208, None),
    "IQ4_NL": (0, None), "IQ4_XS": (0, None), "MXFP4": (None, None)}
ENCODED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"]
EXPONENTS = [120, 127, 134, 0, 1, 2, 3, 254, 255]
SCALES = [0x0000, 0x8000, 0x0001, 0x7BFF, 0xFC00, 0x7E00]


def words(values, width):
    lines = []
    per_line = {2: 12, 8: 8, 16: 4}[width]
    for i in range(0, len(values), per_line):
        row = values[i:i + per_line]
        lines.append("    " + ", ".join(f"0x{int(v):0{width}X}" for v in row) + ",")
    return "\n".join(lines)


def emit(name, ctype, values, width):
    return f"constexpr {ctype} {name}[] = {{\n{words(values, width)}\n}};\n"


def checksums(rows):
    """FNV-1a over the words of each row, any NaN as 7FC00000."""
    sums = []
    for row in rows:
        h = 0xCBF29CE484222325
        for word in row:
            word = int(word)
            word = 0x7FC00000 if word & 0x7FFFFFFF > 0x7F800000 else word
            h = (h ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        sums.append(h)
    return sums


def main():
    rng = np.random.default_rng(20261130)
    out = ["// Made by block_quant_vectors.py with gguf %s, numpy %s; do not edit.\n" %
           (importlib.metadata.version("gguf"), np.__version__)]
    row = np.concatenate([
        rng.standard_normal(32), rng.standard_normal(32) * 1e-3 + 0.5, np.full(32, -0.75),
        np.zeros(32), rng.standard_normal(32) * 1e-6]).astype(np.float32)
    out.append(emit("kRow", "uint32_t", row.view(np.uint32), 8))
    for name, (scale_at, minimum_at) in TYPES.items():
        qtype = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[qtype]
        blocks = rng.integers(0, 256, (3 + len(SCALES), size), dtype=np.uint8)
        scales = rng.standard_normal(3).astype(np.float16).view(np.uint16).tolist() + SCALES
        for block, scale, exponent in zip(blocks, scales, EXPONENTS):
            if scale_at is None:
                block[0] = exponent
            else:
                block[scale_at:scale_at + 2] = np.array([scale], dtype=np.uint16).view(np.uint8)
            if minimum_at is not None:  # a finite minimum, so that the scale decides
                half = rng.standard_normal(1).astype(np.float16).view(np.uint8)
                block[minimum_at:minimum_at + 2] = half
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(blocks.reshape(-1), qtype).view(np.uint32)
        out.append(emit(f"k{name}Blocks", "uint8_t", blocks.reshape(-1), 2))
        if elements == 256:
            out.append(emit(f"k{name}Sums", "uint64_t", checksums(values.reshape(-1, 256)), 16))
        else:
            out.append(emit(f"k{name}Values", "uint32_t", values, 8))
        if name in ENCODED:
            with np.errstate(all="ignore"):
                coded = gguf.quants.quantize(row, qtype)
            out.append(emit(f"k{name}Coded", "uint8_t", coded, 2))
    path = pathlib.Path(__file__).with_name("block_quant_vectors.inc")
    path.write_text("// clang-format off\n" + "\n".join(out) + "// clang-format on\n")


if __name__ == "__main__":
    main()
