"""Writes the tiny models (tiny_*.gguf) and their golden logits (tiny_*.f32, tiny_*.json).

  python make_goldens.py            write everything
  python make_goldens.py --check    recompute and compare with what is committed
"""

import json
import os
import sys

import gguf
import numpy as np

import oracle

MODELS = {
    # Plain multi-head groups, own output matrix, head_dim = hidden / heads (no key_length in the file).
    "tiny_a": dict(seed=11, hidden=64, layers=4, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=320, theta=1e4,
                   eps=1e-5, tied=False, quant=None, tokens=64),
    # Tied embeddings, three query heads per KV head, head_dim given by the file, hidden != heads * head_dim.
    "tiny_b": dict(seed=22, hidden=96, layers=2, heads=6, kv_heads=2, head_dim=32, ffn=160, vocab=320, theta=1e5,
                   eps=1e-6, tied=True, quant=None, tokens=100),
    # Quantised like SmolLM2: Q4_1 rows, Q8_0 tied embeddings; rows of 4, 5 and 10 blocks.
    "tiny_c": dict(seed=33, hidden=160, layers=3, heads=4, kv_heads=2, head_dim=32, ffn=320, vocab=512, theta=1e5,
                   eps=1e-5, tied=True, quant="Q4_1", tokens=80),
    # Llama-3.1's rope scaling; the prompt is longer than the original context, and wavelengths lie in all three regimes.
    "tiny_d": dict(seed=44, hidden=64, layers=3, heads=4, kv_heads=2, head_dim=32, ffn=128, vocab=320, theta=1e4,
                   eps=1e-5, tied=False, quant=None, tokens=120,
                   llama3=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=96)),
    # Qwen2 with tied embeddings.
    "tiny_e": dict(seed=74, family="qwen2", hidden=64, layers=3, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=320,
                   theta=1e6, eps=1e-6, tied=True, quant=None, tokens=64),
    # Qwen2 with its own output matrix and three query heads per KV head.
    "tiny_f": dict(seed=66, family="qwen2", hidden=96, layers=2, heads=6, kv_heads=2, head_dim=16, ffn=160, vocab=320,
                   theta=1e6, eps=1e-6, tied=False, quant=None, tokens=72),
    # Qwen3, hidden != heads * head_dim, with 16 rows of logits beyond the tokens that exist.
    "tiny_g": dict(seed=78, family="qwen3", hidden=64, layers=2, heads=4, kv_heads=2, head_dim=32, ffn=128, vocab=336,
                   padding=16, theta=1e6, eps=1e-6, tied=False, quant=None, tokens=80),
    # Qwen3 quantised: Q4_0 rows, Q8_0 tied embeddings.
    "tiny_h": dict(seed=89, family="qwen3", hidden=160, layers=2, heads=4, kv_heads=2, head_dim=64, ffn=320, vocab=320,
                   theta=1e6, eps=1e-6, tied=True, quant="Q4_0", tokens=80),
}
GREEDY = 32
TOLERANCE = 1e-3
NAMES = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
PRE = {"llama": "smollm", "qwen2": "qwen2", "qwen3": "qwen2"}  # pre-tokenizers


def family_of(c):
    return c.get("family", "llama")


def rope_divisors(c):
    """Llama-3.1's table: what each frequency is divided by."""
    frequency = c["theta"] ** (-np.arange(0, c["head_dim"], 2) / c["head_dim"])
    p = c["llama3"]
    turns = p["original_max_position_embeddings"] * frequency / (2 * np.pi)  # within the original context
    low, high = p["low_freq_factor"], p["high_freq_factor"]
    smooth = (turns - low) / (high - low)
    middle = 1 / ((1 - smooth) / p["factor"] + smooth)
    out = np.where(turns < low, p["factor"], np.where(turns > high, 1.0, middle))
    assert (turns < low).any() and (turns > high).any() and ((low < turns) & (turns < high)).any()
    return out.astype(np.float32)


