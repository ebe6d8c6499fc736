"""The same model as a GGUF file and as a Hugging Face folder, whole and in parts: the same text.

Usage: hf_folder_test.py TANDEM_BINARY GOLDEN_FOLDER
Plain Python: the folders are written from the GGUF files here, as their authors would have.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

BINARY = os.path.abspath(sys.argv[1])
GOLDEN = os.path.abspath(sys.argv[2])
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}
NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def read_gguf(path):
    """Metadata, and tensors by name as (dimensions innermost first, bytes); F32 only."""
    with open(path, "rb") as file:
        raw = file.read()
    at = 8

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, raw, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text():
        nonlocal at
        length = take("Q")
        at += length
        return raw[at - length:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            element, count = take("I"), take("Q")
            return [value(element) for _ in range(count)]
        return take(FORMATS[kind])

    tensor_count, entry_count = take("QQ")
    metadata = {text(): value(take("I")) for _ in range(entry_count)}
    infos = []
    for _ in range(tensor_count):
        name, rank = text(), take("I")
        dims = [take("Q") for _ in range(rank)]
        kind, offset = take("I"), take("Q")
        assert kind == 0, "F32 models only"
        infos.append((name, dims, offset))
    start = (at + 31) // 32 * 32
    tensors = {}
    for name, dims, offset in infos:
        size = 4
        for d in dims:
            size *= d
        tensors[name] = (dims, raw[start + offset:start + offset + size])
    return metadata, tensors


def trained_order(dims, raw, heads):
    """Rows of a rotated projection before the Llama converter's permutation."""
    row, head_dim = dims[0] * 4, dims[1] // heads
    rows = [raw[i * row:(i + 1) * row] for i in range(dims[1])]
    return b"".join(rows[h * head_dim + 2 * pair + half]
                    for h in range(heads) for half in range(2) for pair in range(head_dim // 2))


def hf_name(name):
    fixed = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight",
             "output_norm.weight": "model.norm.weight"}
    if name in fixed:
        return fixed[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{kind}"


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dims, raw) in tensors.items():
        header[name] = {"dtype": "F32", "shape": dims[::-1],
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        json.dump(value, out)


def write_tokenizer(metadata, folder):
    tokens = metadata["tokenizer.ggml.tokens"]
    if metadata["tokenizer.ggml.pre"] == "qwen2":
        normalizer = {"type": "NFC"}
        first = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated",
                 "invert": False}
        steps = [first, {**BYTE_LEVEL, "use_regex": False}]
    else:
        normalizer = None
        steps = [{"type": "Digits", "individual_digits": True}, {**BYTE_LEVEL, "use_regex": True}]
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True}
             for i, token in enumerate(tokens) if metadata["tokenizer.ggml.token_type"][i] == 3]
    write_json(folder, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": {**BYTE_LEVEL, "use_regex": True},
        "decoder": {**BYTE_LEVEL, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": metadata["tokenizer.ggml.merges"]}})
    write_json(folder, "tokenizer_config.json", {
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "chat_template": metadata["tokenizer.chat_template"]})


def write_folder(gguf, folder):
    metadata, tensors = read_gguf(gguf)
    architecture = metadata["general.architecture"]
    of = {key.removeprefix(architecture + "."): value for key, value in metadata.items()}
    heads, kv_heads = of["attention.head_count"], of["attention.head_count_kv"]
    if architecture == "llama":
        for name, (dims, raw) in tensors.items():
            if name.endswith(("attn_q.weight", "attn_k.weight")):
                count = heads if "attn_q" in name else kv_heads
                tensors[name] = (dims, trained_order(dims, raw, count))
    write_json(folder, "config.json", {
        "model_type": architecture, "num_hidden_layers": of["block_count"],
        "hidden_size": of["embedding_length"], "intermediate_size": of["feed_forward_length"],
        "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": of.get("attention.key_length", of["embedding_length"] // heads),
        "vocab_size": of["vocab_size"], "max_position_embeddings": of["context_length"],
        "rms_norm_eps": of["attention.layer_norm_rms_epsilon"], "rope_theta": of["rope.freq_base"],
        "tie_word_embeddings": "output.weight" not in tensors, "torch_dtype": "float32"})
    write_json(folder, "generation_config.json",
               {"eos_token_id": [metadata["tokenizer.ggml.eos_token_id"]], "temperature": 0.6})
    write_tokenizer(metadata, folder)
    write_safetensors(os.path.join(folder, "model.safetensors"),
                      {hf_name(name): tensor for name, tensor in tensors.items()})


def tandem(*arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
    environment["XDG_CACHE_HOME"] = CACHE.name
    return subprocess.run([BINARY, *arguments], input=b"", capture_output=True, timeout=60,
                          env=environment)


class Folder(unittest.TestCase):
    def test_the_folder_answers_as_the_file(self):
        for name in ("tiny_a", "tiny_e", "tiny_f"):
            gguf = os.path.join(GOLDEN, name + ".gguf")
            with tempfile.TemporaryDirectory() as folder:
                write_folder(gguf, folder)
                answers = []
                for model in (gguf, folder, folder):  # packed, packed, from the cache
                    result = tandem("-m", model, "--raw", "--numerics", "exact", "--temperature",
                                    "0", "--max-tokens", "24", "he said 42 things, caf\u00e9s too")
                    self.assertEqual(result.returncode, 0, result.stderr.decode())
                    answers.append(result.stdout)
                self.assertTrue(answers[0].strip())
                self.assertEqual(answers[1], answers[0], name)
                self.assertEqual(answers[2], answers[0], name)

    def test_inspect_accounts_for_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            write_folder(os.path.join(GOLDEN, "tiny_a.gguf"), folder)
            report = json.loads(tandem("inspect", folder, "--json").stdout)
            size = os.path.getsize(os.path.join(folder, "model.safetensors"))
            self.assertEqual(sum(report["bytes"].values()), size)
            self.assertIn(b"config.hidden_size", tandem("inspect", folder).stdout)

    def test_a_quantised_folder_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            write_json(folder, "config.json",
                       {"model_type": "llama", "quantization_config": {"quant_method": "awq"}})
            result = tandem("-m", folder, "hello")
            self.assertEqual(result.returncode, 1)
            self.assertIn(b"'awq'", result.stderr)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        CACHE = type("Cache", (), {"name": cache})
        unittest.main(argv=sys.argv[:1], verbosity=1)
