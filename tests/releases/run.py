#!/usr/bin/env python3
"""Runs the tests that talk to a device with other releases of rdma-core.

    run.py --build BUILD --roots FOLDER [--output docs/releases.md] RELEASE...

FOLDER/RELEASE/build/lib holds the libraries of each (see build, which makes
them). The suites "e2e" and "softhca" run with them in front of the system's, and
ibvexp doctor says which rows of the matrix are served. Programs of the
distribution that ask for newer libraries cannot start there; the tests that are
about them, or what is about them in a test, are left out and listed.

Without --output the results are printed. With it, the part of that file between
the marks is replaced; releases that were not run this time keep their column.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SUITES = ('e2e', 'softhca')
# Tests whose subject is a program of the distribution that loads what was built
# for its rdma-core: plug-ins, interpreters' modules. The first ones also load
# what talks to the private interface of libibverbs.
PRIVATE_PROGRAMS = ('dpdk_programs', 'pyverbs')
PROGRAMS = PRIVATE_PROGRAMS + ('ucx_programs',)
# Count instructions and compare them with those of the distribution's libmlx5: what
# another one takes is no measure of ours.
COMPARISONS = ('hotpath-instructions', 'create-instructions')
# Programs whose subject is a row that older releases do not serve (Since in the
# matrix). Test cases say so themselves, by tags.
SINCE = {
    # What dlopen() brings in does not open the context, which release 28 does without DEVX.
    r'^(umr|switches)-loaded': 29,
}
BEGIN, END = '<!-- releases: begin -->', '<!-- releases: end -->'


def environment(root):
    env = dict(os.environ)
    env['LD_LIBRARY_PATH'] = str(root / 'build/lib')
    return env


def installed_libibverbs():
    out = subprocess.run(['ldconfig', '-p'], capture_output=True, text=True,
                         env={'PATH': '/usr/sbin:/sbin:/usr/bin:/bin'}).stdout
    return pathlib.Path(re.search(r'libibverbs\.so\.1 .*=> (\S+)', out)[1]).resolve()


def installed_release():
    return int(re.search(r'\.so\.\d+\.\d+\.(\d+)', installed_libibverbs().name)[1])


def private_interface(library):
    """The version of what a libibverbs shares with its providers."""
    return re.search(rb'IBVERBS_PRIVATE_\d+', library.read_bytes())[0]


def left_out(root, release):
    """Tests that are about programs that cannot run with this release."""
    installed = installed_libibverbs()
    if release < installed_release():
        return list(PROGRAMS)
    tried = root / 'build/lib/libibverbs.so.1'
    same = private_interface(installed) == private_interface(tried)
    return [] if same else list(PRIVATE_PROGRAMS)


def not_served(name, release):
    return any(release < since and re.search(pattern, name) for pattern, since in SINCE.items())


def tests_of(build):
    out = subprocess.run(['meson', 'introspect', '--tests', str(build)], check=True,
                         capture_output=True, text=True).stdout
    # Two suites may have a test of one name, and a name that stands in a command twice
    # makes Meson run each of them twice.
    return list(dict.fromkeys(t['name'] for t in json.loads(out)
                              if any(s.split(':')[-1] in SUITES for s in t['suite'])))


def run_tests(build, release, env, names, jobs):
    base = f'releases-{release}'
    log = build / 'meson-logs' / f'{base}.json'
    log.unlink(missing_ok=True)
    command = ['meson', 'test', '-C', str(build), '--no-rebuild', '--logbase', base]
    if jobs:
        command += ['--num-processes', str(jobs)]
    for suite in SUITES:
        command += ['--suite', suite]
    subprocess.run(command + names, env=env, stdout=subprocess.DEVNULL)
    results, partly = {}, {}
    with open(log, encoding='utf-8') as lines:
        for line in lines:
            test = json.loads(line)
            # "e2e / NAME": two suites may have a test of one name.
            suite, name = test['name'].split(':')[-1].split(' / ')
            results[suite, name] = test['result']
            missing = re.findall(r'^skip \w+ (?:\w+ hosts?: )?(\S+).*: wants other libraries$',
                                 test.get('stdout', ''), re.M)
            if missing:
                partly[name] = sorted(set(missing + partly.get(name, [])))
    return results, partly


def subject(name):
    """What a test is about: of dc-preloaded-ib, dc."""
    return re.split(r'[-.]', name)[0]


def doctor(build, env):
    """Row -> (family, what becomes of it) on the software HCA, on the link layer that it
    works on."""
    rows = {}
    for link in ('ib', 'eth'):
        run = subprocess.run([str(build / 'src/tool/ibvexp'), 'doctor', '--device', 'soft', '--json'],
                             env=env | {'SOFTHCA_LINK': link}, capture_output=True, text=True)
        try:
            report = json.loads(run.stdout)
        except ValueError:
            sys.exit(f'ibvexp doctor: exit status {run.returncode}: {run.stderr.strip()}')
        for r in report['rows']:
            if rows.get(r['name'], ('', 'device', ''))[1] == 'device':
                rows[r['name']] = (r['family'], r['here'], r['advice'])
    return rows


def examine(build, root, release, jobs, only):
    env = environment(root)
    out = sorted(left_out(root, release))
    chosen = [n for n in tests_of(build) if not only or re.search(only, n)]
    idle = sorted(n for n in chosen if not_served(n, release))
    out = [n for n in out if n in chosen]
    measured = [n for n in COMPARISONS if n in chosen]
    names = [n for n in chosen if n not in out + idle + measured]
    results, partly = run_tests(build, release, env, names, jobs)
    families = collections.defaultdict(lambda: [0, 0])
    for family, here, advice in doctor(build, env).values():
        if here in ('works', 'on demand'):
            families[family][0] += 1
        if here in ('works', 'on demand') or advice.startswith('rdma-core '):
            families[family][1] += 1
    count = collections.Counter()
    subjects = collections.defaultdict(lambda: [0, 0])
    for (suite, name), result in results.items():
        kind = ('passed' if result in ('OK', 'EXPECTEDFAIL') else
                'skipped' if result == 'SKIP' else 'failed')
        count[kind] += 1
        if kind != 'skipped':
            of = subjects[subject(name) if suite == 'e2e' else 'the software HCA']
            of[0] += kind == 'passed'
            of[1] += 1
    def named(*wanted, but=()):
        return sorted({n for (_, n), r in results.items()
                       if (r in wanted if wanted else r not in but)})
    return {
        'release': release,
        'only': only or '',
        'tests': dict(count),
        'subjects': dict(subjects),
        'failed': named(but=('OK', 'EXPECTEDFAIL', 'SKIP')),
        'skipped': named('SKIP'),
        'partly': partly,
        'left out': out,
        'measured': measured,
        'idle': idle,
        'families': dict(families),
    }


def table(columns):
    """Markdown of the results by release."""
    releases = sorted(columns, key=int)
    head = '| | ' + ' | '.join(releases) + ' |\n| --- |' + ' ---: |' * len(releases) + '\n'
    text = '## Tests\n\n' + head
    text += '| run | ' + ' | '.join(f"`{columns[r]['only']}`" if columns[r]['only'] else 'all'
                                    for r in releases) + ' |\n'
    for kind in ('passed', 'failed', 'skipped'):
        text += f'| {kind} | ' + ' | '.join(
            str(columns[r]['tests'].get(kind, 0)) for r in releases) + ' |\n'
    for title, key in (('Failed', 'failed'),
                       ('Skipped: all test cases are of later releases, or the machine lacks '
                        'something', 'skipped'),
                       ('Left out, because what they are about is not served there', 'idle'),
                       ('Left out, because they are about programs that were built for another '
                        'release', 'left out'),
                       ("Left out, because they compare instructions with the distribution's "
                        'rdma-core', 'measured')):
        lines = [f'- {r}: {", ".join(f"`{n}`" for n in columns[r][key])}\n'
                 for r in releases if columns[r].get(key)]
        if lines:
            text += f'\n{title}:\n\n' + ''.join(lines)
    lines = [f'- {r}: ' + '; '.join(f'`{t}` without {", ".join(p)}' for t, p in partly.items()) + '\n'
             for r in releases if (partly := columns[r].get('partly'))]
    if lines:
        text += '\nWithout programs that were built for another release:\n\n' + ''.join(lines)
    text += '\n### By what they are about\n\nPassed of those that were run.\n\n' + head
    for about in sorted({a for r in releases for a in columns[r].get('subjects', {})}):
        cells = []
        for r in releases:
            passed, run = columns[r].get('subjects', {}).get(about, (0, 0))
            cells.append('-' if run == 0 else str(passed) if passed == run else f'{passed} of {run}')
        text += f'| {about} | ' + ' | '.join(cells) + ' |\n'
    text += ('\n## Rows of the matrix by family\n\nServed of those that any release of rdma-core '
             'serves, on the software HCA.\n\n' + head)
    for family in sorted({f for r in releases for f in columns[r]['families']}):
        cells = []
        for r in releases:
            served, known = columns[r]['families'].get(family, (0, 0))
            cells.append('-' if known == 0 else str(served) if served == known
                         else f'{served} of {known}')
        if any(c not in ('-',) for c in cells):
            text += f'| {family} | ' + ' | '.join(cells) + ' |\n'
    return text


def write(output, columns):
    data = output.with_suffix('.json')
    known = json.loads(data.read_text(encoding='utf-8')) if data.exists() else {}
    known.update(columns)
    data.write_text(json.dumps(known, indent=1, sort_keys=True) + '\n', encoding='utf-8')
    text = output.read_text(encoding='utf-8')
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    output.write_text(f'{before}{BEGIN}\n\n{table(known)}\n{END}{after}', encoding='utf-8')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--build', type=pathlib.Path, required=True)
    parser.add_argument('--roots', type=pathlib.Path, required=True)
    parser.add_argument('--output', type=pathlib.Path)
    parser.add_argument('--jobs', type=int)
    parser.add_argument('--only', help='only tests whose names match; the table says so')
    parser.add_argument('releases', type=int, nargs='+')
    o = parser.parse_args()
    columns, bad = {}, False
    for release in o.releases:
        root = o.roots / str(release)
        made = subprocess.run([str(HERE / 'build'), str(release), str(root)])
        if made.returncode:
            sys.exit(f'run.py: release {release} cannot be built')
        result = examine(o.build, root, release, o.jobs, o.only)
        columns[str(release)] = result
        count = result['tests']
        print(f"rdma-core {release}: {count.get('passed', 0)} passed, {count.get('failed', 0)} "
              f"failed, {count.get('skipped', 0)} skipped", *result['failed'], sep='\n  ', flush=True)
        bad = bad or bool(result['failed']) or not count.get('passed')
        if o.output:  # whatever becomes of the next one
            write(o.output, columns)
    sys.exit(1 if bad else 0)


main()
