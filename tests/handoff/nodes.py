"""Prefill and decode nodes as real processes, for tests, the demo and the bench.

Only the standard library is needed.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

START_SECONDS = 120
REQUEST_SECONDS = 120


class NodeFailed(Exception):
    """A node did not start, or an answer was not what HTTP or the API allow."""


def wait_until(condition, seconds=20, what="a condition"):
    """Returns as soon as `condition()` is true; AssertionError with `what` when it never is."""
    end = time.monotonic() + seconds
    while True:
        if condition():
            return
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Node:
    """One `tandem serve`. `arguments` as on the command line, without -m and --port."""

    def __init__(self, binary, model, *arguments, environment=None, cpus=None):
        command = [binary, "serve", "-m", model, "--port", "0", "--served-model-name", "m",
                   "--log-level", "info", *arguments]
        if cpus is not None:
            command = ["taskset", "-c", cpus, *command]
        env = {**os.environ, **(environment or {})}
        self.lines = []
        self.port = None
        self.handoff = None  # HOST:PORT, of a node that computes prompts for others
        self._ready = threading.Event()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace", env=env)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(START_SECONDS) or self.port is None:
            self.process.kill()
            self.process.wait()
            raise NodeFailed("".join(self.lines))

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"for others at (\S+?);?$", line.strip())
            if found:
                self.handoff = found.group(1)
            found = re.search(r"listening on http://[^\s/]*:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                self._ready.set()
        self.process.stdout.close()
        self._ready.set()

    def said(self, text):
        return any(text in line for line in self.lines)

    # ---- Requests

    @contextlib.contextmanager
    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
        try:
            connection.request("POST", path, json.dumps(body),
                               {"Content-Type": "application/json"})
            yield connection.getresponse()
        finally:
            connection.close()

    @staticmethod
    def completion(prompt, max_tokens, **more):
        return {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True, **more}

    def complete(self, prompt, max_tokens=16, **more):
        """The token ids of a greedy answer."""
        with self.post("/v1/completions", self.completion(prompt, max_tokens, **more)) as response:
            body = json.loads(response.read())
            if response.status != 200:
                raise NodeFailed(f"{response.status}: {body}")
            return body["choices"][0]["token_ids"]

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def metric(self, name, labels=""):
        """One number of /metrics; `labels` as `state="ready"`."""
        labels = ",".join(filter(None, ('model_name="m"', labels)))
        pattern = rf"^{re.escape(name)}\{{{re.escape(labels)}\}} (\S+)$"
        found = re.search(pattern, self.get("/metrics")[1], re.M)
        if not found:
            raise NodeFailed(f"no metric {name} {labels}")
        return float(found.group(1))

    def handoff_metric(self, name, labels=""):
        return self.metric("tandem:handoff_" + name, labels)

    # ---- Waiting

    def wait_ready_peers(self, count, seconds=30):
        wait_until(lambda: self.handoff_metric("peers", 'state="ready"') == count, seconds,
                   f"{count} prefill nodes are ready; the node says:\n" + "".join(self.lines[-10:]))

    def at_rest(self):
        """No request, no hand-off, no block that may still be written."""
        return (self.metric("vllm:num_requests_running") == 0
                and self.metric("vllm:num_requests_waiting") == 0
                and self.handoff_metric("requests", 'state="open"') == 0
                and self.handoff_metric("requests", 'state="awaiting_kv"') == 0
                and self.handoff_metric("requests", 'state="sending"') == 0
                and self.handoff_metric("quarantined_blocks") == 0)

    def wait_at_rest(self, seconds=20):
        wait_until(self.at_rest, seconds, "the node is at rest:\n" + "\n".join(
            line for line in self.get("/metrics")[1].splitlines()
            if "handoff" in line and not line.startswith("#")))

    # ---- Signals and ends

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """As a user ends it; AssertionError when that takes too long."""
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the node does not end:\n" + "".join(self.lines[-20:])) from None


def prefill_node(binary, model, *arguments, listen="127.0.0.1:0", **more):
    return Node(binary, model, "--role", "prefill", "--handoff-listen", listen, *arguments, **more)


def decode_node(binary, model, prefill, *arguments, **more):
    """`prefill`: the nodes that have its prompts computed."""
    return Node(binary, model, "--role", "decode", "--prefill",
                ",".join(node if isinstance(node, str) else node.handoff for node in prefill),
                *arguments, **more)


def key_file(text, mode=0o600):
    handle, path = tempfile.mkstemp(prefix="tandem-key-")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path
