"""Prefill and decode nodes as real processes on a tiny model: same text as one node alone, and what
happens when nodes die, stand still, come back, or are strangers.

Usage: handoff_test.py TANDEM_BINARY GOLDEN_FOLDER memory|network [unittest arguments]
"""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from nodes import (Node, NodeFailed, decode_node, free_port, key_file, prefill_node, wait_until)

BINARY = os.path.abspath(sys.argv[1])
GOLDEN = os.path.abspath(sys.argv[2])
# How state moves between processes of this machine.
PATH = {"memory": (), "network": ("--handoff-network-only",)}[sys.argv[3]]
MODEL = os.path.join(GOLDEN, "tiny_a.gguf")
OTHER_MODEL = os.path.join(GOLDEN, "tiny_d.gguf")
VOCABULARY = 320
KEY = "a secret of more than sixteen letters"
# Small chunks, so that a prompt has many; one thread, because there are several nodes.
COMMON = {"--threads": "1", "--block-tokens": "16", "--chunk-tokens": "48", "--kv-memory": "8M",
          "--max-seqs": "8"}
FETCHING = ("--handoff-min-tokens", "16", *PATH)


def common(arguments):
    """COMMON, but for what `arguments` say themselves, and the arguments."""
    return ["--no-cache", *arguments,
            *(word for flag, value in COMMON.items() if flag not in arguments
              for word in (flag, value))]


def prompt(length, seed):
    return [random.Random(seed).randrange(3, VOCABULARY) for _ in range(length)]


