"""The binary from outside: what it prints, where, and with which exit status.

Usage: command_line_test.py TANDEM_BINARY GOLDEN_FOLDER
"""

import http.client
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
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
        for command, flag, value, allowed in (
                ("run", "--numerics", "bf16", "one of fast, exact"),
                ("run", "--numerics", "exat", "did you mean exact?"),
                ("run", "--kv-type", "q4_0", "one of f32, f16, bf16, q8_0"),
                ("serve", "--kv-type", "q80", "did you mean q8_0?"),
                ("run", "--threads", "0", "a whole number from 1 to 1024"),
                ("run", "--ctx-size", "4k", "a whole number of at least 1"),
                ("serve", "--port", "99999", "a whole number from 0 to 65535"),
                ("run", "--temperature", "warm", "a number from 0 to 2"),
                ("run", "--temperature", "nan", "a number from 0 to 2"),
                ("run", "--memory", "lots", "a size"),
                ("serve", "--max-body", "8X", "a size"),
                ("serve", "--served-model-name", "", "empty")):
            result = tandem(command, flag, value)
            self.assertEqual(result.returncode, 2, flag)
            self.assertIn(flag, result.stderr.decode())
            self.assertIn(allowed, result.stderr.decode())

    def test_a_mistyped_command_is_no_prompt(self):
        result = tandem("serv", "--port", "0")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"did you mean serve?", result.stderr)

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


class ConfigFile(unittest.TestCase):
    def config(self, text):
        file = tempfile.NamedTemporaryFile("w", suffix=".conf")
        self.addCleanup(file.close)
        file.write(text)
        file.flush()
        return file.name

    def test_the_command_line_counts_more(self):
        path = self.config("# for a test\nmodel = %s\nraw = true\nmax-tokens = 12\n"
                           "temperature = 0\nsystem = \"ignored here\"\n" % TINY)
        whole = tandem("Hello", "--config", path)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        flags = ("-m", TINY, "--raw", "--temperature", "0", "Hello")
        self.assertEqual(whole.stdout, tandem(*flags, "--max-tokens", "12").stdout)
        short = tandem("Hello", "--config", path, "--max-tokens", "3")
        self.assertEqual(short.stdout, tandem(*flags, "--max-tokens", "3").stdout)
        self.assertNotEqual(short.stdout, whole.stdout)

    def test_errors_name_the_file_and_the_line(self):
        for command, text, message in (
                ("run", "\nmax-token = 3", "2: 'tandem run' has no flag --max-token; "
                                           "did you mean --max-tokens?"),
                ("run", "port = 3", "1: 'tandem run' has no flag --port"),
                ("serve", "port = 80x", "1: --port: '80x' is not a whole number"),
                ("serve", "port = 1\nport = 2", "2: --port is set on line 1 already"),
                ("serve", "no-cache = maybe", "1: --no-cache: 'maybe' is not true or false"),
                ("serve", "port", "1: 'port' is not 'flag = value'"),
                ("serve", "config = x", "1: 'config' belongs on the command line")):
            path = self.config(text)
            result = tandem(command, "--config", path)
            self.assertEqual(result.returncode, 2, text)
            self.assertIn(f"{path}:{message}", result.stderr.decode())
        result = tandem("serve", "--config", "/nonexistent.conf")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"/nonexistent.conf", result.stderr)


