"""Shared pieces of the golden generators: GGUF in, reference model and tokenizer out.

Nothing here imports Tandem. torch/transformers are imported on demand so that the
tokenizer and template goldens need only `gguf`, `tokenizers` and `jinja2`.
"""

import hashlib
import json
import os
import platform
import sys
from importlib import metadata

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


# ---------------------------------------------------------------- files, manifest

def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def versions(*packages):
    out = {"python": platform.python_version()}
    out.update({p: metadata.version(p) for p in packages})
    return out


def update_manifest(section, entry, files):
    """Replaces one section of manifest.json; `files` are names in this folder."""
    path = os.path.join(HERE, "manifest.json")
    manifest = {}
    if os.path.exists(path):
        with open(path) as f:
            manifest = json.load(f)
    entry = dict(entry)
    entry["files"] = {
        name: {"bytes": os.path.getsize(os.path.join(HERE, name)), "sha256": sha256(os.path.join(HERE, name))}
        for name in files
    }
    manifest[section] = entry
    with open(path, "w") as f:
        json.dump(manifest, f, indent=1, sort_keys=True)
        f.write("\n")


def write_records(name, header, records):
    """JSON, ASCII only: `header` plus "records", one record per line so that diffs stay readable."""
    with open(os.path.join(HERE, name), "w", encoding="ascii") as f:
        f.write("{\n")
        for key, value in header.items():
            f.write(f" {json.dumps(key)}: {json.dumps(value)},\n")
        f.write(' "records": [\n')
        f.write(",\n".join("  " + json.dumps(r) for r in records))
        f.write("\n ]\n}\n")


# ---------------------------------------------------------------- GGUF

def read_gguf(path):
    """Returns (metadata dict, {name: dequantised float32 array in row-major, i.e. HF, shape})."""
    reader = gguf.GGUFReader(path)
    meta = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {}
    for t in reader.tensors:
        data = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        tensors[t.name] = np.ascontiguousarray(data.reshape([int(d) for d in reversed(t.shape)]))
    return meta, tensors


def permute_rows(w, heads):
    """HF half-split rotary order -> GGUF `llama` order (neighbouring pairs), per head."""
    rows, cols = w.shape
    return np.ascontiguousarray(w.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols))


def unpermute_rows(w, heads):
    rows, cols = w.shape
    return np.ascontiguousarray(w.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols))


# ---------------------------------------------------------------- reference models

# GGUF name of a block tensor -> HF name inside model.layers.N.
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def shape_of(meta):
    """The numbers of a dense model, from GGUF metadata."""
    m = lambda key, default=None: meta.get(f"{meta['general.architecture']}.{key}", default)
    heads, hidden = m("attention.head_count"), m("embedding_length")
    return {
        "family": meta["general.architecture"],
        "hidden": hidden,
        "layers": m("block_count"),
        "heads": heads,
        "kv_heads": m("attention.head_count_kv", heads),
        "head_dim": m("attention.key_length", hidden // heads),
        "ffn": m("feed_forward_length"),
        "context": m("context_length"),
        "rope_theta": m("rope.freq_base", 10000.0),
        "eps": m("attention.layer_norm_rms_epsilon"),
    }


def config_of(s, rope_scaling, **common):
    """transformers' configuration class, its values, and the model class of a family."""
    import transformers

    rope = {"rope_type": "default", "rope_theta": s["rope_theta"], **(rope_scaling or {})}
    values = dict(
        hidden_size=s["hidden"], intermediate_size=s["ffn"], num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"], num_key_value_heads=s["kv_heads"], head_dim=s["head_dim"],
        max_position_embeddings=s["context"], rms_norm_eps=s["eps"], rope_parameters=rope,
        hidden_act="silu", attn_implementation="eager", **common)
    if s["family"] == "qwen2":
        assert values.pop("head_dim") == s["hidden"] // s["heads"]
        return transformers.Qwen2Config(use_sliding_window=False, **values), transformers.Qwen2ForCausalLM
    if s["family"] == "qwen3":
        return transformers.Qwen3Config(use_sliding_window=False, attention_bias=False, **values), transformers.Qwen3ForCausalLM
    assert s["family"] == "llama"
    return transformers.LlamaConfig(attention_bias=False, mlp_bias=False, **values), transformers.LlamaForCausalLM


def build_reference(meta, tensors, rope_scaling=None):
    """transformers' model of the file's family with the (dequantised) tensors of a GGUF file. The
    file says rope scaling by a table; `rope_scaling` are the numbers that the table was made from."""
    import torch

    s = shape_of(meta)
    tied = "output.weight" not in tensors
    assert ("rope_freqs.weight" in tensors) == (rope_scaling is not None)
    config, model_class = config_of(
        s, rope_scaling, vocab_size=tensors["token_embd.weight"].shape[0], tie_word_embeddings=tied,
        bos_token_id=meta.get("tokenizer.ggml.bos_token_id"), eos_token_id=meta.get("tokenizer.ggml.eos_token_id"))
    state = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"],
        "lm_head.weight": tensors["token_embd.weight" if tied else "output.weight"],
    }
    for name, w in tensors.items():
        if not name.startswith("blk."):
            continue
        _, n, ours, kind = name.split(".")
        if s["family"] == "llama" and ours in ("attn_q", "attn_k"):
            w = unpermute_rows(w, s["heads" if ours == "attn_q" else "kv_heads"])
        state[f"model.layers.{n}.{BLOCK_NAMES[ours]}.{kind}"] = w
    model = model_class(config)
    missing, unexpected = model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()}, strict=True)
    assert not missing and not unexpected
    model = model.float().eval()
    assert config._attn_implementation == "eager"
    return model


