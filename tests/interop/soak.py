"""Load with rude clients: nothing lost, nothing mixed up, nothing left behind.

Usage: soak.py [options] --url http://127.0.0.1:PORT [--pid PID]
       soak.py [options] -- COMMAND that serves, like tandem serve -m MODEL --port 0

Many clients send chats and completions, streamed and not, with n, lists of prompts, stop strings,
scored prompts, short prompts and long ones that share prefixes; some hang up in the middle, some
send what is no request. Then live streams are cancelled, --cancels in all. It must hold:
  - each request that nobody cancelled ends, with the text, finish reason, scores and usage that the
    same request had alone before the load; what a cancelled one got until then is a prefix of that;
  - each malformed request gets its status and an error in OpenAI's shape;
  - /health answers in time during the load;
  - at the end nothing runs, waits or holds KV blocks, and no request failed inside the engine;
  - the process does not grow between the second and the last third (not for less than 30 s);
  - a COMMAND ends with status 0 after SIGTERM and reported nothing of a sanitizer.
Exit status 0 if all hold. The KV cache should be small (--kv-memory 96M), so that it is full, and
its pages touched, before the second third begins.
"""

import argparse
import asyncio
import collections
import json
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse

from soak_requests import MALFORMED, make_requests
from wire import Connection, Lost

START_SECONDS = 300
HEALTH_SECONDS = 30
FAILURES_SHOWN = 20
# A shorter third says nothing of growth.
THIRD_SECONDS = 10


