"""What users of the official `openai` client see: a list of checks against running servers.

Environment: TANDEM_BASE_URL (http://127.0.0.1:PORT), TANDEM_MODEL (a served name; default: the
first listed), TANDEM_KEYED_URL (a server with the key "test-key", tools_template.jinja and the CORS
origin http://page.example; without it the checks that need it are skipped).
Needs the package `openai`. Prints each check; exits 1 if one failed. With arguments only the checks
of these names.
The checks ask nothing of the model's wit: they compare answers of the same server with each other.
"""

import sys
import time
import traceback

# Each adds its checks to the list.
import server_checks  # noqa: F401
import chat_checks  # noqa: F401
import completion_checks  # noqa: F401
import tool_checks  # noqa: F401
import error_checks  # noqa: F401
import cache_checks  # noqa: F401
from client import CHECKS, Skipped


def main():
    failed, skipped = 0, 0
    chosen = [f for f in CHECKS if len(sys.argv) < 2 or f.__name__ in sys.argv[1:]]
    for function in chosen:
        start = time.monotonic()
        try:
            function()
            verdict = "ok  "
        except Skipped as reason:
            skipped += 1
            verdict = f"skip ({reason})"
        except Exception:
            failed += 1
            verdict = "FAIL"
            traceback.print_exc()
        print(f"{verdict} {function.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{len(chosen) - failed - skipped} of {len(chosen)} checks passed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
