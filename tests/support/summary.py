#!/usr/bin/env python3
"""Ends a test run: what failed says once more what it printed, and one line
counts the results: summary.py TESTLOG"""
import collections
import json
import re
import sys

PASSED = {'OK', 'EXPECTEDFAIL'}
SKIPPED = {'SKIP'}
REPEATED_TESTS = 8
REPEATED_LINES = 60

counts = collections.Counter()
failed = []
parts = 0
try:
    with open(sys.argv[1], encoding='utf-8') as log:
        for line in log:
            test = json.loads(line)
            result = test['result']
            counts['passed' if result in PASSED else
                   'skipped' if result in SKIPPED else 'failed'] += 1
            for count in re.findall(r'^test cases skipped: (\d+)$', test.get('stdout', ''), re.M):
                parts += int(count)
            if result not in PASSED | SKIPPED:
                failed.append(test)
except OSError as error:
    print(f'summary: {error}', file=sys.stderr)
    counts['failed'] += 1

# Of a long run only the end may have been kept.
for test in failed[:REPEATED_TESTS]:
    print(f"\n{test['name']}: {test['result']}, status {test['returncode']}, {test['duration']:.1f} s")
    output = test.get('stdout', '') + test.get('stderr', '')
    for line in output.splitlines()[-REPEATED_LINES:]:
        print(f'  {line}')

if parts:
    print(f'test cases skipped in these programs: {parts} (see "skipped:" in their logs)')
print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
sys.exit(1 if counts['failed'] or not counts['passed'] else 0)
