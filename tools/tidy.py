#!/usr/bin/env python3
"""The rules of docs/ARCHITECTURE.md that a script can check, over every file git would commit.

Sizes (functions, headers, sources), the header comment of src/, `#pragma once`, 100 columns,
tabs and trailing blanks, owners of to-dos, large files, paths of one machine, registry hosts. The
function measure counts braces, no parser: it sees functions at namespace and class scope. Prints
`path:line: what` and exits with 1 where a rule is broken.
"""

import ast
import os
import re
import subprocess
import sys

import cpp_text

FUNCTION_LINES_MAX = 70
HEADER_LINES_MAX = 300
SOURCE_LINES_MAX = 800
COLUMNS_MAX = 100
TRACKED_BYTES_MAX = 1_000_000
HEADER_SUFFIXES = (".h", ".cuh")
BODY_SUFFIX = "-inl.h"  # a body that several sources compile, each for its ISA: sized as a source
BRACKET_SUFFIXES = ("_begin-inl.h", "_end-inl.h")  # included around each body, so many times
CPP_SUFFIXES = HEADER_SUFFIXES + (".cc", ".cu", ".inc")
CODE_SUFFIXES = CPP_SUFFIXES + (".py", ".sh", ".cmake")
CODE_NAMES = ("run", "test", ".ci/run", "CMakeLists.txt")
TEXT_SUFFIXES = CODE_SUFFIXES + (".md", ".txt", ".json", ".yml", ".env", ".html", ".css", ".js")
DATA_FOLDERS = ("tests/golden/", "tests/corpus/", "tests/trace/")
HEADER_TEMPLATE = ("// What: ", "// Not here: ", "// Threads: ")

# Written in pieces: this file is checked too.
_UNOWNED = re.compile(r"\b(?:FIX" r"ME|XX" r"X|HA" r"CK)\b|\bTO" r"DO\b(?!\([a-z][\w.-]*\): )")
_MACHINE_PATH = re.compile(
    r"(?<![\w.}*$~-])/(?:ho" r"me/[a-z]\w*|ro" r"ot/|Us" r"ers/\w|wo" r"rk/)")
_REGISTRY_HOST = re.compile(
    r"(?:py" r"pi|python" r"hosted|deb\.de" r"bian|security\.de" r"bian|npm" r"js|cra" r"tes)"
    r"\.(?:org|com|io)|proxy\.go" r"lang\.org", re.IGNORECASE)


# ---------------------------------------------------------------- functions

def cpp_functions(text):
    """(first line, last line) of the body of every function at namespace or class scope."""
    code = re.sub(r"\[\[[^\]]*\]\]", lambda m: " " * len(m[0]), cpp_text.code_only(text))
    found, head_start, position = [], 0, 0
    while position < len(code):
        char = code[position]
        if char in ";}":
            head_start = position + 1
        elif char == "{":
            kind = brace_kind(code[head_start:position])
            if kind == "scope":
                head_start = position + 1
            else:
                end = matching_brace(code, position)
                if kind == "function":
                    found.append((code.count("\n", 0, position) + 1, code.count("\n", 0, end) + 1))
                    head_start = end + 1
                position = end  # an initialiser's head goes on after it
        position += 1
    return found


def matching_brace(code, start):
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    return len(code) - 1


def strip_groups(head):
    """`head` with (...) reduced to () and the template parameter list removed."""
    out, depth = [], 0
    for char in head:
        if char == ")":
            depth -= 1
        if depth <= 0:
            out.append(char)
        if char == "(":
            depth += 1
    flat = "".join(out)
    match = re.search(r"\btemplate\s*<", flat)
    while match:
        end, depth = match.end(), 1
        while end < len(flat) and depth:
            depth += {"<": 1, ">": -1}.get(flat[end], 0)
            end += 1
        flat = flat[:match.start()] + flat[end:]
        match = re.search(r"\btemplate\s*<", flat)
    return flat


def brace_kind(head):
    """What a `{` outside functions opens, by the text before it: scope, function or other."""
    if head.count("(") != head.count(")"):
        return "other"  # a braced default argument
    flat = re.sub(r"\b(public|private|protected)\s*:(?!:)", " ", strip_groups(head)).strip()
    no_operators = re.sub(r"\boperator\s*[^\s\w(]+", "", flat)
    if re.search(r"(?<![=!<>])=(?!=)", no_operators):
        return "other"  # an initialiser, a lambda's body, a concept
    if re.search(r"\b(namespace|extern)\b[^()]*$", flat):
        return "scope"
    if re.search(r"\b(class|struct|union)\b(\s+\w+\s*\(\))*[^()]*$", flat):
        return "scope"
    if "(" not in flat:
        return "other"
    # Foo() : a_{1}, b_(2) {: a brace right after a member's name initialises that member.
    constructor = re.search(r"\)[^():]*(?<!:):(?!:)", flat)
    if constructor and re.search(r"[\w>]$", flat):
        return "other"
    return "function"