def random_tensors(c):
    """HF-ordered weights by name. Rounded to multiples of 2^-12, so that the last bits of a machine's
    normal distribution don't reach the file."""
    rng = np.random.Generator(np.random.PCG64(c["seed"]))
    grid = lambda w: (np.round(w * 4096) / 4096).astype(np.float32)
    normal = lambda rows, cols, std: grid(rng.standard_normal((rows, cols)) * std)
    gain = lambda n: grid(rng.uniform(0.5, 1.5, n))
    h, q, kv = c["hidden"], c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    out = {"token_embd.weight": normal(c["vocab"], h, 0.2 if c["tied"] else 1.0)}
    for n in range(c["layers"]):
        shapes = {"attn_q": (q, h, 1.3), "attn_k": (kv, h, 1.3), "attn_v": (kv, h, 1), "attn_output": (h, q, 1),
                  "ffn_gate": (c["ffn"], h, 1.2), "ffn_up": (c["ffn"], h, 1), "ffn_down": (h, c["ffn"], 1)}
        for name in NAMES:
            if name in shapes:
                rows, cols, gain_ = shapes[name]
                out[f"blk.{n}.{name}.weight"] = normal(rows, cols, gain_ / cols**0.5)
            else:
                out[f"blk.{n}.{name}.weight"] = gain(h)
        if family_of(c) == "qwen2":
            for name, rows in {"attn_q": q, "attn_k": kv, "attn_v": kv}.items():
                out[f"blk.{n}.{name}.bias"] = normal(1, rows, 0.7)[0]
        if family_of(c) == "qwen3":
            for name in ("attn_q_norm", "attn_k_norm"):
                out[f"blk.{n}.{name}.weight"] = gain(c["head_dim"])
    out["output_norm.weight"] = gain(h)
    if not c["tied"]:
        out["output.weight"] = normal(c["vocab"], h, 3 / h**0.5)
        if "padding" in c:  # so that they often are the largest
            out["output.weight"][-c["padding"]:] *= 2
    return out


