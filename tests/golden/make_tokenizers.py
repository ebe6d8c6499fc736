"""Writes tokenizers/*.json (small tokenizers with each family's exact steps, trained here) and
tokenizers_golden.json: ids of mixed text by the `tokenizers` library; sentencepiece_golden.json: the
same by SentencePiece itself; tokenizers/steps_*.json and tokenizer_steps_golden.json: the same for
tokenizers that each set some of the library's switches (Metaspace, unknown and added tokens, ...).

  python make_tokenizers.py                  (needs tokenizers, sentencepiece)
  python make_tokenizers.py --big DIR MB     no golden files: text and ids for a large comparison
"""

import json
import os
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import make_text
import oracle

FOLDER = os.path.join(oracle.HERE, "tokenizers")

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>"]
USER = ["<think>", "</think>"]


def split(expression):
    return pre_tokenizers.Split(Regex(expression), "isolated")


def bytes_only():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def byte_level(pre, normalizer=None, ignore_merges=False, bos=None):
    return {"pre": pre, "normalizer": normalizer, "ignore_merges": ignore_merges, "bos": bos, "sentencepiece": False}


def families():
    yield "gpt2", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
    yield "smollm", byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]))
    yield "llama3", byte_level(pre_tokenizers.Sequence([split(LLAMA3), bytes_only()]), None, True, "<|begin_of_text|>")
    yield "qwen2", byte_level(pre_tokenizers.Sequence([split(QWEN2), bytes_only()]), normalizers.NFC())
    # Known to GGUF readers only; no Hugging Face file has these steps.
    yield "default", byte_level(pre_tokenizers.Sequence([
        split(r"[\p{P}\$\+<=>\^~\|]+"), split(GPT2), split(r"\p{N}+"), split("[0-9][0-9][0-9]"), bytes_only()]))
    replace = normalizers.Replace(" ", "\u2581")
    yield "llama2", {"sentencepiece": True, "normalizer": normalizers.Sequence([normalizers.Prepend("\u2581"), replace]),
                     "pre": None, "ignore_merges": False, "bos": "<|begin_of_text|>"}
    yield "gemma", {"sentencepiece": True, "normalizer": replace, "pre": pre_tokenizers.Split(" ", "merged_with_previous"),
                    "ignore_merges": False, "bos": None}


def corpus():
    """What the vocabularies are trained on: every script, so that merges cut characters too."""
    rng = random.Random(7)
    texts = [t for t in make_text.handwritten() if "<|" not in t]
    return [t for _ in range(6) for t in texts] + [
        " ".join(rng.choice(texts) for _ in range(12)) for _ in range(400)] + [open(
            os.path.join(oracle.HERE, "eval_text.txt"), encoding="utf-8").read()]


def train(family):
    """A tokenizer with the family's steps; 900 merges of bytes or characters."""
    t = Tokenizer(models.BPE(unk_token=None))
    if family["sentencepiece"]:
        t.normalizer = family["normalizer"]
        t.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")  # words, for training only
        trainer = trainers.BpeTrainer(vocab_size=1500, show_progress=False, limit_alphabet=500)
    else:
        t.normalizer, t.pre_tokenizer = family["normalizer"] or normalizers.Sequence([]), family["pre"]
        trainer = trainers.BpeTrainer(vocab_size=1156, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(corpus(), trainer)
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    if family["sentencepiece"]:
        tokens = ["<unk>"] + [f"<0x{b:02X}>" for b in range(256)] + tokens
    if family["ignore_merges"]:
        # Whole words without the merges that would make them.
        tokens += [x for x in ["antidisestablishmentarianism", "\u0120harbour", "\u0120Quiet", "xx"] if x not in tokens]
    vocab = {x: i for i, x in enumerate(tokens)}
    out = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m) for m in model["merges"]],
                               unk_token="<unk>" if family["sentencepiece"] else None, fuse_unk=family["sentencepiece"],
                               byte_fallback=family["sentencepiece"], ignore_merges=family["ignore_merges"]))
    if family["normalizer"] is not None:
        out.normalizer = family["normalizer"]
    if family["pre"] is not None:
        out.pre_tokenizer = family["pre"]
    out.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    out.add_tokens([AddedToken(s, special=False, normalized=False) for s in USER])
    if family["sentencepiece"]:
        strip = [decoders.Strip(" ", 1, 0)] if family["bos"] else []
        out.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    else:
        out.decoder = decoders.ByteLevel()
    if family["bos"]:
        bos = family["bos"]
        out.post_processor = processors.TemplateProcessing(single=[bos, "$A"], pair=[bos, "$A", bos, "$B"],
                                                           special_tokens=[(bos, out.token_to_id(bos))])
    return out


