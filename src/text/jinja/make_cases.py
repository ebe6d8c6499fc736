"""Writes cases.json: what jinja2 makes of the templates in cases_in.json, for jinja_test.cc.

  python make_cases.py    (needs jinja2 3.1; the environment is the one of Hugging Face's
                           apply_chat_template)

Each record has the template and one of "text", "error" (Python raised), "refused" (Python prints
an object's inside, which no prompt means: Tandem fails instead).
"""

import json
import os
import re

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
OBJECT = re.compile(r" object .*at 0x|^dict_keys\(|^range\(|^<Namespace")


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    with open(os.path.join(HERE, "cases_in.json"), encoding="ascii") as f:
        cases = json.load(f)
    records = []
    for template in [f"{{{{ {e} }}}}" for e in cases["expressions"]] + cases["templates"]:
        record = {"template": template}
        try:
            text = env.from_string(template).render(**cases["variables"])
            record.update({"refused": True} if OBJECT.search(text) else {"text": text})
        except Exception as e:
            record["error"] = type(e).__name__
        records.append(record)
    with open(os.path.join(HERE, "cases.json"), "w", encoding="ascii") as f:
        f.write('{\n "jinja2": ' + json.dumps(jinja2.__version__))
        f.write(',\n "variables": ' + json.dumps(cases["variables"]) + ',\n "records": [\n')
        f.write(",\n".join("  " + json.dumps(r) for r in records) + "\n ]\n}\n")
    print(len(records), "cases,", sum("error" in r for r in records), "errors")


if __name__ == "__main__":
    main()
