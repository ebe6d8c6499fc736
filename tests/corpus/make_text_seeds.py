#!/usr/bin/env python3
"""Writes hf_tokenizer_fuzz/ and jinja_fuzz/: small files from which these fuzz targets start, many of
them damaged on purpose.

Plain Python, no packages, the same bytes every time:  python3 tests/corpus/make_text_seeds.py
"""

import copy
import json
import pathlib

HERE = pathlib.Path(__file__).parent
BLANK = "\u2581"

CHARACTERS = {
    "added_tokens": [{"id": 7, "content": "<x>", "special": True, "normalized": False, "rstrip": True},
                     {"id": 8, "content": "a b", "normalized": True, "lstrip": True, "single_word": True}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": BLANK},
                                                       {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}]},
    "pre_tokenizer": None,
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                       "special_tokens": {"<x>": {"id": "<x>", "ids": [7], "tokens": ["<x>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": BLANK}, "content": " "}, {"type": "ByteFallback"},
                                                 {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "?", "fuse_unk": True, "byte_fallback": True, "merges": [[BLANK, "l"], "l l"],
              "vocab": {"?": 0, BLANK: 1, "l": 2, "<0x0A>": 3, "e": 4, BLANK + "l": 5, "ll": 6}},
}
METASPACE = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "first", "split": True}
BYTES = {
    "added_tokens": [{"id": 5, "content": "<|x|>", "special": True, "normalized": False}, {"id": 6, "content": "\u00e9", "special": False, "normalized": True}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "ignore_merges": True, "merges": [["l", "l"], ["H", "e"]], "vocab": {"H": 0, "e": 1, "l": 2, "ll": 3, "He": 4}},
}
CONFIG = {"bos_token": "<|x|>", "eos_token": {"content": "<|x|>"}, "chat_template": [{"name": "default", "template": "{{ messages }}"}]}


def changed(root, *changes):
    """`root` with each (path, value) put in; a path is keys with / between."""
    root = copy.deepcopy(root)
    for path, value in changes:
        *keys, last = path.split("/")
        at = root
        for key in keys:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[int(last) if isinstance(at, list) else last] = value
    return root


def text(*files):
    return b"\0".join(f if isinstance(f, bytes) else json.dumps(f).encode() for f in files)


TOKENIZERS = {
    "characters": text(CHARACTERS),
    "metaspace": text(changed(CHARACTERS, ("normalizer", None), ("pre_tokenizer", METASPACE))),
    "metaspace_old": text(changed(CHARACTERS, ("normalizer", None), ("pre_tokenizer", {"type": "Metaspace", "replacement": BLANK, "add_prefix_space": True}))),
    "metaspace_decoder": text(changed(CHARACTERS, ("normalizer", {"type": "NFC"}), ("pre_tokenizer", {**METASPACE, "prepend_scheme": "never", "split": False}),
                                      ("decoder", METASPACE), ("model/byte_fallback", False), ("model/ignore_merges", True))),
    "bytes": text(BYTES),
    "with_configs": text(BYTES, CONFIG, {"eos_token_id": [5, 6]}, b"{{ bos_token }}"),
    "unigram": text(changed(CHARACTERS, ("model/type", "Unigram"))),
    "wordpiece": text(changed(CHARACTERS, ("model/type", "WordPiece"))),
    "no_model": text({"model": None}),
    "cut": text(BYTES)[:300],
    "not_utf8": b'{"model": "\xff"}',
    "twice": b'{"model": {"vocab": {"a": 0, "a": 1}}}',
    "deep": b"[" * 2000,
    "id_huge": text(changed(BYTES, ("model/vocab/ll", 1 << 62))),
    "id_negative": text(changed(BYTES, ("model/vocab/ll", -1))),
    "id_taken": text(changed(BYTES, ("added_tokens/0/id", 2))),
    "id_float": text(changed(BYTES, ("added_tokens/0/id", 5.5))),
    "holes": text(changed(BYTES, ("added_tokens/0/id", 60000))),
    "too_many_holes": text(changed(BYTES, ("added_tokens/0/id", 4000000))),
    "empty_token": text(changed(BYTES, ("added_tokens/0/content", ""))),
    "long_special": text(changed(BYTES, ("added_tokens/0/content", "x" * 5000))),
    "merge_of_nothing": text(changed(BYTES, ("model/merges", [["l", "zz"]]))),
    "merge_twice": text(changed(BYTES, ("model/merges", [["l", "l"], ["l", "l"]]))),
    "merge_of_three": text(changed(BYTES, ("model/merges", ["l l l", 3]))),
    "byte_token_wrong": text(changed(CHARACTERS, ("model/vocab", {"?": 0, "<0xZZ>": 1}))),
    "template_without_token": text(changed(CHARACTERS, ("post_processor/special_tokens", {}))),
    "template_id_huge": text(changed(CHARACTERS, ("post_processor/special_tokens/<x>/ids", [1 << 40]))),
    "normalizer_unknown": text(changed(CHARACTERS, ("normalizer", {"type": "Lowercase"}))),
    "normalizer_nested": text(changed(CHARACTERS, ("normalizer/normalizers/0", {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []}]}))),
    "wrong_types": text(changed(CHARACTERS, ("added_tokens/0/lstrip", "yes"))),
    "config_broken": text(BYTES, b"{", b"", b""),
    "config_unknown_token": text(BYTES, {"eos_token": "<nope>"}),
    "generation_out_of_range": text(BYTES, {}, {"eos_token_id": 99}),
}

