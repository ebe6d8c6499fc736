"""Writes cases.json: templates with what jinja2 makes of them, for jinja_test.cc.

  python make_cases.py          (needs jinja2 3.1; the environment is Hugging Face's for chat templates)

Each record: template, and one of "text", "error" (Python raised), "refused" (Python prints an object's inside, which
no prompt means: Tandem fails instead).
"""

import json
import os
import re

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))

MESSAGES = [
    {"role": "system", "content": " You are \"terse\".\n"},
    {"role": "user", "content": "Zwölf Boxkämpfer & <tags> 'quoted' 😀"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nAnswer", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": [1.5, None, True], "items": "x"}}}]},
]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather\tnow — \u2028 \u007f \\ \"q\"",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": ["integer", "null"]}},
                   "required": ["city"]}}}]
VARIABLES = {
    "messages": MESSAGES, "tools": TOOLS, "empty": [], "nothing": None, "yes": True, "no": False, "i": 7, "j": -3,
    "x": 2.5, "big": 1e16, "small": 0.00001, "s": "Hello, World", "u": "çà va ÉTÉ ß ﬁ Σας ΟΔΟΣ İ", "blank": "  \t pad \u00a0\n",
    "d": {"b": 1, "a": {"k": [1, 2]}, "items": "hidden", "": 0}, "nested": [[1, [2, "a'b"]], {"q": "it's \"both\""}],
    "lines": "one\r\ntwo\n\nthree\x0bfour\u2028five\n", "mixed": [3, "a", None, True, 2.0, {"z": 1}], "numbers": [5, 3, 9, 1],
    "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
}

