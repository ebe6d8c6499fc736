"""C++ source as text that checks can count on: comments and literals blanked, lines kept.

No parser: enough for rules about includes, sizes and words. Used by check_deps.py and tidy.py.
"""

import re

_TOKEN = re.compile(
    r'(?P<line>//(?:[^\n\\]|\\.|\\\n)*)'
    r'|(?P<block>/\*.*?\*/)'
    r'|(?P<raw>\b(?:u8|[uUL])?R"(?P<delim>[^()\\\s]{0,16})\(.*?\)(?P=delim)")'
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<number>\b\d[\d'a-zA-Z.]*)"
    r"|(?P<char>'(?:[^'\\\n]|\\.)+')",
    re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.MULTILINE)


def _blank(text):
    return re.sub(r'[^\n]', ' ', text)


def without_comments(text):
    """Comments become spaces; literals and includes stay."""
    return _TOKEN.sub(lambda m: _blank(m[0]) if m['line'] or m['block'] else m[0], text)


def code_only(text):
    """Comments, literals' contents and preprocessor directives become spaces; lines stay lines."""

    def replace(match):
        if match['number'] is not None:
            return match[0]
        if match['line'] is not None or match['block'] is not None:
            return _blank(match[0])
        quote = "'" if match['char'] is not None else '"'
        return quote + _blank(match[0][1:-1]) + quote

    return _DIRECTIVE.sub(lambda m: _blank(m[0]), _TOKEN.sub(replace, text))


def raw_string_lines(text):
    """Numbers (from 1) of the lines that a raw string literal touches."""
    lines = set()
    for match in _TOKEN.finditer(text):
        if match['raw'] is not None:
            first = text.count('\n', 0, match.start()) + 1
            lines.update(range(first, first + match[0].count('\n') + 1))
    return lines


def includes(text):
    """(line number, path, quoted?) of every #include outside comments."""
    found = []
    clean = without_comments(text)
    for match in _INCLUDE.finditer(clean):
        line = clean.count('\n', 0, match.start(1) if match[1] else match.start(2)) + 1
        found.append((line, match[1] or match[2], match[1] is not None))
    return found
