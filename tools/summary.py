#!/usr/bin/env python3
"""Adds up JUnit reports (ctest's and fuzz.py's) and prints `N passed, N failed[, N skipped]`.

    tools/summary.py [--failed-stages N] REPORT...

Names the tests that failed first. A report that is missing or unreadable counts as one failure, as
does each failed stage (a build, say), so that nothing can fail in silence. Exit status 1 where
anything failed or nothing passed.
"""

import argparse
import os
import sys
import xml.etree.ElementTree as ElementTree


def outcome(case):
    """passed, failed or skipped, for one <testcase> element."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    status = case.get("status", "run")
    if case.find("skipped") is not None or status in ("notrun", "disabled"):
        # ctest says "notrun" of a test whose program is missing too: that is no skip.
        skipped = case.find("skipped")
        message = skipped.get("message", "") if skipped is not None else ""
        return "failed" if "Unable to find executable" in message else "skipped"
    return "failed" if status == "fail" else "passed"


def read_report(path):
    """[(test name, outcome)] of one report; one failure where it cannot be read."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        return [(f"{path}: {error}", "failed")]
    return [(case.get("name", "?"), outcome(case)) for case in root.iter("testcase")]


def main(argv=None):
    parser = argparse.ArgumentParser(description="Adds up JUnit reports.")
    parser.add_argument("reports", nargs="*")
    parser.add_argument("--failed-stages", type=int, default=0)
    args = parser.parse_args(argv)
    count = {"passed": 0, "failed": args.failed_stages, "skipped": 0}
    for path in args.reports:
        build = os.path.splitext(os.path.basename(path))[0]
        for name, result in read_report(path):
            count[result] += 1
            if result == "failed":
                print(f"FAILED {build}: {name}")
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    print(f"{count['passed']} passed, {count['failed']} failed{skipped}")
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