class Soak:
    def __init__(self, options, address, pid):
        self.options = options
        self.address = address
        self.pid = pid
        self.random = random.Random(options.seed)
        self.counts = collections.Counter()
        self.failures = []
        self.memory = []
        self.health_worst = 0
        self.model = ""
        self.context = 0
        self.requests = []

    def fail(self, text):
        self.failures.append(text)
        if len(self.failures) <= FAILURES_SHOWN:
            print("FAIL", text[:2000], flush=True)

    def check(self, good, text):
        if good:
            print("ok  ", text, flush=True)
        else:
            self.fail(text)

    # --- single requests

    async def get(self, path):
        connection = Connection(self.address)
        status = await connection.request("GET", path)
        body = await connection.body()
        connection.close()
        return status, body.decode()

    async def metrics(self):
        numbers = {}
        for line in (await self.get("/metrics"))[1].splitlines():
            found = re.match(r"(\w+:\w+)\{model_name=\"[^\"]*\"\} (\S+)$", line)
            if found:
                numbers[found.group(1).split(":")[1]] = float(found.group(2))
        return numbers

    async def whole(self, connection, request):
        """The outcome of a request that is not streamed."""
        status = await connection.request("POST", request.path, request.bytes(stream=False))
        body = json.loads(await connection.body())
        if status != 200:
            raise Lost(f"status {status}: {body}")
        return request.outcome(body)

    async def streamed(self, connection, request, leave_after=None):
        """The outcome of a streamed request, and whether it ended before `leave_after` events."""
        status = await connection.request("POST", request.path, request.bytes(stream=True))
        if status != 200:
            raise Lost(f"status {status}: {await connection.body()}")
        outcome = request.empty()
        events = 0
        async for event in connection.events():
            if leave_after is not None and events >= leave_after:
                return outcome, False
            request.add(outcome, event)
            events += 1
        return outcome, True

    def compare(self, request, got):
        if got != request.alone:
            self.fail(f"{request.name}: got {got}, alone it was {request.alone}\n"
                      f"     {request.bytes(stream=False).decode()}")

    # --- what a client does

    async def complete(self, connection, request):
        if self.random.random() < 0.5:
            self.counts["whole"] += 1
            self.compare(request, await self.whole(connection, request))
        else:
            self.counts["streamed"] += 1
            self.compare(request, (await self.streamed(connection, request))[0])

    async def cancel_stream(self, connection, request):
        leave_after = self.random.randrange(12)
        reset = self.random.random() < 0.5
        outcome, ended = await self.streamed(connection, request, leave_after)
        if ended:
            self.counts["ended before the cancel"] += 1
            self.compare(request, outcome)
            return
        self.counts["cancelled streams"] += 1
        connection.close(reset)
        if not request.starts(outcome):
            self.fail(f"{request.name}, cancelled: got {outcome}, alone it was {request.alone}")

    async def cancel_whole(self, connection, request):
        body = request.bytes(stream=False)
        cut = len(body) if self.random.random() < 0.7 else self.random.randrange(len(body))
        head = (f"POST {request.path} HTTP/1.1\r\nHost: soak\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        await connection.send(head + body[:cut])
        await asyncio.sleep(self.random.random() * 0.3)
        connection.close(self.random.random() < 0.5)
        self.counts["cancelled answers" if cut == len(body) else "left inside a body"] += 1

    async def malformed(self, connection):
        case = MALFORMED[self.counts["malformed"] % len(MALFORMED)]
        self.counts["malformed"] += 1
        connection.close()  # a request that is no HTTP needs the connection to itself
        await connection.send(case.bytes(self.model))
        status = await connection.head()
        body = await connection.body()
        connection.close()
        try:
            error = json.loads(body)["error"]
            good = bool(error["message"]) and "type" in error
        except (ValueError, KeyError, TypeError):
            good = False
        if status != case.status or not good:
            self.fail(f"malformed, {case.name}: got {status} {body!r}, wanted {case.status}")

    async def act(self, connection):
        request = self.random.choice(self.requests)
        what = self.random.random()
        try:
            if what < 0.60:
                await self.complete(connection, request)
            elif what < 0.80:
                await self.cancel_stream(connection, request)
            elif what < 0.88:
                await self.cancel_whole(connection, request)
            else:
                await self.malformed(connection)
        except (Lost, OSError) as error:
            connection.close()
            self.fail(f"{request.name}: lost: {error!r}")

    async def client(self, end):
        connection = Connection(self.address)
        while time.monotonic() < end and len(self.failures) < FAILURES_SHOWN:
            await self.act(connection)
        connection.close()

    # --- the phases

    async def watch(self, end):
        """Once a second: the size of the process, and how long /health takes."""
        while time.monotonic() < end:
            if self.pid:
                self.memory.append(resident_mib(self.pid))
            start = time.monotonic()
            status, _ = await self.get("/health")
            self.health_worst = max(self.health_worst, time.monotonic() - start)
            if status != 200:
                self.fail(f"/health answers {status}")
            await asyncio.sleep(1)

    async def take_alone(self):
        connection = Connection(self.address)
        status, models = await self.get("/v1/models")
        if status != 200:
            raise Lost(f"/v1/models answers {status}: {models}")
        model = json.loads(models)["data"][0]
        self.model, self.context = model["id"], model["max_model_len"]
        start = time.monotonic()
        for request in make_requests(self.model, self.context, self.options.tokens):
            request.alone = await self.whole(connection, request)
            self.requests.append(request)
            cut = request.with_stop()
            if cut:
                cut.alone = await self.whole(connection, cut)
                self.requests.append(cut)
        connection.close()
        print(f"{len(self.requests)} requests alone: {time.monotonic() - start:.1f} s", flush=True)

    async def until_idle(self, what):
        """Waits until the server's own numbers say that nothing is left."""
        start = time.monotonic()
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        while True:
            numbers = await self.metrics()
            left = {name: numbers[name] for name in names}
            took = time.monotonic() - start
            if not any(left.values()) or took > self.options.idle_seconds:
                break
            await asyncio.sleep(0.01)
        self.check(not any(left.values()), f"{what}: {left} after {took:.2f} s")
        self.check(numbers["engine_requests_failed_total"] == 0, f"{what}: none failed inside")
        return numbers

    async def cancel_live(self):
        """Cancels streams that still run, for a model that is not too fast for this client: the
        engine must count each."""
        before = await self.metrics()
        story = {"model": self.model, "prompt": "Once upon a time",
                 "max_tokens": min(900, self.context - 64), "ignore_eos": True, "stream": True,
                 "temperature": 0}
        body = json.dumps(story).encode()
        left = self.options.cancels

        async def canceller():
            nonlocal left
            while left > 0:
                left -= 1
                connection = Connection(self.address)
                status = await connection.request("POST", "/v1/completions", body)
                events = 0
                async for _ in connection.events():
                    events += 1
                    if status != 200 or events > self.random.randrange(4):
                        break
                connection.close(self.random.random() < 0.5)

        start = time.monotonic()
        await asyncio.gather(*[canceller() for _ in range(self.options.clients)])
        took = time.monotonic() - start
        after = await self.until_idle(f"after {self.options.cancels} live cancels in {took:.1f} s")
        name = "engine_requests_cancelled_total"
        self.check(after[name] - before[name] == self.options.cancels,
                   f"the engine counts {after[name] - before[name]:.0f} of them as cancelled")

    async def run(self):
        await self.take_alone()
        await self.until_idle("before the load")
        start = time.monotonic()
        end = start + self.options.seconds
        watcher = asyncio.create_task(self.watch(end))
        await asyncio.gather(*[self.client(end) for _ in range(self.options.clients)])
        took = time.monotonic() - start
        await watcher
        print(f"{self.options.clients} clients, {took:.0f} s:", dict(self.counts), flush=True)
        numbers = await self.until_idle("after the load")
        print("engine:", {name: int(number) for name, number in numbers.items()
                          if name.endswith("_total")}, flush=True)
        self.check(self.health_worst < HEALTH_SECONDS,
                   f"/health answered within {self.health_worst:.2f} s")
        self.check_memory()
        if self.options.cancels:
            await self.cancel_live()

    def check_memory(self):
        third = len(self.memory) // 3
        if third < THIRD_SECONDS:
            return
        parts = [statistics.median(self.memory[i * third:(i + 1) * third]) for i in range(3)]
        text = ", ".join(f"{part:.1f}" for part in parts)
        self.check(parts[2] - parts[1] <= self.options.growth_mib,
                   f"resident MiB, medians of the thirds: {text}")


def resident_mib(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Served:
    """A server started by COMMAND; its output is kept and shown when something was wrong."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace")
        self.lines = []
        self.url = None
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(START_SECONDS) or self.url is None:
            self.process.kill()
            raise SystemExit("the server did not start:\n" + "".join(self.lines))

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"listening on (http://\S+:\d+)", line)
            if found:
                self.url = found.group(1)
                self.ready.set()
        self.ready.set()

    def end(self):
        """Ends the server; returns its status and whether a sanitizer spoke."""
        self.process.terminate()
        try:
            status = self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "none within 120 s"
        self.reader.join(timeout=10)
        return status, any("Sanitizer" in line or "runtime error" in line for line in self.lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--url")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--cancels", type=int, default=500, help="live ones, after the load")
    parser.add_argument("--tokens", type=int, default=32, help="longest answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth-mib", type=float, default=4)
    parser.add_argument("--idle-seconds", type=float, default=30)
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    if bool(options.url) == bool(options.command):
        parser.error("give either --url or a command")
    return options


def main():
    options = parse()
    server = Served(options.command) if options.command else None
    url = urllib.parse.urlsplit(server.url if server else options.url)
    soak = Soak(options, (url.hostname, url.port), server.process.pid if server else options.pid)
    try:
        asyncio.run(soak.run())
    except (Lost, OSError) as error:
        soak.fail(f"the server is gone: {error!r}")
    finally:
        if server:
            status, spoke = server.end()
            soak.check(status == 0 and not spoke, f"the server ended with status {status}"
                       f"{', and a sanitizer reported' if spoke else ''}")
            if soak.failures:
                print("--- the server's last lines:\n" + "".join(server.lines[-150:]))
    print(f"{len(soak.failures)} failures")
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
