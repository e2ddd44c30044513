#!/usr/bin/env python3
"""The library and other programs on the kernel's own mlx5 driver.

    run.py --build BUILD --cache FOLDER [--kernel 6.1]... [--link ib]... [--only PATTERN]

A guest is booted for each kernel and link layer (ibvexp-vm), with the PCI function of
softhca-pci; checks runs everything in it. What the device answers there to plain verbs
(tests/kernel/statuses.cpp), what "ibvexp doctor" says of each row and how rdma-core's
Python tests end is compared with the preloaded software HCA, and what the library answers
with the genuine answers (tests/truth).

What is not expected to pass stands in missing.toml with its reason. A name there that no
failure needs any more fails the run.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
VM = HERE.parent.parent / 'src/tool/vm/ibvexp-vm'
sys.path[:0] = [str(HERE.parent / 'kernel'), str(HERE.parent / 'softhca')]
# pylint: disable=wrong-import-position
import pyverbs_suite  # noqa: E402
import run as kernel_tier  # noqa: E402

SKIP = 77
SHOWN = 40     # findings at most, for a guest
# What --slice checks in one guest, and the seconds that it and what it fetches may take.
SLICE = ('@(ibv_devinfo*|ibv_rc_pingpong*|exp_query|exp_pingpong*|exp_dc|exp_umr|exp_memory|'
         'exp_atomic|the kernel has no complaint)')
SLICE_LIMIT, FETCH_LIMIT = 120, 240
NO_GUEST = (124, 125)   # of ibvexp vm: the time limit; there was none


def rows_of(text):
    """Row -> whether it works, of "ibvexp doctor --json"."""
    return {row['name']: row['here'] for row in json.loads(text)['rows']} if text else {}


class Preloaded:
    """What the preloaded device answers."""

    def __init__(self, build, link, tests):
        env = dict(os.environ, SOFTHCA_LINK=link, SOFTHCA_FABRIC=f'vm-{os.getpid()}-{link}',
                   LD_PRELOAD=str(build / 'src/softhca/preload/libsofthca.so'),
                   PYTHONDONTWRITEBYTECODE='1')

        def output(*command):
            return subprocess.run(command, env=env, capture_output=True, text=True,
                                  errors='replace', timeout=600, check=False).stdout
        self.statuses, self.rows = {}, {}
        if tests is not None:
            self.rows = rows_of(output(build / 'src/tool/ibvexp', 'doctor', '--json'))
            if link == 'eth':
                self.statuses = kernel_tier.answers(output(build / 'tests/kernel/statuses'))
        self.python = kernel_tier.results(
            output(HERE / 'python_tests', tests, 'mlx5_0')) if tests else {}


def end_to_end(path):
    """(test, what failed or '') of a report of Catch2."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter('testcase'):
        bad = [problem.get('message') or (problem.text or '').strip()
               for problem in case if problem.tag in ('failure', 'error')]
        # Without the rows that it is about.
        name = re.sub(r' *\[row[^]]*\]', '', case.get('name'))
        yield name, ' '.join(bad[0].split())[:200] if bad else ''


def findings(printed, out, preloaded):
    """(group, name, '' if it is right or else what is wrong)."""
    def left(name):
        path = out / name
        return path.read_text(encoding='utf-8', errors='replace') if path.exists() else ''

    reports = sorted(out.glob('e2e-*.xml'))
    for state, name, more in re.findall(r'^(ok|FAIL) (.*)\n((?:    .*\n)*)', printed, re.M):
        name = re.sub(r' \(\d+\)$', '', name) if state == 'FAIL' else name
        # Its report says more.
        found = re.fullmatch(r'e2e (\w+), (\w+)', name)
        if found and out / f'e2e-{found[2]}-{found[1]}.xml' in reports:
            continue
        lines = [line.strip() for line in more.splitlines() if line.strip()]
        yield 'programs', name, '' if state == 'ok' else ' | '.join(lines[-3:]) or 'failed'
    for path in reports:
        _, door, file = path.stem.split('-', 2)
        try:
            for name, bad in end_to_end(path):
                yield 'end-to-end tests', f'e2e {file}, {door}: {name}', bad
        except xml.etree.ElementTree.ParseError:
            yield 'end-to-end tests', f'e2e {file}, {door}', 'crashed, or ran too long'
    for question, here in kernel_tier.answers(left('statuses')).items():
        there = preloaded.statuses.get(question, 'not asked')
        yield 'answers', f'answer: {question}', (
            '' if here == there else f'the driver: {here}, preloaded: {there}')
    for path in sorted(out.glob('truth-*')):
        door, text = path.name.removeprefix('truth-'), path.read_text(encoding='utf-8')
        wrong = re.findall(r'^(\w+ \d+) (.*)\n    genuine: .*\n    ours:    (.*)|'
                           r'^(\w+ \d+) (is listed as .*)', text, re.M)
        for line, what, ours, other, listed in wrong:
            yield 'genuine answers', f'truth {line or other}, {door}', (
                f'{what}; ours: {ours}' if line else listed)
        count = re.search(r'^(\d+) lines', text, re.M)
        for _ in range(int(count[1]) - len(wrong) if count else 0):
            yield 'genuine answers', f'truth, {door}', ''
    rows = rows_of(left('doctor.json'))
    for name, there in preloaded.rows.items() if rows else ():
        if there == 'works':
            here = rows.get(name, 'not listed')
            yield 'rows of doctor', f'row: {name}', '' if here == 'works' else f'here: {here}'
    python = kernel_tier.results(left('pyverbs'))
    for name, there in preloaded.python.items() if python else ():
        if there == 'ok':
            here = python.get(name, 'not run')
            yield 'Python tests', f'python: {name}', '' if here == 'ok' else here
    for name, here in python.items():
        if here in ('FAIL', 'ERROR') and preloaded.python.get(name) != 'ok' and \
                name.rsplit('.', 1)[-1] not in pyverbs_suite.REFUSED:
            yield 'Python tests', f'python: {name}', here


