#!/usr/bin/env python3
"""Writes block_quant_vectors.inc: blocks and what the PyPI package `gguf` makes of them.

    python3 -m venv VENV && VENV/bin/pip install gguf==0.19.0 numpy
    VENV/bin/python src/tensor/block_quant_vectors.py

Decoding: three random blocks per type and one for each remarkable f16 scale (zero, negative zero,
smallest subnormal, largest finite, infinite, NaN). Encoding: a row of five blocks, of which one is
constant, one all zero, and one tiny, against the package's quantiser.
"""

import importlib.metadata
import pathlib

import gguf
import numpy as np

TYPES = ["Q4_0", "Q4_1", "Q8_0"]
SCALES = [0x0000, 0x8000, 0x0001, 0x7BFF, 0xFC00, 0x7E00]


def words(values, width):
    lines = []
    for i in range(0, len(values), 12 if width == 2 else 8):
        row = values[i:i + (12 if width == 2 else 8)]
        lines.append("    " + ", ".join(f"0x{int(v):0{width}X}" for v in row) + ",")
    return "\n".join(lines)


def emit(name, ctype, values, width):
    return f"constexpr {ctype} {name}[] = {{\n{words(values, width)}\n}};\n"


def main():
    rng = np.random.default_rng(20261130)
    out = ["// Made by block_quant_vectors.py with gguf %s, numpy %s; do not edit.\n" %
           (importlib.metadata.version("gguf"), np.__version__)]
    row = np.concatenate([
        rng.standard_normal(32), rng.standard_normal(32) * 1e-3 + 0.5, np.full(32, -0.75),
        np.zeros(32), rng.standard_normal(32) * 1e-6]).astype(np.float32)
    out.append(emit("kRow", "uint32_t", row.view(np.uint32), 8))
    for name in TYPES:
        qtype = gguf.GGMLQuantizationType[name]
        size = gguf.GGML_QUANT_SIZES[qtype][1]
        blocks = rng.integers(0, 256, (3 + len(SCALES), size), dtype=np.uint8)
        scales = rng.standard_normal(3).astype(np.float16).view(np.uint16).tolist() + SCALES
        for block, scale in zip(blocks, scales):
            block[0:2] = np.array([scale], dtype=np.uint16).view(np.uint8)
            if name == "Q4_1":  # a finite minimum, so that the scale decides
                block[2:4] = rng.standard_normal(1).astype(np.float16).view(np.uint8)
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(blocks.reshape(-1), qtype)
            coded = gguf.quants.quantize(row, qtype)
        out.append(emit(f"k{name}Blocks", "uint8_t", blocks.reshape(-1), 2))
        out.append(emit(f"k{name}Values", "uint32_t", values.view(np.uint32), 8))
        out.append(emit(f"k{name}Coded", "uint8_t", coded, 2))
    path = pathlib.Path(__file__).with_name("block_quant_vectors.inc")
    path.write_text("// clang-format off\n" + "\n".join(out) + "// clang-format on\n")


if __name__ == "__main__":
    main()
