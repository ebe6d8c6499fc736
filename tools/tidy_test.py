"""Tests of tidy.py: each rule must fire where it should and stay silent where it should not."""

import unittest

import tidy

HEADER = "// What: a.\n// Not here: b.\n// Threads: c.\n#pragma once\n"


def body(lines):
    """A function body of exactly `lines` lines, braces included."""
    return "{\n" + "  x();\n" * (lines - 2) + "}"


def whats(path, text):
    data = text if isinstance(text, bytes) else text.encode()
    return [what for _, what in tidy.check_file(path, data)]


class Functions(unittest.TestCase):

    def lengths(self, text):
        return [last - first + 1 for first, last in tidy.cpp_functions(text)]

    def test_one_line_over_the_limit_is_told_with_its_line(self):
        self.assertEqual(tidy.check_file("src/a/a.cc", f"int f() {body(70)}\n".encode()), [])
        found = tidy.check_file("src/a/a.cc", f"\nint f() {body(71)}\n".encode())
        self.assertEqual(found, [(2, "function of 71 lines; at most 70")])

    def test_kinds_of_functions_are_seen(self):
        for head in (
                "int f(int a, int b) const", "auto f() -> std::vector<int>", "TEST(Suite, Name)",
                "template <typename T, int N = 3>\nT f(T a = {}) noexcept", "void A::f() &&",
                "bool operator==(const A& a, const B& b)", "A& operator=(const A&)",
                "operator bool() const", "void operator()(int) const", "[[nodiscard]] Status f()",
                'extern "C" int f(const char* s)', "struct Foo f()", "A::~A()",
                "A::A(int a) : a_(a), b_{a}, c_(std::move(a))", "A::A() : Base<int>{1}, b_{2}",
                "__attribute__((target(\"avx2\"))) void f(int* p)", "__global__ void k(float* x)",
                "void f(std::function<void(int)> g = [](int) {})", "int f() requires(N > 3)",
                "std::strong_ordering operator<=>(const A& other) const"):
            with self.subTest(head):
                self.assertEqual(self.lengths(f"namespace n {{\n{head} {body(9)}\n}}\n"), [9])
                in_class = f"class C {{\n public:\n  {head} {body(9)}\n}};"
                self.assertEqual(self.lengths(in_class), [9])

    def test_what_only_looks_like_a_function_is_not_measured(self):
        for head in (
                "namespace a::b", "namespace", "class A : public B<C>", "struct alignas(64) A",
                "class CAPABILITY(\"mutex\") Mutex", "enum class E : int", "union U",
                "constexpr int kTable[] =", "const auto kF = [](int a)", 'extern "C"',
                "template <typename T>\nconcept C = requires(T t)", "MACRO(x)\nclass A final",
                "std::map<int, int> m"):
            with self.subTest(head):
                self.assertEqual(self.lengths(f"{head} {{\n" + "\n" * 90 + "};\n"), [])

    def test_literals_and_comments_do_not_count_as_braces(self):
        for line in ('s = "{{{";', "c = '{';", "// }}}", "/* { */", 's = R"x({)")x";', "n = 1'0;",
                     's = "\\"{";', "#define M {"):
            with self.subTest(line):
                text = f"void f() {{\n{line}\n}}\nvoid g() {{\n}}\n"
                self.assertEqual(self.lengths(text), [3, 2])

    def test_a_lambda_belongs_to_its_function(self):
        text = "void f() {\n  auto g = [] {\n  };\n  if (x) {\n  }\n}\n"
        self.assertEqual(self.lengths(text), [6])

    def test_python_functions(self):
        text = "def f():\n" + "    x = 1\n" * 70
        self.assertEqual(whats("tools/a.py", text), ["function of 71 lines; at most 70"])


