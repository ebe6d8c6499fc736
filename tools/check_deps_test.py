"""Tests of check_deps.py on small invented trees, and that the real one is read."""

import os
import unittest

import check_deps

DEPS = """
# a comment
base:
core: base
kv: base core   # another
kv/store: base kv
device: base
kernels: device
cli: *
"""


def problems(path, text, deps=DEPS, **others):
    tree = {
        "base/a.h": "", "core/a.h": "", "kv/a.h": "", "kv/store/a.h": "", "cli/a.h": "",
        "device/cuda/gpu.h": "#include <cuda_runtime.h>\n", "device/cuda/plain.h": "",
        "device/cuda/through.h": '#include "device/cuda/gpu.h"\n',
    }
    tree[path] = text
    tree.update(others)
    return check_deps.check(deps, tree)


class Edges(unittest.TestCase):

    def test_allowed_edges_pass(self):
        self.assertEqual(problems("kv/b.cc", '#include "core/a.h"\n#include "kv/a.h"\n'), [])
        self.assertEqual(problems("kv/store/b.cc", '#include "kv/a.h"\n'), [])
        self.assertEqual(problems("cli/b.cc", '#include "kv/store/a.h"\n'), [])
        self.assertEqual(problems("core/sub/b.cc", '#include "base/a.h"\n'), [])

    def test_a_forbidden_edge_is_told_with_file_and_line(self):
        self.assertEqual(
            problems("core/b.cc", '#include "base/a.h"\n#include "kv/a.h"\n'),
            ["src/core/b.cc:2: src/DEPS does not let core include kv (kv/a.h)"])

    def test_edges_are_not_inherited(self):
        self.assertEqual(len(problems("kernels/b.cc", '#include "base/a.h"\n')), 1)

    def test_a_nested_module_is_its_own(self):
        self.assertEqual(len(problems("kv/b.cc", '#include "kv/store/a.h"\n')), 1)
        self.assertEqual(len(problems("kv/store/b.cc", '#include "core/a.h"\n')), 1)

    def test_nobody_may_include_the_composition_root(self):
        self.assertEqual(len(problems("core/b.cc", '#include "cli/a.h"\n')), 1)

    def test_tests_and_fuzz_targets_may_include_all(self):
        self.assertEqual(problems("core/b_test.cc", '#include "kv/a.h"\n#include <thread>\n'), [])
        self.assertEqual(problems("core/b_fuzz.cc", '#include "kv/a.h"\n'), [])

    def test_comments_and_strings_are_no_includes(self):
        self.assertEqual(problems("base/b.cc", '// #include "kv/a.h"\n/*\n#include "kv/a.h"\n*/\n'), [])

    def test_spaces_do_not_hide_an_include(self):
        self.assertEqual(len(problems("base/b.cc", ' #  include "kv/a.h"\n')), 1)

    def test_unknown_modules_and_missing_files(self):
        self.assertIn("src/DEPS has no line", problems("nope/b.cc", "")[0])
        self.assertIn("no src/nope/a.h", problems("base/b.cc", '#include "nope/a.h"\n')[0])
        self.assertIn("no src/a.h", problems("base/b.cc", '#include "a.h"\n')[0])


class Purity(unittest.TestCase):

    def test_pure_modules_see_no_threads_and_clocks(self):
        for header in ("thread", "chrono", "mutex", "condition_variable"):
            with self.subTest(header):
                self.assertEqual(len(problems("kv/b.cc", f"#include <{header}>\n")), 1)
                self.assertEqual(problems("kv/store/b.cc", f"#include <{header}>\n"), [])
                self.assertEqual(problems("device/b.cc", f"#include <{header}>\n"), [])

    def test_pure_modules_take_time_stamps_but_ask_no_clock(self):
        self.assertEqual(problems("kv/b.cc", "TimeNs t;  // not a Clock&\n"), [])
        self.assertEqual(len(problems("kv/b.cc", "void f(const Clock& clock);\n")), 1)
        self.assertEqual(problems("device/b.cc", "void f(const Clock& clock);\n"), [])


class Cuda(unittest.TestCase):

    def test_cuda_headers_stay_in_their_folders(self):
        for header in ("cuda_runtime.h", "cuda.h", "cublasLt.h", "cub/cub.cuh", "mma.h"):
            with self.subTest(header):
                self.assertEqual(problems("device/cuda/b.cc", f"#include <{header}>\n"), [])
                self.assertEqual(len(problems("device/b.cc", f"#include <{header}>\n")), 1)

    def test_not_through_a_header_either(self):
        self.assertEqual(problems("device/b.cc", '#include "device/cuda/plain.h"\n'), [])
        self.assertEqual(len(problems("device/b.cc", '#include "device/cuda/gpu.h"\n')), 1)
        self.assertEqual(len(problems("device/b.cc", '#include "device/cuda/through.h"\n')), 1)


class DepsFile(unittest.TestCase):

    def test_cycles(self):
        deps, found = check_deps.parse_deps("a: b\nb: c\nc: a\nd: a\n")
        self.assertEqual(found, ["src/DEPS: cycle a -> b -> c -> a"])
        self.assertEqual(check_deps.parse_deps("a: a\n")[1], ["src/DEPS: cycle a -> a"])
        self.assertEqual(deps["d"], {"a"})

    def test_malformed_lines(self):
        self.assertEqual(len(check_deps.parse_deps("a: nope\n")[1]), 1)
        self.assertEqual(len(check_deps.parse_deps("a:\na:\n")[1]), 1)
        self.assertEqual(len(check_deps.parse_deps("no colon\n")[1]), 1)

    def test_the_repository_is_found(self):
        src = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
        self.assertIn("base/status.h", check_deps.read_sources(src))
        with open(os.path.join(src, "DEPS"), encoding="utf-8") as f:
            deps, found = check_deps.parse_deps(f.read())
        self.assertEqual(found, [])
        self.assertEqual(deps["os"], {"base"})


if __name__ == "__main__":
    unittest.main()
