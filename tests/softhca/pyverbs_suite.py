#!/usr/bin/python3
"""Runs rdma-core's own Python tests on the software HCA, with an InfiniBand and
with an Ethernet port: pyverbs_suite.py LIBSOFTHCA CACHE-DIRECTORY [SOURCE BUILD]

With the last two, the tests of another release on its own libraries and
pyverbs: its sources, and where they were built with -DIN_PLACE=1.

Nothing may fail, and THRESHOLD different tests must pass with one link layer
or the other. The interpreter is Debian's: its python3-pyverbs is built for it.

The tests of the connection manager need a network interface behind the port.
The Ethernet port shows one of the machine, if it has any besides lo, and takes
its address; nothing is sent through it. Some tests need huge pages: if the
kernel lets it, the suite allocates a few and gives them back.
"""
import collections
import contextlib
import glob
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

# How many of 273 pass: at least, and where the machine allows it.
THRESHOLD = 179
WITH_RAW_SOCKETS = 18   # CAP_NET_RAW
WITH_INTERFACE = 11     # a network interface
WITH_HUGE_PAGES = 3
SLACK = 2               # for what else a machine may lack
TIMEOUT = 240     # seconds per link layer
TIMEOUT_NEWER = 900   # for another release, which has more tests
PACKAGE = 'python3-pyverbs'
SKIP = 77         # what Meson understands as skipped

# Tests of mlx5 that ask for objects of DEVX which this device refuses as hardware refuses a command
# that its firmware does not know. They take any device with DEVX for one that has them all. Most run
# only where the scapy package is.
REFUSED = {
    'test_counter_qp_flow': ('Failed to create DevX object', 'flow counters through DEVX'),
    'test_counters_bulk_flow': ('Failed to create DevX object', 'flow counters through DEVX'),
    'test_dest_tir': ('Failed to create DevX object', 'receive contexts through DEVX'),
    'test_devx_obj_export_import': ('Failed to create DevX object', 'flow counters through DEVX'),
    'test_flow_sampler': ('Failed to create DevX object', 'receive contexts through DEVX'),
    'test_flow_table_drop': ('Failed to create DevX object', 'flow tables through DEVX'),
    'test_root_dest_tir': ('Failed to create DevX object', 'receive contexts through DEVX'),
    'test_root_tbl_counter_action': ('Failed to create DevX object', 'flow counters through DEVX'),
    'test_root_tbl_drop_action': ('Failed to create DevX object', 'flow counters through DEVX'),
    'test_tbl_counter_action': ('Failed to create DevX object', 'flow counters through DEVX'),
}

RESULT = re.compile(r"^(test\w*) \(([\w.]+)\)(?:\n.*?)?? \.\.\. "
                    r"(?:(?!^test\w* \().*?)"
                    r"(ok|skipped ['\"](.*?)['\"]|FAIL|ERROR|expected failure|unexpected success)$",
                    re.M | re.S)


def package_version():
    query = subprocess.run(['dpkg-query', '-W', '-f', '${Version}', PACKAGE],
                           capture_output=True, text=True, check=False)
    return query.stdout.strip() if query.returncode == 0 else None


def unpack(source, target):
    """Copies the tests; Debian compresses the longer ones."""
    os.makedirs(target)
    for path in sorted(glob.glob(os.path.join(source, '*'))):
        name = os.path.join(target, os.path.basename(path))
        if path.endswith('.gz'):
            with gzip.open(path) as packed, open(name[:-3], 'wb') as plain:
                shutil.copyfileobj(packed, plain)
        elif os.path.isfile(path):
            shutil.copy(path, name)


def tests_folder(version, cache):
    """The package's documentation holds the tests. Slim images leave it out
    when they install a package, so the archive itself is asked."""
    folder = os.path.join(cache, f'pyverbs-tests-{version}')
    if os.path.exists(os.path.join(folder, 'tests', 'run_tests.py')):
        return folder
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        subprocess.run(['apt-get', '-qq', 'download', f'{PACKAGE}={version}'], cwd=work,
                       check=True, stderr=subprocess.DEVNULL)
        archive, = glob.glob(os.path.join(work, '*.deb'))
        subprocess.run(['dpkg', '-x', archive, os.path.join(work, 'tree')], check=True)
        unpack(os.path.join(work, 'tree/usr/share/doc/rdma-core/tests'),
               os.path.join(work, 'folder', 'tests'))
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(os.path.join(work, 'folder'), folder)
    return folder