def vocabulary(size):
    """Three control tokens, the 256 bytes, then merges of frequent English pairs up to `size`."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = list(oracle.byte_alphabet().values())
    space = oracle.byte_alphabet()[0x20]
    pairs = [(space, c) for c in "tasiowcbpfmdhlnreg"] + [tuple(p) for p in (
        "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic ne ea "
        "ra ce li ch ll be ma si om ur ca el ta la ns di fo ho pe ec pr no ct us ac ot il tr ly nc et ut ss so rs un lo wa ge ie "
        "wh ee wi em ad ol rt po we na ul ni ts mo ow pa im mi ai sh ir su id os iv ia am fi ci vi pl ig tu ev ld ry mp fe bl ab "
        "gh ty op wo sa ay ex ke ui fr oo av ag if ap gr od bo sp rd do uc bu ei ov by rm ep tt oc fa ef cu rn sc gi da yo cr cl "
        "du ga qu ue ff ba ey ls va um pp ua up lu go ht ru ug ds lt pi rc rr eg au ck ew mu br bi pt ak pu ui rg ib tl ny ki rk "
        "ys ob mm fu ph og ms ye ud mb ip ub oi rl gu dr hr cc tw ft wn nu af hu nn eo vo rv nf xp gn sm fl iz ok nl my gl aw ju "
        "oa eq sy sl ps jo lf nv je nk kn gs dy hy ze ks xt bs ik dd pt rp cy gg".split())]
    tokens, merges, known = special + letters, [], set(special + letters)
    for a, b in pairs:
        if len(tokens) == size:
            break
        if a + b not in known:
            known.add(a + b)
            tokens.append(a + b)
            merges.append(f"{a} {b}")
    assert len(tokens) == size, len(tokens)
    return tokens, merges


TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def write_gguf(path, name, c):
    w = gguf.GGUFWriter(path, family_of(c))
    w.add_name(name)
    w.add_vocab_size(c["vocab"])
    w.add_context_length(512)
    w.add_embedding_length(c["hidden"])
    w.add_block_count(c["layers"])
    w.add_feed_forward_length(c["ffn"])
    w.add_head_count(c["heads"])
    w.add_head_count_kv(c["kv_heads"])
    if c["hidden"] != c["heads"] * c["head_dim"] or family_of(c) == "qwen3":
        w.add_key_length(c["head_dim"])
        w.add_value_length(c["head_dim"])
    if family_of(c) == "llama":
        w.add_rope_dimension_count(c["head_dim"])
    w.add_rope_freq_base(c["theta"])
    w.add_layer_norm_rms_eps(c["eps"])
    w.add_file_type(gguf.LlamaFileType["MOSTLY_" + c["quant"]] if c["quant"] else gguf.LlamaFileType.ALL_F32)
    w.add_quantization_version(2)
    padding = c.get("padding", 0)
    tokens, merges = vocabulary(c["vocab"] - padding)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(PRE[family_of(c)])
    # As converters do: rows of the embedding without a token get a name that is never used.
    w.add_token_list(tokens + [f"[PAD{len(tokens) + i}]" for i in range(padding)])
    w.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3) +
                      [gguf.TokenType.UNUSED] * padding)
    w.add_token_merges(merges)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_pad_token_id(2)
    w.add_add_bos_token(False)
    w.add_add_space_prefix(False)
    w.add_chat_template(TEMPLATE)
    if "llama3" in c:
        w.add_tensor("rope_freqs.weight", rope_divisors(c))
    for key, value in random_tensors(c).items():
        if family_of(c) == "llama" and key.endswith("attn_q.weight"):
            value = oracle.permute_rows(value, c["heads"])
        if family_of(c) == "llama" and key.endswith("attn_k.weight"):
            value = oracle.permute_rows(value, c["kv_heads"])
        kind = None
        if c["quant"] and value.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0 if key == "token_embd.weight" else gguf.GGMLQuantizationType[c["quant"]]
        if kind is None:
            w.add_tensor(key, value)
        else:
            w.add_tensor(key, gguf.quants.quantize(value, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def compute(path, c):
    meta, tensors = oracle.read_gguf(path)
    num_tokens = c["vocab"] - c.get("padding", 0)
    ids = np.random.Generator(np.random.PCG64(c["seed"] + 1000)).integers(3, num_tokens, c["tokens"]).tolist()
    scaling = {"rope_type": "llama3", **c["llama3"]} if "llama3" in c else None
    model = oracle.build_reference(meta, tensors, scaling)
    logits = oracle.all_logits(model, ids)
    second = oracle.numpy_logits(meta, tensors, ids)
    tokens, gaps = oracle.greedy(model, ids, GREEDY, num_tokens)
    if "padding" in c:  # the choice must be seen to be restricted
        best = oracle.all_logits(model, ids + tokens[:-1]).argmax(-1)[len(ids) - 1:]
        assert (best >= num_tokens).sum() >= 4, best
    return ids, logits.astype("<f4"), float(np.abs(logits - second).max()), tokens, gaps


def main():
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    check = sys.argv[1:] == ["--check"]
    files, notes = [], {}
    for name, c in MODELS.items():
        at = lambda ext: os.path.join(oracle.HERE, name + ext)
        target = at(".gguf") + ".new" if check else at(".gguf")
        write_gguf(target, name, c)
        ids, logits, disagreement, tokens, gaps = compute(target, c)
        assert disagreement < 1e-4, disagreement
        assert min(gaps) > 10 * TOLERANCE, min(gaps)
        assert 2 not in tokens, "greedy continuation meets the end token: choose another seed"
        if check:
            same = oracle.sha256(target) == oracle.sha256(at(".gguf"))
            os.remove(target)
            old = np.fromfile(at(".f32"), "<f4").reshape(logits.shape)
            with open(at(".json")) as f:
                g = json.load(f)
            ok = same and np.abs(old - logits).max() < 1e-4 and g["prompt"] == ids and g["greedy"] == tokens
            print(name, "ok" if ok else "DIFFERENT", f"logits within {np.abs(old - logits).max():.1e}")
            if not ok:
                sys.exit(1)
            continue
        logits.tofile(at(".f32"))
        with open(at(".json"), "w") as f:
            f.write("{\n" + ",\n".join(f' "{k}": {json.dumps(v)}' for k, v in {
                "model": name + ".gguf", "logits": name + ".f32", "positions": c["tokens"], "vocab": c["vocab"],
                "tolerance": TOLERANCE, "prompt": ids, "greedy": tokens, "gaps": [round(g, 5) for g in gaps],
            }.items()) + "\n}\n")
        files += [name + ext for ext in (".gguf", ".f32", ".json")]
        notes[name] = dict(c, logits_shape=[c["tokens"], c["vocab"]], logits_std=round(float(logits.std()), 3),
                           logits_abs_max=round(float(np.abs(logits).max()), 3), smallest_greedy_gap=round(min(gaps), 5),
                           fp32_against_fp64=float(f"{disagreement:.1e}"))
        p = np.exp(logits - logits.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        print(name, notes[name], "mean top prob", p.max(-1).mean(), len(set(tokens)))
    if not check:
        oracle.update_manifest("tiny", {
            "versions": oracle.versions("torch", "transformers", "gguf", "numpy"),
            "tolerance_max_abs": TOLERANCE, "greedy_tokens": GREEDY, "models": notes,
        }, files)


if __name__ == "__main__":
    main()