KEYS = {'names', 'kernels', 'links', 'reason', 'sometimes'}   # of an entry


class Missing:
    """What is not expected to pass."""

    def __init__(self, path):
        self.entries = tomllib.loads(path.read_text(encoding='utf-8')).get('missing', [])
        for entry in self.entries:
            if not entry.get('reason') or set(entry) - KEYS:
                sys.exit(f'{path}: wrong entry {entry}')
        self.used = set()

    def excuses(self, name, kernel, link):
        for entry in self.entries:
            if link in entry.get('links', [link]) and kernel in entry.get('kernels', [kernel]):
                for pattern in entry['names']:
                    if fnmatch.fnmatchcase(name, pattern):
                        self.used.add(pattern)
                        return True
        return False

    def unused(self, kernels, links):
        """Names in entries about what was run that excused nothing."""
        return [name for entry in self.entries for name in entry['names'] if name not in self.used and
                not entry.get('sometimes') and set(entry.get('links', links)) & set(links) and
                set(entry.get('kernels', kernels)) & set(kernels)]


@contextlib.contextmanager
def echo(build, env, log):
    """A preloaded program on this machine, in the guest's fabric, that answers a ping."""
    env = dict(env, SOFTHCA_HOST='2', SOFTHCA_LINK='eth',
               LD_PRELOAD=str(build / 'src/softhca/preload/libsofthca.so'))
    with open(log, 'wb') as out, subprocess.Popen([build / 'tests/vm/echo', '10.0.1.99'], env=env,
                                                  stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()


def boot(o, kernel, link, tests, preloaded):
    """Runs all in one guest; its findings, and the seconds it took. `preloaded` is a future."""
    started = time.monotonic()
    folder = o.logs / f'{kernel}-{link}'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # With huge pages, for rdma-core's tests.
    command = [VM, '--kernel', kernel, '--link', link, '--server', o.server, '--limit',
               str(o.limit), '--append', 'hugepages=8', '--write', folder, '--logs', folder, '--',
               HERE / 'checks', o.build, folder, link, tests or '-', o.only]
    env = dict(os.environ, SOFTHCA_FABRIC=f'vm-{os.getpid()}-{kernel.replace(".", "-")}-{link}')
    with echo(o.build, env, folder / 'echo') if link == 'eth' else contextlib.nullcontext():
        done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True,
                              errors='replace', check=False)
    (folder / 'output').write_text(done.stdout + done.stderr, encoding='utf-8')
    found = list(findings(done.stdout, folder, preloaded.result()))
    if o.slice and done.returncode in NO_GUEST:
        print(f'SKIPPED: the guest had no time, or there was none: {done.stderr.strip()[-300:]}')
        sys.exit(SKIP)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f'status {done.returncode}']
        found.append(('programs', 'the guest ends', last[0]))
    return found, time.monotonic() - started


def vfio(o, kernel, tests):
    """rdma-core's VFIO driver on the function, which vfio-pci has instead of mlx5_core."""
    started = time.monotonic()
    folder = o.logs / f'{kernel}-vfio'
    shutil.rmtree(folder, ignore_errors=True)
    command = [VM, '--kernel', kernel, '--link', 'ib', '--iommu', '--server', o.server, '--limit',
               '300', '--logs', folder, '--', HERE / 'vfio_tests', tests]
    env = dict(os.environ, SOFTHCA_FABRIC=f'vm-{os.getpid()}-vfio')
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True,
                          errors='replace', check=False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'output').write_text(done.stdout + done.stderr, encoding='utf-8')
    found = [('VFIO', f'python: {name}', '' if here == 'ok' else here)
             for name, here in kernel_tier.results(done.stdout).items()]
    if not found:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        found = [('VFIO', 'the tests of the VFIO driver run', last[0] if last else 'no output')]
    return found, time.monotonic() - started


