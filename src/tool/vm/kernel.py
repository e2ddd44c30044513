"""Kernels that a guest can boot: from packages, or of one's own build."""
import bz2
import gzip
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess

from packages import Release, cached, unpack
from trouble import Trouble

# --kernel NAME: the release whose kernel it is.
RELEASES = {'5.10': ['bullseye'], '6.1': ['bookworm'], '6.12': ['trixie'],
            'newest': ['trixie', 'trixie-backports']}

# What no guest here has a use for, and half of the size.
USELESS = ('drivers/gpu', 'drivers/media', 'drivers/net/wireless', 'drivers/staging',
           'drivers/iio', 'sound')

HERE = pathlib.Path(__file__).resolve().parent


class Kernel:
    """An image that QEMU boots, and the folder of its modules."""

    def __init__(self, image, modules):
        self.image, self.modules = image, modules
        self.version = modules.name

    def _files(self):
        return {module_name(path): path for path in sorted(self.modules.rglob('*.ko*'))}

    def _built_in(self):
        listed = self.modules / 'modules.builtin'
        return set(map(module_name, listed.read_text(encoding='ascii').split())
                   if listed.exists() else ())

    def has(self, name):
        return name in self._built_in() or name in self._files()

    def files_of(self, wanted):
        """The files of modules in the order in which they are loaded."""
        files, built_in, order = self._files(), self._built_in(), []

        def add(name):
            if name in built_in:
                return
            if name not in files:
                raise Trouble(f'Linux {self.version} has no module {name}')
            if files[name] not in order:
                for needed in needed_modules(plain_module(files[name])):
                    add(needed)
                order.append(files[name])
        for name in wanted:
            add(name.replace('-', '_'))
        return order


def module_name(path):
    return re.sub(r'\.ko.*', '', os.path.basename(path)).replace('-', '_')


def needed_modules(module):
    """What a module says that it depends on."""
    found = re.search(rb'\0depends=([^\0]*)\0', module)
    return [name.replace('-', '_') for name in found[1].decode().split(',') if name] if found else []


def find_kernel(what, modules, cache, mirror):
    """--kernel and --modules."""
    if what in RELEASES:
        tree = cached(cache, f'linux-{what}', f'Linux {what}',
                      lambda folder: _from_release(folder, Release(cache, mirror, RELEASES[what])))
        return _from_tree(tree, what)
    path = pathlib.Path(what)
    if not path.is_file():
        raise Trouble(f'--kernel {what}: neither a file nor one of {", ".join(RELEASES)}')
    if path.suffix == '.deb':
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        tree = cached(cache, f'linux-{digest}', path.name, lambda folder: _from_package(folder, path))
        return _from_tree(tree, what)
    return _from_file(path, modules)


def _from_release(folder, release):
    release.unpack(release.linux(), folder / 'tree')
    _complete(folder)


def _from_package(folder, path):
    unpack(path, folder / 'tree')
    _complete(folder)


def _complete(folder):
    """Makes vmlinux of an unpacked kernel and leaves out modules that no guest needs."""
    tree = folder / 'tree'
    images = [*tree.glob('boot/vmlinuz-*'), *tree.glob('usr/lib/modules/*/vmlinuz')]
    if len(images) != 1:
        raise Trouble(f'{len(images)} kernels in the package')
    (folder / 'vmlinux').write_bytes(unpacked(images[0].read_bytes()))
    if not (tree / 'lib/modules').exists():
        (tree / 'lib').mkdir(exist_ok=True)
        (tree / 'lib/modules').symlink_to('../usr/lib/modules')
    for modules in (tree / 'lib/modules').iterdir():
        for name in USELESS:
            shutil.rmtree(modules / 'kernel' / name, ignore_errors=True)


