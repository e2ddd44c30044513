#!/usr/bin/env python3
"""Whether the layouts of the firmware are those of the kernel's mlx5_ifc.h.

    layouts_test.py SOURCES LAYOUTS [HEADER]

SOURCES is src/softhca/firmware, LAYOUTS names constants and fields. Without HEADER, those of
Debian's linux-headers-*-common and linux-source are looked for below /usr/src. 77: there is none.
"""
import glob
import pathlib
import re
import sys
import tarfile
import tomllib

SKIP = 77
NAME = 'include/linux/mlx5/mlx5_ifc.h'


def header():
    """(where it was found, its text), the newest."""
    def version(path):
        return [int(n) for n in re.findall(r'\d+', path)]
    for path in sorted(glob.glob(f'/usr/src/linux-headers-*/{NAME}'), key=version, reverse=True):
        return path, pathlib.Path(path).read_text(encoding='utf-8')
    for path in sorted(glob.glob('/usr/src/linux-source-*.tar.xz'), key=version, reverse=True):
        with tarfile.open(path) as archive:
            member = archive.extractfile(f'{pathlib.Path(path).name.removesuffix(".tar.xz")}/{NAME}')
            return path, member.read().decode()
    return None


class Layouts:
    """The structures of the header: fields with their offsets and widths in bits."""

    def __init__(self, text):
        text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
        # Of a union without a name the first member.
        while (union := re.search(r'\n\t+union \{\s*((?:struct|union|u8)[^;]*;)[^{}]*\}\s*;', text)):
            text = text[:union.start()] + '\n' + union[1] + text[union.end():]
        self.bodies = {name: (kind, body) for kind, name, body in re.findall(
            r'\n(struct|union) mlx5_ifc_(\w+)_bits \{(.*?)\n\};', text, re.S)}
        self.known = {}

    def fields(self, name):
        if name not in self.known:
            kind, body = self.bodies[name]
            offset, found = 0, {}
            for declaration in body.split(';'):
                match = re.fullmatch(r'(?:u8|(?:struct|union)\s+mlx5_ifc_(\w+)_bits)\s+(\w+)((?:\[.*\])*)',
                                     ' '.join(declaration.split()))
                if not match:
                    continue
                width = self.bits(match[1]) if match[1] else 1
                for count in re.findall(r'\[([^\]]*)\]', match[3]):
                    width *= int(count, 0) if count else 0
                found[match[2]] = (offset, width)
                offset += width if kind == 'struct' else 0
            self.known[name] = found
        return self.known[name]

    def bits(self, name):
        return max((offset + width for offset, width in self.fields(name).values()), default=0)


def part(sources, entry):
    text = (sources / entry['file']).read_text(encoding='utf-8')
    start = text.index(entry['from'])
    return text[start:text.index(entry['to'], start + len(entry['from'])) if 'to' in entry else None]


def constants(text):
    """name -> (offset in bits, width or None)"""
    text = re.sub(r'//.*', '', text)
    found = {name: (int(offset, 0), int(width, 0)) for name, offset, width in re.findall(
        r'\b(\w+)\{(\w+), (\d+)\}', text)}
    for name, value in re.findall(r'\b(\w+) = (\d+)', text):
        found[name] = (int(value) * (8 if name.endswith('_at') else 1), None)
    return found


def settings(text):
    """(offset, width, field) of lines that name the field in a comment, and of counters."""
    for offset, width, name in re.findall(
            r'(?:p\.set\(|\{)(0x[0-9a-f]+), (\d+), .*?//\s+(\w+)\b', text):
        yield int(offset, 16), int(width), name
    for name, offset in re.findall(r'SOFTHCA_QUEUE_COUNTER\((\w+), (0x[0-9a-f]+)', text):
        yield int(offset, 16), 32, name


def main():
    sources, layouts = pathlib.Path(sys.argv[1]), tomllib.loads(
        pathlib.Path(sys.argv[2]).read_text(encoding='utf-8'))
    found = (sys.argv[3], pathlib.Path(sys.argv[3]).read_text(encoding='utf-8')) if len(
        sys.argv) > 3 else header()
    if not found:
        print('SKIPPED: no mlx5_ifc.h (package linux-headers-*-common or linux-source)')
        sys.exit(SKIP)
    kernel, wrong, compared = Layouts(found[1]), [], 0
    for entry in layouts['layout']:
        here, there = constants(part(sources, entry)), kernel.fields(entry['struct'])
        where = f'{entry["file"]}, {entry["struct"]}'
        wrong += [f'{where}: {name} is not in the list' for name in here if name not in entry['fields']]
        for name, field in entry['fields'].items():
            if name not in here:
                wrong.append(f'{where}: no constant {name}')
            elif field != '~':
                compared += 1
                offset, width = here[name]
                theirs = there.get(field)
                if theirs is None or theirs[0] != offset or width not in (None, theirs[1]):
                    wrong.append(f'{where}: {name} is {offset}, {width}; {field}: {theirs}')
    for entry in layouts['page']:
        there = kernel.fields(entry['struct'])
        for offset, width, name in settings(part(sources, entry)):
            if name in there:
                compared += 1
                if there[name] != (offset, width):
                    wrong.append(f'{entry["file"]}: {name} is {offset:#x}, {width}; {there[name]}')
    print('\n'.join(wrong))
    print(f'{compared} fields compared with {found[0]}')
    sys.exit(1 if wrong or not compared else 0)


if __name__ == '__main__':
    main()
