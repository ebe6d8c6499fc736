#!/usr/bin/env python3
"""Writes gguf_fuzz/: small GGUF files from which the fuzz target gguf_fuzz starts.

Plain Python, no packages, the same bytes every time:  python3 tests/corpus/make_gguf_seeds.py
"""

import pathlib
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B",
           U64: "Q", I64: "q", F64: "d"}
# type number -> (values per block, bytes per block)
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 14: (256, 210)}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    if kind == STRING:
        return text(v)
    if kind == ARRAY:
        element, items = v
        return struct.pack("<IQ", element, len(items)) + b"".join(value(element, i) for i in items)
    return struct.pack("<" + FORMATS[kind], v)


def gguf(metadata, tensors, version=3, alignment=32):
    """metadata: (key, type, value) each; tensors: (name, dims innermost first, type number) each."""
    out = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    for key, kind, v in metadata:
        out += text(key) + struct.pack("<I", kind) + value(kind, v)
    data = b""
    for name, dims, kind in tensors:
        elements = 1
        for d in dims:
            elements *= d
        per_block, block_bytes = BLOCKS.get(kind, (1, 1))
        out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += bytes(elements // per_block * block_bytes)
        data += bytes(-len(data) % alignment)
    return out + bytes(-len(out) % alignment) + data


def llama(tied=True, extra=(), head_count_kv=(U32, 1)):
    metadata = [
        ("general.architecture", STRING, "llama"), ("llama.block_count", U32, 1),
        ("llama.context_length", U32, 16), ("llama.embedding_length", U32, 32),
        ("llama.feed_forward_length", U32, 32), ("llama.attention.head_count", U32, 2),
        ("llama.attention.head_count_kv", *head_count_kv),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), *extra]
    tensors = [
        ("token_embd.weight", [32, 2], 8), ("output_norm.weight", [32], 0),
        ("blk.0.attn_norm.weight", [32], 0), ("blk.0.attn_q.weight", [32, 32], 3),
        ("blk.0.attn_k.weight", [32, 16], 3), ("blk.0.attn_v.weight", [32, 16], 3),
        ("blk.0.attn_output.weight", [32, 32], 2), ("blk.0.ffn_norm.weight", [32], 0),
        ("blk.0.ffn_gate.weight", [32, 32], 3), ("blk.0.ffn_up.weight", [32, 32], 1),
        ("blk.0.ffn_down.weight", [32, 32], 3)]
    if not tied:
        tensors.append(("output.weight", [32, 2], 8))
    return gguf(metadata, tensors)


def seeds():
    every = [("k%d" % kind, kind, 1) for kind in FORMATS]
    every += [("s", STRING, "text \u00e9"), ("a", ARRAY, (STRING, ["x", ""])),
              ("n", ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["y"])])), ("b", ARRAY, (BOOL, [0, 1]))]
    return {
        "empty": gguf([], []),
        "values": gguf(every, []),
        "tensors": gguf([], [("q", [32, 2], 2), ("k", [256], 14), ("f", [1, 2, 3, 4], 0)]),
        "unknown_type": gguf([], [("x", [100], 99), ("y", [4], 0)]),
        "aligned": gguf([("general.alignment", U32, 64)], [("x", [3], 0), ("y", [3], 0)],
                        alignment=64),
        "version2": gguf([("k", U32, 1)], [("x", [4], 1)], version=2),
        "version1": gguf([], [], version=1),
        "big_endian": struct.pack(">4sIQQ", b"GGUF", 3, 0, 0),
        "llama": llama(),
        "llama_untied": llama(tied=False, extra=[("llama.rope.freq_base", F32, 1e4)]),
        "llama_per_layer": llama(head_count_kv=(ARRAY, (I32, [1]))),
        "llama_yarn": llama(extra=[("llama.rope.scaling.type", STRING, "yarn")]),
        "tokenizer": llama(extra=[("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b"]))]),
    }


def main():
    folder = pathlib.Path(__file__).with_name("gguf_fuzz")
    folder.mkdir(exist_ok=True)
    for name, content in seeds().items():
        (folder / f"{name}.gguf").write_bytes(content)


if __name__ == "__main__":
    main()
