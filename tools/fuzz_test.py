"""Tests of fuzz.py with shell scripts in the place of libFuzzer programs."""

import os
import tempfile
import unittest

import fuzz

STATS = 'echo "stat::number_of_executed_units: 123" >&2\n'


class Fuzz(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_script(self, script):
        path = os.path.join(self.folder, "program")
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + script)
        os.chmod(path, 0o755)
        return fuzz.fuzz("x_fuzz", path, os.path.join(self.folder, "out"), 1, 7)

    def test_a_clean_run_passes_with_its_count(self):
        problem, executed, _ = self.run_script(STATS)
        self.assertIsNone(problem)
        self.assertEqual(executed, 123)

    def test_limits_and_folders_are_given(self):
        self.run_script('echo "$@" >&2\n' + STATS)
        with open(os.path.join(self.folder, "out", "x_fuzz", "log"), encoding="ascii") as f:
            command = f.readline()
        for flag in ("-max_total_time=1 ", "-rss_limit_mb=2048", "-timeout=10", "-seed=7",
                     "out/x_fuzz/crashes/", "out/x_fuzz/corpus"):
            self.assertIn(flag, command)

    def test_a_crash_names_the_input(self):
        problem, _, _ = self.run_script(
            'for a; do case "$a" in -artifact_prefix=*) touch "${a#*=}crash-1";; esac; done\n'
            "echo boom >&2\nexit 77\n")
        self.assertIn("exit status 77", problem)
        self.assertIn("x_fuzz/crashes/crash-1", problem)
        self.assertIn("boom", problem)

    def test_a_target_that_ran_nothing_fails(self):
        self.assertIn("ran no input", self.run_script("exit 0\n")[0])

    def test_a_missing_program_fails(self):
        problem, _, _ = fuzz.fuzz("x_fuzz", "/nonexistent/x", self.folder, 1, 0)
        self.assertIn("No such file", problem)


if __name__ == "__main__":
    unittest.main()