def hard_texts():
    yield from make_text.handwritten()
    yield from make_text.generated()
    yield from [
        "'S'T'RE'VE'M'LL'D 'ſ it'ſ", "don'T WE'Re x'lL y'Ll", "''s 's'", "'L 'LX 'r 'rX", "\n'll", " 'll", "  'll",
        "a \n b \r\n\r\n  c", "  \n\n  x", " \t\n\t y", "\n \n", "x\n\n\n  \n y", "!\n\n", " !?\r\n\r\nx", ".\n .\n", "\u2028\u2029 z",
        "1234567", "12 345 6789", "\u0661\u0662\u0663\u0664", "1\u00b22\u00b33456", "a1234b", " 12345.6789", "00000000",
        "\tword", "\u00a0word", "\u0301word", ".word", "..word", "\u200bword", "\U0001f600word", "$word", "\nword", "\rword",
        "a\u0301\u0327\u0323b", "e\u0301 e\u0327\u0301 \u0041\u030a \u1112\u1161\u11ab \uac00\u11a8", "\u0344 \u0958 \u2126 \u212b \uf900 \u2f800",
        "\u0e01\u0e33 \u0f73\u0f75\u0f81", "q\u0307\u0323 d\u0323\u0307 \u1e0b\u0323", "\u0301\u0301\u0301", "\u0300" * 40 + "\u0323" * 40,
        "=== <<>> $$$ ~~~ a+b=c |x|", "<think>hm</think>ok", "< think>", "<think><think>", "a<think> b", "\u2581 \u2581\u2581x", "a \u2581b",
        "   leading blanks", "x" * 300, "ab" * 200, " " * 200, "\n" * 50, "\u4e2d" * 100, "harbour antidisestablishmentarianism Quiet xx xxx",
    ]


PROMPTS = [
    "<|im_start|>user\nhi <think>x</think><|im_end|>\n<|im_start|>assistant\n", "a<|endoftext|>b", "<|im_start|><|im_start|>", "x <|eot_id|> y",
    "  <|im_end|>  ", "<|im_end|>\u0301", "e<|im_end|>\u0301", "<|im_<|im_end|>end|>", "<|begin_of_text|>Hello",
]


