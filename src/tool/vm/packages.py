"""Debian packages that are unpacked into a cache and not installed.

apt gets a folder of its own for sources, lists and downloads, and an empty list of what
is installed: what the machine has configured and installed stays as it is, and no
privilege is needed. Proxies come from the machine's own apt configuration.
"""
import contextlib
import fcntl
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

from trouble import Trouble

KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'


def say(text):
    print(f'ibvexp vm: {text}', file=sys.stderr, flush=True)


@contextlib.contextmanager
def locked(folder):
    """One process at a time fills a folder of the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / '.lock', 'w', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Release:
    """A Debian release, such as trixie, or one with its backports in front."""

    def __init__(self, cache, mirror, suites):
        self.folder = cache / 'apt' / suites[-1]
        self.mirror, self.suites = mirror, suites
        self.updated = False

    def options(self):
        folder = self.folder
        values = {
            'APT::Architecture': 'amd64', 'APT::Architectures': 'amd64',
            'APT::Default-Release': self.suites[-1], 'APT::Sandbox::User': '',
            'Acquire::Languages': 'none', 'Dir::State': folder, 'Dir::State::status': folder / 'status',
            'Dir::Cache': folder, 'Dir::Etc::sourcelist': folder / 'debian.sources',
            'Dir::Etc::sourceparts': '/dev/null', 'Dir::Etc::preferences': '/dev/null',
            'Dir::Etc::preferencesparts': '/dev/null',
        }
        return [word for name, value in values.items() for word in ('-o', f'{name}={value}')]

    def run(self, *command, cwd=None):
        done = subprocess.run([command[0], *self.options(), *command[1:]], capture_output=True,
                              text=True, errors='replace', check=False, stdin=subprocess.DEVNULL, cwd=cwd,
                              env=dict(os.environ, LC_ALL='C', DEBIAN_FRONTEND='noninteractive'))
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith('E:')]
            raise Trouble(f'{" ".join(command)} ({self.suites[-1]}): '
                          f'{" ".join(errors) or done.stderr.strip() or done.returncode}')
        return done.stdout

    def update(self):
        if self.updated:
            return
        if not shutil.which('apt-get') or not shutil.which('dpkg-deb'):
            raise Trouble('apt-get and dpkg-deb are needed to fetch packages of Debian')
        if not os.path.exists(KEYRING):
            raise Trouble(f'{KEYRING} is missing (package debian-archive-keyring)')
        for name in ('lists/partial', 'archives/partial'):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / 'status').touch()
        (self.folder / 'debian.sources').write_text(
            f'Types: deb\nURIs: {self.mirror}\nSuites: {" ".join(self.suites)}\n'
            f'Components: main\nSigned-By: {KEYRING}\n', encoding='ascii')
        self.run('apt-get', 'update')
        self.updated = True

    def needed_by(self, package):
        """A package, and all that it depends on."""
        self.update()
        printed = self.run('apt-get', 'install', '--print-uris', '--no-install-recommends', '-qq',
                           '-y', package)
        return re.findall(r"^'\S+' ([^_\s]+)_", printed, re.M)

    def linux(self):
        """The packages that the release's kernel is in."""
        self.update()
        printed = self.run('apt-cache', 'depends', '--recurse', '--important', 'linux-image-amd64')
        names = re.findall(r'^(linux-(?:base|image|modules|binary)-\d\S*)$', printed, re.M)
        if not names:
            raise Trouble(f'no kernel in {self.suites[-1]} of {self.mirror}')
        return sorted(set(names))

    def unpack(self, names, target):
        """Downloads packages and unpacks them below a folder."""
        self.update()
        work = self.folder / f'download-{os.getpid()}'
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            self.run('apt-get', 'download', *names, cwd=work)
            for package in glob.glob(f'{work}/*.deb'):
                unpack(package, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def unpack(package, target):
    target.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(['dpkg-deb', '-x', package, target], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise Trouble(f'{package}: {done.stderr.strip() or "dpkg-deb -x failed"}')


def cached(cache, name, what, fill):
    """A folder of the cache, which fill(folder) makes the first time."""
    target = cache / name
    with locked(cache):
        if not target.exists():
            say(f'fetching {what} into {target}')
            work = cache / f'{name}.new'
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            fill(work)
            work.rename(target)
    return target


def cache_folder():
    base = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
    return pathlib.Path(base) / 'libibverbs_exp' / 'vm'
