#!/usr/bin/env python3
"""One prefill node and two decode nodes on this machine, a client, and a picture of the overlap.

    ./run demo-handoff [-m MODEL] [--prompts N] [--tokens N] [-o handoff.svg]
"""

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "handoff"))

from nodes import decode_node, prefill_node  # noqa: E402
import handoff_picture  # noqa: E402

TOPICS = ("a lighthouse", "bread", "the tides", "a bridge", "honey", "glaciers", "a clock", "wool")


def question(number, tokens):
    """About `tokens` tokens of plain text, other ones for each number."""
    source = random.Random(number)
    facts = []
    while sum(len(fact) for fact in facts) < 2.5 * tokens:
        facts.append(f"Note {len(facts) + 1}: {source.choice(TOPICS)} was described by "
                     f"{source.randrange(2, 90)} people in {source.randrange(1700, 2000)}. ")
    return "".join(facts) + "What do these notes have in common? Answer in one sentence."


def ask(node, number, tokens, results):
    started = time.monotonic()
    body = {"model": "m", "stream": True, "temperature": 0, "max_tokens": 40,
            "messages": [{"role": "user", "content": question(number, tokens)}]}
    text, first = "", None
    with node.post("/v1/chat/completions", body) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            piece = (event["choices"] or [{"delta": {}}])[0]["delta"].get("content")
            if piece:
                first = first or time.monotonic() - started
                text += piece
    results[number] = (first or 0.0, time.monotonic() - started, " ".join(text.split()))


def main():
    parser = argparse.ArgumentParser(prog="./run demo-handoff", description=__doc__.splitlines()[0])
    parser.add_argument("binary", help=argparse.SUPPRESS)
    parser.add_argument("-m", "--model", default=os.environ.get("TANDEM_DEFAULT_MODEL"))
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=1000, help="of each prompt")
    parser.add_argument("-o", "--output", default="handoff.svg")
    args = parser.parse_args()
    if not args.model:
        parser.error("no model: name one with -m FILE.gguf")
    with tempfile.TemporaryDirectory(prefix="tandem-demo-") as folder:
        trace = os.path.join(folder, "trace")
        common = ("--threads", "1", "--max-seqs", "4", "--kv-memory", "256M")
        nodes = []
        try:
            print("starting one prefill node and two decode nodes ...", flush=True)
            nodes.append(prefill_node(args.binary, args.model, *common, "--handoff-trace", trace))
            for _ in range(2):
                nodes.append(decode_node(args.binary, args.model, nodes[:1], *common))
            for node in nodes[1:]:
                node.wait_ready_peers(1)
            print(f"prefill node at {nodes[0].handoff}, decode nodes at "
                  + " and ".join(f"http://127.0.0.1:{n.port}" for n in nodes[1:]), flush=True)
            results = {}
            threads = [threading.Thread(target=ask, args=(nodes[1 + i % 2], i, args.tokens,
                                                          results)) for i in range(args.prompts)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for number in sorted(results):
                first, whole, text = results[number]
                print(f"decode node {1 + number % 2}, prompt {number}: first token after "
                      f"{first:.2f} s, all after {whole:.2f} s: {text[:90]}")
            report(nodes)
        finally:
            for node in nodes:
                node.stop()
        with open(trace) as file:
            sends = handoff_picture.read_trace(file)
        if not sends:
            print("no prompt was computed by the prefill node", file=sys.stderr)
            return 1
        first = dict([next(iter(sends.items()))])
        with open(args.output, "w") as file:
            file.write(handoff_picture.picture(first))
        print(f"picture of the overlap: {args.output}")
    return 0 if len(results) == args.prompts else 1


def report(nodes):
    prefill = nodes[0]
    hidden, visible = (prefill.handoff_metric("transfer_seconds_total", f'part="{part}"')
                       for part in ("hidden", "visible"))
    arrived = sum(n.handoff_metric("fetches_total", 'result="arrived"') for n in nodes[1:])
    megabytes = prefill.handoff_metric("bytes_total", 'direction="out"') / 1e6
    pages = prefill.handoff_metric("pages_total", 'direction="out"')
    share = 100 * hidden / (hidden + visible) if hidden + visible else 0
    print(f"{arrived:.0f} prompts came from the prefill node: {pages:.0f} pages, "
          f"{megabytes:.1f} MB; {share:.0f} % of the transfer time was hidden by computation")


if __name__ == "__main__":
    sys.exit(main())
