"""What the checks of clients share: a server to talk to, a package that may be missing, verdicts.

Each NAME_check.py is run as  PYTHON NAME_check.py [TANDEM_BINARY]  and exits with 0 (all held),
1 (something did not) or 77 (skipped, and says why).
Environment: TANDEM_BASE_URL, a running server (http://127.0.0.1:PORT); or else TANDEM_TEST_MODEL, a
model file that TANDEM_BINARY then serves. TANDEM_OPENAI_PYTHON, an interpreter that has the package
`openai`, is used where the one at hand lacks it.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import traceback
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "openai"))

SKIPPED = 77


def need(package, variable=None):
    """Ends with "skipped" unless `package` is here; goes on in $`variable`'s interpreter if it is
    not and that is given."""
    if importlib.util.find_spec(package):
        name = package.replace("_", "-")
        print(f"{name} {importlib.metadata.version(name)}, Python {platform.python_version()}",
              flush=True)
        return
    other = os.environ.get(variable or "")
    if other and os.path.realpath(sys.prefix) != os.path.realpath(
            os.path.join(os.path.dirname(other), "..")):
        os.execv(other, [other, *sys.argv])
    print(f"skipped: this interpreter has no package {package} ({sys.executable})")
    sys.exit(SKIPPED)


@contextlib.contextmanager
def server(*arguments):
    """The URL of the running server, or of one that runs inside the `with`."""
    url = os.environ.get("TANDEM_BASE_URL")
    if url:
        yield url.rstrip("/")
        return
    model = os.environ.get("TANDEM_TEST_MODEL")
    if len(sys.argv) < 2 or not model:
        print("skipped: neither TANDEM_BASE_URL nor a binary and TANDEM_TEST_MODEL are given")
        sys.exit(SKIPPED)
    from run import Server
    started = Server([sys.argv[1], "serve", "-m", model, "--port", "0", *arguments])
    try:
        yield f"http://127.0.0.1:{started.port}"
    finally:
        started.process.terminate()
        started.process.wait(timeout=60)


def post(url, path, body=None):
    """One request without the client under test; GET without a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def model_of(url):
    return post(url, "/v1/models")["data"][0]["id"]


def equal(got, wanted, what=""):
    assert got == wanted, f"{what} got {got!r}, wanted {wanted!r}"


def run_checks(checks, *arguments):
    """Runs each function with `arguments`, prints its verdict; the exit status."""
    failed = 0
    for function in checks:
        try:
            said = function(*arguments)
            print(f"ok   {function.__name__}{f': {said}' if said else ''}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAIL {function.__name__}", flush=True)
    print(f"{len(checks) - failed} of {len(checks)} checks passed")
    return 1 if failed else 0
