#!/usr/bin/env python3
"""Compares Tandem with llama.cpp's own llama-bench on this machine, run against run.

    bench/compare_llama_cpp.py --llama-bench PATH --tandem PATH --model FILE.gguf [--server]

Single-stream decode and prefill alternate, llama-bench, tandem, llama-bench, tandem ..., so that
both see the same noise; each round gives one ratio. --server adds a single stream through
`tandem serve`, timed here, by the client: first to last token. Prints every round, medians and
the median ratio (above 1: Tandem is faster). A round's `others` is the share of the machine that
other processes took in the meantime: rounds above a few per cent say little.
"""

import argparse
import http.client
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time

READY_TIMEOUT_S = 60
REQUEST_TIMEOUT_S = 600
# An answer that ends by itself sooner than this is too short to time.
TOKENS_MIN = 32
QUESTION = "Write a long story about a lighthouse keeper and the sea. Tell every detail."


class Failed(Exception):
    """The comparison cannot go on; the message is for the user."""


# ---------------------------------------------------------------- how busy others are

def machine_busy_s():
    """CPU seconds that the machine has spent on any process."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_cpu_s(server):
    """CPU seconds of this script, its ended children and the running server."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    if server is not None:
        with open(f"/proc/{server.process.pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def with_others(server, measure):
    """(measure(), share of all processors that others used meanwhile)."""
    start, busy, own = time.monotonic(), machine_busy_s(), own_cpu_s(server)
    value = measure()
    wall = time.monotonic() - start
    others = (machine_busy_s() - busy) - (own_cpu_s(server) - own)
    return value, max(0.0, others / (wall * os.cpu_count()))


# ---------------------------------------------------------------- the two programs

def run_json(command):
    """Standard output of a command as JSON."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            check=False)
    if result.returncode != 0:
        raise Failed(f"{' '.join(command)} ended with {result.returncode}:\n"
                     f"{result.stderr[-2000:]}")
    try:
        return json.loads(result.stdout)
    except json.JSONDecodeError as error:
        raise Failed(f"{' '.join(command)} printed no JSON: {error}") from error


def llama_bench(args, prompt_tokens, output_tokens):
    """Tokens per second of one llama-bench test."""
    tests = run_json([args.llama_bench, "-m", args.model, "-t", str(args.threads), "-r", "1",
                      "-p", str(prompt_tokens), "-n", str(output_tokens), "-o", "json"])
    if len(tests) != 1:
        raise Failed(f"llama-bench ran {len(tests)} tests, expected 1")
    return float(tests[0]["avg_ts"])


def tandem_bench(args, what, prompt_tokens, output_tokens):
    """Tokens per second of one run of `tandem bench`."""
    report = run_json([args.tandem, "bench", what, "-m", args.model, "-t", str(args.threads),
                       "-r", "1", "--prompt-tokens", str(prompt_tokens),
                       "--output-tokens", str(output_tokens), "--json"])
    return float(report["tokens_per_s"]["median"])


class Server:
    """`tandem serve` on a free port."""

    def __init__(self, args):
        self.process = subprocess.Popen(
            [args.tandem, "serve", "-m", args.model, "-t", str(args.threads), "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = None
        for line in self.process.stdout:
            match = re.search(r"listening on http://[^:]+:(\d+)", line)
            if match:
                self.port = int(match[1])
                break
        if self.port is None:
            raise Failed(f"{args.tandem} serve ended with {self.process.wait()}")
        self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise Failed("the server is not ready")

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def model_id(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=READY_TIMEOUT_S)
        connection.request("GET", "/v1/models")
        return json.load(connection.getresponse())["data"][0]["id"]

    def decode_rate(self, output_tokens):
        """Tokens per second of a streamed answer, from its first to its last token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_TIMEOUT_S)
        body = {"model": self.model_id(), "stream": True, "stream_options": {"include_usage": True},
                "messages": [{"role": "user", "content": QUESTION}], "temperature": 0,
                "max_tokens": output_tokens}
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise Failed(f"the server answered {response.status}: {response.read(500)!r}")
        return self.rate_of(response)

    @staticmethod
    def rate_of(response):
        times, tokens = [], 0
        for line in response:
            now = time.perf_counter()
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[len(b"data: "):])
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            if any(choice["delta"].get("content") for choice in event.get("choices", [])):
                times.append(now)
        if tokens < TOKENS_MIN or len(times) < 2:
            raise Failed(f"the answer has {tokens} tokens, too few to time")
        return (tokens - 1) / (times[-1] - times[0])


# ---------------------------------------------------------------- the comparison

def tests_of(args, server):
    """[(name, measures llama.cpp, measures Tandem)]."""
    out, prompt = args.output_tokens, args.prompt_tokens
    tests = [
        # llama-bench generates from an empty context; one token is the shortest prompt there is.
        (f"decode {out}", lambda: llama_bench(args, 0, out),
         lambda: tandem_bench(args, "decode", 1, out)),
        (f"prefill {prompt}", lambda: llama_bench(args, prompt, 0),
         lambda: tandem_bench(args, "prefill", prompt, 2)),
    ]
    if server is not None:
        tests.append((f"decode {out}, HTTP", lambda: llama_bench(args, 0, out),
                      lambda: server.decode_rate(out)))
    return tests


def compare(args, server):
    results = {}
    for name, peer, tandem in tests_of(args, server):
        rounds = []
        for number in range(1, args.rounds + 1):
            peer_rate, peer_others = with_others(server, peer)
            tandem_rate, tandem_others = with_others(server, tandem)
            others = max(peer_others, tandem_others)
            rounds.append({"llama_cpp": peer_rate, "tandem": tandem_rate,
                           "ratio": tandem_rate / peer_rate, "others": others})
            print(f"{name:<22} round {number}: llama.cpp {peer_rate:8.1f}  tandem "
                  f"{tandem_rate:8.1f}  ratio {tandem_rate / peer_rate:5.2f}  others "
                  f"{100 * others:3.0f} %", file=sys.stderr)
        results[name] = {key: statistics.median(r[key] for r in rounds)
                         for key in ("llama_cpp", "tandem", "ratio", "others")}
        results[name]["rounds"] = rounds
    return results


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--llama-bench", required=True, metavar="PATH")
    parser.add_argument("--tandem", required=True, metavar="PATH")
    parser.add_argument("--model", required=True, metavar="FILE")
    parser.add_argument("--server", action="store_true", help="also through `tandem serve`")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--prompt-tokens", type=int, default=512, metavar="N")
    parser.add_argument("--output-tokens", type=int, default=128, metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    for name in ("rounds", "threads", "prompt_tokens"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if args.output_tokens < TOKENS_MIN:
        parser.error(f"--output-tokens must be at least {TOKENS_MIN}")
    return args


def main(argv=None):
    args = parse_arguments(argv)
    server = None
    try:
        if args.server:
            server = Server(args)
            server.decode_rate(args.output_tokens)  # warm
        results = compare(args, server)
    except (Failed, OSError, ValueError, KeyError) as error:
        print(f"compare_llama_cpp.py: {error}", file=sys.stderr)
        return 1
    finally:
        if server is not None:
            server.stop()
    if args.json:
        print(json.dumps(results, indent=2))
        return 0
    print(f"{'tokens/s, medians':<22}{'llama.cpp':>12}{'tandem':>12}{'ratio':>8}{'others':>9}")
    for name, row in results.items():
        print(f"{name:<22}{row['llama_cpp']:>12.1f}{row['tandem']:>12.1f}{row['ratio']:>8.2f}"
              f"{100 * row['others']:>7.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