class HandoffTest(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def started(self, node):
        self.stack.callback(node.stop)
        return node

    def alone(self, *arguments):
        return self.started(Node(BINARY, MODEL, *common(arguments)))

    def prefill(self, *arguments, model=MODEL, **more):
        return self.started(prefill_node(BINARY, model, *PATH, *common(arguments), **more))

    def decode(self, prefill, *arguments, ready=None, **more):
        node = self.started(decode_node(BINARY, MODEL, prefill, *FETCHING, *common(arguments),
                                        **more))
        node.wait_ready_peers(len(prefill) if ready is None else ready)
        return node

    def expected(self, prompts, *arguments, max_tokens=16):
        node = self.alone(*arguments)
        answers = [node.complete(p, max_tokens) for p in prompts]
        node.stop()
        return answers

    def arrived(self, node):
        return node.handoff_metric("fetches_total", 'result="arrived"')


class SameText(HandoffTest):
    LENGTHS = (17, 18, 32, 33, 47, 48, 49, 50, 96, 97, 98, 145, 160, 161, 209, 225)

    def check(self, *arguments, prompts=None, least_arrived=None):
        prompts = prompts or [prompt(length, length) for length in self.LENGTHS]
        expected = self.expected(prompts, *arguments)
        prefill = self.prefill(*arguments)
        decoders = [self.decode([prefill], *arguments) for _ in range(2)]
        answers = [None] * len(prompts)

        def ask(i):
            answers[i] = decoders[i % 2].complete(prompts[i])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, expected)
        arrived = sum(self.arrived(node) for node in decoders)
        self.assertGreaterEqual(arrived, least_arrived or len(prompts) // 2)
        for node in (prefill, *decoders):
            node.wait_at_rest()
        self.assertEqual(prefill.handoff_metric("sends_total", 'result="done"'), arrived)
        for direction, nodes in (("out", [prefill]), ("in", decoders)):
            pages = sum(node.handoff_metric("pages_total", f'direction="{direction}"')
                        for node in nodes)
            self.assertGreaterEqual(pages, arrived)
        return prefill, decoders

    def test_without_a_prefix_cache_the_pools_are_empty_afterwards(self):
        prefill, decoders = self.check("--prefix-cache", "off")
        for node in (prefill, *decoders):
            self.assertEqual(node.metric("vllm:kv_cache_usage_perc"), 0)

    def test_with_prefix_caches_on_both_sides(self):
        shared = prompt(100, 1)
        prompts = [shared[:cut] + prompt(60, cut) for cut in (0, 16, 40, 64, 90, 100)]
        self.check(prompts=prompts * 3, least_arrived=len(prompts) // 2)

    def test_with_other_kv_types(self):
        for kv_type in ("f32", "bf16", "q8_0"):
            with self.subTest(kv_type):
                self.check("--kv-type", kv_type)

    def test_exact_numerics_and_other_chunks(self):
        self.check("--numerics", "exact", "--chunk-tokens", "31", "--token-budget", "40")

    def test_sampled_text_too(self):
        ask = dict(max_tokens=24, temperature=0.8, seed=7)
        node = self.alone()
        expected = node.complete(prompt(120, 5), **ask)
        node.stop()
        decoder = self.decode([self.prefill()])
        self.assertEqual(decoder.complete(prompt(120, 5), **ask), expected)
        self.assertEqual(self.arrived(decoder), 1)


class Records(HandoffTest):
    def test_what_nodes_record_replays(self):
        """The decisions of both nodes, hand-offs and a lost prefill node included."""
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-record-"))
        logs = [os.path.join(folder, name) for name in ("prefill", "decode")]
        prefill = self.prefill("--record", logs[0])
        decoder = self.decode([prefill], "--record", logs[1])
        for seed in range(3):
            decoder.complete(prompt(100, seed))
        self.assertEqual(self.arrived(decoder), 3)
        prefill.stop()
        decoder.wait_ready_peers(0)
        decoder.complete(prompt(100, 4))
        decoder.stop()
        for log in logs:
            replay = subprocess.run([BINARY, "simulate", "--replay", log], capture_output=True,
                                    text=True, timeout=60)
            self.assertEqual(replay.returncode, 0, replay.stdout + replay.stderr)


class Failures(HandoffTest):
    def in_the_air(self, node, body):
        """A thread that asks, once its fetch has been ordered; its answer is in the list."""
        answers = []
        thread = threading.Thread(target=lambda: answers.append(node.complete(body)))
        thread.start()
        wait_until(lambda: node.handoff_metric("requests", 'state="awaiting_kv"') > 0,
                   what="the request waits for its state")
        return thread, answers

    def test_a_killed_prefill_node_costs_no_answer(self):
        body = prompt(150, 1)
        (expected,) = self.expected([body])
        prefill = self.prefill()
        decoder = self.decode([prefill])
        prefill.signal(signal.SIGSTOP)  # so that the kill comes in the middle for certain
        thread, answers = self.in_the_air(decoder, body)
        prefill.kill()
        thread.join(30)
        self.assertEqual(answers, [expected])
        self.assertEqual(self.arrived(decoder), 0)
        self.assertGreaterEqual(decoder.handoff_metric("fallbacks_total"), 1)
        decoder.wait_at_rest()

    def test_a_killed_prefill_node_is_replaced_by_another(self):
        body = prompt(150, 2)
        (expected,) = self.expected([body])
        nodes = [self.prefill(), self.prefill()]
        decoder = self.decode(nodes)
        for node in nodes:
            node.signal(signal.SIGSTOP)
        thread, answers = self.in_the_air(decoder, body)
        # Whichever has it: the first is gone, the second moves again.
        nodes[0].kill()
        nodes[1].signal(signal.SIGCONT)
        thread.join(30)
        self.assertEqual(answers, [expected])
        self.assertEqual(self.arrived(decoder), 1)
        decoder.wait_at_rest()

    def test_a_prefill_node_that_stands_still_and_goes_on(self):
        bodies = [prompt(150, 3), prompt(150, 4)]
        expected = self.expected(bodies)
        prefill = self.prefill()
        decoder = self.decode([prefill])
        prefill.signal(signal.SIGSTOP)
        thread, answers = self.in_the_air(decoder, bodies[0])
        thread.join(30)  # three heartbeats are missed
        self.assertEqual(answers, expected[:1])
        self.assertGreaterEqual(decoder.handoff_metric("heartbeats_missed_total"), 1)
        prefill.signal(signal.SIGCONT)
        decoder.wait_ready_peers(1)
        self.assertEqual(decoder.complete(bodies[1]), expected[1])
        self.assertEqual(self.arrived(decoder), 1)
        for node in (prefill, decoder):
            node.wait_at_rest()

    def test_a_prefill_node_that_returns_at_the_same_address(self):
        bodies = [prompt(150, seed) for seed in (5, 6)]
        expected = self.expected(bodies)
        address = f"127.0.0.1:{free_port()}"
        prefill = self.prefill(listen=address)
        decoder = self.decode([prefill])
        self.assertEqual(decoder.complete(bodies[0]), expected[0])
        prefill.kill()
        decoder.wait_ready_peers(0)
        self.prefill(listen=address)
        decoder.wait_ready_peers(1)
        self.assertEqual(decoder.complete(bodies[1]), expected[1])
        self.assertEqual(self.arrived(decoder), 2)

    def test_a_killed_decode_node_leaves_nothing_behind(self):
        prefill = self.prefill("--prefix-cache", "off")
        first = self.decode([prefill])
        second = self.decode([prefill])
        prefill.signal(signal.SIGSTOP)
        thread, _ = self.in_the_air_quietly(first, prompt(150, 7))
        first.kill()
        prefill.signal(signal.SIGCONT)
        prefill.wait_at_rest()
        self.assertEqual(prefill.metric("vllm:kv_cache_usage_perc"), 0)
        second.complete(prompt(100, 8))
        self.assertEqual(self.arrived(second), 1, "others are not disturbed")
        thread.join(30)

    def in_the_air_quietly(self, node, body):
        def ask():
            with contextlib.suppress(Exception):
                node.complete(body)

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: node.handoff_metric("requests", 'state="awaiting_kv"') > 0,
                   what="the request waits for its state")
        return thread, None

    def test_a_client_that_leaves_frees_everything(self):
        prefill = self.prefill("--prefix-cache", "off")
        decoder = self.decode([prefill], "--prefix-cache", "off")
        prefill.signal(signal.SIGSTOP)
        client = socket.create_connection(("127.0.0.1", decoder.port))
        body = json.dumps(Node.completion(prompt(150, 9), 16)).encode()
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n%s"
                       % (len(body), body))
        wait_until(lambda: decoder.handoff_metric("requests", 'state="awaiting_kv"') > 0,
                   what="the request waits for its state")
        client.close()
        wait_until(lambda: decoder.handoff_metric("requests", 'state="awaiting_kv"') == 0,
                   what="the request is gone")
        prefill.signal(signal.SIGCONT)
        for node in (prefill, decoder):
            node.wait_at_rest()
            self.assertEqual(node.metric("vllm:kv_cache_usage_perc"), 0)
        self.assertEqual(self.arrived(decoder), 0)

    def test_kills_stops_and_cancels_under_load(self):
        seeds = random.Random(11)
        bodies = [prompt(seeds.randrange(20, 230), seed) for seed in range(24)]
        expected = self.expected(bodies)
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        nodes = [self.prefill(listen=address) for address in addresses]
        decoder = self.decode(nodes)
        wrong, done = [], threading.Event()

        def ask(worker):
            source = random.Random(worker)
            while not done.is_set():
                i = source.randrange(len(bodies))
                if source.random() < 0.2:
                    with contextlib.suppress(OSError):
                        leave_early(decoder.port, bodies[i], source.random() * 0.05)
                    continue
                answer = decoder.complete(bodies[i])
                if answer != expected[i]:
                    wrong.append((i, answer))

        workers = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for worker in workers:
            worker.start()
        for turn in range(6):
            time.sleep(seeds.random() * 0.7)
            victim = turn % 2
            if turn % 3 == 2:
                nodes[victim].signal(signal.SIGSTOP)
                time.sleep(0.3)
                nodes[victim].signal(signal.SIGCONT)
            else:
                nodes[victim].kill()
                nodes[victim] = self.prefill(listen=addresses[victim])
        done.set()
        for worker in workers:
            worker.join(60)
        self.assertEqual(wrong, [])
        self.assertGreater(self.arrived(decoder), 0)
        for node in (decoder, *nodes):
            node.wait_at_rest()