TEMPLATES = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}x{% endif %}",
    "namespace": "{%- set ns = namespace(n=0, s='') -%}{% for m in messages[::-1] %}{% set ns.n = ns.n + loop.index0 %}{% set ns.s = ns.s ~ m.role[1:-1] %}{% endfor %}{{ ns.n }}{{ ns.s }}",
    "macro": "{% macro f(x, y=2, z='a') -%}{{ x }}{{ y }}{{ f(x - 1) if x > 0 }}{%- endmacro %}{{ f(3, z=1) }}",
    "call": "{% macro f(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(v) f([1, 2]) %}{{ v }}{{ s }}{% endcall %}",
    "recursive": "{% for x in [[1, [2]], 3] if x recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x ~ loop.depth }}{% endif %}{% else %}e{% endfor %}",
    "filter_block": "{% filter upper | replace('A', s) %}a{{ n }}{% endfilter %}{% set q | trim %} x {% endset %}{% with a = 1, b = q %}{{ a }}{{ b }}{% endwith %}",
    "format": "{{ '{:>5}{!r:^9}{0.k[a]}{a:{b}}'.format(s, d, a=n, b=4) }}{{ '{:08.3f}{:,}{:#x}'.format(2.5, 12345, n) }}",
    "percent": "{{ '%5.2f%-4d%+d%s%%' % (1.5, n, n, s) }}{{ '%(k)s' % d }}{{ '%*d' | format(3, n) }}",
    "filters": "{{ messages | map(attribute='role') | unique | sort | join(',') }}{{ messages | selectattr('content', 'string') | list | length }}{{ d | tojson(indent=2) | indent(3) }}",
    "groupby": "{% for g, ms in messages | groupby('role') %}{{ g }}{{ ms | batch(2, 0) | list | length }}{% endfor %}{{ s | truncate(3) | center(9) }}",
    "methods": "{{ s.split('e')[0].strip().title() }}{{ s.replace('t', '').startswith('e') }}{{ s.find('x') }}{{ s.center(9, '*').zfill(12) }}{{ d.items() | list }}{{ d.get('z', 1) }}",
    "slices": "{{ s[::-1] }}{{ s[1:3] }}{{ messages[-1:0:-1] | length }}{{ [1, 2, 3][::2] }}{{ (1, 2)[0] }}",
    "control": "{% for i in range(9) %}{% if i == 3 %}{% continue %}{% elif i > 5 %}{% break %}{% endif %}{{ i // 2 }}{{ -i % 3 }}{{ i ** 2 }}{{ 1 < i <= 4 }}{% endfor %}",
    "tests": "{{ s is string and d is mapping and messages is iterable and n is not none and nope is undefined and n is divisibleby 5 and 1 in [1] and 2 not in (1,) }}",
    "space": "  {%- if n -%}  a  {%+ endif -%}\n\n{#- c -#} {{- s -}}  {% raw %}{{ {% {% endraw %}\n",
    "generation": "{% generation %}{{ strftime_now('%d %b %Y') }}{% endgeneration %}{{ raise_exception('no ' ~ s) }}",
    "cut_tag": "{% if n", "cut_string": "{{ 'abc", "cut_comment": "{# abc", "cut_raw": "{% raw %}{{ n }}", "cut_block": "{% for a in messages %}{{ a }}",
    "crossed": "{% for a in b %}{% if a %}{% endfor %}{% endif %}", "brackets": "{{ ([{ }]) }}", "nested": "{{ " + "(" * 400 + "1" + ")" * 400 + " }}",
    "operators": "{{ 1 +* 2 ~~ }}", "unknown_tag": "{% include 'x' %}", "unknown_filter": "{{ s | nosuch }}", "unknown_call": "{{ nosuch(1) }}",
    "dunder": "{{ s.__class__ }}", "endless": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "doubling": "{% set ns = namespace(s='ab') %}{% for i in range(90) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "long_loop": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "wide": "{{ '%99999999d' % 1 }}{{ '{:99999999999}'.format(1) }}",
    "not_utf8": b"{{ '\xff' }}", "numbers": "{{ 99999999999999999999 }}{{ 1e999 }}{{ 0x1 }}", "escapes": "{{ '\\x4g\\u12\\N{DASH}\\777' }}",
}


def main():
    for folder, seeds in (("hf_tokenizer_fuzz", TOKENIZERS), ("jinja_fuzz", TEMPLATES)):
        (HERE / folder).mkdir(exist_ok=True)
        for name, content in seeds.items():
            (HERE / folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        print(folder, len(seeds))


if __name__ == "__main__":
    main()
