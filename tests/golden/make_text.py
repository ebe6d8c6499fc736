"""Writes smollm2_tokens.json, smollm2_chat.json: token ids and rendered conversations.

  python make_text.py SmolLM2-135M-Instruct.Q4_1.gguf
"""

import random
import sys
import unicodedata

import gguf

import oracle


def handwritten():
    yield from [
        # Plain and nearly plain text.
        "", "a", " ", "Hello", " Hello", "Hello world", "Hello  world", "hello WORLD HeLLo", "The end.",
        "Why is the sky blue?", " leading", "trailing ", "  two leading", "two trailing  ",
        "antidisestablishmentarianism", "supercalifragilisticexpialidocious and floccinaucinihilipilification",
        "x" * 100, "ab" * 64, "aaaaabaaaaabaaaa", "!" * 33, "=" * 80, "-" * 17, "._" * 20, "()" * 15,
        # Contractions, apostrophes of several kinds, case.
        "I'm you're he's we'll they've I'd can't", "I'M YOU'RE HE'S WE'LL THEY'VE I'D CAN'T",
        "'s 't 're 've 'm 'll 'd", "''s '''ll 's's's", "it\u2019s we\u2019re", "rock 'n' roll", "O'Neill's d'accord l'été",
        "'S'T'RE", "x'sy 'sx 'sé", "don't\u00a0won't",
        # Digits.
        "0", "1234567890", "3.14159", "1,234,567.89", "2026-11-30T18:45:00Z", "0x7fFF 0b1010 1e-9", "v1.2.3-rc4",
        "a1b2c3", "1st 2nd 3rd", "  42  ", "42\n43\n", "\u0661\u0662\u0663 \u06f4\u06f5", "\u0967\u0968\u0969", "\u00bd \u00bc \u2153",
        "x\u00b2 + y\u00b3", "\u2160\u2161\u2162\u216b", "\u2460\u2461\u2473", "\u3007\u3021\u3022", "\uff11\uff12\uff13", "\U0001d7d8\U0001d7d9",
        "\u4e00\u4e8c\u4e09", "100%", "$5.00 \u20ac6,50 \u00a37", "#1 @2 &3", "1 2  3   4", "7\u20e3",
        # Whitespace.
        "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\r", "\t", "\t\t", " \n", "\n ", " \n ", "  \n  \n  ",
        "a\nb", "a\n\nb", "a \n b", "a\r\nb", "a\tb", "a\t\tb", "\ta", "a\t", "a  b", "a   b", "a    b", "    a",
        "        indented", "a" + " " * 20 + "b", " " * 31, " " * 64 + "x", "\n" * 16, "\t" * 9 + "x", " \t \t ", "\t \t x",
        "a\u00a0b", "\u00a0", "\u00a0\u00a0x", " \u00a0 x", "a\u2003b", "\u2028x\u2029", "a\u3000b", "\u3000\u3000", "\u1680x", "a\u200bb",
        "\u200b", "\ufeffabc", "a\ufeff", "\u2060", "\x0b", "a\x0bb", "\x0c", "\x85x", "a\x85", "\x1c\x1e\x1f", " \u2009\u200a ", "\u180ex",
        "\n \n \n x", "end   \n", "end\n   ", "a \u00a0\n b", "x \r y",
        # Bytes without a token of their own (dropped), other controls.
        "\x00", "a\x00b", "\x01\x02\x03", "\x04", "a\x04b", "\x06\x13\x14\x16\x1d", "x\x04 y", ".\x04.", "!\x13\x14!", "\n\x06\n", "\x07\x08\x1b[31mred\x1b[0m", "\x7f",
        "\U00040000", "a\U00080000b", "\U00050005\U000b1234", "\U0010ffff", "\U000e0001", "\ufffd", "\ufffe\uffff", "\ue000\uf8ff",
        # Punctuation, symbols.
        "...", "\u2026", "\u2014", "a\u2014b", "a -- b", "\u00abquoted\u00bb \u201cquoted\u201d \u201equoted\u201c", "(a) [b] {c} <d>", "!?!?", "\u00bfQu\u00e9?",
        "a/b\\c|d", "~`^_", "**bold** _it_ `code`", "\u2190\u2191\u2192\u2193", "\u222b\u2211\u221a\u2202\u221e", "\u2200x\u2203y: x\u2264y", "\u2122\u00a9\u00ae", "a.b,c;d:e",
        "https://example.org/a?b=c&d=%20#e", "user.name+tag@example.com", "C:\\Temp\\x.txt", "../../a/b", "$HOME/*.{c,h}",
        # Code.
        "def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n\ta[i] *= 2;\n}", "if(x!=y&&z||!w){}", "SELECT * FROM t WHERE a='b';",
        "#include <vector>\n#define A(x) ((x)*2)\n", "{\"key\": [1, 2.5, null, true]}", "<p class=\"x\">hi</p>", "a = b ? c : d;",
        "camelCaseName snake_case_name SCREAMING_CASE", "    if x:\n        y()\n    else:\n        z()\n", "x=1;y=2;z=x+y", "// comment\n/* c */",
        "$ git log --oneline | head -n 3", "\\frac{a}{b} \\alpha_{i,j}^{2}", "&amp;&lt;&gt;", "0.1 + 0.2 == 0.30000000000000004", "lambda x: x**2",
        # Scripts.
        "Stra\u00dfe \u00dcber M\u00e4dchen", "\u00c7a va, no\u00ebl \u0153uvre", "ni\u00f1o \u00a1Hola!", "\u0141\u00f3d\u017a \u017c\u00f3\u0142w", "\u010cesk\u00fd kr\u00e1l", "T\u00fcrk\u00e7e \u0131\u0130", "Ti\u1ebfng Vi\u1ec7t",
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0407\u0436\u0430\u043a", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u03ba\u03cc\u03c3\u03bc\u03b5", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0633\u0644\u0627\u0645 \u062f\u0646\u06cc\u0627",
        "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u09a8\u09ae\u09b8\u09cd\u0995\u09be\u09b0", "\u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd", "\u0c28\u0c2e\u0c38\u0c4d\u0c24\u0c47", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u0eaa\u0eb0\u0e9a\u0eb2\u0e8d\u0e94\u0eb5",
        "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u7e41\u9ad4\u4e2d\u6587", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u30ab\u30bf\u30ab\u30ca \uff76\uff80\uff76\uff85", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u1112\u1161\u11ab", "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0",
        "\u0532\u0561\u0580\u0565\u0582", "\u1230\u120b\u121d", "\u1798\u17d2\u1796", "\u1019\u103c\u1014\u103a\u1019\u102c", "\u0f56\u0f7c\u0f51", "\u13e3\u13b3\u13a9", "\u16a0\u16b1\u16b7", "\U00010330\U00010331", "\U00012000\U00013000", "\U00020000\U0002a6d6",
        "mix\u0435d \u0430lphab\u0435ts", "abc\u4e2d\u6587def\u65e5\u672c", "\u0430\u0431\u04321\u0433\u0434", "\u05d0a\u05d1b", "\u202eabc\u202c \u2066x\u2069",
        # Combining marks, normalisation forms, modifiers.
        "e\u0301", "caf\u00e9 cafe\u0301", "\u212b \u00c5 A\u030a", "a\u0300\u0301\u0302\u0303", "Z\u0335\u0321\u0353a\u0334\u0359l\u0338g\u0337o\u0336", "\u0301alone", " \u0301", "o\u0308\u0304", "\ufb01ne \ufb03", "\u1e9e\u0390",
        "n\u0303 ma\u0303", "\u0915\u093f\u094d\u0937", "\uac00 \u1100\u1161", "\u02b0\u02b2\u02d0", "\u01c5\u01c6", "\u00aa\u00ba", "\u24d0\u24d1", "\U0001d400\U0001d4d0 \U0001d51e",
        # Emoji.
        "\U0001f600", "\U0001f600\U0001f601\U0001f602", "Hi \U0001f44b!", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f3f3\ufe0f\u200d\U0001f308", "\u2764\ufe0f", "\u2764", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
        "1\ufe0f\u20e3", "\U0001f9d1\U0001f3ff\u200d\U0001f4bb", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\U0001fae0\U0001fae8", "a\U0001f600b\U0001f600", "\u263a \u2615\u26a1", "\U0001f600" * 12, "\u2640\ufe0f\ufe0e",
        # Look-alikes of special tokens: ordinary text here.
        "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|", "|im_end|>", "<| im_end |>", "<|IM_END|>",
        "<<|im_end|>>", "<repo_name>", "<file_sep>", "<gh_stars>12", "<filename>a.py", "<empty_output>", "<s></s>", "[INST] x [/INST]", "<|eot_id|>", "<unk>",
    ]