def leave_early(port, body, after):
    client = socket.create_connection(("127.0.0.1", port))
    text = json.dumps(Node.completion(body, 64)).encode()
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(text), text))
    time.sleep(after)
    client.close()


class Strangers(HandoffTest):
    def refused(self, prefill, *arguments, reason, said, node=None, **more):
        """A decode node that is refused says why, and answers alone."""
        body = prompt(100, 1)
        decoder = self.decode([prefill], *arguments, ready=0, **more)
        counter = node or decoder
        wait_until(lambda: counter.handoff_metric("refused_total", f'reason="{reason}"') > 0,
                   what=f"refused for its {reason}")
        wait_until(lambda: decoder.said(said), what=f"'{said}' in:\n" + "".join(decoder.lines))
        self.assertEqual(len(decoder.complete(body)), 16)
        self.assertEqual(self.arrived(decoder), 0)
        self.assertEqual(prefill.handoff_metric("sends_total", 'result="done"'), 0)

    def test_another_key(self):
        keys = [key_file(text) for text in (KEY, KEY + "!")]
        for path in keys:
            self.stack.callback(os.unlink, path)
        prefill = self.prefill("--handoff-key-file", keys[0])
        for arguments in (("--handoff-key-file", keys[1]), ()):
            with self.subTest(arguments):
                self.refused(prefill, *arguments, reason="key", said="another hand-off key",
                             node=prefill)
        decoder = self.decode([prefill], "--handoff-key-file", keys[0])
        decoder.complete(prompt(100, 1))
        self.assertEqual(self.arrived(decoder), 1, "the right one is taken meanwhile")
        decoder = self.decode([prefill], environment={"TANDEM_HANDOFF_KEY": KEY})
        decoder.complete(prompt(90, 2))
        self.assertEqual(self.arrived(decoder), 1)

    def test_another_layout(self):
        self.refused(self.prefill(), "--block-tokens", "32", reason="format",
                     said="tokens per block")

    def test_other_numerics(self):
        self.refused(self.prefill(), "--kv-type", "bf16", reason="format", said="numerics")

    def test_another_model(self):
        self.refused(self.prefill(model=OTHER_MODEL), reason="format", said="model")

    def test_garbage_at_the_port(self):
        prefill = self.prefill()
        host, port = prefill.handoff.split(":")
        for garbage in (b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: garbage\r\n\r\n",
                        os.urandom(4096)):
            with socket.create_connection((host, int(port))) as client:
                client.sendall(garbage)
                client.settimeout(10)
                with contextlib.suppress(ConnectionError):
                    self.assertEqual(client.recv(100), b"")
        decoder = self.decode([prefill])
        decoder.complete(prompt(100, 1))
        self.assertEqual(self.arrived(decoder), 1)


