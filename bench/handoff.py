#!/usr/bin/env python3
"""Measures what prefill and decode nodes buy, against one node that does both, in the same run.

    bench/handoff.py --tandem PATH --model FILE.gguf [--prompt-tokens N] [--rounds N] [--json]

Three processes stay up: a prefill node on one processor with a decode node on another, and one
server on both processors with the same number of threads. Rounds alternate between them, so that
what else the machine does meets both. In a round some streams decode all the time, and prompts of
random tokens arrive, one when the one before has its first token. Reported: gaps between the
streams' tokens while prompts are in (median, p99), time to a prompt's first token, loaded and idle,
and, of the hand-off, which share of the transfer the computation hid. Gaps are the client's.
`idle alone` is a server with the one thread that the prefill node has: what splitting itself costs.
"""

import argparse
import json
import os
import random
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "handoff"))

from nodes import Node, NodeFailed, decode_node, prefill_node  # noqa: E402

# Prompts are random tokens between these: every vocabulary has them.
TOKENS = (1000, 20000)
SHORT = 32  # tokens of the prompts whose answers are decoded


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


class Client:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(1)

    def prompt(self, tokens):
        return [self.random.randrange(*TOKENS) for _ in range(tokens)]

    def tokens(self, node, prompt, max_tokens, stop=None):
        """Arrival times of an answer's tokens."""
        body = Node.completion(prompt, max_tokens, stream=True)
        with node.post("/v1/completions", body) as response:
            if response.status != 200:
                raise NodeFailed(f"{response.status}: {response.read(500)!r}")
            for line in response:
                now = time.perf_counter()
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        raise NodeFailed(event["error"]["message"])
                    for _ in (event["choices"] or [{}])[0].get("token_ids") or []:
                        yield now
                if stop is not None and stop.is_set():
                    return

    def first_token_s(self, node):
        prompt = self.prompt(self.args.prompt_tokens)
        start = time.perf_counter()
        return next(iter(self.tokens(node, prompt, 1))) - start

    def loaded(self, node):
        """(gaps in seconds, times to first token) of one round."""
        stop, times, errors = threading.Event(), [[] for _ in range(self.args.streams)], []

        def decode(index, prompt):
            try:
                for at in self.tokens(node, prompt, self.args.context - SHORT - 1, stop):
                    times[index].append(at)
                if not stop.is_set():
                    raise NodeFailed("a stream ended: give more --context")
            except (NodeFailed, OSError, ValueError) as error:
                errors.append(error)

        threads = [threading.Thread(target=decode, args=(i, self.prompt(SHORT)))
                   for i in range(self.args.streams)]
        for thread in threads:
            thread.start()
        while not errors and any(len(t) < 3 for t in times):
            time.sleep(0.01)
        begin = time.perf_counter()
        firsts = []
        for _ in range(self.args.prompts):
            if errors:
                break
            firsts.append(self.first_token_s(node))
        end = time.perf_counter()
        stop.set()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        gaps = []
        for t in times:
            gaps += [b - a for a, b in zip(t, t[1:]) if begin <= a and b <= end]
        return gaps, firsts


def start_nodes(args):
    common = ["--threads", "1", "--ctx-size", str(args.context), "--prefix-cache", "off",
              "--max-seqs", str(args.streams + 2), "--kv-memory", args.kv_memory]
    nodes = {}
    try:
        nodes["prefill"] = prefill_node(args.tandem, args.model, *common, cpus="0")
        nodes["split"] = decode_node(args.tandem, args.model, [nodes["prefill"]], *common, cpus="1")
        mixed = [*common]
        mixed[1] = "2"
        nodes["mixed"] = Node(args.tandem, args.model, *mixed, cpus="0,1")
        nodes["alone"] = Node(args.tandem, args.model, *common, cpus="0")
        nodes["split"].wait_ready_peers(1)
    except BaseException:
        stop_nodes(nodes)
        raise
    return nodes


