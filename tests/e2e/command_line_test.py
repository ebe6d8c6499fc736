"""The binary from outside: what it prints, where, and with which exit status.

Usage: command_line_test.py TANDEM_BINARY GOLDEN_FOLDER
"""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = os.path.abspath(sys.argv[1])
GOLDEN = os.path.abspath(sys.argv[2])
TINY = os.path.join(GOLDEN, "tiny_c.gguf")
SMOLLM2 = os.environ.get("TANDEM_TEST_MODEL", "")


def tandem(*arguments, stdin=b"", environment=None, timeout=60):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
    env["XDG_CACHE_HOME"] = CACHE.name
    env.update(environment or {})
    return subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, timeout=timeout,
                          env=env)


class Usage(unittest.TestCase):
    def test_help_and_version_succeed(self):
        self.assertIn(b"tandem serve", tandem("--help").stdout)
        self.assertIn(b"--max-seqs", tandem("serve", "--help").stdout)
        version = tandem("--version")
        self.assertEqual(version.returncode, 0)
        self.assertRegex(version.stdout, rb"tandem \d+\.\d+\.\d+ \((gcc|clang) .*kernels: \S+\)")

    def test_a_wrong_flag_names_the_one_that_was_meant(self):
        for wrong, meant in ((b"--max-seq", b"--max-seqs"), (b"--prot", b"--port"),
                             (b"--thread", b"--threads"), (b"--context-size", b"--ctx-size")):
            result = tandem("serve", wrong.decode(), "3")
            self.assertEqual(result.returncode, 2, wrong)
            self.assertIn(b"did you mean " + meant, result.stderr)

    def test_a_wrong_value_names_the_flag(self):
        for arguments in (("--numerics", "bf16"), ("--threads", "0"), ("--port", "99999"),
                          ("--temperature", "warm")):
            command = "serve" if arguments[0] == "--port" else "run"
            result = tandem(command, *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(arguments[0].encode(), result.stderr)
        result = tandem("-m", TINY, "x", "--raw", "--memory", "lots")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"'lots' is not a size", result.stderr)

    def test_an_unquoted_prompt_is_explained(self):
        result = tandem("why", "is", "the", "sky", "blue")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"quotes", result.stderr)

    def test_missing_and_damaged_models_are_named(self):
        self.assertIn(b"name one with -m", tandem("hello").stderr)
        result = tandem("-m", "/nonexistent/x.gguf", "hello")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"/nonexistent/x.gguf", result.stderr)
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            with open(TINY, "rb") as whole:
                file.write(whole.read(3000))
            file.flush()
            for arguments in (("-m", file.name, "hello"), ("inspect", file.name)):
                result = tandem(*arguments)
                self.assertEqual(result.returncode, 1)
                self.assertIn(file.name.encode(), result.stderr)


class Memory(unittest.TestCase):
    def test_the_term_that_does_not_fit_is_named(self):
        for limit, term in (("100K", b"M_w"), ("1M", b"M_")):
            result = tandem("-m", TINY, "--raw", "x", "--memory", limit)
            self.assertEqual(result.returncode, 1)
            self.assertIn(term, result.stderr)
        result = tandem("-m", TINY, "--raw", "x", "--kv-memory", "10K")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"M_KV", result.stderr)
        self.assertIn(b"--kv-memory", result.stderr)


