"""One virtual machine: QEMU, the server of its PCI function, and what both leave."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from packages import Release, cached
from trouble import Trouble

HERE = pathlib.Path(__file__).resolve().parent

LIMIT_STATUS = 124    # as timeout(1)

# Loaded before the host's files are there, and what makes the function an RDMA device.
MODULES = ('virtio_pci', '9p', '9pnet_virtio', 'overlay', 'virtio_net')
MODULES_OF_DEVICE = ('mlx5_core', 'mlx5_ib', 'ib_uverbs', 'ib_umad', 'rdma_ucm')
# Loaded where the kernel has them: addresses on InfiniBand, for the connection manager.
MODULES_WHERE_BUILT = ('ib_ipoib',)


def machine_environment():
    """Without what is preloaded into the command."""
    return {name: value for name, value in os.environ.items()
            if name not in ('LD_PRELOAD', 'LD_LIBRARY_PATH')}


class Qemu:
    """A command line up to the program, and its environment."""

    def __init__(self, command, env):
        self.command, self.env = command, env


def find_qemu(cache, mirror, with_device):
    """The machine's own, if it has what is needed; else Debian's, unpacked."""
    own = shutil.which('qemu-system-x86_64')
    if own and (not with_device or _has_vfio_user(own)):
        return Qemu([own], machine_environment())
    return _debians_qemu(cache, mirror)


def _debians_qemu(cache, mirror):
    release = Release(cache, mirror, ['trixie', 'trixie-backports'])
    root = cached(cache, 'qemu', 'QEMU with vfio-user-pci (the one here has none)',
                  lambda folder: release.unpack(release.needed_by('qemu-system-x86'), folder))
    libraries = root / 'usr/lib/x86_64-linux-gnu'
    # Its own loader and libraries: the machine's may be older.
    command = [root / 'usr/lib64/ld-linux-x86-64.so.2', '--library-path', libraries,
               root / 'usr/bin/qemu-system-x86_64']
    for data in ('share/qemu', 'share/seabios', 'lib/ipxe/qemu'):
        command += ['-L', root / 'usr' / data]
    return Qemu(command, dict(machine_environment(), QEMU_MODULE_DIR=str(libraries / 'qemu')))


def _has_vfio_user(program):
    done = subprocess.run([program, '-device', 'help'], env=machine_environment(),
                          capture_output=True, text=True, check=False)
    return '"vfio-user-pci"' in done.stdout


def find_busybox(cache, mirror):
    release = Release(cache, mirror, ['trixie'])
    root = cached(cache, 'busybox', 'busybox',
                  lambda folder: release.unpack(['busybox-static'], folder))
    return root / 'usr/bin/busybox'


def accelerator():
    """/dev/kvm alone is no proof: some of them cannot boot a distribution's kernel."""
    modules = ('/sys/module/kvm_intel', '/sys/module/kvm_amd')
    return 'kvm' if os.access('/dev/kvm', os.W_OK) and any(map(os.path.isdir, modules)) else 'tcg'


def _end_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)   # PR_SET_PDEATHSIG


class Copy:
    """Passes on what is appended to a file."""

    def __init__(self, path, target):
        path.touch()
        self.source = open(path, 'rb')   # pylint: disable=consider-using-with
        self.target = target

    def more(self):
        while data := self.source.read(1 << 16):
            self.target.write(data)
            self.target.flush()


