#!/usr/bin/env python3
"""The library on a real kernel, and the software HCA beside the kernel's Soft-RoCE.

    run.py --build BUILD --cache FOLDER [--readme src/softhca/README.md]

A kernel of the distribution is booted in QEMU (prepare, boot), where checks runs the
library and programs on a device that is no mlx5. What that device answers to plain
verbs (statuses.cpp) is compared with the software HCA: each difference has to be in
the table of the README, and each line of that table has to show.
"""
import argparse
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BEGIN = '| Question | Soft-RoCE | Here |'


def known_differences(readme):
    """(pattern, Soft-RoCE's answer, the software HCA's) of the table."""
    lines = readme.read_text(encoding='utf-8').splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(BEGIN))
    rows = []
    for line in lines[at + 2:]:
        if not line.startswith('|'):
            break
        rows.append(tuple(cell.strip() for cell in line.strip('|').split('|')[:3]))
    return rows


def answers(text):
    """Question -> answer. A question that is asked again has a number."""
    out = {}
    for line in text.splitlines():
        question, _, answer = line.partition(': ')
        key, again = question, 2
        while key in out:
            key, again = f'{question} ({again})', again + 1
        out[key] = answer
    return out


def compare(kernel, ours, known):
    """Lines about what is not as the table says."""
    bad, shown = [], set()
    for question in kernel | ours:
        theirs, here = kernel.get(question, 'not asked'), ours.get(question, 'not asked')
        if theirs == here:
            continue
        for i, (pattern, said, wanted) in enumerate(known):
            if (fnmatch.fnmatchcase(question, pattern) and fnmatch.fnmatchcase(theirs, said) and
                    fnmatch.fnmatchcase(here, wanted)):
                shown.add(i)
                break
        else:
            bad.append(f'{question}: Soft-RoCE {theirs}, here {here}')
    bad += [f'no such difference: {row}' for i, row in enumerate(known) if i not in shown]
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--build', type=pathlib.Path, required=True)
    parser.add_argument('--cache', type=pathlib.Path, required=True)
    parser.add_argument('--readme', type=pathlib.Path, required=True)
    o = parser.parse_args()
    if subprocess.run([HERE / 'prepare', o.cache]).returncode:
        sys.exit('run.py: no kernel')
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / 'statuses'
        # The guest writes into a folder that it shares with the host.
        guest = subprocess.run([HERE / 'boot', o.cache, HERE / 'checks', o.build, '/run/share'],
                               env=dict(os.environ, KEEP=folder), stdout=subprocess.PIPE, text=True)
        print(guest.stdout, end='')
        kernel = out.read_text(encoding='utf-8') if out.exists() else ''
    passed = len(re.findall(r'^ok ', guest.stdout, re.M))
    failed = len(re.findall(r'^FAIL ', guest.stdout, re.M)) + (guest.returncode != 0)
    ours = subprocess.run([o.build / 'tests/kernel/statuses'], capture_output=True, text=True, timeout=200,
                          env=dict(os.environ, SOFTHCA_LINK='eth', SOFTHCA_FABRIC=f'kernel-{os.getpid()}',
                                   LD_PRELOAD=str(o.build / 'src/softhca/preload/libsofthca.so')))
    if ours.returncode or not kernel:
        bad = ['Soft-RoCE did not answer' if not kernel else
               f'exit status {ours.returncode}: {ours.stderr}']
    else:
        bad = compare(answers(kernel), answers(ours.stdout), known_differences(o.readme))
    print('\n'.join(['FAIL the software HCA as Soft-RoCE'] + ['    ' + line for line in bad]) if bad
          else 'ok the software HCA as Soft-RoCE')
    passed, failed = passed + (not bad), failed + bool(bad)
    print(f'{passed} passed, {failed} failed, 0 skipped')
    sys.exit(1 if failed or not passed else 0)


main()
