#!/usr/bin/env python3
"""Measures the gaps between tokens of a live server while long prompts arrive, under an ITL target.

    bench/itl_target.py --tandem PATH --model FILE.gguf [--target-ms MS ...] [--json]

A few streams decode all the time; next to them prompts of random tokens arrive, one when the one
before has its first token. Runs: without a target (what the prompts do to the gaps), then under
each target; without --target-ms under 1.5, 2 and 3 times the median gap of the undisturbed
streams. Gaps are the client's, one per token; the chunks are those of the server's own record
(`--record`), by how much of its prompt a request had behind it. `others` is the share of the
machine that other processes took: above a few per cent the slowest percent are theirs.
"""

import argparse
import collections
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare_llama_cpp import Failed, own_cpu_s, machine_busy_s

READY_TIMEOUT_S = 120
REQUEST_TIMEOUT_S = 600
# Prompts are random tokens between these: every vocabulary has them.
TOKENS = (1000, 20000)
# Chunks are listed per so many tokens of history.
HISTORY_STEP = 1024


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


class Server:
    def __init__(self, args, target_ms, log):
        command = [args.tandem, "serve", "-m", args.model, "--port", "0", "--record", log,
                   "--prefix-cache", "off", "--max-seqs", str(args.streams + 1),
                   "--ctx-size", str(args.context), "--token-budget", str(args.budget),
                   "--chunk-tokens", str(args.budget), "--served-model-name", "m"]
        if target_ms:
            command += ["--itl-target-ms", f"{target_ms:.3f}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        self.port = None
        for line in self.process.stdout:
            found = re.search(r"http://[^:]+:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        if self.port is None:
            raise Failed("the server did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def open(self, prompt, max_tokens):
        """A stream of one answer: (connection, response)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_TIMEOUT_S)
        body = {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                "stream": True, "ignore_eos": True, "return_token_ids": True}
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise Failed(f"the server answered {response.status}: {response.read(500)!r}")
        return connection, response

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_TIMEOUT_S)
        connection.request("GET", "/metrics")
        found = re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", connection.getresponse().read().decode(),
                          re.M)
        return float(found.group(1)) if found else 0.0

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def token_times(response, stop):
    """Arrival times of a stream's tokens until `stop` is set."""
    for line in response:
        now = time.perf_counter()
        if not line.startswith(b"data: {"):
            continue
        for _ in json.loads(line[6:])["choices"][0].get("token_ids") or []:
            yield now
        if stop.is_set():
            return


class Load:
    """Streams that decode, and prompts beside them."""

    def __init__(self, server, args):
        self.server = server
        self.args = args
        self.random = random.Random(1)
        self.stop = threading.Event()
        self.times = [[] for _ in range(args.streams)]
        self.first_tokens = []
        self.errors = []

    def prompt(self, tokens):
        return [self.random.randrange(*TOKENS) for _ in range(tokens)]

    def guarded(self, work):
        def run():
            try:
                work()
            except (Failed, OSError, ValueError, KeyError) as error:
                self.errors.append(error)
                self.stop.set()
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def decode(self, index, prompt):
        while not self.stop.is_set():
            connection, response = self.server.open(prompt, self.args.context - len(prompt) - 1)
            self.times[index].append(float("nan"))  # no gap from one answer to the next
            for at in token_times(response, self.stop):
                self.times[index].append(at)
            connection.close()

    def prompts(self):
        while not self.stop.is_set():
            start = time.perf_counter()
            connection, response = self.server.open(self.prompt(self.args.prompt_tokens), 1)
            for at in token_times(response, self.stop):
                self.first_tokens.append(at - start)
            connection.close()

    def gaps(self, begin, end):
        out = []
        for times in self.times:
            out += [b - a for a, b in zip(times, times[1:]) if begin <= a and b <= end]
        return out

    def run(self):
        """(gaps without prompts, gaps with prompts, share of the machine that others took)."""
        decoders = [self.guarded(lambda i=i, p=self.prompt(32): self.decode(i, p))
                    for i in range(self.args.streams)]
        while not self.stop.is_set() and any(len(times) < 5 for times in self.times):
            time.sleep(0.01)
        quiet = time.perf_counter()
        self.stop.wait(self.args.seconds / 4)
        begin, busy, own = time.perf_counter(), machine_busy_s(), own_cpu_s(self.server)
        feeder = self.guarded(self.prompts)
        self.stop.wait(self.args.seconds)
        end = time.perf_counter()
        others = (machine_busy_s() - busy) - (own_cpu_s(self.server) - own)
        self.stop.set()
        for thread in decoders + [feeder]:
            thread.join()
        if self.errors:
            raise Failed(str(self.errors[0]))
        return (self.gaps(quiet, begin), self.gaps(begin, end),
                max(0.0, others / ((end - begin) * os.cpu_count())))


def chunks(args, log):
    """{history: median chunk beside decodes} of prompts, from the record."""
    text = subprocess.run([args.tandem, "simulate", "--replay", log, "--print"],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    by_history = collections.defaultdict(list)
    for plan in re.split(r"^(?=.*\bstep \d+)", text, flags=re.M):
        rows = [(int(p), int(n)) for p, n in re.findall(r"row slot=\d+ pos=(\d+) n=(\d+)", plan)]
        # The last row of a prompt is as long as the rest.
        rest = any(p + n == args.prompt_tokens for p, n in rows)
        if not any(n == 1 for _, n in rows) or rest:
            continue
        for position, tokens in rows:
            if tokens > 1:
                by_history[position // HISTORY_STEP * HISTORY_STEP].append(tokens)
    return {h: statistics.median(c) for h, c in sorted(by_history.items())}


def measure(args, target_ms):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        server = Server(args, target_ms, log)
        try:
            load = Load(server, args)
            quiet, gaps, others = load.run()
            error = server.metric("tandem:cost_model_error_ratio")
        finally:
            server.stop()
        milliseconds = [1e3 * g for g in gaps]
        return {"target_ms": target_ms, "quiet_ms": 1e3 * statistics.median(quiet),
                "median_ms": statistics.median(milliseconds), "gaps": len(gaps),
                "p99_ms": quantile(milliseconds, 0.99), "most_ms": max(milliseconds),
                "over": sum(g > (target_ms or 1e9) for g in milliseconds) / len(gaps),
                "first_token_s": statistics.median(load.first_tokens or [float("nan")]),
                "prompts": len(load.first_tokens), "cost_error": error, "others": others,
                "chunks": chunks(args, log)}


def show(row):
    target = f"{row['target_ms']:.1f}" if row["target_ms"] else "none"
    print(f"target {target:>7} ms: gaps median {row['median_ms']:.1f}  p99 {row['p99_ms']:.1f}  "
          f"most {row['most_ms']:.1f} ms ({row['gaps']} gaps, {100 * row['over']:.2f} % over); "
          f"quiet median {row['quiet_ms']:.1f} ms; {row['prompts']} prompts, first token after "
          f"{row['first_token_s']:.2f} s; cost error {100 * row['cost_error']:.0f} %, others "
          f"{100 * row['others']:.0f} %")
    print("  chunk by history: " +
          "  ".join(f"{h}: {c:.0f}" for h, c in row["chunks"].items()), flush=True)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tandem", required=True, metavar="PATH")
    parser.add_argument("--model", required=True, metavar="FILE")
    parser.add_argument("--target-ms", type=float, action="append", metavar="MS")
    parser.add_argument("--streams", type=int, default=4, metavar="N", help="that decode")
    parser.add_argument("--prompt-tokens", type=int, default=3000, metavar="N")
    parser.add_argument("--budget", type=int, default=512, metavar="N", help="tokens of a step")
    parser.add_argument("--context", type=int, default=4096, metavar="N")
    parser.add_argument("--seconds", type=float, default=30, metavar="S", help="of each run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse_arguments(argv)
    rows = []
    try:
        rows.append(measure(args, None))
        if not args.json:
            show(rows[0])
        quiet = rows[0]["quiet_ms"]
        for target in args.target_ms or [factor * quiet for factor in (1.5, 2, 3)]:
            rows.append(measure(args, target))
            if not args.json:
                show(rows[-1])
                print(f"  p99 is {100 * rows[-1]['p99_ms'] / target:.0f} % of the target, "
                      f"1/{rows[0]['p99_ms'] / rows[-1]['p99_ms']:.1f} of that without one",
                      flush=True)
    except (Failed, OSError, subprocess.CalledProcessError) as error:
        print(f"itl_target.py: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