def big_text(megabytes):
    """Mixed text without line structure: scripts, emoji, marks, code, random bytes, look-alikes."""
    rng = random.Random(99)
    hand = list(make_text.handwritten())
    stable = [c for c in range(0x110000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
    blocks = [range(0x20, 0x7F), range(0x300, 0x370), range(0x590, 0x780), range(0x900, 0x1000), range(0x1100, 0x1200),
              range(0x1E00, 0x2070), range(0x3000, 0x3100), range(0xAC00, 0xD7A4), range(0x1F300, 0x1F600)]
    size = 0
    while size < megabytes << 20:
        kind = rng.randrange(6)
        if kind == 0:
            text = rng.choice(["", " ", "\n", "  "]).join(rng.choice(hand) for _ in range(rng.randint(3, 12)))
        elif kind == 1:
            text = "".join(chr(rng.choice(stable)) for _ in range(rng.randint(20, 200)))
        elif kind == 2:
            block = rng.choice(blocks)
            text = "".join(chr(rng.choice(block)) if rng.random() < 0.8 else rng.choice(" \n\t'.19a") for _ in range(rng.randint(20, 200)))
            text = "".join(c for c in text if ord(c) >= 0x1F300 or unicodedata.ucd_3_2_0.category(c) != "Cn")
        elif kind == 3:
            text = rng.randbytes(rng.randint(20, 200)).decode("utf-8", errors="replace")
            text = "".join(c for c in text if unicodedata.ucd_3_2_0.category(c) != "Cn")
        elif kind == 4:
            base = "aeiouAEIOUnc\u05d0\u0627\u0915\u3042"
            text = "".join(rng.choice(base) + "".join(chr(rng.randrange(0x300, 0x34F)) for _ in range(rng.randrange(4))) for _ in range(60))
        else:
            text = "".join(rng.choice(SPECIAL + USER + ["<|", "|>", "im_end", " ", "\n", "x"]) for _ in range(rng.randint(2, 20)))
        size += len(text.encode())
        yield text


def sentencepiece_golden():
    """SentencePiece's BPE by scores: pieces, scores, types and ids."""
    import io

    import sentencepiece

    buffer = io.BytesIO()
    words = [t.replace("\n", " ").replace("\0", "") for t in corpus()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words), model_writer=buffer, model_type="bpe", vocab_size=1600, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=True, split_digits=True, minloglevel=2, num_threads=1)
    sp = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
    kind = lambda i: 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1
    size = sp.get_piece_size()
    records = []
    for text in dict.fromkeys(hard_texts()):
        # SentencePiece takes its own mark of a blank for one, and NUL for an end.
        if text and "\u2581" not in text and "\0" not in text and "<s>" not in text and "<unk>" not in text:
            ids = sp.encode(text)
            record = {"text": text, "ids": ids}
            back = sp.decode(ids)
            if back != text:
                record["decoded"] = back
            records.append(record)
    header = {"pieces": [sp.id_to_piece(i) for i in range(size)], "scores": [sp.get_score(i) for i in range(size)],
              "types": [kind(i) for i in range(size)]}
    oracle.write_records("sentencepiece_golden.json", header, records)
    oracle.update_manifest("sentencepiece", {"versions": oracle.versions("sentencepiece"), "strings": len(records)},
                           ["sentencepiece_golden.json"])
    print(len(records), "strings for sentencepiece,", sum("decoded" in r for r in records), "lossy")


def added(content, special=False, normalized=False, **flags):
    return AddedToken(content, special=special, normalized=normalized, **flags)


ADDED = [
    added("<|end|>", special=True, rstrip=True), added("<mask>", special=True, lstrip=True),
    added("<|user|>", special=True, lstrip=True, rstrip=True), added("<s>", special=True, normalized=True),
    added("<|a b|>", special=True, normalized=True, single_word=True), added("word", single_word=True),
    added("Tok", normalized=True, single_word=True), added("a b", normalized=True), added("\n", rstrip=True),
    added("~~", normalized=True, lstrip=True, rstrip=True), added("e\u0301t", normalized=True), added("<think>"),
    added("wordy"), added("Toky", normalized=True), added("=", lstrip=True, single_word=True),
]
PLAIN = [added("<s>", special=True), added("<|end|>", special=True), added("<think>")]


def step_families():
    """Tokenizers over characters or bytes, each with some switches set."""
    blank = "\u2581"
    replace = normalizers.Replace(" ", blank)
    prepend = normalizers.Prepend(blank)
    fuse = [decoders.Replace(blank, " "), decoders.ByteFallback(), decoders.Fuse()]
    metaspace = lambda scheme, split: {
        "pre": pre_tokenizers.Metaspace(replacement=blank, prepend_scheme=scheme, split=split), "decoder": decoders.Sequence(fuse)}
    base = {"normalizer": None, "pre": None, "decoder": None, "bytes": range(256), "byte_fallback": True, "unk": "<unk>", "fuse_unk": True,
            "ignore_merges": False, "added": PLAIN, "template": None, "byte_level": False}
    # Llama-2's file as written since 2024, and Mistral's.
    yield "first", {**base, **metaspace("first", False), "template": ["<s>", "$A"],
                    "decoder": decoders.Sequence(fuse + [decoders.Strip(" ", 1, 0)])}
    yield "always", {**base, **metaspace("always", True), "decoder": decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])}
    yield "never", {**base, **metaspace("never", True), "fuse_unk": False, "ignore_merges": True, "template": ["<s>", "$A", "<|end|>"]}
    yield "unknown", {**base, **metaspace("always", False), "bytes": [], "byte_fallback": False}
    yield "unknown_apart", {**base, **metaspace("first", True), "bytes": [], "byte_fallback": False, "fuse_unk": False}
    yield "some_bytes", {**base, **metaspace("always", False), "bytes": [*range(0x40), *range(0x80, 0xC8)]}
    yield "no_unknown", {**base, **metaspace("never", False), "bytes": range(0x80, 0xE4), "unk": None, "template": ["$A", "<|end|>"]}
    yield "added_prepend", {**base, "normalizer": normalizers.Sequence([prepend, replace]), "added": ADDED, "template": ["<s>", "$A"],
                            "decoder": decoders.Sequence(fuse + [decoders.Strip(" ", 1, 0)])}
    yield "added_nfc", {**base, "normalizer": normalizers.Sequence([normalizers.NFC(), normalizers.Sequence([replace])]), "added": ADDED,
                        "decoder": decoders.Sequence(fuse)}
    yield "added_metaspace", {**base, **metaspace("first", True), "added": ADDED, "ignore_merges": True}
    yield "added_bytes", {**base, "normalizer": normalizers.NFC(), "byte_level": True, "added": ADDED, "unk": None, "byte_fallback": False,
                          "pre": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "removed", invert=True), bytes_only()]),
                          "fuse_unk": False, "decoder": decoders.ByteLevel()}


