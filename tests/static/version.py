#!/usr/bin/env python3
"""The version stands in meson.build; whoever has to repeat it says the same.

    version.py SOURCE VERSION
"""
import pathlib
import re
import sys

source, version = pathlib.Path(sys.argv[1]), sys.argv[2]


def first(file, pattern):
    found = re.search(pattern, (source / file).read_text(encoding='utf-8'), re.M)
    return found[1] if found else f'(nothing like {pattern})'


# Debian and RPM sort 1.0.0~rc1 before 1.0.0.
places = {
    'debian/changelog': (first('debian/changelog', r'^\S+ \((\S+?)\)'), version.replace('-rc', '~rc')),
    'packaging/rpm/libibverbs_exp.spec':
        (first('packaging/rpm/libibverbs_exp.spec', r'^%global upstream (\S+)'), version),
}
# The newest heading that names a date; what is not released stands above it.
released = first('CHANGELOG.md', r'^## (\S+), \d{4}-\d\d-\d\d')
places['CHANGELOG.md'] = (released, version)

bad = [f'{file} says {said}, meson.build {wanted}' for file, (said, wanted) in places.items()
       if said != wanted]
if bad:
    sys.exit('\n'.join(bad))