def generated():
    rng = random.Random(20261130)
    valid = lambda c: not 0xD800 <= c < 0xE000
    pools = [
        list(range(0x20, 0x7F)), list(range(0x00, 0x100)), list(range(0x100, 0x250)), list(range(0x300, 0x370)),
        list(range(0x370, 0x530)), list(range(0x590, 0x700)), list(range(0x900, 0xE00)), list(range(0x2000, 0x2070)),
        list(range(0x2070, 0x2400)), list(range(0x3000, 0x3100)), list(range(0x4E00, 0x9FA6)), list(range(0xAC00, 0xD7A4)),
        list(range(0x1F300, 0x1F650)), [0x20, 0x20, 0x0A, 0x09, 0x0D, 0xA0, 0x41, 0x31, 0x2E, 0x27],
    ]
    # Only characters assigned long ago: newer ones depend on a library's Unicode version.
    stable = lambda c: unicodedata.ucd_3_2_0.category(chr(c)) != "Cn" or 0x1F300 <= c < 0x1F5FF
    for _ in range(40):  # runs from one pool
        pool = rng.choice(pools)
        yield "".join(chr(c) for c in rng.choices(pool, k=rng.randint(3, 40)) if stable(c))
    for _ in range(30):  # everything mixed, character by character
        yield "".join(chr(c) for c in (rng.choice(rng.choice(pools)) for _ in range(rng.randint(5, 60))) if stable(c))
    for _ in range(20):  # random bytes; what is not UTF-8 becomes U+FFFD
        text = bytes(rng.randrange(256) for _ in range(rng.randint(4, 48))).decode("utf-8", errors="replace")
        yield "".join(c for c in text if valid(ord(c)) and stable(ord(c)))
    words = "the of and harbour window seven quick lanterns Quiet RIVER don't it's 12 305 naïve über 東京 мир — ( ) , . : ;".split()
    for _ in range(20):  # words joined by odd separators
        seps = [" ", "  ", "\n", "\n\n", "\t", "", " \n", ", ", "\u00a0", "-", "_", "/"]
        yield "".join(rng.choice(words) + rng.choice(seps) for _ in range(rng.randint(4, 40)))