def stop_nodes(nodes):
    for node in nodes.values():
        node.stop()


def hidden(prefill):
    return [prefill.handoff_metric("transfer_seconds_total", f'part="{part}"')
            for part in ("hidden", "visible")]


def measure(args):
    nodes = start_nodes(args)
    client = Client(args)
    gaps = {"split": [], "mixed": []}
    firsts = {"split": [], "mixed": []}
    idle = {"split": [], "mixed": [], "alone": []}
    try:
        for name in idle:  # the first ones pay for memory that nobody has touched yet
            client.first_token_s(nodes[name])
        before = hidden(nodes["prefill"])
        for _ in range(args.rounds):
            for name in idle:
                idle[name].append(client.first_token_s(nodes[name]))
        idle_transfer = [b - a for a, b in zip(before, hidden(nodes["prefill"]))]
        for _ in range(args.rounds):
            for name in gaps:
                more, times = client.loaded(nodes[name])
                gaps[name] += more
                firsts[name] += times
        transfer = [b - a for a, b in zip(before, hidden(nodes["prefill"]))]
        fetched = nodes["split"].handoff_metric("fetches_total", 'result="arrived"')
        fallbacks = nodes["split"].handoff_metric("fallbacks_total")
        megabytes = nodes["split"].handoff_metric("bytes_total", 'direction="in"') / 1e6
    finally:
        stop_nodes(nodes)
    row = {"prompt_tokens": args.prompt_tokens, "fetched": fetched, "fallbacks": fallbacks,
           "megabytes": megabytes,
           "hidden_share_idle": idle_transfer[0] / max(1e-9, sum(idle_transfer)),
           "hidden_share": transfer[0] / max(1e-9, sum(transfer))}
    for name in gaps:
        row[name] = {"gaps": len(gaps[name]),
                     "median_gap_ms": 1e3 * statistics.median(gaps[name]),
                     "p99_gap_ms": 1e3 * quantile(gaps[name], 0.99),
                     "first_token_s": statistics.median(firsts[name])}
    row["idle_first_token_s"] = {name: statistics.median(times) for name, times in idle.items()}
    row["p99_gap_ratio"] = row["mixed"]["p99_gap_ms"] / row["split"]["p99_gap_ms"]
    row["first_token_cost"] = (row["idle_first_token_s"]["split"]
                               / row["idle_first_token_s"]["alone"])
    return row


def show(row):
    print(f"prompts of {row['prompt_tokens']} tokens; {row['fetched']:.0f} handed over "
          f"({row['megabytes']:.0f} MB), {row['fallbacks']:.0f} computed by the decode node itself")
    for name in ("mixed", "split"):
        one = row[name]
        print(f"{name:>6}: gaps median {one['median_gap_ms']:.1f}  p99 {one['p99_gap_ms']:.1f} ms"
              f" ({one['gaps']}); a prompt's first token {one['first_token_s']:.2f} s loaded, "
              f"{row['idle_first_token_s'][name]:.2f} s idle")
    print(f"p99 gap, mixed / split: {row['p99_gap_ratio']:.1f}")
    print(f"first token, split / one thread alone, idle: {row['first_token_cost']:.2f}")
    print(f"transfer time hidden by computation: {100 * row['hidden_share_idle']:.0f} % idle, "
          f"{100 * row['hidden_share']:.0f} % of all")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tandem", required=True, metavar="PATH")
    parser.add_argument("--model", required=True, metavar="FILE")
    parser.add_argument("--streams", type=int, default=3, metavar="N", help="that decode")
    parser.add_argument("--prompt-tokens", type=int, default=2048, metavar="N")
    parser.add_argument("--prompts", type=int, default=4, metavar="N", help="of each round")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--context", type=int, default=8192, metavar="N")
    parser.add_argument("--kv-memory", default="2G", metavar="SIZE")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    try:
        row = measure(args)
    except (NodeFailed, OSError, AssertionError) as error:
        print(f"handoff.py: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(row, indent=2))
    else:
        show(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
