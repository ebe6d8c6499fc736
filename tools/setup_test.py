"""Tests of lib.sh, the shell functions of ./run and ./test, with stand-ins for apt and dpkg."""

import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Shell(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)

    def stand_in(self, name, script):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/bash\n" + script + "\n")
        os.chmod(path, 0o755)

    def shell(self, script, *args, **env):
        prelude = (f'set -euo pipefail; TANDEM_ROOT={ROOT}; source "$TANDEM_ROOT/tools/lib.sh"; '
                   f'TANDEM_LOGS={self.folder}/logs; ')
        return subprocess.run(
            ["bash", "-c", prelude + script, "bash", *args], capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=60, check=False,
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **env})


class Packages(Shell):

    def test_sections_are_told_apart(self):
        build = self.shell("packages_in build").stdout.split()
        both = self.shell("packages_in build test").stdout.split()
        self.assertIn("cmake", build)
        self.assertNotIn("clang", build)
        self.assertIn("clang", both)
        self.assertLess(set(build), set(both))
        self.assertEqual(len(both), len(set(both)))

    def test_missing_and_half_installed_packages_are_found(self):
        self.stand_in("dpkg-query", 'echo "here ii"; echo "removed rc"; exit 1')
        result = self.shell("packages_missing here removed unknown")
        self.assertEqual(result.stdout.split(), ["removed", "unknown"])

    def test_nothing_missing_asks_no_apt(self):
        self.stand_in("dpkg-query", 'for p in "${@:4}"; do echo "$p ii"; done')
        self.stand_in("apt-get", "echo called >&2; exit 1")
        result = self.shell("ensure_packages build")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_lists_are_refreshed_only_after_a_failure(self):
        self.stand_in("dpkg-query", "exit 1")
        calls = os.path.join(self.folder, "calls")
        self.stand_in("apt-get", f'echo "$*" >>{calls}; [[ $* == *update* || -e {calls}.ok ]]'
                      f' || {{ touch {calls}.ok; exit 100; }}')
        result = self.shell("ensure_packages model")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(calls, encoding="ascii") as f:
            words = [line.split()[5] for line in f]
        self.assertEqual(words, ["install", "update", "install"])

    def test_no_network_is_told_with_the_fix(self):
        self.stand_in("dpkg-query", "exit 1")
        self.stand_in("apt-get", "echo 'E: Failed to fetch x' >&2; exit 100")
        result = self.shell("ensure_packages model")
        self.assertEqual(result.returncode, 1)
        self.assertIn("E: Failed to fetch x", result.stderr)
        self.assertIn("apt-get install -y --no-install-recommends python3 python3-pip",
                      result.stderr)


class DefaultModel(Shell):

    def needs(self, *args):
        return self.shell('needs_default_model "$@"', *args).returncode == 0

    def test_which_command_lines_need_it(self):
        for args in ((), ("why?",), ("run", "why?"), ("serve",), ("serve", "--port", "1"),
                     ("bench", "decode"), ("eval", "x"), ("--max-tokens", "3", "why?"),
                     ("--", "-m"), ("say", "--", "--version")):
            with self.subTest(args):
                self.assertTrue(self.needs(*args))
        for args in (("-m", "x", "why?"), ("why?", "--model", "x"), ("serve", "--model=x"),
                     ("-mx",), ("inspect", "x"), ("bench", "limits"), ("--version",),
                     ("synth", "--shape", "x"), ("quantize", "x", "y"),
                     ("bench", "--json", "limits"), ("serve", "--help"), ("cache", "--clear")):
            with self.subTest(args):
                self.assertFalse(self.needs(*args))

    def test_a_configuration_file_may_name_a_model(self):
        path = os.path.join(self.folder, "tandem.conf")
        for text, needs in (("port = 1\n# model = x\n", True), ("port = 1\n model=x\n", False)):
            with open(path, "w") as f:
                f.write(text)
            self.assertEqual(self.needs("serve", "--config", path), needs, text)
            self.assertEqual(self.needs("--config=" + path, "why?"), needs, text)
        self.assertTrue(self.needs("serve", "--config"))

    def path(self, **env):
        return self.shell("default_model_path", **env).stdout.strip()

    def test_where_it_lies(self):
        self.assertEqual(self.path(XDG_CACHE_HOME="/c"), f"/c/tandem/models/{MODEL_FILE}")
        for cache in ("", "relative"):
            self.assertEqual(self.path(XDG_CACHE_HOME=cache, HOME="/h"),
                             f"/h/.cache/tandem/models/{MODEL_FILE}")

    def test_no_home_is_told(self):
        result = self.shell("default_model_path", XDG_CACHE_HOME="", HOME="")
        self.assertEqual(result.returncode, 1)
        self.assertIn("XDG_CACHE_HOME", result.stderr)

    def test_a_file_of_another_size_is_not_it(self):
        path = os.path.join(self.folder, "model")
        with open(path, "wb") as f:
            f.write(b"half")
        self.assertNotEqual(self.shell('have_default_model "$1"', path).returncode, 0)
        os.truncate(path, 98362432)
        self.assertEqual(self.shell('have_default_model "$1"', path).returncode, 0)
        self.assertNotEqual(self.shell('have_default_model "$1"', path + "x").returncode, 0)


class Scripts(Shell):

    def test_help_needs_nothing(self):
        for script in ("run", "test"):
            result = subprocess.run([os.path.join(ROOT, script), "--help"], capture_output=True,
                                    text=True, timeout=60, check=False)
            self.assertEqual(result.returncode, 0)
            self.assertIn(f"./{script}", result.stdout)

    def test_an_unknown_mode_is_refused(self):
        result = subprocess.run([os.path.join(ROOT, "test"), "nope"], capture_output=True,
                                timeout=60, check=False)
        self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main()
