#!/usr/bin/env python3
"""Ends a test run with one line that counts its results: summary.py TESTLOG"""
import collections
import json
import sys

PASSED = {'OK', 'EXPECTEDFAIL'}
SKIPPED = {'SKIP'}

counts = collections.Counter()
try:
    with open(sys.argv[1], encoding='utf-8') as log:
        for line in log:
            result = json.loads(line)['result']
            counts['passed' if result in PASSED else
                   'skipped' if result in SKIPPED else 'failed'] += 1
except OSError as error:
    print(f'summary: {error}', file=sys.stderr)
    counts['failed'] += 1

print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
sys.exit(1 if counts['failed'] or not counts['passed'] else 0)