def report(logs, kernel, link, found, seconds, missing):
    """Prints a table; how many findings are bad."""
    counts, bad = collections.Counter(), []
    for group, name, wrong in found:
        kind = 'right'
        if wrong:
            kind = 'missing' if missing.excuses(name, kernel, link) else 'wrong'
        if kind == 'wrong':
            bad.append(f'    {name}: {wrong}')
        counts[group, kind] += 1
    print(f'Linux {kernel}, {link}, {seconds:.0f} s'
          f'\n    {"":18}{"right":>7}{"missing":>9}{"wrong":>7}')
    for group in dict.fromkeys(group for group, _ in counts):
        print(f'    {group:18}{counts[group, "right"]:7}{counts[group, "missing"]:9}'
              f'{counts[group, "wrong"]:7}')
    print('\n'.join(bad[:SHOWN]), flush=True)
    (logs / f'{kernel}-{link}' / 'wrong').write_text('\n'.join(bad), encoding='utf-8')
    if len(bad) > SHOWN:
        print(f'    ... and {len(bad) - SHOWN} more: {logs}/{kernel}-{link}/wrong', flush=True)
    for line in re.findall(r'^skip .*', (logs / f'{kernel}-{link}' / 'output').read_text(
            encoding='utf-8'), re.M):
        print(f'    {line}', flush=True)
    return len(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--build', type=pathlib.Path, required=True)
    parser.add_argument('--cache', type=pathlib.Path, required=True)
    parser.add_argument('--kernel', action='append')
    parser.add_argument('--link', action='append', choices=('ib', 'eth'))
    parser.add_argument('--only', default='*', help='names of checks, as a pattern')
    parser.add_argument('--server', type=pathlib.Path, help='instead of the build\'s softhca-pci')
    parser.add_argument('--logs', type=pathlib.Path, help='what the guests leave')
    parser.add_argument('--limit', type=int, default=1200, help='seconds for a guest')
    parser.add_argument('--slice', action='store_true',
                        help='a few checks in one guest that may take two minutes, skipped where '
                        'QEMU and the kernel cannot be fetched or the machine is too slow')
    parser.add_argument('--jobs', type=int, default=2, help='guests at a time')
    o = parser.parse_args()
    kernels, links = o.kernel or ['6.1', '6.12'], o.link or ['ib', 'eth']
    if o.slice:
        kernels, links, o.only, o.limit = ['6.12'], ['ib'], SLICE, SLICE_LIMIT
    o.build, o.cache = o.build.resolve(), o.cache.resolve()
    o.cache.mkdir(parents=True, exist_ok=True)
    o.server = o.server or o.build / 'src/softhca/pci/softhca-pci'
    o.logs = (o.logs or o.cache / 'logs').resolve()
    for kernel in kernels:
        time_limit = ['timeout', str(FETCH_LIMIT)] if o.slice else []
        ready = subprocess.run([*time_limit, VM, '--kernel', kernel, '--prepare'], check=False)
        if ready.returncode:
            print(f'SKIPPED: there is no QEMU with vfio-user-pci or no Linux {kernel} (above)')
            sys.exit(SKIP)
    version = pyverbs_suite.package_version()
    tests = None   # neither those nor anything else is compared with the preloaded device
    if not o.slice:
        tests = pyverbs_suite.tests_folder(version, str(o.cache)) if version else ''
        if not version:
            print(f"SKIPPED: rdma-core's Python tests, {pyverbs_suite.PACKAGE} is not installed")
    missing = Missing(HERE / 'missing.toml')
    bad = 0
    started = time.monotonic()
    with (concurrent.futures.ThreadPoolExecutor(o.jobs) as pool,
          concurrent.futures.ThreadPoolExecutor(1) as beside):
        preloaded = {link: beside.submit(Preloaded, o.build, link, tests) for link in links}
        # Those that take longer first: Ethernet has more to check.
        guests = {pool.submit(boot, o, kernel, link, tests, preloaded[link]): (kernel, link)
                  for link in sorted(links) for kernel in kernels}
        if tests and o.only == '*' and 'ib' in links:
            guests[pool.submit(vfio, o, kernels[-1], tests)] = (kernels[-1], 'vfio')
        for guest in concurrent.futures.as_completed(guests):
            found, seconds = guest.result()
            bad += report(o.logs, *guests[guest], found, seconds, missing)
    print(f'all in {time.monotonic() - started:.0f} s')
    if o.only == '*' and bad == 0:
        for name in missing.unused(kernels, [*links, 'vfio'] if tests and 'ib' in links else links):
            print(f'passes now, take it out of missing.toml: {name}')
            bad += 1
    print('what the guests left:', o.logs)
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
