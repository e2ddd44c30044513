#!/usr/bin/env python3
"""Writes docs/faithful.md from differs.def, overruled.md and the table, or checks that it is up to date.

  faithful.py ROOT [--check]"""
import argparse
import hashlib
import pathlib
import re
import sys

CLASSES = {
    'table': ('Refused by the migration guide',
              'The vendor\'s migration guide calls these unsupported on rdma-core, or has another '
              'verb for them. They fail with `EOPNOTSUPP` unless a switch serves them. The first column is the row of the '
              '[compatibility matrix](../compat-matrix.md).'),
    'device': ('Another device, kernel or release of rdma-core',
               'The emulated card, today\'s kernel or rdma-core has other capabilities, sizes '
               'or limits than the stack of 2020 on the same card.'),
    'crash': ('Crashes of the legacy provider', 'The legacy provider dereferenced a null pointer or a missing member; the library returns EINVAL.'),
    'stub': ('Answers of the stub firmware', 'The answers were recorded on a device model whose stub '
             'firmware gave these, where a card\'s firmware checks.'),
    'bug': ('Failures without a reason', 'The legacy provider failed and left `errno` as it was, '
            'or returned success and did nothing. No program can depend on that; the library '
            'sets errno.'),
    'better': ('Served here, refused by MLNX_OFED', 'The library serves what the legacy provider '
               'refused, or grants more.'),
}
ENTRY = re.compile(r'DIFFERS\((\w+),\s*((?:"[^"]*"\s*)+),\s*(\w+),\s*((?:"[^"]*"\s*)+),\s*'
                   r'((?:"[^"]*"\s*)+)\)')


def fail(text):
    sys.exit(f'faithful.py: {text}')


def joined(literals):
    return ''.join(re.findall(r'"([^"]*)"', literals))


def read_entries(path):
    text = re.sub(r'^//.*\n', '', path.read_text(), flags=re.M)
    entries = [(section, joined(lines), kind, joined(subject), joined(reason))
               for section, lines, kind, subject, reason in ENTRY.findall(text)]
    if ENTRY.sub('', text).strip():
        fail(f'not an entry: {ENTRY.sub("", text).strip()[:80]}')
    return entries


def numbers(lines, link):
    found = set()
    for word in lines.split():
        word, _, only = word.partition('@')
        if only and only != link:
            continue
        first, _, last = word.partition('-')
        found.update(range(int(first), int(last or first) + 1))
    return found


def asked(path, link):
    found = set()
    for line in path.read_text().splitlines():
        if line and line[0].isdigit():
            answers = [part.strip() for part in line.split('|')[1:]]
            only = [answer.split(':')[0] for answer in answers
                    if answer.startswith(('ib:', 'eth:'))]
            if not only or link in only:
                found.add(int(line.split()[0]))
    return found


def check_rows(root, entries):
    rows = set()
    for path in (root / 'src/table').rglob('*.def'):
        rows.update(re.findall(r'\b\w+\b', path.read_text()))
    for section, _, kind, subject, reason in entries:
        if kind not in CLASSES:
            fail(f'{section}: no such class: {kind}')
        if not subject or not reason:
            fail(f'{section}: {kind} without subject or reason')
        if kind == 'table' and subject not in rows:
            fail(f'{section}: no row {subject}')


# Whoever changes what was recorded, in lines that are equal or not, sees this change.
def digest(answers):
    whole = hashlib.sha256()
    for path in sorted(answers.glob('*.truth')):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def page(root, entries):
    links = {'ib': 'InfiniBand', 'eth': 'Ethernet'}
    answers = root / 'tests/truth/answers'
    all_lines = {link: {(path.stem, line) for path in answers.glob('*.truth')
                        for line in asked(path, link)} for link in links}
    counts = {kind: {} for kind in CLASSES}
    for link in links:
        for kind in CLASSES:
            counts[kind][link] = sum(len(numbers(lines, link)) for _, lines, entry_kind, _, _ in
                                     entries if entry_kind == kind)
    out = ['# What differs from MLNX_OFED 4.9', '']
    out += ['<!-- Made by tests/truth/faithful.py from tests/truth/differs.def. -->', '']
    out += ['The experimental verbs of MLNX_OFED 4.9-7.1\'s own libibverbs, libmlx5 and kernel '
            'modules were called with', 'usual, odd and wrong arguments, on a model of a '
            'ConnectX-6. The library gives the same answers (return', 'value, `errno`, members '
            'written and not written, completions) except those listed here.',
            'A test compares all of them on every change ([tests/truth](../tests/truth/README.md)). The '
            'recording has the SHA-256', f'`{digest(answers)}`.', '']
    out += ['| | InfiniBand | Ethernet |', '| --- | ---: | ---: |']
    totals = {link: len(all_lines[link]) for link in links}
    equal = {link: totals[link] - sum(counts[kind][link] for kind in CLASSES) for link in links}
    out.append('| Answers | ' + ' | '.join(f'{totals[link]:,}' for link in links) + ' |')
    out.append('| Same | ' + ' | '.join(
        f'{equal[link]:,} ({equal[link] * 100 // totals[link]} %)' for link in links) + ' |')
    for kind, (title, _) in CLASSES.items():
        if any(counts[kind].values()):
            out.append(f'| {title} (*{kind}*) | ' +
                       ' | '.join(f'{counts[kind][link]:,}' for link in links) + ' |')
    for kind, (title, text) in CLASSES.items():
        # One row for all entries of the same subject and reason.
        rows = {}
        for _, lines, entry_kind, subject, reason in entries:
            if entry_kind == kind:
                count = max(len(numbers(lines, link)) for link in [*links, 'driver'])
                rows[subject, reason] = rows.get((subject, reason), 0) + count
        if not rows:
            continue
        out += ['', f'## {title}', '', text, '', '| | Why | Lines |', '| --- | --- | ---: |']
        for (subject, reason), count in rows.items():
            name = f'`{subject}`' if kind == 'table' else subject
            out.append(f'| {name} | {reason} | {count} |')
    out += ['', '## Rules that the recording overrules', '',
            (root / 'tests/truth/overruled.md').read_text().rstrip()]
    return '\n'.join(out) + '\n'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('root', type=pathlib.Path)
    parser.add_argument('--check', action='store_true')
    options = parser.parse_args()
    entries = read_entries(options.root / 'tests/truth/differs.def')
    check_rows(options.root, entries)
    written = options.root / 'docs/faithful.md'
    wanted = page(options.root, entries)
    if not options.check:
        written.write_text(wanted)
    elif not written.exists() or written.read_text() != wanted:
        fail('docs/faithful.md is out of date: ninja -C build faithful')


if __name__ == '__main__':
    main()