EXPRESSIONS = """
1|1.0|1.5e3|1e16|1e22|123456789012345680.0|0.1 + 0.2|1e-5|0.0001|-0.0|3.0e-7|1_000|7 // 2|-7 // 2|7 % -3|-7 % 3|7.5 // 2|-7.5 % 2|7 / 2|6 / 2|2 ** 10|2 ** -1|2.0 ** 3|2 ** 3 ** 2|-2 ** 2|i * j|i - j|i + x|+i|-x|yes + yes|i // 0|i % 0|1 / 0
9223372036854775807|9223372036854775806 + 1|"a" "b"|'it''s'|"tab\\tnew\\nline"|"\\x41\\u00e9\\U0001F600\\101\\q\\'"|'a' ~ 1 ~ none ~ true ~ 1.0 ~ missing|'a' + 'b'|'a' + 1|'a' * 3|3 * 'ab'|[1] * 2|[1, 2] + [3]|(1,) + (2,)|[1] + (2,)|'x' * -1
true|True|none|None|false|missing|missing.attr|missing['a']|d.a.k[1]|d['a']['k'][-1]|d.nope|d.nope.deeper|d['nope']|d.items|d['items']|d.get('items')|d.get('zz')|d.get('zz', 4)|d.keys()|d.keys() | list|d.values() | list|d.items() | list|d | items | list|d | list|d | length|d.items() | length|(d | items) | length
s[0]|s[-1]|s[99]|s[1:4]|s[::-1]|s[-5:]|s[:-5:2]|s[10:2:-3]|u[1]|u[::-1]|messages[0].role|messages[-1]['role']|messages[1:] | length|messages[::-1] | map(attribute='role') | list|numbers[5]|numbers[1:3]|numbers[::0]|numbers['a']|numbers.0|d.a.k.1|i[0]|nothing.x|nothing[0]|(1,2)[0]|none is none
1 < 2 < 3|1 < 3 < 2|1 == 1.0|1 == true|'1' == 1|[1, 2] == [1, 2.0]|[1] == (1,)|{'a': 1} == {'a': true}|none == missing|missing == missing2|none == none|'a' < 'b'|'a' < 1|[1, 2] < [1, 3]|1 <= 1|2 >= 3|1 != 2|'a' in 'cat'|'' in ''|1 in [1.0]|'b' in d|'z' not in d|1 in 'a'|1 in nothing|'a' in missing|not 'a' in 'b'|none in mixed|(1, 2) in [(1, 2)]
yes and no|no or 'x'|'' or none|not missing|not not yes|yes and 'a' or 'b'|1 if yes|1 if no|1 if no else 2|1 if no else 2 if no else 3|'a' if yes and not no else 'b'|(1 if yes else 2) ~ 'x'|i is odd and i is not even|i is divisibleby 7|i is divisibleby(2)|x is number|yes is number|yes is integer|i is integer|x is float|s is string|d is mapping|numbers is sequence|d is sequence|s is sequence|missing is sequence|numbers is iterable|i is iterable|missing is iterable|s is iterable|yes is boolean|yes is true|1 is true|no is false|nothing is none|missing is none|missing is defined|nothing is defined|missing is undefined|d.a is defined|d.zz is defined|range is defined|namespace is callable|s is callable|'abc' is lower|'ABC' is upper|i is eq 7|i is gt 3|i is lt(3)|i is ge 7|i is le 7|i is ne 7|i is equalto 7|1 is in [1]|d.items is defined
blank | trim|s | trim('Hd')|s | upper|s | lower|u | upper|u | lower|u | title|u | capitalize|s | title|'hello-wORLD (foo) [bar] {baz} <q>' | title|s | length|u | length|u | count|numbers | first|numbers | last|empty | first|empty | last|s | first|s | last|missing | first|missing | length|nothing | length|i | length|numbers | reverse | list|s | reverse|mixed | join(', ')|numbers | join|messages | join('/', attribute='role')|missing | join(',')|i | join|d | join(',')|numbers | list|s | list | length|missing | list
missing | default|missing | default('x')|nothing | default('x')|nothing | default('x', true)|'' | d('y', boolean=True)|no | default('z', true)|d.zz | default(default_value='k')|s | replace('l', 'L')|s | replace('l', 'L', 1)|s | replace('', '-')|s | replace('l', '')|i | replace('7', 'x')|s | string|i | string ~ 'a'|numbers | string|s | safe|i | abs|j | abs|x | abs|-2.5 | abs|s | abs
'42' | int|'4.7' | int|'x' | int|'x' | int(5)|x | int|nothing | int|' 12 ' | int|'-3' | int|'+3' | int|'+-3' | int|yes | int|'1.5' | float|'x' | float|'x' | float(2.5)|i | float|'1e3' | float|'1e3' | int|'inf' | float|'nan' | float
d | tojson|tools | tojson|tools | tojson(indent=2)|tools | tojson(indent=0)|messages | tojson|mixed | tojson|s | tojson|u | tojson|u | tojson(ensure_ascii=true)|messages[1].content | tojson(ensure_ascii=true)|d | tojson(sort_keys=true)|d | tojson(separators=(',', ':'))|d | tojson(indent=4, separators=(', ', ' : '))|nothing | tojson|x | tojson|big | tojson|i | tojson|empty | tojson|empty | tojson(indent=2)|{} | tojson(indent=2)|missing | tojson|(1, 2) | tojson|numbers | map('string') | tojson|"\\x00\\x1f\\x7f/é" | tojson|d.items() | tojson|range(3) | tojson
d|tools|messages|nested|mixed|empty|{}|()|(1,)|(1, 'a')|[(1, 2), [3]]|"a'b"|["a'b", 'c"d', "e'f\\"g", "\\n\\t\\\\", "\\x00\\x7f\\u00a0é\\u200b\\U0001F600\\U000E0001"]|{'a': {'b': none}, 'c': [true, 1.0]}|{'a': 1, 'b': 2, 'a': 3}|range(3)|range(1, 10, 3) | list|range(5, 0, -2) | list|range(0) | list|range(3)[1]|range(200000) | length|namespace()|raise_exception('no ' ~ i)
s.upper()|s.lower()|s.title()|u.title()|s.capitalize()|u.capitalize()|blank.strip()|blank.lstrip()|blank.rstrip()|s.strip('Hd')|s.lstrip('He')|s.rstrip('dl')|s.startswith('Hell')|s.startswith(('x', 'H'))|s.startswith(['H'])|s.endswith('ld')|s.endswith('x')|s.split()|s.split(', ')|s.split('l')|s.split('l', 1)|s.split('l', maxsplit=1)|blank.split()|'  a  b c '.split()|'  a  b c '.split(none, 1)|''.split()|''.split(',')|s.split('')|s.rsplit('l', 1)|s.rsplit('l')|'a,b,,c'.rsplit(',', 2)|lines.splitlines()|s.replace('l', 'L')|s.replace('l', 'L', 1)|'aaa'.replace('aa', 'b')|'abc'.replace('', '.')|'abc'.replace('', '.', 2)|s.find('o')|s.rfind('o')|s.find('zz')|u.find('É')|u.rfind('a')|s.count('l')|s.count('')|'aaaa'.count('aa')|', '.join(['a', 'b'])|'-'.join(numbers)|'-'.join(d)|s.removeprefix('Hello')|s.removesuffix('World')|s.removeprefix('x')|i.strip()|d.strip()|missing.strip()
messages | map(attribute='role') | list|messages | map(attribute='role') | join(',')|messages | map(attribute='zz') | list|messages | map(attribute='zz', default='-') | list|messages | map(attribute='tool_calls.0.function.name') | list|nested | map(attribute='0') | list|numbers | map('string') | join|numbers | map('default', 4) | list|['a', ' b '] | map('trim') | map('upper') | list|messages | selectattr('role', 'equalto', 'user') | list | length|messages | selectattr('tool_calls', 'defined') | map(attribute='role') | list|messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | first|messages | selectattr('tool_calls') | list | length|mixed | select | list|mixed | reject | list|mixed | select('string') | list|mixed | reject('none') | list|numbers | select('gt', 3) | list|numbers | select('odd') | list | length|missing | map('upper') | list|missing | select | list|messages | selectattr('role', '==', 'user') | map(attribute='content') | first|numbers | map('string')|numbers | select | length
'a\\nb\\n\\nc' | indent|'a\\nb\\n\\nc' | indent(2, true)|'a\\nb\\n\\nc' | indent(width=3, blank=true)|'a\\nb' | indent('> ')|'a\\n' | indent|'' | indent|'' | indent(2, true)
a, b|1, 2|(1, 2) | length|[1, 2,]|{'a': 1,}|[]|[[]]|(((1)))|yes is not none|i is not divisibleby 2|'%' ~ '}'|{'a': '}}'}|{'a': {'b': {}}}['a']['b']|- i|--i|i|abs|i is defined is true|not i is defined|-j | abs|1 + 2 ~ 3|1 ~ 2 + 3|2 * 3 ~ 'x'|'a' ~ 'b' | upper|('a' ~ 'b') | upper|1 - 1 - 1|8 / 2 / 2|1 + 1 == 2|not 1 == 2|x is defined and x > 1|'a' in 'abc' and 'z' not in 'abc'
""".strip().split("\n")

