"""Tests of summary.py on reports as ctest 3.25 and fuzz.py write them."""

import contextlib
import io
import os
import tempfile
import unittest

import fuzz
import summary

CTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)" tests="6" failures="2" disabled="1" skipped="1" time="0">
<testcase name="A.Passes" classname="A.Passes" time="0.1" status="run"><system-out>x</system-out>
</testcase>
<testcase name="A.Fails" classname="A.Fails" time="0.1" status="fail"><failure message=""/>
<system-out>expected &lt;1&gt;</system-out></testcase>
<testcase name="A.Skips" classname="A.Skips" time="0.1" status="notrun">
<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
<testcase name="A.Disabled" classname="A.Disabled" time="0" status="disabled"/>
<testcase name="A.Missing" classname="A.Missing" time="0" status="notrun">
<skipped message="Unable to find executable"/></testcase>
</testsuite>
"""


class Summary(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def report(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def run_main(self, *args):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = summary.main(list(args))
        return code, out.getvalue().splitlines()

    def test_ctest_states(self):
        code, lines = self.run_main(self.report("a.xml", CTEST))
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "1 passed, 2 failed, 2 skipped")
        self.assertEqual(lines[:-1], ["FAILED a: A.Fails", "FAILED a: A.Missing"])

    def test_reports_add_up(self):
        good = '<testsuite><testcase name="x" status="run"/></testsuite>'
        code, lines = self.run_main(self.report("a.xml", good), self.report("b.xml", good))
        self.assertEqual((code, lines), (0, ["2 passed, 0 failed"]))

    def test_missing_and_broken_reports_and_stages_are_failures(self):
        broken = self.report("a.xml", CTEST[:200])
        code, lines = self.run_main(broken, os.path.join(self.folder, "none.xml"),
                                    "--failed-stages", "1")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 3 failed"))

    def test_no_test_at_all_is_no_success(self):
        self.assertEqual(self.run_main(), (1, ["0 passed, 0 failed"]))

    def test_fuzz_reports_are_understood(self):
        path = os.path.join(self.folder, "fuzz.xml")
        fuzz.write_junit(path, [("a_fuzz", None, 20.0), ("b_fuzz", 'exit status 77 "<&', 3.0)])
        code, lines = self.run_main(path)
        self.assertEqual((code, lines), (1, ["FAILED fuzz: b_fuzz", "1 passed, 1 failed"]))


if __name__ == "__main__":
    unittest.main()
