#!/usr/bin/env python3
"""Checks every #include below src/ against src/DEPS, and what must stay out of some modules.

Rules: a file includes its own module and those on its module's line; DEPS is acyclic and complete;
CUDA headers, and headers that include them, stay in device/cuda and kernels/cuda; the pure modules
(kv, sched, engine) see no thread and no clock. Tests and fuzz targets beside the sources may
include every module. Prints `path:line: what` and exits with 1 where a rule is broken.
"""

import os
import re
import sys

import cpp_text

SOURCE_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".inc")
PURE_MODULES = ("kv", "sched", "engine")
# A thread, a lock, a sleep or a wall clock; everything from outside enters these modules as events.
IMPURE_HEADERS = frozenset(
    "thread chrono mutex shared_mutex condition_variable future stop_token semaphore barrier latch "
    "ctime time.h sys/time.h pthread.h unistd.h base/thread_annotations.h".split())
# base/clock.h is theirs for the type of a time stamp; a clock to ask is not.
IMPURE_WORDS = re.compile(r"\b(?:Steady|Manual)Clock\b|\bClock\s*[&*]")
CUDA_HEADER = re.compile(
    r"^(cuda|cublas|cub/|cudnn|cufile|curand|thrust/|nccl|nvml|nvtx|nvToolsExt|cooperative_groups"
    r"|mma\.h|cute/|cutlass/|device_launch_parameters|vector_types\.h)")
CUDA_FOLDERS = ("device/cuda/", "kernels/cuda/")


def parse_deps(text):
    """(module -> set of modules, problems). `*` stands for every other module."""
    deps, problems = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        module, colon, names = line.partition(":")
        module = module.strip()
        if not colon or not re.fullmatch(r"[a-z0-9_]+(/[a-z0-9_]+)?", module):
            problems.append(f"src/DEPS:{number}: not `module: dependencies`")
        elif module in deps:
            problems.append(f"src/DEPS:{number}: {module} has two lines")
        else:
            deps[module] = set(names.split())
    for module, names in deps.items():
        if names == {"*"}:
            deps[module] = set(deps) - {module}
            continue
        for name in sorted(names - set(deps)):
            problems.append(f"src/DEPS: {module} depends on {name}, which has no line")
        names &= set(deps)
    return deps, problems + find_cycles(deps)


def find_cycles(deps):
    """One problem for each cycle met in a depth-first walk."""
    problems, done = [], set()

    def walk(module, path):
        if module in path:
            cycle = path[path.index(module):] + [module]
            problems.append("src/DEPS: cycle " + " -> ".join(cycle))
        elif module not in done:
            for name in sorted(deps[module]):
                walk(name, path + [module])
            done.add(module)

    for module in sorted(deps):
        walk(module, [])
    return problems


def module_of(path, deps):
    """The module that owns `path` (relative to src/), the longest that fits, or None."""
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in deps:
            return "/".join(parts[:length])
    return None


def is_test(path):
    return re.search(r"_(test|fuzz)\.(cc|cu)$", path) is not None


def cuda_tainted(files):
    """Those of `files` (path -> includes) that include a CUDA header, also through others."""
    tainted = {path for path, found in files.items()
               if any(not quoted and CUDA_HEADER.match(name) for _, name, quoted in found)}
    while True:
        more = {path for path, found in files.items() if path not in tainted
                and any(quoted and name in tainted for _, name, quoted in found)}
        if not more:
            return tainted
        tainted |= more


def check_include(path, module, name, quoted, deps, files, tainted):
    """What is wrong with one include, or None."""
    if not path.startswith(CUDA_FOLDERS):
        if not quoted and CUDA_HEADER.match(name):
            return f"<{name}> belongs in {' or '.join(CUDA_FOLDERS)} only"
        if quoted and name in tainted:
            return f'"{name}" brings CUDA headers out of {" and ".join(CUDA_FOLDERS)}'
    if module in PURE_MODULES and name in IMPURE_HEADERS and not is_test(path):
        return f"{module} is pure: no threads, locks or clocks, so not {name}"
    if not quoted:
        return None
    if name not in files:
        return f'there is no src/{name} (includes are written "module/file.h")'
    target = module_of(name, deps)
    if target is None or target == module or is_test(path) or target in deps[module]:
        return None
    return f"src/DEPS does not let {module} include {target} ({name})"


def check(deps_text, sources):
    """All problems, given DEPS and a dict of path (relative to src/) -> text."""
    deps, problems = parse_deps(deps_text)
    files = {path: cpp_text.includes(text) for path, text in sources.items()}
    tainted = cuda_tainted(files)
    for path in sorted(files):
        module = module_of(path, deps)
        if module is None:
            problems.append(f"src/{path}:1: its folder is no module: src/DEPS has no line for it")
            continue
        for line, name, quoted in files[path]:
            problem = check_include(path, module, name, quoted, deps, files, tainted)
            if problem:
                problems.append(f"src/{path}:{line}: {problem}")
        if module in PURE_MODULES and not is_test(path):
            for line, text in enumerate(cpp_text.code_only(sources[path]).splitlines(), 1):
                if IMPURE_WORDS.search(text):
                    problems.append(f"src/{path}:{line}: {module} is pure: it asks no clock")
    return problems


def read_sources(src):
    sources = {}
    for root, _, names in os.walk(src):
        for name in names:
            if name.endswith(SOURCE_SUFFIXES):
                path = os.path.join(root, name)
                with open(path, encoding="utf-8", errors="replace") as f:
                    sources[os.path.relpath(path, src).replace(os.sep, "/")] = f.read()
    return sources


def main():
    src = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
    sources = read_sources(src)
    with open(os.path.join(src, "DEPS"), encoding="utf-8") as f:
        problems = check(f.read(), sources)
    for problem in problems:
        print(problem)
    print(f"check_deps: {len(sources)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
