#!/usr/bin/env python3
"""What a guest with the PCI function costs:  bench.py --build BUILD [--kernel 6.12]

From the start of ibvexp vm to the end of ibv_devinfo; round trips in the guest; the time
of a firmware command, as the guest sees it and in the server (its processor time over
4,000 of them).
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
VM = HERE.parent.parent / 'src/tool/vm/ibvexp-vm'
COMMANDS = 4000

# Stands in front of the server, and leaves how much processor time it took.
TIMED = """#!/usr/bin/env python3
import pathlib, resource, subprocess, sys
status = subprocess.run([{server!r}, *sys.argv[1:]]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
pathlib.Path({left!r}).write_text(str(used.ru_utime + used.ru_stime))
sys.exit(status)
"""


class Guest:
    def __init__(self, o, folder):
        self.left = folder / 'seconds'
        self.server = folder / 'server'
        self.server.write_text(TIMED.format(server=str(o.server), left=str(self.left)),
                               encoding='utf-8')
        self.server.chmod(0o755)
        self.kernel = o.kernel

    def run(self, *command):
        """Its output, the seconds until it has ended, and those of the server's processor."""
        started = time.monotonic()
        env = dict(os.environ, SOFTHCA_FABRIC=f'bench-vm-{os.getpid()}')
        done = subprocess.run([VM, '--kernel', self.kernel, '--server', self.server, '--', *command],
                              env=env, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f'{command}: status {done.returncode}')
        return done.stdout, time.monotonic() - started, float(self.left.read_text(encoding='ascii'))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--build', type=pathlib.Path, required=True)
    parser.add_argument('--kernel', default='6.12')
    parser.add_argument('--server', type=pathlib.Path)
    o = parser.parse_args()
    o.build = o.build.resolve()
    o.server = o.server or o.build / 'src/softhca/pci/softhca-pci'
    with tempfile.TemporaryDirectory() as folder:
        guest = Guest(o, pathlib.Path(folder))
        _, boot, idle = guest.run('ibv_devinfo')
        print(f'boot, ibv_devinfo, end             {boot:7.1f} s, of the server {idle:.2f} s')
        for title, options in {'ibv_rc_pingpong, polling': '', 'ibv_rc_pingpong, events': '-e'}.items():
            text, _, _ = guest.run('bash', '-c', f'ibv_rc_pingpong {options} -n 1000 >/dev/null & '
                                   f'sleep 1; ibv_rc_pingpong {options} -n 1000 localhost')
            print(f'{title:32} {float(re.search(r"= ([0-9.]+) usec/iter", text)[1]):9.1f} us each way and back')
        text, _, busy = guest.run(o.build / 'tests/vm/commands', 'mlx5_0', str(COMMANDS // 2))
        print(f'a command, seen by the guest       {float(text.split()[0]):7.1f} us')
        print(f'a command, in the server           {(busy - idle) * 1e6 / COMMANDS:7.1f} us')


if __name__ == '__main__':
    main()