def _from_tree(folder, what):
    versions = sorted((folder / 'tree/lib/modules').iterdir())
    if len(versions) != 1:
        raise Trouble(f'--kernel {what}: {len(versions)} folders of modules in the package')
    # For modprobe in the guest. What a guest starts with needs no list, so kmod may come later.
    depmod = shutil.which('depmod', path=f'{os.environ.get("PATH", "")}:/usr/sbin:/sbin')
    if depmod and not (versions[0] / 'modules.dep').exists():
        subprocess.run([depmod, '-b', folder / 'tree', versions[0].name], check=False)
    return Kernel(folder / 'vmlinux', versions[0])


def _from_file(path, modules):
    """The version in the image names the folder of its modules."""
    version = _version(path.read_bytes())
    if not version:
        raise Trouble(f'--kernel {path}: neither a bzImage nor a vmlinux of Linux')
    folder = modules / 'lib/modules' / version
    if not folder.is_dir():
        raise Trouble(f'--kernel {path}: no {folder}; install the modules of Linux '
                      f'{version} below a folder (make modules_install INSTALL_MOD_PATH=FOLDER) '
                      'and name it with --modules')
    return Kernel(path, folder)


def _version(image):
    """Of a bzImage or a vmlinux."""
    if image[0x202:0x206] != b'HdrS':
        found = re.search(rb'Linux version ([\w.+~-]+) \(', image)
        return found and found[1].decode()
    at = 0x200 + struct.unpack_from('<H', image, 0x20e)[0]
    return image[at:image.index(b'\0', at)].split()[0].decode()


def unpacked(image):
    """What a bzImage holds, which boots five seconds sooner under emulation; or the
    bzImage itself, if it is compressed in a way that is unknown here."""
    if image[0x202:0x206] != b'HdrS':
        return image
    sectors = image[0x1f1] or 4
    start, size = struct.unpack_from('<II', image, 0x248)
    start += (sectors + 1) * 512
    packed = image[start:start + size]
    if packed[:6] == b'\xfd7zXZ\0':
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(packed)
    if packed[:2] == b'\x1f\x8b':
        return gzip.decompress(packed[:-4])   # its size follows
    if packed[:3] == b'BZh':
        return bz2.decompress(packed[:-4])
    if packed[:4] == b'\x28\xb5\x2f\xfd' and shutil.which('zstd'):
        # zstd complains of the size behind.
        done = subprocess.run(['zstd', '-dcq'], input=packed, capture_output=True, check=False)
        if done.stdout[:4] == b'\x7fELF':
            return done.stdout
    return image


def plain_module(path):
    """A module without its compression."""
    data = path.read_bytes()
    if path.suffix == '.xz':
        return lzma.decompress(data)
    if path.suffix == '.gz':
        return gzip.decompress(data)
    if path.suffix == '.zst':
        if not shutil.which('zstd'):
            raise Trouble(f'zstd is needed to unpack {path}')
        return subprocess.run(['zstd', '-dcq', path], capture_output=True, check=True).stdout
    return data


def _entry(name, mode, data=b''):
    """One file of a cpio archive."""
    name = name.encode() + b'\0'
    head = b'070701' + b''.join(b'%08x' % n for n in (
        0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0))
    out = head + name
    out += b'\0' * (-len(out) % 4) + data
    return out + b'\0' * (-len(out) % 4)


def initrd(kernel, wanted, busybox, target):
    """The guest's first files: a shell, its first process, and modules in their order."""
    files = kernel.files_of(wanted)
    names = [re.sub(r'\.(xz|gz|zst)$', '', file.name) for file in files]
    folders = ('bin', 'dev', 'proc', 'sys', 'host', 'layer', 'new', 'modules')
    with open(target, 'wb') as out:
        for folder in folders:
            out.write(_entry(folder, 0o40755))
        out.write(_entry('bin/busybox', 0o100755, busybox.read_bytes()))
        out.write(_entry('init', 0o100755, (HERE / 'init').read_bytes()))
        for name, file in zip(names, files):
            out.write(_entry(f'modules/{name}', 0o100644, plain_module(file)))
        order = ''.join(f'{name}\n' for name in names)
        out.write(_entry('modules/order', 0o100644, order.encode()))
        out.write(_entry('TRAILER!!!', 0))
