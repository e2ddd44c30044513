#!/usr/bin/python3
"""ibvexp vm, with a QEMU that is none: vm_test.py IBVEXP-VM

The guest's part is played on the host: the stand-in for QEMU runs the command that was
left for the guest, or ends as a guest does that has failed. tests/vm boots real ones.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv[1])

# What the guest's session does, without the guest.
QEMU = """#!/bin/bash
if [[ $* = *"-device help"* ]]; then echo 'name "vfio-user-pci"'; exit; fi
printf '%s\\n' "$@" >"$FOLDER/qemu.arguments"
env >"$FOLDER/qemu.environment"
echo $$ >"$FOLDER/qemu.pid"
shared=$(grep -o 'local,path=.*,mount_tag=vm,' "$FOLDER/qemu.arguments")
shared=${shared#local,path=} shared=${shared%,mount_tag=vm,}
console=$(sed -n 's/^file://p' "$FOLDER/qemu.arguments")
case $GUEST in
  panics) printf 'x\\n[    1.0] Kernel panic - not syncing: Fatal exception\\nmore\\n' >"$console"; exit 0 ;;
  fails) echo 'guest: no overlay' >"$console"; exit 0 ;;
  qemu-fails) echo 'qemu: no such machine' >&2; exit 1 ;;
  hangs) exec sleep 1000 ;;
esac
env -i /bin/bash "$shared/command" >"$shared/stdout" 2>"$shared/stderr" </dev/null
echo $? >"$shared/status"
"""
# Serves one QEMU, or ends too early.
SERVER = """#!/bin/bash
echo "link ${SOFTHCA_LINK-}" >"$FOLDER/server.environment"
case $SERVER in
  none) echo 'softhca-pci: /dev/shm is full' >&2; exit 3 ;;
  dies) touch "$1"; until [[ -e $FOLDER/qemu.pid ]]; do sleep 0.01; done
        echo 'softhca-pci: it is me' >&2; kill -SEGV $$ ;;