class Members(HandoffTest):
    def test_a_file_lets_nodes_join_and_leave(self):
        first, second = self.prefill(), self.prefill()
        handle, path = tempfile.mkstemp(prefix="tandem-nodes-")
        os.close(handle)
        self.stack.callback(os.unlink, path)

        def write(*nodes):
            with open(path + ".new", "w") as file:
                file.writelines(node.handoff + "\n" for node in nodes)
            os.rename(path + ".new", path)

        write(first)
        decoder = self.started(Node(BINARY, MODEL, *common(FETCHING), "--role", "decode",
                                    "--prefill-file", path))
        decoder.wait_ready_peers(1)
        write(first, second)
        decoder.wait_ready_peers(2)
        write(second)
        decoder.wait_ready_peers(1)
        decoder.complete(prompt(100, 1))
        self.assertEqual(second.handoff_metric("sends_total", 'result="done"'), 1)
        write()
        decoder.wait_ready_peers(0)
        self.assertEqual(len(decoder.complete(prompt(100, 2))), 16)

    @unittest.skipUnless(shutil.which("etcd"), "etcd is not installed: apt-get install etcd-server")
    def test_etcd_lets_nodes_join_and_leave(self):
        url, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-etcd-"))
        etcd = subprocess.Popen(
            ["etcd", "--name", "n", "--data-dir", folder, "--listen-client-urls", url,
             "--advertise-client-urls", url, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", "n=" + peer],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.stack.callback(lambda: (etcd.kill(), etcd.wait()))
        # Nodes need not start after etcd.
        first = self.prefill("--etcd", url)
        decoder = self.started(Node(BINARY, MODEL, *common(FETCHING), "--role", "decode",
                                    "--etcd", url))
        decoder.wait_ready_peers(1)
        second = self.prefill("--etcd", url)
        decoder.wait_ready_peers(2)
        first.stop()
        decoder.wait_ready_peers(1)
        decoder.complete(prompt(100, 1))
        self.assertEqual(second.handoff_metric("sends_total", 'result="done"'), 1)
        etcd.kill()
        time.sleep(1.5)
        self.assertEqual(decoder.handoff_metric("peers", 'state="ready"'), 1,
                         "nodes do not leave because etcd does")


class Roles(HandoffTest):
    def test_a_prefill_node_answers_no_completions(self):
        prefill = self.prefill()
        with prefill.post("/v1/completions", Node.completion([5, 6], 1)) as response:
            self.assertEqual(response.status, 421)
            self.assertEqual(json.loads(response.read())["error"]["code"], "prefill_node")
        for path in ("/health", "/metrics", "/version"):
            self.assertEqual(prefill.get(path)[0], 200)

    def test_a_node_of_both_roles_serves_and_computes_for_others(self):
        both = self.started(Node(BINARY, MODEL, *common(()), *PATH, "--handoff-listen",
                                 "127.0.0.1:0"))
        decoder = self.decode([both])
        self.assertEqual(decoder.complete(prompt(100, 1)), both.complete(prompt(100, 1)))
        self.assertEqual(self.arrived(decoder), 1)

    def test_a_decode_node_alone_answers_too(self):
        decoder = self.decode([f"127.0.0.1:{free_port()}"], ready=0)
        self.assertEqual([decoder.complete(prompt(100, 1))], self.expected([prompt(100, 1)]))

    def test_short_prompts_stay_here(self):
        prefill = self.prefill()
        decoder = self.decode([prefill])
        decoder.complete(prompt(12, 1))
        self.assertEqual(self.arrived(decoder), 0)

    def test_starts_that_fail_name_the_flag(self):
        prefill = self.prefill()
        wrong_key = key_file(KEY, 0o644)
        self.stack.callback(os.unlink, wrong_key)
        for arguments, said in (
                (("--role", "prefill", "--handoff-listen", prefill.handoff),
                 "choose another with --handoff-listen"),
                (("--role", "prefill", "--handoff-listen", "0.0.0.0:0"), "--handoff-nic"),
                (("--role", "prefill", "--handoff-listen", "0.0.0.0:0", "--handoff-nic",
                  "127.0.0.1"), "--handoff-key-file"),
                (("--role", "decode", "--prefill", prefill.handoff, "--handoff-key-file",
                  wrong_key), "chmod o="),
                (("--role", "decode", "--prefill-file", "/nonexistent/nodes"), "--prefill-file")):
            with self.subTest(arguments), self.assertRaises(NodeFailed) as failed:
                self.started(Node(BINARY, MODEL, *common(arguments)))
            self.assertIn(said, str(failed.exception))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
