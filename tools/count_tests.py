#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""count_tests.py JUNIT.xml: sum up one CTest run, cmocka tests one by one.

Prints each failure and each skip with its reason (the line `SKIP: reason` of its output), then
`counts PASSED FAILED SKIPPED`. A skip without a reason is a failure.
"""
import re
import sys
import xml.etree.ElementTree as tree

CASE = re.compile(r"^\[\s*(OK|FAILED|SKIPPED)\s*\] (?!\d+ test)(\S+)", re.M)
REASON = re.compile(r"SKIP: (.*\S)")


def main():
    passed = failed = skipped = 0
    for case in tree.parse(sys.argv[1]).getroot().iter("testcase"):
        name = case.get("name")
        status = case.get("status")
        output = case.findtext("system-out") or ""
        # cmocka lists failed tests once more at the end of the program
        results = {}
        for word, test in CASE.findall(output):
            results.setdefault(test, word)
        reasons = REASON.findall(output)
        n_ok = sum(word == "OK" for word in results.values())
        n_failed = sum(word == "FAILED" for word in results.values())
        n_skipped = sum(word == "SKIPPED" for word in results.values())
        if status in ("notrun", "disabled"):
            n_skipped = max(n_skipped, 1)
        elif status == "fail":
            n_failed = max(n_failed, 1)
        elif not results:
            n_ok = 1
        if n_failed:
            bad = [test for test, word in results.items() if word == "FAILED"]
            print(f"failed: {name} {' '.join(bad)}")
            for line in output.strip().splitlines()[-25:]:
                print(f"    {line}")
        if n_skipped:
            if not reasons:
                print(f"failed: {name} skips {n_skipped} without a reason")
                n_failed += n_skipped
                n_skipped = 0
            for reason in dict.fromkeys(reasons):
                print(f"skipped: {name}: {reason}")
        passed += n_ok
        failed += n_failed
        skipped += n_skipped
    print(f"counts {passed} {failed} {skipped}")


main()