class Run(unittest.TestCase):
    def run_tiny(self, *arguments, **keywords):
        return tandem("-m", TINY, "--raw", "--temperature", "0", "--max-tokens", "12", *arguments,
                      **keywords)

    def test_the_answer_goes_to_stdout_and_nothing_else(self):
        first = self.run_tiny("Hello")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(first.stderr, b"")
        self.assertGreater(len(first.stdout), 5)
        for arguments in (("--threads", "2"), ("--chunk-tokens", "1"), ("--slab-tokens", "2"),
                          ("--no-cache",), ("--ctx-size", "64")):
            self.assertEqual(self.run_tiny("Hello", *arguments).stdout, first.stdout, arguments)
        self.assertEqual(self.run_tiny(stdin=b"Hello").stdout, first.stdout)

    def test_tensor_parallel_ranks_answer(self):
        result = self.run_tiny("Hello", "--tensor-parallel", "2", "--numerics", "exact")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, self.run_tiny("Hello", "--numerics", "exact").stdout)
        result = self.run_tiny("Hello", "--tensor-parallel", "3")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"3", result.stderr)

    def test_a_prompt_beyond_the_context_is_refused_with_numbers(self):
        result = self.run_tiny("x" * 2000, "--ctx-size", "64")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"64", result.stderr)

    def test_inspect_counts_every_byte(self):
        result = tandem("inspect", TINY)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"token_embd.weight", result.stdout)
        report = json.loads(tandem("inspect", "--json", TINY).stdout)
        self.assertIn(str(os.path.getsize(TINY)), json.dumps(report))