class Guest:
    def __init__(self, options, kernel, qemu, initrd):
        self.options, self.kernel, self.qemu, self.initrd = options, kernel, qemu, initrd
        self.folder = self.server = self.process = None

    def run(self):
        """The status of the command."""
        with tempfile.TemporaryDirectory(prefix='ibvexp-vm-') as folder:
            self.folder = pathlib.Path(folder)
            shared = self.folder / 'shared'
            shared.mkdir()
            self._write_command(shared)
            try:
                if self.options.server:
                    self._start_server()
                self._start_qemu(shared)
                return self._watch(shared)
            finally:
                for process in (self.process, self.server):
                    if process and process.poll() is None:
                        process.kill()
                        process.wait()
                if self.options.logs:
                    self.options.logs.mkdir(parents=True, exist_ok=True)
                    for log in self.folder.glob('*.log'):
                        shutil.copy(log, self.options.logs)

    def _write_command(self, shared):
        shutil.copy(HERE / 'session', shared)
        host = os.environ.get('SOFTHCA_HOST', '1')
        folders = ' '.join(shlex.quote(str(f)) for f in self.options.write)
        (shared / 'settings').write_text(
            f'modules={shlex.quote(str(self.kernel.modules))}\nfolders=({folders})\n'
            f'device={"yes" if self.options.server else ""}\naddress=10.0.1.{host}\n',
            encoding='utf-8')
        # Not all that may stand in the environment is a name of the shell.
        variables = ''.join(f'export {name}={shlex.quote(value)}\n'
                            for name, value in os.environ.items()
                            if re.fullmatch(r'[A-Za-z_]\w*', name, re.ASCII) and name != 'SHLVL')
        command = ' '.join(map(shlex.quote, self.options.command))
        (shared / 'command').write_bytes(os.fsencode(
            f'{variables}cd {shlex.quote(os.getcwd())} || exit 126\n{command}\n'))

    def _start_server(self):
        socket = self.folder / 'function'
        env = machine_environment()
        if self.options.link:
            env['SOFTHCA_LINK'] = self.options.link
        with open(self.folder / 'server.log', 'wb') as log:
            try:
                self.server = subprocess.Popen([self.options.server, socket], env=env, stdout=log,
                                               stderr=log, stdin=subprocess.DEVNULL,
                                               preexec_fn=_end_with_us)
            except OSError as error:
                raise Trouble(f'--server {self.options.server}: {error.strerror}') from error
        limit = time.monotonic() + 30
        while not socket.exists():
            if self.server.poll() is not None:
                raise Trouble(self._server_ended())
            if time.monotonic() > limit:
                raise Trouble(f'{self.options.server} made no socket in 30 seconds')
            time.sleep(0.01)

    def _server_ended(self):
        status = self.server.returncode
        how = f'was killed by signal {-status}' if status < 0 else f'ended with status {status}'
        return f'the server of the PCI function {how}{_last_line(self.folder / "server.log")}'

    def _start_qemu(self, shared):
        o = self.options
        memory = f'{o.memory}M'
        # Its mappings of single pages come to the server when vfio-pci has the function; drivers of
        # the guest's kernel see none (iommu=pt).
        chipset, words = ('q35', 'intel_iommu=on iommu=pt ') if o.iommu else ('pc', '')
        iommu = ['-device', 'intel-iommu,caching-mode=on,intremap=off'] if o.iommu else []
        command = [
            *self.qemu.command, '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot',
            '-machine', f'{chipset},accel={accelerator()},memory-backend=ram', *iommu,
            '-object', f'memory-backend-memfd,id=ram,size={memory},share=on',
            '-cpu', 'max,-arch-capabilities', '-smp', str(o.cpus), '-m', memory,
            '-kernel', self.kernel.image, '-initrd', self.initrd,
            '-append', 'console=ttyS0 panic=-1 oops=panic quiet loglevel=4 mitigations=off '
                       'random.trust_cpu=on ' + words + o.append,
            '-serial', f'file:{self.folder}/console.log',
            '-virtfs', 'local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap',
            '-virtfs', f'local,path={shared},mount_tag=vm,security_model=none',
            '-netdev', 'user,id=net' + ''.join(f',hostfwd=tcp:127.0.0.1:{p}-:{p}' for p in o.forward),
            '-device', 'virtio-net-pci,netdev=net,romfile=']
        for tag, path in enumerate(o.write):
            command += ['-virtfs', f'local,path={path},mount_tag=write{tag},security_model=none,'
                                   'multidevs=remap']
        if self.server:
            # QEMU goes on without an answer after that time, with a dead device.
            command += ['-device', json.dumps({
                'driver': 'vfio-user-pci', 'x-msg-timeout': 60000,
                'socket': {'type': 'unix', 'path': str(self.folder / 'function')}})]
        with open(self.folder / 'qemu.log', 'wb') as log:
            self.process = subprocess.Popen(command, env=self.qemu.env, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, preexec_fn=_end_with_us)

    def _watch(self, shared):
        copies = [Copy(shared / 'stdout', sys.stdout.buffer), Copy(shared / 'stderr', sys.stderr.buffer)]
        if self.options.console:
            copies.append(Copy(self.folder / 'console.log', sys.stderr.buffer))
        limit = time.monotonic() + self.options.limit
        while self.process.poll() is None:
            for copy in copies:
                copy.more()
            # It ends by itself when QEMU does.
            if self.server and self.server.poll() is not None and not self._qemu_ends():
                raise Trouble(self._server_ended())
            if time.monotonic() > limit:
                raise Trouble(f'no end after {self.options.limit} seconds (--limit)', LIMIT_STATUS)
            time.sleep(0.03)
        for copy in copies:
            copy.more()
        status = shared / 'status'
        if not status.exists() or not status.read_text(encoding='ascii').strip():
            raise Trouble(self._no_status())
        if self.server:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.wait(10)
            if self.server.returncode is None:
                raise Trouble('the server of the PCI function goes on after the guest has ended')
            if self.server.returncode:
                raise Trouble(self._server_ended())
        return int(status.read_text(encoding='ascii'))

    def _qemu_ends(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        return self.process.returncode is not None

    def _no_status(self):
        """Why a guest ended before its command."""
        if self.server and self.server.poll():
            return self._server_ended()
        console = self.folder / 'console.log'
        text = console.read_text(encoding='utf-8', errors='replace') if console.exists() else ''
        for pattern in (r'^guest: (.*)', r'(Kernel panic - not syncing: .*)', r'(BUG: .*)'):
            found = re.search(pattern, text, re.M)
            if found:
                return f'the guest: {found[1].strip()}'
        return (f'QEMU ended with status {self.process.returncode} before the command'
                f'{_last_line(self.folder / "qemu.log")}')


def _last_line(path):
    lines = path.read_text(encoding='utf-8', errors='replace').strip().splitlines()
    return f': {lines[-1]}' if lines else ''
