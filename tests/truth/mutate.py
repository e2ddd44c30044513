#!/usr/bin/env python3
"""Changes recorded answers of MLNX_OFED 4.9 by chance, one at a time: each time a test has to fail.

    mutate.py --preload PATHS [--count N] [--seed SEED] ROOT WALK

WALK is truth_preloaded. In a line that differs.def lists, only the digest of docs/faithful.md sees the
change.
"""
import argparse
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

LINKS = ('ib', 'eth')


def answers(root):
    """(path, number of the line in it, part behind a bar, word of it), of all that is recorded."""
    for path in sorted((root / 'tests/truth/answers').glob('*.truth')):
        for number, line in enumerate(path.read_text().splitlines()):
            if line[:1].isdigit():
                for part, answer in enumerate(line.split('|')[1:], 1):
                    words = answer.split()
                    for word in range(words[0] in ('ib:', 'eth:'), len(words)):
                        yield path, number, part, word


def changed(word, chance):
    name, equals, value = word.rpartition('=')
    others = ['kept', 'set', '0', '1', '0xee'] if equals else ['ok', 'null', 'EINVAL', '-1', 'ENOMEM']
    try:
        others.append(str(int(value, 0) ^ 1 << chance.randrange(8)))
    except ValueError:
        pass
    return name + equals + chance.choice([other for other in others if other != value])


def mutate(line, part, word, chance):
    """The line with that word changed, the word before and after, and the link layer."""
    parts = line.split('|')
    words = parts[part].split()
    link = words[0].rstrip(':') if words[0] in ('ib:', 'eth:') else chance.choice(LINKS)
    before, words[word] = words[word], changed(words[word], chance)
    parts[part] = f' {" ".join(words)} '
    return '|'.join(parts), before, words[word], link


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('root', type=pathlib.Path)
    parser.add_argument('walk', type=pathlib.Path)
    parser.add_argument('--preload', required=True, help='the library and the software HCA')
    parser.add_argument('--count', type=int, default=30)
    parser.add_argument('--seed', type=int, default=1)
    o = parser.parse_args()
    root = o.root.resolve()
    chance = random.Random(o.seed)
    found = {'walk': 0, 'digest': 0, 'nothing': 0}
    for path, number, part, word in chance.sample(list(answers(root)), o.count):
        lines = path.read_text().splitlines()
        lines[number], before, after, link = mutate(lines[number], part, word, chance)
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            shutil.copytree(root / 'tests/truth', copy / 'tests/truth')
            for shared in ('src', 'docs'):
                (copy / shared).symlink_to(root / shared)
            mutant = copy / 'tests/truth/answers' / path.name
            mutant.write_text('\n'.join(lines) + '\n')
            env = os.environ | {'LD_PRELOAD': o.preload, 'SOFTHCA_LINK': link,
                                'SOFTHCA_FABRIC': f'truth-{os.getpid()}-{link}'}
            quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL, 'check': False}
            walked = subprocess.run([o.walk, link, mutant], env=env, **quiet).returncode
            seen = subprocess.run([sys.executable, copy / 'tests/truth/faithful.py', copy, '--check'],
                                  **quiet).returncode
        by = 'walk' if walked else 'digest' if seen else 'nothing'
        found[by] += 1
        print(f'{path.stem} {lines[number].split()[0]}, {link}: {before} -> {after}: red by {by}', flush=True)
    print(f'{o.count} changed answers, seed {o.seed}: {found["walk"]} red by the walk, '
          f'{found["digest"]} by the digest alone, {found["nothing"]} by nothing')
    sys.exit(1 if found['nothing'] else 0)


if __name__ == '__main__':
    main()
