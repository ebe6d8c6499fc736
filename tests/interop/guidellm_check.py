"""guidellm: its load against both endpoints completes, and its counts are the server's.

Runs the guidellm command, 4 streams and 12 requests, streamed chats and streamed completions, and
compares what it measured with what was asked and with the server's own usage.

How it is run: see interop.py. Needs the package `guidellm`; the data are a local file.
"""

import json
import os
import subprocess
import sys
import tempfile

from interop import equal, model_of, need, post, run_checks, server

need("guidellm")

os.environ["HF_HUB_OFFLINE"] = "1"
REQUESTS = 12
TOKENS = 24
STREAMS = 4


def prompt(index):
    return f"Tell me the story of ship number {index} in the harbour."


class State:
    def __init__(self, folder, url):
        self.folder = folder
        self.url = url
        self.model = model_of(url)
        with open(f"{folder}/prompts.jsonl", "w", encoding="utf-8") as file:
            for index in range(REQUESTS):
                line = {"prompt": prompt(index), "output_tokens_count": TOKENS}
                file.write(json.dumps(line) + "\n")

    def run(self, path):
        """The one benchmark of guidellm's report for requests to `path`."""
        output = f"{self.folder}/{path.replace('/', '_')}.json"
        command = os.path.join(os.path.dirname(sys.executable), "guidellm")
        done = subprocess.run(
            [command, "run",
             "--backend", f"kind=openai_http,target={self.url},request_format={path}",
             "--profile", f"kind=concurrent,streams={STREAMS}",
             "--constraint", f"kind=max_requests,count={REQUESTS}",
             "--data", f"kind=json_file,path={self.folder}/prompts.jsonl",
             "--output", f"kind=json,path={output}", "--disable-console"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        equal(done.returncode, 0, done.stdout[-3000:])
        with open(output, encoding="utf-8") as file:
            benchmark, = json.load(file)["benchmarks"]
        return benchmark


def report(benchmark):
    totals = benchmark["metrics"]["request_totals"]
    equal((totals["successful"], totals["errored"], totals["incomplete"]), (REQUESTS, 0, 0))
    done = benchmark["requests"]["successful"]
    for request in done:
        equal(request["output_tokens"], TOKENS, "output tokens:")
        assert request["output"], request
        assert 0 < request["time_to_first_token_ms"] < 1000 * request["request_latency"], request
    return (f"{REQUESTS} requests, {STREAMS} at once: "
            f"{REQUESTS * TOKENS / benchmark['duration']:.0f} tokens/s, first token after "
            f"{sorted(r['time_to_first_token_ms'] for r in done)[len(done) // 2]:.0f} ms (median)")


def prompt_tokens(benchmark):
    return sorted(request["prompt_tokens"] for request in benchmark["requests"]["successful"])


def chats_complete(state):
    benchmark = state.run("/v1/chat/completions")
    said = report(benchmark)
    messages = [[{"role": "user", "content": prompt(index)}] for index in range(REQUESTS)]
    equal(prompt_tokens(benchmark), sorted(
        post(state.url, "/tokenize", {"messages": message})["count"] for message in messages))
    return said


def completions_complete(state):
    benchmark = state.run("/v1/completions")
    said = report(benchmark)
    equal(prompt_tokens(benchmark), sorted(
        post(state.url, "/tokenize", {"prompt": prompt(index)})["count"]
        for index in range(REQUESTS)))
    return said


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, server() as address:
        sys.exit(run_checks([chats_complete, completions_complete], State(scratch, address)))