def train_steps(family):
    trainer = dict(vocab_size=500, show_progress=False)
    t = Tokenizer(models.BPE(unk_token=None))
    if family["byte_level"]:
        t.pre_tokenizer = family["pre"]
        t.train_from_iterator(corpus(), trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **trainer))
    else:
        t.normalizer = normalizers.Replace(" ", "\u2581")
        t.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
        t.train_from_iterator(corpus(), trainers.BpeTrainer(limit_alphabet=120, **trainer))
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    if not family["byte_level"]:
        tokens = ["<unk>"] + [f"<0x{b:02X}>" for b in family["bytes"]] + tokens
    if family["ignore_merges"]:
        tokens += [x for x in ["\u2581harbour", "\u2581Quiet", "xx", "\u2581\u2581"] if x not in tokens]
    out = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=[tuple(m) for m in model["merges"]], unk_token=family["unk"],
                               fuse_unk=family["fuse_unk"], byte_fallback=family["byte_fallback"], ignore_merges=family["ignore_merges"]))
    if family["normalizer"] is not None:
        out.normalizer = family["normalizer"]
    if family["pre"] is not None:
        out.pre_tokenizer = family["pre"]
    out.decoder = family["decoder"]
    for token in family["added"]:  # one by one: add_special_tokens would put all of those first
        assert (out.add_special_tokens if token.special else out.add_tokens)([token]) == 1
    if family["template"]:
        out.post_processor = processors.TemplateProcessing(
            single=family["template"], special_tokens=[(x, out.token_to_id(x)) for x in family["template"] if x != "$A"])
    return out


def hide_special(t):
    """The same tokenizer that takes the text of control tokens for text: no text holds their place holders."""
    state = json.loads(t.to_str())
    for i, token in enumerate(state["added_tokens"]):
        if token["special"]:
            token.update(content=f"\U000f0000{i}\U000f0001", normalized=False)
    state["post_processor"] = None
    hidden = Tokenizer.from_str(json.dumps(state))
    assert all(hidden.token_to_id(a["content"]) == a["id"] for a in state["added_tokens"])
    return hidden


def added_texts(rng, count):
    """Added tokens among what may change how they are found."""
    between = ["", "", "", " ", "  ", "\n", "\t", "\u00a0", "\u2003", "\u200d", "_", "x", "1", ".", "\u0301", "\u00e9", "\u24b6", "\u2160", "word", "y", "\u2581",
               "<", "|>", "e", "t", "\U0001f600", "\u4e2d", "harbour", "Quiet", "xx"]
    words = [a.content for a in ADDED] + ["\u00e9t", "<s", "|end|>"]
    for _ in range(count):
        yield "".join(rng.choice(words) if rng.random() < 0.4 else rng.choice(between) for _ in range(rng.randint(1, 14)))


def encode(t, text, special):
    """Ids, or none where the library itself gives up (overlapping white space)."""
    try:
        return t.encode(text, add_special_tokens=special).ids
    except BaseException as e:  # its panics are no Exception
        if "Panic" not in type(e).__name__:
            raise
        return None


def steps_golden():
    rng = random.Random(5)
    # Every fifth of the hard texts, so that the file stays small, and all of those about blanks.
    hard = list(dict.fromkeys(hard_texts()))
    texts = hard[::5] + [t for t in hard if t.startswith(" ") or "\u2581" in t] + ["", " ", "a", " a", "\u2581", "\u2581a", "a  b ", "\u4e2d\U0001f600a\u0e01\u05d0"]
    texts += list(added_texts(rng, 120)) + PROMPTS
    texts = [t for t in dict.fromkeys(texts) if len(t) < 120]
    records = [{"text": text, "special": special, "ids": {}} for special in (False, True) for text in texts]
    names = []
    for name, family in step_families():
        t = train_steps(family)
        t.save(os.path.join(FOLDER, f"steps_{name}.json"), pretty=False)
        names.append(name)
        hidden = hide_special(t)
        for r in records:
            ids = encode(t if r["special"] else hidden, r["text"], r["special"])
            if ids is not None:
                r["ids"][name] = ids
                # The library takes normalized special tokens for no special ones here.
                back = (t if r["special"] else hidden).decode(ids, skip_special_tokens=family["added"] is not ADDED)
                if back != r["text"]:
                    r.setdefault("decoded", {})[name] = back
    oracle.write_records("tokenizer_steps_golden.json", {"families": names}, records)
    files = ["tokenizer_steps_golden.json"] + [f"tokenizers/steps_{n}.json" for n in names]
    oracle.update_manifest("tokenizer_steps", {"versions": oracle.versions("tokenizers"), "strings": len(records)}, files)
    print(len(records), "strings for", len(names), "step families,", [os.path.getsize(os.path.join(oracle.HERE, n)) for n in files])