TEMPLATES = [
    "plain text\n", "plain\n\n", "a\r\nb\rc", "", "\n", "{% if yes %}\nA\n{% endif %}\nB\n", "  {% if yes %}\n  A\n  {% endif %}\n  B\n",
    "  {{ i }}\n  {{ i }}\n", "x {% if yes %} y {% endif %} z", "x\n\t {%- if yes -%} \n y \n {%- endif -%} \n z", "a {{- i -}} b",
    "a\n  {#- c -#}\n  b", "a\n  {# c #}\n  b", "  {# c #}  b", "{# a #}\n{# b #}\nc", "a {#+ c +#}\nb", "a\n  {%+ if yes %}b{% endif +%}\nc",
    "a\n   {% set q = 1 %}   \nb", "a\n   {% set q = 1 -%}   \nb", "\u00a0\u2003{% if yes %}x{% endif %}", "a \u00a0{%- if yes %}x{%- endif %}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }} {{ m.role }}\n{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}>{{ loop.nextitem.role if loop.nextitem }};{% endfor %}",
    "{% for x in empty %}a{% else %}none{% endfor %}", "{% for x in missing %}a{% else %}none{% endfor %}", "{% for x in nothing %}a{% endfor %}",
    "{% for x in i %}a{% endfor %}", "{% for c in 'aé😀' %}[{{ c }}]{% endfor %}", "{% for k in d %}{{ k }},{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }};{% endfor %}", "{% for (k, v) in d.items() %}{{ k }};{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }};{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}",
    "{% for n in numbers if n > 2 %}{{ loop.index }}/{{ loop.length }}:{{ n }} {% else %}e{% endfor %}", "{% for n in numbers if n > 99 %}x{% else %}e{% endfor %}",
    "{% for n in numbers %}{% if n == 9 %}{% break %}{% endif %}{{ n }}{% endfor %}", "{% for n in numbers %}{% if n == 3 %}{% continue %}{% endif %}{{ n }}{% endfor %}",
    "{% for a in [1, 2] %}{% for b in [3, 4] %}{% if b == 4 %}{% break %}{% endif %}{{ a }}{{ b }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in range(3) %}{% set y = x %}{% endfor %}{{ y is defined }}", "{% set y = 1 %}{% for x in range(3) %}{{ y }}{% set y = y + 1 %}{% endfor %}{{ y }}",
    "{% set ns = namespace(n=0, s='') %}{% for x in numbers %}{% set ns.n = ns.n + x %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.n }} {{ ns.s }} {{ ns.zz }}",
    "{% set ns = namespace() %}{% set ns.a = [1] %}{{ ns.a }}{{ ns['a'] }}", "{% set d.x = 1 %}", "{% set zz.x = 1 %}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set a = 1, 2 %}{{ a }}",
    "{% set (a, b) = [3, 4] %}{{ a + b }}", "{% set a, b = 1 %}", "{% if yes %}{% set q = 5 %}{% endif %}{{ q }}", "{% set q %}block {{ i }}{% endset %}[{{ q }}]{{ q | length }}",
    "{% set q %}{% set r = 1 %}{% endset %}{{ r is defined }}", "{% if no %}a{% elif nothing %}b{% elif i %}c{% else %}d{% endif %}", "{% if missing %}a{% else %}d{% endif %}",
    "{% if messages[0]['role'] == 'system' %}{% set sys = messages[0]['content'] | trim %}{% set rest = messages[1:] %}{% endif %}{{ sys }}|{{ rest | length }}",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}",
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] | trim + eos_token }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
    "{%- for m in messages[::-1] %}\n    {%- set idx = (messages | length - 1) - loop.index0 %}\n    {{- idx ~ m.role }}\n{%- endfor %}",
    "{%- for m in messages %}{%- set content = m.content %}{%- if '</think>' in content %}{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{{ reasoning }}|{{ content }}{%- endif %}{%- endfor %}",
    "{%- for t in tools %}{{ '\\n' }}{{ t | tojson }}{%- endfor %}", "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}{% endfor %}",
    "{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls is not none %}{{ m.tool_calls[0].function.arguments['items'] }}{% endif %}{% endfor %}",

    "{{ messages[0].content.items }}", "{% set loop_messages = messages %}{{ loop_messages == messages }}", "{{ loop is defined }}", "{% for x in [1] %}{{ loop is defined }}{% endfor %}{{ loop is defined }}",
    "{{ '{{' }}{{ '}}' }}{% if '%}' %}{{ '{%' }}{% endif %}", "{{ {'a': 1}['a'] }}", "{ { i } }", "{{i}}{{-i}}{{ -i }}{{- -i }}", "{{ 'a\nb' }}", "}} %} #}", "{{ 'x' if yes }}{{ 'y' if no }}",
    "{% for x in [1,2] -%}\n  {{ x }}\n{%- endfor %}\n", "{%- set x = 1 -%}\n\n{{ x }}\n\n{%- set y = 2 %}\n\n{{ y }}\n", "\n\n{{ i }}\n\n", "a{% if yes %}\n\n\nb{% endif %}\n\n",
    "{% for k, v in d.items() | list %}{{ loop.index }}{{ k }}{% endfor %}", "{% for x in numbers | map('string') %}{{ loop.length }}{{ x }}{% endfor %}",
    "{{ i", "{% if yes %}", "{% endif %}", "{% for x in %}{% endfor %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ 'a }}", "{# x", "{% set = 1 %}", "{% foo %}", "{{ i | nosuch }}", "{{ i is nosuch }}", "{{ ] }}", "{{ a b }}",
    "{{ d | tojson(bogus=1) }}", "{{ s.split(1, 2, 3) }}", "{{ s | replace('a') }}", "{% break %}", "{% for x in [1] %}{% endif %}", "{% if yes %}{% else %}{% else %}{% endif %}", "{{ $ }}", "{% %}", "{{ 1.5.5 }}", "{{ messages.append(1) }}",
]