class Files(unittest.TestCase):

    def test_sizes_of_headers_and_sources(self):
        self.assertEqual(whats("src/a/a.h", HEADER + "\n" * 296), [])
        self.assertEqual(whats("src/a/a.h", HEADER + "\n" * 297),
                         ["301 lines; at most 300: split by reason"])
        self.assertEqual(whats("src/a/a-inl.h", HEADER + "\n" * 700), [])
        self.assertEqual(len(whats("src/a/a-inl.h", HEADER + "\n" * 800)), 1)
        self.assertEqual(whats("src/a/a.cc", "\n" * 800), [])
        self.assertEqual(len(whats("src/a/a.cc", "\n" * 801)), 1)

    def test_header_comment(self):
        self.assertEqual(whats("src/a/a.h", HEADER), [])
        self.assertEqual(whats("src/a/a.h", HEADER.replace("// Threads: c.\n", "")),
                         ["the header comment lacks `// Threads:`"])
        self.assertEqual(whats("src/a/a.h", "#pragma once\n"), ["a header starts with `// What:`"])
        swapped = "// What: a.\n// Threads: c.\n// Not here: b.\n#pragma once\n"
        self.assertEqual(len(whats("src/a/a.h", swapped)), 1)
        late = "// What: a.\n#pragma once\n// Not here: b.\n// Threads: c.\n"
        self.assertEqual(len(whats("src/a/a.h", late)), 2)
        self.assertEqual(whats("src/a/a.h", HEADER.replace("#pragma once\n", "")),
                         ["a header needs #pragma once"])
        self.assertEqual(whats("src/a/isa_end-inl.h", HEADER.replace("#pragma once\n", "")), [])
        self.assertEqual(whats("tests/a.h", "#pragma once\n"), [])

    def test_columns_count_characters(self):
        self.assertEqual(whats("src/a/a.cc", "é" * 100 + "\n"), [])
        self.assertEqual(whats("src/a/a.cc", "a" * 101 + "\n"), ["101 columns; at most 100"])
        self.assertEqual(whats("docs/a.md", "a" * 300 + "\n"), [])
        self.assertEqual(whats("src/a/a.cc", 's = R"(' + "a" * 200 + ')";\n'), [])

    def test_white_space(self):
        self.assertEqual(whats("src/a/a.cc", "a\tb\n"), ["a tab"])
        self.assertEqual(whats("src/a/a.cc", "a \n"), ["blanks at the end of the line"])
        self.assertEqual(whats("src/a/a.cc", "a"), ["no newline at the end of the file"])
        self.assertEqual(whats("tests/golden/a.txt", "a\tb \n"), [])

    def test_large_file_of_any_kind(self):
        self.assertEqual(len(whats("docs/a.png", b"\0" * 1_000_001)), 1)
        self.assertEqual(whats("docs/a.png", b"\0" * 1_000_000), [])


class Words(unittest.TestCase):

    def test_to_dos_need_an_owner(self):
        word = "TO" + "DO"
        self.assertEqual(len(whats("src/a/a.cc", f"// {word}: later\n")), 1)
        self.assertEqual(len(whats("src/a/a.cc", f"// {'FIX' + 'ME'} later\n")), 1)
        self.assertEqual(whats("src/a/a.cc", f"// {word}(ada): later\n"), [])
        self.assertEqual(whats("src/a/a.cc", f"int MASTO{word}NS;\n"), [])

    def test_machine_paths(self):
        for path in ("/ho" "me/ada/x", "/ro" "ot/.cache", "/wo" "rk/main", "/Us" "ers/ada"):
            with self.subTest(path):
                self.assertEqual(len(whats("docs/a.md", f"see `{path}`\n")), 1)
        for path in ("$HO" "ME/x", "a/wo" "rk/b", "~/ro" "ot/x", "the wo" "rk/sleep ratio"):
            with self.subTest(path):
                self.assertEqual(whats("docs/a.md", f"see {path}\n"), [])

    def test_registry_hosts(self):
        self.assertEqual(len(whats("docs/a.md", "from py" "pi.org\n")), 1)
        self.assertEqual(whats("docs/a.md", "from the Python package index\n"), [])


if __name__ == "__main__":
    unittest.main()