def without_special(t):
    """The same tokenizer that takes the text of control tokens for text."""
    state = json.loads(t.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if not a["special"]]
    state["post_processor"] = None
    highest = max(state["model"]["vocab"].values()) + 1
    plain = Tokenizer.from_str(json.dumps({**state, "added_tokens": []}))
    # Ids of the others must not move: place holders that no text holds.
    for i in range(len(SPECIAL)):
        assert plain.add_tokens([AddedToken(f"\U000f0000{i}\U000f0001", special=False, normalized=False)]) == 1
    assert plain.add_tokens([AddedToken(s, special=False, normalized=False) for s in USER]) == len(USER)
    assert plain.token_to_id(USER[0]) == t.token_to_id(USER[0]) and highest == t.token_to_id(SPECIAL[0])
    return plain


def main():
    tokenizers = {name: train(family) for name, family in families()}
    if "--big" in sys.argv:
        folder, megabytes = sys.argv[2], int(sys.argv[3])
        texts = list(big_text(megabytes))
        for name, t in tokenizers.items():
            plain = without_special(t)
            with open(os.path.join(folder, name + ".jsonl"), "w", encoding="ascii") as f:
                for text in texts:
                    f.write(json.dumps({"text": text, "ids": plain.encode(text, add_special_tokens=False).ids}) + "\n")
            t.save(os.path.join(folder, name + ".json"), pretty=False)
        texts = [x for pair in zip(texts, added_texts(random.Random(3), len(texts))) for x in pair]
        for name, family in step_families():
            t = train_steps(family)
            hidden = hide_special(t)
            with open(os.path.join(folder, f"steps_{name}.jsonl"), "w", encoding="ascii") as f:
                for i, text in enumerate(texts):
                    ids = encode(t if i % 2 else hidden, text, i % 2 == 1)
                    if ids is not None:
                        f.write(json.dumps({"text": text, "special": i % 2 == 1, "ids": ids}) + "\n")
            t.save(os.path.join(folder, f"steps_{name}.json"), pretty=False)
        print(len(texts), "texts,", sum(len(x.encode()) for x in texts), "bytes")
        return
    os.makedirs(FOLDER, exist_ok=True)
    texts = list(dict.fromkeys(hard_texts()))
    records = []
    for text in texts:
        records.append({"text": text, "ids": {}})
    prompts = [{"text": text, "special": True, "ids": {}} for text in PROMPTS]
    for name, t in tokenizers.items():
        t.save(os.path.join(FOLDER, name + ".json"), pretty=False)
        plain = without_special(t)
        for r in records:
            r["ids"][name] = plain.encode(r["text"], add_special_tokens=False).ids
        for r in prompts:
            r["ids"][name] = t.encode(r["text"], add_special_tokens=True).ids
            r.setdefault("text_of", {})[name] = t.decode(r["ids"][name], skip_special_tokens=False)
        for r in records:
            r.setdefault("decoded", {})[name] = plain.decode(r["ids"][name], skip_special_tokens=False)
    for r in records + prompts:
        back = r.pop("decoded", None) or r.pop("text_of")
        differing = {n: s for n, s in back.items() if s != r["text"]}
        if differing:
            r["decoded"] = differing
    oracle.write_records("tokenizers_golden.json", {"families": list(tokenizers)}, records + prompts)
    names = ["tokenizers_golden.json"] + [f"tokenizers/{n}.json" for n in tokenizers]
    oracle.update_manifest("tokenizers", {"versions": oracle.versions("tokenizers"), "strings": len(records),
                                          "strings_with_special_parsing": len(prompts)}, names)
    sentencepiece_golden()
    steps_golden()
    print(len(records), "strings,", [os.path.getsize(os.path.join(oracle.HERE, n)) for n in names])


if __name__ == "__main__":
    main()