def interface():
    """Name and IPv4 address of a network interface, or None."""
    if not shutil.which('ip'):
        return None
    listed = subprocess.run(['ip', '-j', '-4', 'addr', 'show', 'up'], capture_output=True,
                            text=True, check=False)
    for entry in json.loads(listed.stdout or '[]'):
        # The tests take the first address, of whatever family, from the same list.
        if 'LOOPBACK' not in entry.get('flags', []) and entry.get('addr_info'):
            return entry['ifname'], entry['addr_info'][0]['local']
    return None


def raw_sockets():
    """Whether this process may open them (CAP_NET_RAW)."""
    with open('/proc/self/status', encoding='ascii', errors='replace') as file:
        effective, = re.findall(r'^CapEff:\s*(\w+)', file.read(), re.M)
    return bool(int(effective, 16) >> 13 & 1)


HUGE_PAGES = '/sys/kernel/mm/hugepages/hugepages-2048kB'


@contextlib.contextmanager
def huge_pages(wanted=8):
    """Whether there are free huge pages of 2 MB for what runs inside."""
    def number(of):
        with open(f'{HUGE_PAGES}/{of}', encoding='ascii') as file:
            return int(file.read())

    def allocate(pages):
        with open(f'{HUGE_PAGES}/nr_hugepages', 'w', encoding='ascii') as file:
            file.write(str(pages))

    try:
        before = number('nr_hugepages')
    except OSError:   # none of this size
        yield False
        return
    if number('free_hugepages') >= wanted:   # reserved by another process, and idle
        yield True
        return
    try:
        with contextlib.suppress(OSError):   # not root, or a container
            allocate(before + wanted)
        yield number('free_hugepages') >= wanted
    finally:
        with contextlib.suppress(OSError):
            if number('nr_hugepages') != before:
                allocate(before)


def refusal(name, output):
    """What the device refused to a test of REFUSED that ended with just this error, or None."""
    error, what = REFUSED.get(name, (None, None))
    found = re.search(rf'^ERROR: {name} \(.*?^[\w.]*Error: (.*?)$', output, re.M | re.S)
    return f'no {what}' if error and found and found[1].startswith(error) else None


# The tests of newer releases ask programs of iproute2: "rdma" for the network interface behind
# a port, "devlink" whether RoCE is on. These ask the kernel, and fail where that has no such
# device. What they would say of the software HCA:
PROGRAMS = {'rdma': r"""#!/bin/sh
printf '['
for port in /sys/class/infiniband/*/ports/*; do
  device=${port#/sys/class/infiniband/}
  interface=$(cat "$port/gid_attrs/ndevs/0" 2>/dev/null)
  printf '%s{"ifname":"%s","port":%s%s}' "$comma" "${device%%/*}" "${port##*/}" \
    "${interface:+,\"netdev\":\"$interface\"}"
  comma=,
done
echo ']'
""", 'devlink': r"""#!/bin/sh
case " $* " in
  *' param show '*' enable_roce '*) echo 'name enable_roce type generic values: cmode driverinit value true' ;;
  *) exit 1 ;;  # no switch
esac
"""}


