#!/usr/bin/env python3
"""The library on a real kernel, and the software HCA beside the kernel's Soft-RoCE.

    run.py --build BUILD --cache FOLDER [--readme src/softhca/README.md]

A kernel of the distribution is booted in QEMU (ibvexp-vm), where checks runs the
library and programs on a device that is no mlx5. What that device answers to plain
verbs (statuses.cpp), and what rdma-core's Python tests say of it, is compared with the
software HCA: each difference has to be in a table of the README, and each line of
these tables has to show.
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
VM = HERE.parent.parent / 'src/tool/vm/ibvexp-vm'

# Soft-RoCE asks for the checksum by name, which no dependency says.
MODULES = ('veth', 'crc32_generic', 'rdma_rxe', 'rdma_ucm', 'ib_umad')
sys.path.insert(0, str(HERE.parent / 'softhca'))
import pyverbs_suite  # noqa: E402 pylint: disable=wrong-import-position


def known_differences(readme, subject):
    """(pattern, Soft-RoCE's answer, the software HCA's) of the table about a subject."""
    lines = readme.read_text(encoding='utf-8').splitlines()
    at = next(i for i, line in enumerate(lines)
              if line.startswith(f'| {subject} | Soft-RoCE | Here |'))
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


def results(output):
    """Python test -> one word. Those that are about one maker's devices are not asked for."""
    return {name if name.endswith('.' + test) else f'{name}.{test}': result.split()[0]
            for test, name, result, _ in pyverbs_suite.RESULT.findall(output)}


def on_software_hca(build, command):
    """What a program prints on the software HCA as Soft-RoCE's like, and what is wrong with it."""
    library = build / 'src/softhca/preload/libsofthca.so'
    env = dict(os.environ, SOFTHCA_LINK='eth', SOFTHCA_FABRIC=f'kernel-{os.getpid()}',
               PYTHONDONTWRITEBYTECODE='1', LD_PRELOAD=str(library))
    done = subprocess.run(command, env=env, capture_output=True, text=True, errors='replace',
                          timeout=300)
    return done.stdout, ([f'exit status {done.returncode}: {done.stderr or done.stdout[-2000:]}']
                         if done.returncode else [])


def compare_statuses(kernel, build, readme):
    ours, bad = on_software_hca(build, [build / 'tests/kernel/statuses'])
    if not kernel:
        bad.append('Soft-RoCE did not answer')
    return bad or compare(answers(kernel), answers(ours), known_differences(readme, 'Question'))


def compare_python(kernel, build, folder, readme):
    ours, bad = on_software_hca(build, [HERE / 'generic_pyverbs', folder, 'mlx5_0'])
    theirs, here = results(kernel), results(ours)
    # What Soft-RoCE does not have, it does not judge.
    judged = {name: result for name, result in theirs.items() if result != 'skipped'}
    if len(judged) < 50:
        bad.append(f'Soft-RoCE ran {len(judged)} of {len(theirs)}: {kernel[-500:]}')
    print(f'    {len(judged)} of {len(theirs)} Python tests are of what Soft-RoCE has')
    return bad + compare(judged, {name: here.get(name, 'not asked') for name in judged},
                         known_differences(readme, 'Python test'))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--build', type=pathlib.Path, required=True)
    parser.add_argument('--cache', type=pathlib.Path, required=True)
    parser.add_argument('--readme', type=pathlib.Path, required=True)
    o = parser.parse_args()
    version = pyverbs_suite.package_version()
    tests = version and pyverbs_suite.tests_folder(version, str(o.cache))
    with tempfile.TemporaryDirectory() as folder:
        loaded = [f'--load={module}' for module in MODULES]
        guest = subprocess.run([VM, '--no-device', '--kernel', '6.1', '--memory', '512M', *loaded,
                                '--write', folder, '--', HERE / 'checks', o.build, folder,
                                tests or '-'],
                               stdout=subprocess.PIPE, text=True)
        print(guest.stdout, end='')

        def left(name):
            out = pathlib.Path(folder) / name
            return out.read_text(encoding='utf-8', errors='replace') if out.exists() else ''
        statuses, python = left('statuses'), left('pyverbs')
    passed = len(re.findall(r'^ok ', guest.stdout, re.M))
    failed = len(re.findall(r'^FAIL ', guest.stdout, re.M)) + (guest.returncode != 0)
    skipped = 0
    compared = {'the software HCA as Soft-RoCE': lambda: compare_statuses(statuses, o.build, o.readme)}
    if tests:
        compared["rdma-core's Python tests on both"] = (
            lambda: compare_python(python, o.build, tests, o.readme))
    else:
        print(f"skip rdma-core's Python tests: {pyverbs_suite.PACKAGE} is not installed")
        skipped += 1
    for name, judge in compared.items():
        bad = judge()
        print('\n'.join([f'FAIL {name}'] + ['    ' + line for line in bad]) if bad else f'ok {name}')
        passed, failed = passed + (not bad), failed + bool(bad)
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    sys.exit(1 if failed or not passed else 0)


if __name__ == '__main__':
    main()