class Serve(unittest.TestCase):
    def serve(self, *arguments, environment=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
        env["XDG_CACHE_HOME"] = CACHE.name
        env.update(environment or {})
        process = subprocess.Popen([BINARY, "serve", "-m", TINY, "--port", "0", *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        port = 0
        while not port:
            line = process.stdout.readline().decode()
            self.assertNotEqual(line, "", "ended early")
            match = re.match(r"listening on http://.*:(\d+)", line)
            port = int(match.group(1)) if match else 0
        return process, port

    def models(self, port, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/v1/models", headers=headers)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        connection.close()
        return answer, body

    def test_keys_come_from_flags_a_file_and_the_environment(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# for tests\nfrom-file-1\r\n\nfrom-file-2")
            file.flush()
            process, port = self.serve("--api-key", "flag-1", "--api-key", "flag-2",
                                       "--api-key-file", file.name,
                                       "--cors-origin", "https://app.example",
                                       environment={"TANDEM_API_KEY": "from-environment"})
        for key in ("flag-1", "flag-2", "from-file-1", "from-file-2", "from-environment"):
            self.assertEqual(self.models(port, Authorization="Bearer " + key)[0].status, 200, key)
        for key in ("", "# for tests", "other"):
            self.assertEqual(self.models(port, Authorization="Bearer " + key)[0].status, 401, key)
        answer, _ = self.models(port, Authorization="Bearer flag-1", Origin="https://app.example")
        self.assertEqual(answer.getheader("Access-Control-Allow-Origin"), "https://app.example")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0)
        self.assertNotIn(b"warning", said)

    def test_names_in_the_api(self):
        _, port = self.serve("--served-model-name", "first", "--served-model-name", "second")
        _, body = self.models(port)
        self.assertEqual(body["data"][0]["id"], "first")

    def test_a_server_for_the_network_without_keys_is_warned_of(self):
        process, _ = self.serve("--host", "0.0.0.0")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        self.assertIn(b"whoever reaches 0.0.0.0 may use this server", said)

    def test_a_key_file_without_keys_is_refused(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# none yet\n")
            file.flush()
            result = tandem("serve", "-m", TINY, "--port", "0", "--api-key-file", file.name)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"holds no key", result.stderr)


class Record(unittest.TestCase):
    def record(self, folder, *arguments):
        log = os.path.join(folder, "events.log")
        answer = tandem("-m", TINY, "--raw", "Hello there", "--max-tokens", "20", "--record", log,
                        "--threads", "1", *arguments)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return log

    def test_a_run_replays_and_shows_what_other_settings_would_do(self):
        with tempfile.TemporaryDirectory() as folder:
            log = self.record(folder)
            same = tandem("simulate", "--replay", log)
            self.assertEqual(same.returncode, 0, same.stderr)
            self.assertIn(b"every decision is the same", same.stdout)
            other = tandem("simulate", "--replay", log, "--json", "--policy", "static",
                           "--prefix-cache", "off")
            self.assertEqual(other.returncode, 0, other.stderr)
            report = json.loads(other.stdout)
            self.assertTrue(report["replay"]["same"])
            self.assertEqual(list(report["runs"]),
                             ["recorded", "simulated", "policy static, prefix cache off"])
            for run in report["runs"].values():
                self.assertEqual(run["answered"], 1)
                self.assertEqual(run["output_tokens"],
                                 report["runs"]["recorded"]["output_tokens"])
            printed = tandem("simulate", "--replay", log, "--print").stdout
            self.assertIn(b"tokens renamed", printed)
            self.assertIn(b"arrival request=1", printed)
            self.assertTrue(printed.endswith(b" end\n"))

    def test_a_damaged_log_is_refused_and_a_cut_one_read_to_there(self):
        with tempfile.TemporaryDirectory() as folder:
            log = self.record(folder, "--record-tokens")
            with open(log, "rb") as file:
                whole = file.read()
            with open(log, "wb") as file:
                file.write(whole[:-9])
            cut = tandem("simulate", "--replay", log)
            self.assertEqual(cut.returncode, 0, cut.stderr)
            self.assertIn(b"the log is cut off", cut.stdout)
            with open(log, "wb") as file:
                file.write(whole[:100] + bytes([whole[100] ^ 4]) + whole[101:])
            damaged = tandem("simulate", "--replay", log)
            self.assertEqual(damaged.returncode, 1)
            self.assertIn(b"the event log is damaged", damaged.stderr)
            self.assertIn(log.encode(), damaged.stderr)

    def test_no_file_is_overwritten(self):
        with tempfile.NamedTemporaryFile() as file:
            result = tandem("-m", TINY, "--raw", "Hello", "--record", file.name)
        self.assertEqual(result.returncode, 1)
        self.assertIn(file.name.encode(), result.stderr)

    def test_simulate_says_what_it_needs(self):
        self.assertIn(b"--replay FILE", tandem("simulate").stderr)
        self.assertIn(b"for --replay", tandem("simulate", "x.json", "--max-seqs", "3").stderr)


class Cache(unittest.TestCase):
    def test_packed_weights_are_listed_and_removed(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = tandem("cache", "--cache-dir", folder)
            self.assertEqual(empty.returncode, 0, empty.stderr)
            self.assertIn(b"0 files", empty.stdout)
            answer = ("-m", TINY, "--raw", "Hello", "--max-tokens", "2", "--cache-dir", folder)
            self.assertEqual(tandem(*answer).returncode, 0)
            listed = tandem("cache", "--cache-dir", folder).stdout
            self.assertIn(b".packed", listed)
            self.assertIn(b"used within the hour", listed)
            self.assertIn(b"1 file,", listed)
            kept = tandem("cache", "--cache-dir", folder, "--clear-older-than", "1")
            self.assertIn(b"removed 0 files", kept.stdout)
            [file] = [os.path.join(folder, "weights", name)
                      for name in os.listdir(os.path.join(folder, "weights"))
                      if name.endswith(".packed")]
            os.utime(file, (time.time() - 3 * 86400,) * 2)
            self.assertIn(b"3 days ago", tandem("cache", "--cache-dir", folder).stdout)
            old = tandem("cache", "--cache-dir", folder, "--clear-older-than", "2")
            self.assertIn(b"removed 1 file,", old.stdout)
            self.assertFalse(os.path.exists(file))
            self.assertEqual(tandem(*answer).returncode, 0)
            self.assertIn(b"removed 1 file,", tandem("cache", "--cache-dir", folder,
                                                     "--clear").stdout)
            self.assertIn(b"0 files", tandem("cache", "--cache-dir", folder).stdout)


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

    def test_kv_types_answer_and_name_themselves(self):
        default = self.run_tiny("Hello").stdout
        self.assertEqual(self.run_tiny("Hello", "--kv-type", "f16").stdout, default)
        for kv_type in ("f32", "bf16", "q8_0"):
            with self.subTest(kv_type), tempfile.TemporaryDirectory() as folder:
                log = os.path.join(folder, "run.log")
                result = self.run_tiny("Hello", "--kv-type", kv_type, "--record", log)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(self.run_tiny("Hello", "--kv-type", kv_type, "--chunk-tokens", "1",
                                               "--threads", "2").stdout, result.stdout)
                shown = tandem("simulate", "--replay", log, "--print")
                self.assertIn(b"numerics fast-kv-" + kv_type.encode(), shown.stdout)

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

    def test_a_chat_template_file_takes_the_models_place(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            def answer(text):
                file.seek(0)
                file.truncate()
                file.write(text)
                file.flush()
                return tandem("-m", TINY, "--temperature", "0", "--max-tokens", "8", "Hello",
                              "--chat-template", file.name)
            plain = answer("{{ messages[0].content }}")
            self.assertEqual(plain.returncode, 0, plain.stderr)
            self.assertNotEqual(plain.stdout, answer("{{ messages[0].content }}!").stdout)
            for text, line in (("a\n{% for m in messages %}", b"2"), ("\n\n{{ x | nosuch }}", b"3"),
                               ("", b"empty")):
                result = answer(text)
                self.assertEqual(result.returncode, 1, text)
                self.assertIn(file.name.encode(), result.stderr)
                self.assertIn(line, result.stderr)
                self.assertNotIn(TINY.encode(), result.stderr)
        result = tandem("-m", TINY, "Hello", "--chat-template", "/nonexistent.jinja")
        self.assertIn(b"/nonexistent.jinja", result.stderr)

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

    def test_ctrl_c_leaves_no_part_of_a_file(self):
        process = subprocess.Popen([BINARY, "synth", "--shape", "llama-3.2-1b", "--type", "q4_0",
                                    "-o", self.path("big.gguf")], stderr=subprocess.PIPE)
        while len(os.listdir(self.folder.name)) < 2:  # until it has begun
            self.assertIsNone(process.poll(), "ended early")
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertIn(b"interrupted", said)
        self.assertEqual(os.listdir(self.folder.name), ["config.json"])

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
        self.assertIn(b"fast-kv-f16 against exact-kv-f32", said)
        previous = 0
        for kv_type in ("f16", "bf16", "q8_0"):  # each coarser than the one before
            stored = json.loads(self.ok("eval", "kl", "-m", TINY, "--text", text, "--json",
                                        "--numerics", "exact", "--kv-type", kv_type))
            self.assertEqual(stored["numerics"], "exact-kv-" + kv_type)
            self.assertGreater(stored["mean_kl"], previous)
            previous = stored["mean_kl"]
        self.assertLess(previous, 0.01)
        missing = tandem("eval", "kl", "-m", TINY, "--text", self.path("no.txt"))
        self.assertEqual(missing.returncode, 1)
        self.assertIn(b"no.txt", missing.stderr)


class Terminal:
    """A person at a terminal: types, reads, presses Ctrl-C."""

    def __init__(self, *arguments, stdout=None, environment=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["XDG_CACHE_HOME"] = CACHE.name
            os.environ["XDG_STATE_HOME"] = os.path.join(CACHE.name, "state")
            os.environ["TERM"] = "xterm"
            os.environ.update(environment or {})
            if stdout is not None:
                os.dup2(stdout, 1)
            os.execv(BINARY, [BINARY, *arguments])
        self.text = b""

    def type(self, text):
        os.write(self.fd, text)

    def read(self, seconds):
        """What has come until `seconds` pass without a byte, or the other side closes."""
        while select.select([self.fd], [], [], seconds)[0]:
            try:
                piece = os.read(self.fd, 65536)
            except OSError:
                break
            if not piece:
                break
            self.text += piece
        return self.text

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
        before, self.text = self.text.split(wanted, 1)
        return before

    def close(self, last_words=b"", seconds=60):
        """Says `last_words`, once, and waits for the program's end: its exit status."""
        if last_words:
            self.type(last_words)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"does not leave at {last_words!r}: {self.text!r}")


TEMPLATE = """{% for m in messages %}[{{ m.role }}] {{ m.content }}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""
FIGURES = b"tokens/s, context"


class TinyChat(unittest.TestCase):
    """The chat's keys and commands, with a model whose answers mean nothing."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.template = os.path.join(self.folder.name, "chat.jinja")
        with open(self.template, "w") as file:
            file.write(TEMPLATE)

    def chat(self, *arguments, **keywords):
        environment = {"XDG_STATE_HOME": self.folder.name, **keywords.pop("environment", {})}
        chat = Terminal("-m", TINY, "--chat-template", self.template, "--temperature", "0",
                        "--max-tokens", "6", *arguments, environment=environment, **keywords)
        chat.wait_for(b"/help lists commands")
        chat.wait_for(b"> ")
        return chat

    def history(self):
        try:
            with open(os.path.join(self.folder.name, "tandem", "chat_history")) as file:
                return [json.loads(line) for line in file]
        except FileNotFoundError:
            return []

    def test_commands(self):
        chat = self.chat("--system", "Be brief.")
        for typed, wanted in ((b"/help", b"/system TEXT"), (b"/bogus", b"unknown command /bogus;"),
                              (b"/rest", b"did you mean /reset?"), (b"/system", b"Be brief."),
                              (b"/system Be long.", b"starts over"), (b"/system", b"Be long."),
                              (b"/reset", b"forgotten"), (b"Hi", FIGURES),
                              (b"/stats", b"off"), (b"/stats", b"on.")):
            chat.type(typed + b"\n")
            chat.wait_for(wanted)
            chat.wait_for(b"> ")
        self.assertEqual(chat.close(b"/quit\n"), 0)

    def test_figures_count_the_conversation_and_can_be_switched_off(self):
        chat = self.chat(environment={"NO_COLOR": "1"})
        used = []
        for _ in range(2):
            chat.type(b"Hi\n")
            line = chat.wait_for(b"]\r\n").rsplit(b"[", 1)[1].decode()
            figures = re.fullmatch(r"(\d+) prompt \+ (\d+) answer tokens, \d+ tokens/s, "
                                   r"context (\d+) of (\d+)", line)
            self.assertIsNotNone(figures, line)
            prompt, answer, context, limit = map(int, figures.groups())
            self.assertEqual(prompt + answer, context)
            self.assertLess(context, limit)
            used.append(prompt)
            chat.wait_for(b"> ")
        self.assertGreater(used[1], used[0])
        self.assertEqual(chat.close(b"\x04"), 0)
        self.assertNotIn(b"\x1b[2m", chat.text)

        chat = self.chat("--no-stats")
        chat.type(b"Hi\n")
        chat.wait_for(b"> ")
        self.assertEqual(chat.close(b"/exit\n"), 0)
        self.assertNotIn(b"tokens/s", chat.text)

    def test_history_is_kept_between_chats(self):
        chat = self.chat()
        chat.type(b"first\n")
        chat.wait_for(FIGURES)
        chat.wait_for(b"> ")
        chat.type(b"two\\\n")
        chat.wait_for(b". ")
        chat.type(b"lines\n")
        chat.wait_for(FIGURES)
        self.assertEqual(chat.close(b"/exit\n"), 0)
        self.assertEqual(self.history(), ["first", "two\nlines", "/exit"])

        chat = self.chat()
        chat.type(b"\x1b[A\x1b[A\x1b[A\n")  # Up, three times
        chat.wait_for(b"first")
        chat.wait_for(FIGURES)
        self.assertEqual(chat.close(b"\x04"), 0)
        self.assertEqual(self.history(), ["first", "two\nlines", "/exit", "first"])

        chat = self.chat("--no-history")
        chat.type(b"secret\n")
        chat.wait_for(FIGURES)
        self.assertEqual(chat.close(b"\x04"), 0)
        self.assertNotIn("secret", self.history())

    def test_history_that_cannot_be_kept_is_said_once(self):
        with open(os.path.join(self.folder.name, "tandem"), "w"):
            pass  # where the folder should be
        chat = self.chat()
        for said in (1, 0):
            chat.type(b"Hi\n")
            self.assertEqual(chat.wait_for(FIGURES).count(b"What you type is not kept: "), said)
        self.assertEqual(chat.close(b"\x04"), 0)

    def test_messages_of_several_lines(self):
        chat = self.chat()
        for typed, sent in (
                (b'"""\na\\\n\n b\n"""\n', "a\\\n\n b"),
                (b'"""one"""\n', "one"),
                (b"a\\\nb\n", "a\nb"),
                (b"a\x1b\rb\n", "a\nb"),  # Alt-Enter
                (b"\x1b[200~pasted\rlines\r\x1b[201~!\n", "pasted\nlines!"),
                (b"\x1b[200~p\x07\tq\r\n\r\nr\x1b[201~\n", "p\tq\n\nr")):
            chat.type(typed)
            chat.wait_for(FIGURES)
            self.assertEqual(self.history()[-1], sent)
        self.assertEqual(chat.close(b"/exit\n"), 0)

    def test_lines_typed_ahead_are_messages_of_their_own(self):
        chat = self.chat()
        chat.type(b"one\ntwo\n/reset\nthree")
        chat.wait_for(FIGURES)
        chat.wait_for(FIGURES)
        chat.wait_for(b"forgotten")
        chat.type(b"\n")
        chat.wait_for(FIGURES)
        self.assertEqual(chat.close(b"\x04"), 0)
        self.assertEqual(self.history(), ["one", "two", "/reset", "three"])

    def test_ctrl_c_drops_the_line_and_ctrl_d_leaves(self):
        for leave in (b"\x04", b"/exit\n"):
            chat = self.chat()
            for _ in range(3):
                chat.type(b"half a li")
                chat.wait_for(b"half a li")
                chat.type(b"\x03")
                chat.wait_for(b"/exit leaves")
                chat.wait_for(b"> ")
            self.assertEqual(chat.close(leave), 0)
            self.assertNotIn("half a li", self.history())

    def test_what_a_ctrl_d_of_line_mode_becomes_takes_no_key_away(self):
        chat = self.chat()
        chat.type(b"\x00")
        self.assertEqual(chat.close(b"\x04"), 0)

    def test_the_terminal_is_given_back(self):
        for end in (b"/exit\n", signal.SIGTERM, signal.SIGHUP):
            read, write = pty.openpty()
            before = termios.tcgetattr(write)
            process = subprocess.Popen(
                [BINARY, "-m", TINY, "--chat-template", self.template], stdin=write, stdout=write,
                stderr=write, env={**os.environ, "XDG_CACHE_HOME": CACHE.name, "TERM": "xterm",
                                   "XDG_STATE_HOME": self.folder.name})
            text = b""
            while b"> " not in text:
                text += os.read(read, 65536)
            self.assertFalse(termios.tcgetattr(write)[3] & termios.ICANON)
            if isinstance(end, bytes):
                os.write(read, end)
            else:
                process.send_signal(end)
            while process.poll() is None:
                if select.select([read], [], [], 0.05)[0]:
                    text += os.read(read, 65536)
            while select.select([read], [], [], 0.05)[0]:
                text += os.read(read, 65536)
            self.assertEqual(process.returncode, 0 if isinstance(end, bytes) else -end)
            self.assertEqual(termios.tcgetattr(write), before)
            self.assertEqual(text.count(b"\x1b[?2004h"), text.count(b"\x1b[?2004l"))
            os.close(read)
            os.close(write)

    def test_a_pipe_gets_answers_only(self):
        read, write = os.pipe()
        chat = self.chat(stdout=write)
        os.close(write)
        chat.type(b"/help\n")
        chat.wait_for(b"/system TEXT")
        chat.type(b"Hi\n")
        chat.wait_for(b"> ")
        self.assertEqual(chat.close(b"\x04"), 0)
        answer = b""
        while piece := os.read(read, 65536):
            answer += piece
        os.close(read)
        self.assertNotIn(b"\x1b", answer)
        self.assertNotIn(b"/help", answer)
        self.assertNotIn(b"tokens/s", answer + chat.text)
        alone = tandem("-m", TINY, "--chat-template", self.template, "--temperature", "0",
                       "--max-tokens", "6", "Hi")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertEqual(answer, alone.stdout)

    def test_a_model_without_template_says_what_to_do(self):
        model = os.path.join(self.folder.name, "bare.gguf")
        with open(TINY, "rb") as whole, open(model, "wb") as bare:
            bare.write(whole.read().replace(b"tokenizer.chat_template", b"tokenizer.chat_templatX"))
        chat = Terminal("-m", model)
        chat.wait_for(b"--chat-template FILE")
        self.assertEqual(chat.close(), 1)
        result = tandem("-m", model, "Hello")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"--raw", result.stderr)


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
        chat.wait_for(FIGURES)
        self.assertEqual(chat.close(b"\x04"), 0)

    def test_ctrl_d_typed_while_it_answers_leaves(self):
        chat = Terminal("-m", SMOLLM2, "--temperature", "0", "--max-tokens", "100")
        chat.wait_for(b"> ")
        chat.type(b"Tell me about rivers.\n")
        time.sleep(0.2)  # it answers by now
        self.assertEqual(chat.close(b"\x04"), 0)
        self.assertIn(FIGURES, chat.text)  # the answer was not cut

    def test_ctrl_c_stops_the_answer_only(self):
        for leave in (b"\x04", b"/exit\n"):
            chat = Terminal("-m", SMOLLM2, "--temperature", "1", "--max-tokens", "4000")
            chat.wait_for(b"> ")
            chat.type(b"Write a very long story about a river.\n")
            time.sleep(1.5)
            chat.type(b"\x03")
            chat.wait_for(FIGURES)
            chat.wait_for(b"> ")
            chat.type(b"\x03")
            chat.wait_for(b"/exit leaves")
            self.assertEqual(chat.close(leave), 0)

    def test_a_termination_request_ends_the_chat(self):
        chat = Terminal("-m", SMOLLM2)
        chat.wait_for(b"> ")
        os.kill(chat.pid, signal.SIGTERM)
        self.assertEqual(chat.close(), -signal.SIGTERM)

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
