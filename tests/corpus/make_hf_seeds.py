#!/usr/bin/env python3
"""Writes safetensors_fuzz/ and hf_config_fuzz/: small files from which these fuzz targets start.

Plain Python, no packages, the same bytes every time:  python3 tests/corpus/make_hf_seeds.py
"""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent


def safetensors(header, data=b""):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SAFETENSORS = {
    "empty": safetensors({}),
    "metadata": safetensors({"__metadata__": {"format": "pt", "a": ""}}),
    "one": safetensors({"model.norm.weight": entry("F32", [2], 0, 8)}, b"12345678"),
    "two": safetensors({"b": entry("BF16", [1, 2], 4, 8), "a": entry("F16", [2], 0, 4)}, b"12345678"),
    "scalar_and_none": safetensors({"s": entry("U8", [], 0, 1), "n": entry("I64", [0, 7], 1, 1)}, b"x"),
    "sub_byte": safetensors({"f": entry("F4", [2, 3], 0, 3), "g": entry("F6_E2M3", [4], 3, 6)}, b"123456"),
    "padded": safetensors(b'{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}     ', b"x"),
    "hole": safetensors({"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 2, 3)}, b"123"),
    "overlap": safetensors({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"123"),
    "overflow": safetensors({"a": entry("F64", [1 << 32, 1 << 32], 0, 8)}, b"12345678"),
    "twice": safetensors(b'{"a":{"dtype":"I8"},"a":{}}'),
    "nested": safetensors(b'{"a":{"shape":[[[[1]]]]}}'),
}

SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 40, "max_position_embeddings": 256, "rms_norm_eps": 1e-5}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 96}
CONFIGS = {
    "llama_old": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SMALL, "rope_theta": 5e5,
                  "rope_scaling": {"rope_type": "llama3", **LLAMA3}, "torch_dtype": "bfloat16",
                  "eos_token_id": [1, 2], "tie_word_embeddings": True, "attention_bias": False},
    "llama_new": {"model_type": "llama", **SMALL, "dtype": "float32", "head_dim": 32,
                  "rope_parameters": {"rope_theta": 1e4, "rope_type": "llama3", **LLAMA3}},
    "qwen2": {"model_type": "qwen2", **SMALL, "use_sliding_window": False, "layer_types": ["full_attention"] * 2},
    "qwen3": {"model_type": "qwen3", **SMALL, "rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
    "yarn": {"model_type": "llama", **SMALL, "rope_scaling": {"type": "yarn", "factor": 4}},
    "awq": {"model_type": "llama", "quantization_config": {"quant_method": "awq", "bits": 4}},
    "generation": {"eos_token_id": [1, 2], "temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True},
}


def main():
    for folder, files in (("safetensors_fuzz", SAFETENSORS),
                          ("hf_config_fuzz", {k: json.dumps(v).encode() for k, v in CONFIGS.items()})):
        (HERE / folder).mkdir(exist_ok=True)
        for name, raw in files.items():
            (HERE / folder / name).write_bytes(raw)


if __name__ == "__main__":
    main()