def numpy_logits(meta, tensors, ids):
    """A second, independent forward pass: float64 numpy, straight on the GGUF tensors (no
    unpermutation, the file's own rotation and frequency table). Guards build_reference."""
    s = shape_of(meta)
    f64 = lambda name: tensors[name].astype(np.float64)
    norm = lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + s["eps"]) * w
    n, d = len(ids), s["head_dim"]
    frequency = s["rope_theta"] ** (-np.arange(0, d, 2) / d)
    if "rope_freqs.weight" in tensors:
        frequency = frequency / f64("rope_freqs.weight")
    angle = np.arange(n)[:, None] * frequency[None, :]
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    if s["family"] == "llama":
        first, second = slice(0, None, 2), slice(1, None, 2)
    else:
        first, second = slice(0, d // 2), slice(d // 2, None)

    def rope(x):
        out = np.empty_like(x)
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    x = f64("token_embd.weight")[ids]
    mask = np.triu(np.full((n, n), -np.inf), 1)
    for layer in range(s["layers"]):
        w = lambda name: f64(f"blk.{layer}.{name}.weight")
        h = norm(x, w("attn_norm"))

        def project(name, heads):
            out = h @ w(name).T
            if f"blk.{layer}.{name}.bias" in tensors:
                out = out + f64(f"blk.{layer}.{name}.bias")
            out = out.reshape(n, heads, d)
            return norm(out, w(name + "_norm")) if f"blk.{layer}.{name}_norm.weight" in tensors else out

        q = rope(project("attn_q", s["heads"]))
        k = rope(project("attn_k", s["kv_heads"]))
        v = project("attn_v", s["kv_heads"])
        group = s["heads"] // s["kv_heads"]
        heads = []
        for head in range(s["heads"]):
            score = q[:, head] @ k[:, head // group].T / np.sqrt(d) + mask
            p = np.exp(score - score.max(-1, keepdims=True))
            heads.append(p / p.sum(-1, keepdims=True) @ v[:, head // group])
        x = x + np.concatenate(heads, -1) @ w("attn_output").T
        h = norm(x, w("ffn_norm"))
        gate = h @ w("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w("ffn_up").T)) @ w("ffn_down").T
    return norm(x, f64("output_norm.weight")) @ f64("output.weight" if "output.weight" in tensors else "token_embd.weight").T


def all_logits(model, ids):
    """Logits at every position, by transformers."""
    import torch
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def greedy(model, ids, count, num_tokens=None):
    """Greedy continuation with a KV cache, choosing among the first `num_tokens` ids; returns
    (tokens, top-1 minus top-2 logit at each step)."""
    import torch
    tokens, gaps, past, feed = [], [], None, list(ids)
    with torch.no_grad():
        for _ in range(count):
            out = model(torch.tensor([feed]), past_key_values=past, use_cache=True, logits_to_keep=1)
            past = out.past_key_values
            top = out.logits[0, -1, :num_tokens].float().topk(2)
            tokens.append(int(top.indices[0]))
            gaps.append(float(top.values[0] - top.values[1]))
            feed = [tokens[-1]]
    return tokens, gaps


# ---------------------------------------------------------------- tokenizer, chat template

def byte_alphabet():
    """GPT-2's printable stand-in for each of the 256 bytes."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, spare = {}, 0x100
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(spare)
            spare += 1
    return table


def build_tokenizer(meta):
    """The `smollm` pre-tokenizer over vocabulary and merges of the file: single digits, then GPT-2's regex.
    Returns (plain, special): the second one recognises control tokens in the text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    assert meta["tokenizer.ggml.model"] == "gpt2" and meta["tokenizer.ggml.pre"] == "smollm"
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]

    def make(parse_special):
        # No unknown token: a byte without a token of its own is dropped.
        t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=merges, unk_token=None))
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ])
        t.decoder = decoders.ByteLevel()
        if parse_special:
            t.add_special_tokens([AddedToken(s, special=True, normalized=False)
                                  for s, kind in zip(tokens, types) if kind == 3])
            assert t.get_vocab_size() == len(tokens)
        return t

    return make(False), make(True)


def chat_template(meta):
    """The file's template under the settings of the HF stack."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=["jinja2.ext.loopcontrols"])
    env.globals["raise_exception"] = raise_exception
    env.filters["tojson"] = lambda x, **kw: json.dumps(x, ensure_ascii=False, **kw)
    tokens = meta["tokenizer.ggml.tokens"]
    extra = {"bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
             "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]]}
    template = env.from_string(meta["tokenizer.chat_template"])
    return lambda messages, generate: template.render(messages=messages, add_generation_prompt=generate, **extra)


def open_smollm2(argv):
    if len(argv) < 2:
        sys.exit(f"usage: {argv[0]} SmolLM2-135M-Instruct.Q4_1.gguf")
    assert sha256(argv[1]) == SMOLLM2_SHA256, "not the expected file"
    return argv[1]