esac
touch "$1"
until [[ -e $FOLDER/qemu.pid ]] && ! kill -0 "$(<"$FOLDER/qemu.pid")" 2>/dev/null; do sleep 0.01; done
exit "${SERVER:-0}"
"""


class VirtualMachine(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        folder = self.folder = pathlib.Path(self.temporary.name)
        for name, text in {'bin/qemu-system-x86_64': QEMU, 'server': SERVER,
                           'cache/busybox/usr/bin/busybox': 'busybox'}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding='ascii')
            (folder / name).chmod(0o755)
        (folder / 'vmlinux').write_bytes(b'\x7fELF Linux version 9.9-test (')
        modules = folder / 'modules/lib/modules/9.9-test'
        needs = {'virtio_pci': 'virtio,virtio-ring', 'virtio_ring': 'virtio', '9p': '9pnet', 'ib_uverbs': 'ib_core',
                 'mlx5_ib': 'mlx5_core,ib_uverbs', 'ib_umad': 'ib_core', 'rdma_ucm': 'ib_uverbs'}
        for name in ('virtio', 'virtio_ring', 'virtio_pci', '9p', '9pnet', '9pnet_virtio', 'virtio_net',
                     'mlx5_core', 'mlx5_ib', 'ib_core', 'ib_uverbs', 'ib_umad', 'rdma_ucm'):
            file = modules / f'kernel/{name.replace("_", "-")}.ko'
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b'\0depends=' + needs.get(name, '').encode() + b'\0' + name.encode())
        (modules / 'modules.builtin').write_text('kernel/fs/overlay.ko\n', encoding='ascii')

    def command(self, *options):
        return [PROGRAM, '--kernel', self.folder / 'vmlinux', '--modules', self.folder / 'modules',
                '--cache', self.folder / 'cache', '--server', self.folder / 'server', *options]

    def environment(self, **more):
        env = {name: value for name, value in os.environ.items() if not name.startswith('SOFTHCA_')}
        return env | {'PATH': f'{self.folder}/bin:{os.environ["PATH"]}', 'FOLDER': str(self.folder),
                      'TMPDIR': str(self.folder), 'PYTHONDONTWRITEBYTECODE': '1'} | more

    def run_vm(self, *words, options=(), cwd=None, **env):
        done = subprocess.run([*self.command(*options), '--', *words], env=self.environment(**env),
                              cwd=cwd, capture_output=True, timeout=60, check=False)
        # Nothing is left behind.
        self.assertEqual(list(self.folder.glob('ibvexp-vm-*')), [])
        return done

    def one_line(self, done, status, pattern):
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(done.stderr.decode(), r'\Aibvexp vm: ' + pattern + r'\n\Z')

    def test_output_and_status(self):
        done = self.run_vm('bash', '-c', 'echo out; echo err >&2; exit 7')
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, b'out\n', b'err\n'))

    def test_words(self):
        words = [b'', b'--', b'-x', b'[a,b]', b"'\"$x`", b'a\nb', b'\xff\xfe', b'--kernel', b'%p']
        done = self.run_vm('printf', r'%s\0', *words)
        self.assertEqual(done.stdout.split(b'\0')[:-1], words)

    def test_caller_environment(self):
        done = self.run_vm('bash', '-c', 'pwd; echo "$TEXT"; echo "$LD_PRELOAD"', cwd='/usr/lib',
                           TEXT='a "b"\n$c', LD_PRELOAD='/nowhere.so')
        self.assertEqual(done.stdout.decode(), '/usr/lib\na "b"\n$c\n/nowhere.so\n')
        # It is the command's, not QEMU's.
        qemu = (self.folder / 'qemu.environment').read_text(encoding='utf-8')
        self.assertNotIn('LD_PRELOAD', qemu)

    def test_missing_command(self):
        self.assertEqual(self.run_vm('/no/such/program').returncode, 127)

    def test_link(self):
        self.run_vm('true', options=['--link', 'eth'])
        self.assertEqual((self.folder / 'server.environment').read_text(encoding='ascii'), 'link eth\n')

    def test_modules(self):
        """Each after what it needs, and none that the kernel holds."""
        self.run_vm('true')
        initrd, = self.folder.glob('cache/initrd-*')
        order = re.search(rb'modules/order\0+((?:[\w-]+\.ko\n)+)', initrd.read_bytes())[1].decode().split()
        self.assertEqual(order, [f'{name}.ko' for name in (
            'virtio virtio-ring virtio-pci 9pnet 9p 9pnet-virtio virtio-net mlx5-core ib-core '
            'ib-uverbs mlx5-ib ib-umad rdma-ucm').split()])

    def test_missing_module(self):
        self.one_line(self.run_vm('true', options=['--load', 'siw']), 125,
                      'Linux 9.9-test has no module siw')

    def test_missing_kernel(self):
        self.one_line(self.run_vm('true', options=['--kernel', '9.8']), 125, '--kernel 9.8: neither .*')

    def test_panic(self):
        self.one_line(self.run_vm('true', GUEST='panics'), 125,
                      'the guest: Kernel panic - not syncing: Fatal exception')

    def test_guest_that_fails(self):
        self.one_line(self.run_vm('true', GUEST='fails'), 125, 'the guest: no overlay')

    def test_qemu_that_fails(self):
        self.one_line(self.run_vm('true', GUEST='qemu-fails'), 125,
                      'QEMU ended with status 1 before the command: qemu: no such machine')

    def test_limit(self):
        self.one_line(self.run_vm('true', GUEST='hangs', options=['--limit', '0.5']), 124,
                      'no end after 0.5 seconds .*')
        self.ended('qemu.pid')

    def test_server_that_does_not_start(self):
        self.one_line(self.run_vm('true', SERVER='none'), 125,
                      'the server of the PCI function ended with status 3: softhca-pci: /dev/shm is full')

    def test_server_that_dies(self):
        self.one_line(self.run_vm('true', GUEST='hangs', SERVER='dies'), 125,
                      'the server of the PCI function was killed by signal 11: softhca-pci: it is me')
        self.ended('qemu.pid')

    def test_server_that_fails_at_the_end(self):
        """Such as one that finds its memory damaged."""
        self.one_line(self.run_vm('true', SERVER='1'), 125,
                      'the server of the PCI function ended with status 1')

    def test_signal(self):
        with subprocess.Popen([*self.command(), '--', 'true'], env=self.environment(GUEST='hangs'),
                              stderr=subprocess.PIPE) as process:
            pid = self.folder / 'qemu.pid'
            while not pid.exists() or pid.stat().st_size == 0:
                time.sleep(0.01)
            process.terminate()
            process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.ended('qemu.pid')

    def ended(self, file):
        pid = int((self.folder / file).read_text(encoding='ascii'))
        self.assertFalse(os.path.exists(f'/proc/{pid}'))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