def python_functions(text):
    """(name, first line, last line) of every function; none where the file does not parse."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    return [(node.name, node.lineno, node.end_lineno) for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


# ---------------------------------------------------------------- rules: text -> (line, what)

def check_sizes(path, text):
    lines = text.count("\n")
    is_interface = path.endswith(HEADER_SUFFIXES) and not path.endswith(BODY_SUFFIX)
    limit = HEADER_LINES_MAX if is_interface else SOURCE_LINES_MAX
    is_table = path.endswith(".inc")  # generated values: long by nature
    if lines > limit and not is_table:
        yield limit, f"{lines} lines; at most {limit}: split by reason"
    spans = []
    if path.endswith(CPP_SUFFIXES):
        spans = cpp_functions(text)
    elif path.endswith(".py"):
        spans = [(first, last) for _, first, last in python_functions(text)]
    for first, last in spans:
        if last - first + 1 > FUNCTION_LINES_MAX:
            yield first, f"function of {last - first + 1} lines; at most {FUNCTION_LINES_MAX}"


def check_header(path, text):
    lines = text.splitlines()
    if "#pragma once" not in lines and not path.endswith(BRACKET_SUFFIXES):
        yield 1, "a header needs #pragma once"
    if not path.startswith("src/"):
        return
    if not lines or not lines[0].startswith(HEADER_TEMPLATE[0]):
        yield 1, f"a header starts with `{HEADER_TEMPLATE[0].strip()}`"
        return
    comment = []
    for line in lines:
        if not line.startswith("//"):
            break
        comment.append(line)
    order = [next((i for i, line in enumerate(comment) if line.startswith(start)), None)
             for start in HEADER_TEMPLATE]
    for start, found in zip(HEADER_TEMPLATE, order):
        if found is None:
            yield 1, f"the header comment lacks `{start.strip()}`"
    if None not in order and order != sorted(order):
        yield 1, "the header comment's order is What, Not here, Threads"


def check_lines(path, text):
    raw = cpp_text.raw_string_lines(text) if path.endswith(CPP_SUFFIXES) else frozenset()
    is_code = path.endswith(CODE_SUFFIXES) or path in CODE_NAMES or path.endswith("/CMakeLists.txt")
    is_code = is_code and not path.startswith(DATA_FOLDERS)  # generators carry their data
    for number, line in enumerate(text.splitlines(), 1):
        if number in raw:
            continue
        if "\t" in line:
            yield number, "a tab"
        if line != line.rstrip() and not (path.endswith(".md") and line.endswith("  ")):
            yield number, "blanks at the end of the line"
        if is_code and len(line) > COLUMNS_MAX and not re.search(r"https?://|#include", line):
            yield number, f"{len(line)} columns; at most {COLUMNS_MAX}"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end of the file"


def check_words(path, text):
    is_code = path.endswith(CODE_SUFFIXES) or path in CODE_NAMES
    for number, line in enumerate(text.splitlines(), 1):
        unowned = _UNOWNED.search(line)
        if is_code and unowned:
            yield number, f"{unowned[0]}: open an issue, or name the owner: TO" "DO(name): ..."
        machine = _MACHINE_PATH.search(line)
        if machine:
            yield number, f"{machine[0]} is a path of one machine"
        host = _REGISTRY_HOST.search(line)
        if host:
            yield number, "names a package registry's host; the clients know theirs"


def check_file(path, data):
    """All problems of one file, given its path in the repository and its bytes."""
    problems = []
    if len(data) > TRACKED_BYTES_MAX:
        problems.append((1, f"{len(data)} bytes; at most {TRACKED_BYTES_MAX} belong in git"))
    if not (path.endswith(TEXT_SUFFIXES) or path in CODE_NAMES) or b"\0" in data[:8192]:
        return problems
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return problems + [(1, "not UTF-8")]
    is_data = path.startswith(DATA_FOLDERS) and not path.endswith(CODE_SUFFIXES)
    if not is_data:
        problems += check_lines(path, text)
        problems += check_words(path, text)
    if path.endswith(CODE_SUFFIXES):
        problems += check_sizes(path, text)
    if path.endswith(HEADER_SUFFIXES):
        problems += check_header(path, text)
    return problems


def repository_files(root):
    """What git tracks or would add; without git every file outside build/ and hidden folders."""
    git = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=False)
    if git.returncode == 0:
        return sorted(name for name in set(git.stdout.decode().split("\0")) if name)
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in ("build", "__pycache__", ".git", ".cache")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = [path for path in repository_files(root) if os.path.isfile(os.path.join(root, path))]
    count = 0
    for path in files:
        with open(os.path.join(root, path), "rb") as f:
            data = f.read()
        for line, what in sorted(check_file(path, data)):
            print(f"{path}:{line}: {what}")
            count += 1
    print(f"tidy: {len(files)} files, {count} problems")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