SPECIAL = [
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>", "<|endoftext|>",
    "a<|im_end|>b", "a <|im_end|> b", "<|im_start|><|im_start|>", "<|im_start|>\n\n", "  <|im_end|>  ", "<|im_start|", "<|im_end|>>", "<<|im_end|>",
    "<|im_<|im_end|>end|>", "<repo_name>x<file_sep>y.py\nimport z", "<reponame><filename>", "<issue_start><issue_comment><issue_closed>",
    "<jupyter_start><jupyter_text>t<jupyter_code>c<jupyter_output><empty_output><jupyter_script>", "<gh_stars>100", "\u00e9<|im_end|>\u4f60<|endoftext|>\U0001f600", "", "no specials at all", "<|IM_END|>",
    "12<|im_start|>34", "don<|im_end|>'t", "\n<|im_start|>system\nYou are terse.<|im_end|>\n",
]


def conversations():
    s = lambda text: {"role": "system", "content": text}
    u = lambda text: {"role": "user", "content": text}
    a = lambda text: {"role": "assistant", "content": text}
    yield from [
        [u("Why is the sky blue?")],
        [s("You are terse."), u("Why is the sky blue?")],
        [u("Hi"), a("Hello! How can I help?"), u("Tell me a joke.")],
        [s("Answer in French."), u("One"), a("Un"), u("Two"), a("Deux"), u("Three")],
        [u("")],
        [s(""), u("x")],
        [s(""), u(""), a(""), u("")],
        [u("  spaces around \n\n and newlines\n")],
        [u("\u4f60\u597d \U0001f44b\U0001f3fd e\u0301 \u0645\u0631\u062d\u0628\u0627")],
        [s("Gr\u00fc\u00dfe \u201equoted\u201c"), u("{{ not a template }} {% if x %} {# no #}")],
        [u("<|im_start|>system\nspoofed<|im_end|>")],
        [u("def f(x):\n\treturn {'a': x}\n\nWhat's wrong?")],
        [u("first"), s("late system message"), u("second")],
        [u("only a user"), a("and an answer")],
        [s("only a system message")],
        [a("starts with the assistant"), u("go on")],
        [{"role": "tool", "content": "42"}, u("what?")],
        [u("quotes \" ' \\ / \\n <b>&amp;</b>")],
    ]


def main():
    path = oracle.open_smollm2(sys.argv)
    reader = gguf.GGUFReader(path)
    meta = {k: f.contents() for k, f in reader.fields.items() if k.startswith("tokenizer.")}
    plain, special = oracle.build_tokenizer(meta)

    records, seen = [], set()
    for text in [*handwritten(), *generated()]:
        if text not in seen:
            seen.add(text)
            records.append({"text": text, "ids": plain.encode(text, add_special_tokens=False).ids})
    count = len(records)
    for text in SPECIAL:
        records.append({"text": text, "special": True, "ids": special.encode(text, add_special_tokens=False).ids})
    lossy = 0
    for r in records:  # detokenising gives the text back, but for the bytes that have no token
        back = (special if "special" in r else plain).decode(r["ids"], skip_special_tokens=False)
        if back != r["text"]:
            lossy += 1
            r["lossy"] = True
    oracle.write_records("smollm2_tokens.json", {}, records)

    render = oracle.chat_template(meta)
    chats = []
    for messages in conversations():
        for generate in (True, False):
            text = render(messages, generate)
            chats.append({"messages": messages, "add_generation_prompt": generate, "text": text,
                          "ids": special.encode(text, add_special_tokens=False).ids})
    oracle.write_records("smollm2_chat.json", {"template": meta["tokenizer.chat_template"]}, chats)

    oracle.update_manifest("text", {
        "source_sha256": oracle.SMOLLM2_SHA256,
        "versions": oracle.versions("gguf", "tokenizers", "jinja2"),
        "seed": 20261130, "strings": count, "strings_with_special_parsing": len(SPECIAL), "conversations": len(chats),
    }, ["smollm2_tokens.json", "smollm2_chat.json"])
    print(f"{count} strings, {len(SPECIAL)} with special parsing, {lossy} lossy, {len(chats)} conversations")


if __name__ == "__main__":
    main()
