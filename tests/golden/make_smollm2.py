"""Writes smollm2_greedy.json and eval_text.json: SmolLM2 on dequantised weights in fp32.

  python make_smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf
"""

import json
import os
import sys

import numpy as np

import oracle

STEPS = 64
NEAR_TIE = 1e-3

CHAT = [
    [("user", "Why is the sky blue?")],
    [("system", "You are terse."), ("user", "Name three rivers in Europe.")],
    [("user", "Write a Python function that returns the n-th Fibonacci number.")],
    [("user", "Hello!"), ("assistant", "Hello! What would you like to talk about?"),
     ("user", "Tell me how bread is made, in four short steps.")],
    [("user", "What is 17 + 25? Explain how you got there.")],
    [("user", "Traduis en fran\u00e7ais : \u00ab The harbour is quiet in the morning. \u00bb")],
    [("user", "\u4f60\u597d\uff01\u8bf7\u7528\u4e2d\u6587\u4ecb\u7ecd\u4e00\u4e0b\u4f60\u81ea\u5df1\u3002")],
    [("user", "Give me a list of 5 things to pack for a rainy weekend \u2614\U0001f9e5.")],
    [("system", "You answer in one sentence."), ("user", "What does a canal lock do?"),
     ("assistant", "It raises or lowers a boat between two levels of water."), ("user", "And why does it need no pump?")],
    [("user", "Write a short poem about a lighthouse.")],
    [("user", "Is the following code correct?\n\nint sum(const int* a, int n) {\n  int s;\n  for (int i = 0; i <= n; i++) s += a[i];\n  return s;\n}\n")],
    [("user", "")],
]

RAW = [
    "The capital of France is",
    "Once upon a time, in a village between two rivers, there lived",
    "def quicksort(items):\n    if len(items) <= 1:\n        return items\n    pivot = items[0]\n",
    "1, 2, 3, 5, 8, 13,",
    "\u0414\u0430\u0432\u043d\u044b\u043c-\u0434\u0430\u0432\u043d\u043e, \u0432 \u0434\u0430\u043b\u0451\u043a\u043e\u0439 \u0441\u0442\u0440\u0430\u043d\u0435",
    "#include <stdio.h>\n\nint main(void) {\n\tprintf(\"",
    "A",
]


def long_prompt():
    """About 300 tokens: the opening of eval_text.txt."""
    with open(os.path.join(oracle.HERE, "eval_text.txt"), encoding="utf-8") as f:
        text = f.read()
    return text[: text.index("How a lock works")].rstrip() + "\n\nWhat the tide leaves"


def main():
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    path = oracle.open_smollm2(sys.argv)
    meta, tensors = oracle.read_gguf(path)
    _, tokenizer = oracle.build_tokenizer(meta)
    render = oracle.chat_template(meta)
    model = oracle.build_reference(meta, tensors)

    # The conversion itself: an independent pass over the GGUF tensors must agree.
    ids = tokenizer.encode(RAW[2]).ids
    disagreement = float(np.abs(oracle.all_logits(model, ids) - oracle.numpy_logits(meta, tensors, ids)).max())
    print(f"transformers fp32 against numpy fp64: {disagreement:.1e}", flush=True)
    assert disagreement < 1e-2

    prompts = []
    for turns in CHAT:
        messages = [{"role": role, "content": content} for role, content in turns]
        prompts.append({"messages": messages, "text": render(messages, True)})
    prompts += [{"text": text} for text in [*RAW, long_prompt()]]
    for p in prompts:
        p["prompt"] = tokenizer.encode(p["text"], add_special_tokens=False).ids
        p["greedy"], gaps = oracle.greedy(model, p["prompt"], STEPS)
        p["end_at"] = p["greedy"].index(2) if 2 in p["greedy"] else -1
        p["gaps"] = [round(g, 6) for g in gaps]
        print(len(p["prompt"]), p["end_at"], f"{min(gaps):.2e}", ascii(tokenizer.decode(p["greedy"]))[:110], flush=True)

    # The evaluation text: log-probability of each next token and the favourite at each position.
    with open(os.path.join(oracle.HERE, "eval_text.txt"), encoding="utf-8") as f:
        ids = tokenizer.encode(f.read(), add_special_tokens=False).ids
    logits = oracle.all_logits(model, ids).astype(np.float64)
    logp = logits - logits.max(-1, keepdims=True)
    logp -= np.log(np.exp(logp).sum(-1, keepdims=True))
    nll = -logp[np.arange(len(ids) - 1), ids[1:]]
    with open(os.path.join(oracle.HERE, "eval_text.json"), "w") as f:
        f.write("{\n" + ",\n".join(f' "{k}": {json.dumps(v)}' for k, v in {
            "text": "eval_text.txt", "mean_nll": round(float(nll.mean()), 5), "ids": ids,
            "argmax": logits.argmax(-1).tolist(), "nll": [round(float(x), 4) for x in nll],
        }.items()) + "\n}\n")
    print(f"eval text: {len(ids)} tokens, mean nll {nll.mean():.4f}", flush=True)

    # The same steps in fp64 numpy, all at once: how far fp32 noise reaches, and whether any choice depends on it.
    worst_gap, flips = 0.0, []
    for n, p in enumerate(prompts):
        logits = oracle.numpy_logits(meta, tensors, p["prompt"] + p["greedy"][:-1])[len(p["prompt"]) - 1:]
        top = np.sort(np.partition(logits, -2, axis=-1)[:, -2:], axis=-1)
        worst_gap = max(worst_gap, float(np.abs((top[:, 1] - top[:, 0]) - p["gaps"]).max()))
        flips += [[n, int(step)] for step in np.nonzero(logits.argmax(-1) != p["greedy"])[0]]
    near = [[n, step, g] for n, p in enumerate(prompts) for step, g in enumerate(p["gaps"]) if g < NEAR_TIE]
    smallest = sorted(g for p in prompts for g in p["gaps"])[:8]
    print(f"fp64: gaps differ by at most {worst_gap:.1e}, other choices at {flips}; near ties {near}; smallest {smallest}")

    oracle.write_records("smollm2_greedy.json", {"source_sha256": oracle.SMOLLM2_SHA256, "near_tie": NEAR_TIE}, prompts)
    oracle.update_manifest("smollm2", {
        "versions": oracle.versions("torch", "transformers", "tokenizers", "gguf", "jinja2", "numpy"),
        "source_sha256": oracle.SMOLLM2_SHA256, "prompts": len(prompts), "steps": STEPS, "near_tie": NEAR_TIE,
        "near_ties": near, "smallest_gaps": smallest, "fp64_other_choices": flips,
        "fp64_gap_difference_max": float(f"{worst_gap:.1e}"), "fp32_against_fp64_logits": float(f"{disagreement:.1e}"),
        "eval_text_tokens": len(ids), "eval_text_mean_nll": round(float(nll.mean()), 5),
    }, ["smollm2_greedy.json", "eval_text.txt", "eval_text.json"])


if __name__ == "__main__":
    main()