@contextlib.contextmanager
def path_with_programs():
    """PATH with these in front."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PROGRAMS.items():
            program = os.path.join(folder, name)
            with open(program, 'w', encoding='ascii') as file:
                file.write(text)
            os.chmod(program, 0o755)
        yield folder + os.pathsep + os.environ.get('PATH', os.defpath)


def run(library, folder, link, configuration, huge, timeout):
    """Returns {test: result or skip reason}, what is wrong, and the whole output."""
    fabric = f'pyverbs-{link}-{os.getpid()}'
    environment = dict(os.environ, SOFTHCA_LINK=link, SOFTHCA_FABRIC=fabric, PYTHONUNBUFFERED='1',
                       **configuration,
                       LD_PRELOAD=':'.join(filter(None, [os.environ.get('LD_PRELOAD'), library])))
    # Collected in a cycle, pyverbs closes a device before the queues that it destroys then
    # (Debian 13); that goes well where memory stays as it was, and Meson has it overwritten.
    environment.pop('MALLOC_PERTURB_', None)
    command = ['/usr/bin/python3', 'run_tests.py', '--dev', 'mlx5_0', '-v']
    try:
        with path_with_programs() as path:
            done = subprocess.run(command, cwd=os.path.join(folder, 'tests'),
                                  env=environment | {'PATH': path}, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors='replace',
                                  timeout=timeout, check=False)
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        output, status = (late.stdout or b'').decode(errors='replace'), 'time-out'
    finally:
        for left in glob.glob(f'/dev/shm/softhca-*-{fabric}'):
            shutil.rmtree(left, ignore_errors=True)

    results, spared = {}, False
    for name, where, result, reason in RESULT.findall(output):
        test = where if where.endswith('.' + name) else f'{where}.{name}'
        # These look at how many huge pages there are, not at how many are free.
        if result == 'ERROR' and not huge and 'huge' in name:
            reason = 'every huge page is in use'
            spared = True
        elif result == 'ERROR' and (refused := refusal(name, output)):
            reason = refused
            spared = True
        results[test] = f'skipped: {reason}' if reason else result
    ran = re.search(r'^Ran (\d+) tests? in', output, re.M)
    problems = [f'{test}: {result}' for test, result in results.items()
                if result in ('FAIL', 'ERROR', 'unexpected success')]
    if status != 0 and not spared:
        problems.append(f'run_tests.py ended with {status}')
    if not ran:
        problems.append('run_tests.py did not finish')
    elif int(ran[1]) != len(results):
        problems.append(f'{ran[1]} tests ran, {len(results)} results were understood')
    return results, problems, output


def main():
    # Meson's time-out must not leave huge pages behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with huge_pages() as huge:
        return suite(huge)


def suite(huge):
    library, cache = map(os.path.abspath, sys.argv[1:3])
    if len(sys.argv) > 3:
        folder, build = map(os.path.abspath, sys.argv[3:5])
        os.environ['PYTHONPATH'] = ':'.join(
            filter(None, [os.path.join(build, 'python'), os.environ.get('PYTHONPATH')]))
        return judge(library, folder, huge, None, TIMEOUT_NEWER)
    version = package_version()
    if version is None:
        print(f'{PACKAGE} is not installed')
        return SKIP
    return judge(library, tests_folder(version, cache), huge, THRESHOLD - SLACK, TIMEOUT)


def judge(library, folder, huge, threshold, timeout):
    """Exit status; without a threshold it is enough that nothing fails."""
    passed, every, good = set(), set(), True
    counted, threshold, shown = threshold is not None, threshold or 0, interface()
    if raw_sockets():
        threshold += WITH_RAW_SOCKETS
    if huge:
        threshold += WITH_HUGE_PAGES
    configuration = tempfile.NamedTemporaryFile('w', suffix='.json')
    if shown:
        threshold += WITH_INTERFACE
        json.dump({'devices': [{'ports': [
            {'link': 'eth', 'netdev': shown[0], 'ipv4': shown[1]}]}]}, configuration)
        configuration.flush()
    reasons = collections.defaultdict(lambda: collections.Counter())
    for link in ('ib', 'eth'):
        behind = {'SOFTHCA_CONFIG': configuration.name} if shown and link == 'eth' else {}
        results, problems, output = run(library, folder, link, behind, huge, timeout)
        ok = {test for test, result in results.items() if result == 'ok'}
        skipped = {test: r for test, r in results.items() if r.startswith('skipped')}
        for test, result in sorted(results.items()):
            word = 'ok  ' if test in ok else 'skip' if test in skipped else 'FAIL'
            print(f'{word} {link} {test}: {result}')
        print(f'{link}: {len(ok)} passed, {len(problems)} problems, {len(skipped)} skipped')
        if problems:
            print(output)
            print(*problems, sep='\n')
            good = False
        passed |= ok
        every |= set(results)
        for test, reason in skipped.items():
            reasons[test][reason.partition(': ')[2]] += 1

    grouped = collections.Counter()
    for test in every - passed:
        for reason in reasons[test]:
            grouped[reason] += 1
    print(f'\n{len(passed)} of {len(every)} tests pass with one link layer or the other'
          + (f'; {threshold} have to' if counted else ''))
    print('Why the others are skipped:')
    for reason, count in grouped.most_common():
        print(f'{count:5}  {reason}')
    return 0 if good and (not counted or len(passed) >= threshold) else 1


if __name__ == '__main__':
    sys.exit(main())
