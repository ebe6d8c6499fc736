#!/usr/bin/env python3
"""Runs libFuzzer targets for a fixed time each and reports like a test run.

    tools/fuzz.py --targets FILE --out FOLDER --seconds 20 [--jobs 2] [--seed 1] [--junit FILE]

FILE lists `name path` a line (the build writes it). A target starts from the seeds in
tests/corpus/NAME/ and from what earlier runs found, kept in FOLDER/NAME/corpus. A crash, a leak, an
input slower than 10 s or more than 2 GB fail it, and the input that did it is kept and named; so
does a target that never gets to run its inputs. Exit status 1 where a target failed.
"""

import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import time
from xml.sax.saxutils import quoteattr

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RSS_LIMIT_MB = 2048
INPUT_TIMEOUT_S = 10
GRACE_S = 60  # past the fuzzing time: reading the corpus, writing the last input
EXCERPT_LINES = 25


def read_targets(path):
    with open(path, encoding="utf-8") as f:
        return [tuple(line.split(maxsplit=1)) for line in f.read().splitlines() if line.strip()]


def command_for(name, binary, out, seconds, seed):
    """The command line of one target; makes its folders."""
    corpus, crashes = os.path.join(out, name, "corpus"), os.path.join(out, name, "crashes")
    os.makedirs(corpus, exist_ok=True)
    os.makedirs(crashes, exist_ok=True)
    command = [binary, f"-max_total_time={seconds}", f"-rss_limit_mb={RSS_LIMIT_MB}",
               f"-timeout={INPUT_TIMEOUT_S}", f"-artifact_prefix={crashes}/",
               "-print_final_stats=1"]
    if seed:
        command.append(f"-seed={seed}")
    seeds = os.path.join(ROOT, "tests", "corpus", name)
    return command + [corpus] + ([seeds] if os.path.isdir(seeds) else [])


def excerpt(text):
    """The lines of a log that say what was wrong: from the sanitizer's verdict on, or the last."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if "ERROR: " in line or "runtime error: " in line:
            return "\n".join(lines[number:number + EXCERPT_LINES])
    return "\n".join(lines[-EXCERPT_LINES:])


def fuzz(name, binary, out, seconds, seed):
    """(problem or None, number of inputs run, seconds it took); its words go to FOLDER/NAME/log."""
    command = command_for(name, binary, out, seconds, seed)
    log_path = os.path.join(out, name, "log")
    started = time.time()
    problem = None
    with open(log_path, "wb") as log:
        try:
            code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  timeout=seconds + GRACE_S, check=False).returncode
            if code != 0:
                problem = f"exit status {code}"
        except subprocess.TimeoutExpired:
            problem = f"still running {GRACE_S} s after its time"
        except OSError as error:
            problem = str(error)
    with open(log_path, encoding="utf-8", errors="replace") as log:
        text = log.read()
    executed = re.findall(r"stat::number_of_executed_units:\s*(\d+)", text)
    executed = int(executed[-1]) if executed else 0
    if problem is None and executed == 0:
        problem = "ran no input"
    if problem is not None:
        found = [path for path in glob.glob(os.path.join(out, name, "crashes", "*"))
                 if os.path.getmtime(path) >= started - 1]
        for path in found:
            problem += f"\n  reproduce: {binary} {path}"
        problem += f"\n  log: {log_path}\n" + excerpt(text)
    return problem, executed, time.time() - started


def write_junit(path, results):
    """results: [(name, problem or None, seconds)], as a JUnit report for summary.py."""
    failed = sum(problem is not None for _, problem, _ in results)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'<testsuite name="fuzz" tests="{len(results)}" failures="{failed}">\n')
        for name, problem, seconds in results:
            f.write(f'<testcase name={quoteattr(name)} time="{seconds:.1f}">')
            if problem is not None:
                f.write(f"<failure message={quoteattr(problem.splitlines()[0])}/>")
            f.write("</testcase>\n")
        f.write("</testsuite>\n")


def main():
    parser = argparse.ArgumentParser(description="Runs libFuzzer targets for a fixed time each.")
    parser.add_argument("--targets", required=True, help="file of `name path` lines")
    parser.add_argument("--out", required=True, help="folder for corpora, crashes and logs")
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--junit", default="")
    args = parser.parse_args()
    targets = read_targets(args.targets)
    results = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = [(name, pool.submit(fuzz, name, binary, os.path.abspath(args.out), args.seconds,
                                   args.seed)) for name, binary in targets]
        for name, run in runs:
            problem, executed, seconds = run.result()
            results.append((name, problem, seconds))
            verdict = "ok" if problem is None else f"FAILED: {problem}"
            print(f"  {name}: {executed} inputs in {seconds:.0f} s, {verdict}", flush=True)
    if args.junit:
        write_junit(args.junit, results)
    return 1 if any(problem is not None for _, problem, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