class ModelFiles(unittest.TestCase):
    CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
              "num_hidden_layers": 2, "hidden_size": 96, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 24, "intermediate_size": 160,
              "vocab_size": 700, "max_position_embeddings": 256, "rope_theta": 10000.0,
              "rms_norm_eps": 1e-5, "tie_word_embeddings": True}

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.config = self.path("config.json")
        with open(self.config, "w") as file:
            json.dump(self.CONFIG, file)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def ok(self, *arguments):
        result = tandem(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, b"")
        return result.stdout

    def types(self):
        """All types that can be written, from the message that lists them."""
        result = tandem("synth", "--shape", self.config, "-o", self.path("x"), "--type", "?")
        self.assertEqual(result.returncode, 1)
        return result.stderr.decode().split("there are ")[1].strip().split(", ")

    def answer(self, model):
        return self.ok("-m", model, "--raw", "Hello", "--temperature", "0", "--max-tokens", "6",
                       "--no-cache")

    def test_synth_of_every_type_can_be_inspected_and_run(self):
        types = self.types()
        self.assertGreaterEqual(set(types), {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"})
        for name in types:
            model = self.path(name + ".gguf")
            self.ok("synth", "--shape", self.config, "--type", name.lower(), "-o", model)
            report = json.loads(self.ok("inspect", "--json", model))
            self.assertIn(str(os.path.getsize(model)), json.dumps(report))
            self.assertEqual(self.answer(model), self.answer(model), name)

    def test_quantize_writes_models_that_run(self):
        source = self.path("source.gguf")
        self.ok("synth", "--shape", self.config, "--type", "f32", "-o", source)
        for name in self.types():
            model = self.path(name + ".gguf")
            said = self.ok("quantize", source, model, "--type", name)
            self.assertIn(b"token_embd.weight is ", said)
            self.answer(model)
        again = self.path("again.gguf")
        self.assertIn(b"quantised before",
                      self.ok("quantize", self.path("Q4_0.gguf"), again, "--type", "q4_1"))

    def test_refusals_name_the_fix_and_leave_nothing(self):
        source = self.path("source.gguf")
        self.ok("synth", "--shape", self.config, "--type", "q8_0", "-o", source)
        before = sorted(os.listdir(self.folder.name))
        for arguments, message in (
                (("quantize", source, source, "--type", "q4_0"), b"name another file"),
                (("quantize", source, self.path("x"), "--type", "q4_00"), b"did you mean Q4_0?"),
                (("quantize", source, self.path("no/x"), "--type", "q4_0"), b"no/x"),
                (("quantize", self.path("none"), self.path("x"), "--type", "q4_0"), b"none"),
                (("synth", "--shape", "gpt5", "--type", "q4_0", "-o", self.path("x")),
                 b"smollm2-135m"),
                (("synth", "--shape", self.config, "--type", "q4_0", "-o", self.folder.name),
                 b"is a folder")):
            result = tandem(*arguments)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn(message, result.stderr)
        self.assertEqual(tandem("quantize", source, self.path("x")).returncode, 2)
        self.assertEqual(sorted(os.listdir(self.folder.name)), before)

    def test_eval_kl(self):
        text = self.path("text.txt")
        with open(text, "w") as file:
            file.write("A short text of a few words. " * 12)
        same = json.loads(self.ok("eval", "kl", "-m", TINY, "--text", text, "--json",
                                  "--numerics", "exact"))
        self.assertEqual((same["mean_kl"], same["p99_kl"], same["top1_agreement"]), (0, 0, 1))
        fast = json.loads(self.ok("eval", "kl", "-m", TINY, "--text", text, "--json"))
        self.assertEqual(fast["positions"], same["positions"])
        self.assertGreater(fast["mean_kl"], 0)
        self.assertLess(fast["mean_kl"], 0.01)
        said = self.ok("eval", "kl", "-m", TINY)
        self.assertIn(b"fast against exact", said)
        missing = tandem("eval", "kl", "-m", TINY, "--text", self.path("no.txt"))
        self.assertEqual(missing.returncode, 1)
        self.assertIn(b"no.txt", missing.stderr)


class Terminal:
    """A person at a terminal: types, reads, presses Ctrl-C."""

    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["XDG_CACHE_HOME"] = CACHE.name
            os.execv(BINARY, [BINARY, *arguments])
        self.text = b""

    def type(self, text):
        os.write(self.fd, text)

    def wait_for(self, wanted, seconds=60):
        end = time.monotonic() + seconds
        while wanted not in self.text:
            if time.monotonic() > end:
                raise AssertionError(f"no {wanted!r} in {self.text!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536)
                except OSError:
                    break
        if wanted not in self.text:
            raise AssertionError(f"ended without {wanted!r}: {self.text!r}")
        self.text = self.text.split(wanted, 1)[1]

    def close(self, last_words, seconds=60):
        """Says `last_words` until the program ends: a key pressed while it sets up its line editor
        may be lost, as at any terminal."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self.type(last_words)
                if select.select([self.fd], [], [], 0.5)[0]:
                    os.read(self.fd, 65536)
            except OSError:
                pass  # its side of the terminal is closed
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"does not leave at {last_words!r}")


@unittest.skipUnless(SMOLLM2, "needs $TANDEM_TEST_MODEL")
class Chat(unittest.TestCase):
    def test_commands_answers_and_leaving(self):
        chat = Terminal("-m", SMOLLM2, "--temperature", "0", "--max-tokens", "30")
        chat.wait_for(b"/help lists commands")
        chat.wait_for(b"> ")
        chat.type(b"/help\n")
        chat.wait_for(b"/system TEXT")
        chat.type(b"/bogus\n")
        chat.wait_for(b"unknown command")
        chat.type(b"Say hello.\n")
        chat.wait_for(b"tokens/s, context")
        chat.type(b"/reset\n")
        self.assertEqual(chat.close(b"/exit\n"), 0)

    def test_ctrl_d_leaves(self):
        chat = Terminal("-m", SMOLLM2)
        chat.wait_for(b"> ")
        self.assertEqual(chat.close(b"\x04"), 0)

    def test_ctrl_c_stops_the_answer_only(self):
        chat = Terminal("-m", SMOLLM2, "--temperature", "1", "--max-tokens", "4000")
        chat.wait_for(b"> ")
        chat.type(b"Write a very long story about a river.\n")
        time.sleep(1.5)
        chat.type(b"\x03")
        chat.wait_for(b"tokens/s, context")
        self.assertEqual(chat.close(b"/exit\n"), 0)

    def test_a_termination_request_ends_the_chat(self):
        chat = Terminal("-m", SMOLLM2)
        chat.wait_for(b"> ")
        os.kill(chat.pid, signal.SIGTERM)
        self.assertEqual(chat.close(b""), -signal.SIGTERM)

    def test_ctrl_c_ends_a_single_answer(self):
        command = [BINARY, "-m", SMOLLM2, "--max-tokens", "4000", "--temperature", "1",
                   "Write a very long story."]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)


if __name__ == "__main__":
    CACHE = tempfile.TemporaryDirectory()
    with CACHE:
        unittest.main(argv=sys.argv[:1], verbosity=2)
