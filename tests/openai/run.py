"""Runs test_client.py against `tandem serve`, then checks how the server ends.

Usage: run.py TANDEM_BINARY [more arguments of `tandem serve`]
Environment: TANDEM_TEST_MODEL, the model file, and TANDEM_OPENAI_PYTHON, an interpreter that has
the package `openai`; without either, exit 77 (skipped).
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Loading and packing a model of some 100 MB on a slow machine.
START_SECONDS = 120


class Server:
    def __init__(self, arguments):
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace")
        self.lines = []
        self.port = None
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(START_SECONDS) or self.port is None:
            self.process.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.lines))

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"listening on http://[^\s/]*:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                self.ready.set()
        self.ready.set()

    def post_stream(self, max_tokens):
        """Starts a streamed chat; returns the connection and response after the first event."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", "/v1/models")
        model = json.loads(connection.getresponse().read())["data"][0]["id"]
        story = {"role": "user", "content": "Write a very long story. Do not stop."}
        body = {"model": model, "stream": True, "max_tokens": max_tokens, "temperature": 1.5,
                "seed": 3, "messages": [story]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        response = connection.getresponse()
        response.readline()
        return connection, response

    def refuses_connections(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.connect()
            connection.close()
            return False
        except OSError:
            return True


def check(condition, name):
    print(f"{'ok  ' if condition else 'FAIL'} {name}", flush=True)
    return condition


def one_interrupt_drains(server):
    connection, response = server.post_stream(max_tokens=100)
    server.process.send_signal(signal.SIGINT)
    end = time.monotonic() + 10
    while not server.refuses_connections() and time.monotonic() < end:
        time.sleep(0.02)
    closed = server.refuses_connections()
    finished = response.read().endswith(b"data: [DONE]\n\n")
    connection.close()
    code = server.process.wait(timeout=30)
    good = check(closed, "after one interrupt no new connection is taken")
    good &= check(finished, "after one interrupt the running stream finishes")
    return good & check(code == 0, f"after the drain the exit code is 0 (got {code})")


def two_interrupts_end_at_once(server):
    connection, _ = server.post_stream(max_tokens=2000)
    server.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    running = server.process.poll() is None
    start = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    server.process.wait(timeout=30)
    took = time.monotonic() - start
    connection.close()
    good = check(running, "after one interrupt a long answer still runs")
    return good & check(took < 5, f"a second interrupt ends it at once ({took:.1f} s)")


def main():
    python = os.environ.get("TANDEM_OPENAI_PYTHON")
    if not python:
        print("skipped: TANDEM_OPENAI_PYTHON names no interpreter with the openai package")
        return 77
    model = os.environ.get("TANDEM_TEST_MODEL")
    if not model:
        print("skipped: TANDEM_TEST_MODEL names no model file")
        return 77
    arguments = [sys.argv[1], "serve", "-m", model, "--port", "0", *sys.argv[2:]]
    server, keyed = Server(arguments), None
    try:
        keyed = Server([*arguments, "--api-key", "test-key", "--cors-origin", "http://page.example",
                        "--chat-template", os.path.join(HERE, "tools_template.jinja")])
        environment = dict(os.environ, TANDEM_BASE_URL=f"http://127.0.0.1:{server.port}",
                           TANDEM_KEYED_URL=f"http://127.0.0.1:{keyed.port}")
        good = subprocess.run([python, os.path.join(HERE, "test_client.py")], env=environment,
                              check=False).returncode == 0
        keyed.process.terminate()
        good &= one_interrupt_drains(server)
        server = Server(arguments)
        good &= two_interrupts_end_at_once(server)
    finally:
        for started in (server, keyed):
            if started and started.process.poll() is None:
                started.process.kill()
    if not good:
        print("--- the server's last lines:\n" + "".join(server.lines[-40:]))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