OBJECT = re.compile(r" object .*at 0x|^dict_keys\(|^range\(|^<Namespace")


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception

    templates = [f"{{{{ {e} }}}}" for line in EXPRESSIONS for e in split(line)] + TEMPLATES
    records = []
    for template in dict.fromkeys(templates):
        try:
            record = {"template": template, "text": env.from_string(template).render(**VARIABLES)}
            if OBJECT.search(record["text"]):
                record = {"template": template, "refused": True}
        except Exception as e:
            record = {"template": template, "error": type(e).__name__}
        records.append(record)
    with open(os.path.join(HERE, "cases.json"), "w", encoding="ascii") as f:
        f.write('{\n "jinja2": %s,\n "variables": %s,\n "records": [\n' % (json.dumps(jinja2.__version__), json.dumps(VARIABLES)))
        f.write(",\n".join("  " + json.dumps(r) for r in records))
        f.write("\n ]\n}\n")
    print(len(records), "cases,", sum("error" in r for r in records), "errors")


def split(line):
    """Cases of a line: at each "|" without spaces around it (a filter's has them)."""
    out, start = [], 0
    for n, c in enumerate(line):
        if c == "|" and line[n - 1 : n] != " " and line[n + 1 : n + 2] != " ":
            out.append(line[start:n])
            start = n + 1
    return out + [line[start:]]


if __name__ == "__main__":
    main()
