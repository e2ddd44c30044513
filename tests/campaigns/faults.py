#!/usr/bin/env python3
"""Fails what programs ask of kernel and C library, one call at a time.

    faults.py BUILD [--state FILE] [--only PATTERN] [--kinds KIND,...] [--jobs N]
              [--stride N] [--most N] [--seconds N] [--list]

For each subject, a sample or a group of end-to-end tests, the calls of each kind are counted
first; then there is a run for each, with that one failing (once), or with it and all behind it
failing (ever). In samples of two processes this is done to either one. "completion" are requests
that end with an error, with each syndrome, and "packet" messages that are lost, late or doubled:
of these --most are tried, evenly spread.

A point is survived if nothing crashes or hangs (a program may wait for its peer in vain; "theirs"
are crashes of rdma-core on a failure inside of it, with nothing of ours on the stack), and no
message says that an internal rule is broken. At the end of a subject it runs once more as it is, in the
same fabric. What is said of a failure is compared with the errno that was injected; "other" counts
those that say something else, which may be right: a capability is missing, a peer is gone.

Results are added to the state file, from which a further run goes on.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from samples import free_port  # noqa: E402

OURS = "libibverbs_exp"
BELOW = "libibverbs.so,libmlx5,librdmacm"
KINDS = {
    # kind: (of what failing.c counts, of whom, what the caller is to say)
    "command": (None, None, "No space left on device"),
    "allocation": ("allocation", OURS, "Cannot allocate memory"),
    "below": ("allocation", BELOW, "Cannot allocate memory"),
    "process": ("allocation", "*", "Cannot allocate memory"),
    "mapping": ("mapping", OURS + "," + BELOW, "Cannot allocate memory"),
    "file": ("file", OURS + "," + BELOW, "Too many open files"),
}
# What the device does, and how a program names it.
RULES = {"command": {"kind": "command", "error": "ENOSPC"}}
for syndrome, said in {
        "local_length": "local length error", "local_qp_op": "local QP operation error",
        "local_protection": "local protection error", "flush": "Work Request Flushed Error",
        "mw_bind": "bind operation error", "bad_response": "bad response error",
        "local_access": "local access error",
        "remote_invalid_request": "remote invalid request error",
        "remote_access": "remote access error", "remote_operation": "remote operation error",
        "retry_exceeded": "transport retry counter exceeded",
        "rnr_retry_exceeded": "RNR retry counter exceeded",
        "remote_aborted": "abort"}.items():
    RULES[f"completion-{syndrome}"] = {"kind": "wqe", "syndrome": syndrome}
    KINDS[f"completion-{syndrome}"] = (None, None, said)
for action in ("drop", "duplicate", "delay"):
    RULES[f"packet-{action}"] = {"kind": "packet", "action": action}
    KINDS[f"packet-{action}"] = (None, None, "transport retry counter exceeded")
BROKEN = ("terminate called", "Assertion", "internal error", "stack smashing", "corrupted")


class Subject:
    def __init__(self, name, args, link="ib", pair=False, address="127.0.0.1", folder="samples",
                 program=None, env=None):
        self.name, self.args, self.link, self.pair = name, args, link, pair
        self.address, self.env = address, env or {}
        self.program = f"tests/{folder}/{program or name}"


SUBJECTS = [
    Subject("exp_query", []),
    Subject("exp_atomic", [], env={"IBVEXP_BEYOND": "masked_atomics"}),
    Subject("exp_memory", []),
    Subject("exp_umr", []),
    Subject("exp_direct", []),
    Subject("exp_dc", ["-n", "40"]),
    Subject("exp_pingpong", ["-n", "5"], pair=True),
    Subject("exp_cm", ["-n", "5"], pair=True, address="10.0.1.1"),
    Subject("exp_xrc", ["-m", "old", "-n", "8"], pair=True),
    Subject("exp_frames", ["-m", "flow"], link="eth", pair=True),
    Subject("exp_rss", ["-n", "2000"], link="eth", pair=True),
    Subject("exp_udp_stream", ["-n", "50"], link="eth", pair=True),
    Subject("exp_forwarder", ["-n", "50"], link="eth", pair=True),
] + [Subject(f"e2e-{name}", [f"[#{name}_test]"], link, folder="e2e", program="e2e_preloaded")
     for name, link in (("dc", "ib"), ("xrc", "ib"), ("objects", "ib"), ("traffic", "ib"),
                        ("shared", "ib"), ("umr", "ib"), ("memory", "ib"), ("wq", "eth"),
                        ("ethernet", "eth"), ("flow", "eth"), ("families", "eth"), ("mprq", "eth"))]


def device_config(folder, kind, nth, ever):
    path = os.path.join(folder, "faults.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"faults": [dict(RULES[kind], match="*", nth=nth, repeat=ever)]}, file)
    return path


class Run:
    """One run of a subject. side: 0 or 1, the process that meets the failure."""

    def __init__(self, build, subject, kind, side, nth, ever, fabric):
        self.build, self.subject, self.kind = build, subject, kind
        self.side, self.nth, self.ever, self.fabric = side, nth, ever, fabric

    def start(self, side, command, folder):
        env = dict(os.environ, SOFTHCA_FABRIC=self.fabric, SOFTHCA_HOST=str(side + 1),
                   SOFTHCA_LINK=self.subject.link, IBVEXP_LOG_LEVEL="error", **self.subject.env)
        preload = [f"{self.build}/src/exp/libibverbs_exp.so.1",
                   f"{self.build}/src/softhca/preload/libsofthca.so"]
        if self.kind is not None and side == self.side:
            counted, whose, _ = KINDS[self.kind]
            env["FAILING_REPORT"] = os.path.join(folder, "report")
            env["FAILING_KIND"] = counted or "none"
            preload.insert(0, f"{self.build}/tests/campaigns/libfailing.so")
            if counted is None:
                env["SOFTHCA_LOG"] = "info"
                env["SOFTHCA_CONFIG"] = device_config(folder, self.kind, self.nth, self.ever)
            else:
                env.update(FAILING_NTH=str(self.nth), FAILING_EVER=str(int(self.ever)),
                           FAILING_OF=whose)
        env["LD_PRELOAD"] = ":".join(preload)
        out = open(os.path.join(folder, f"out{side}"), "w+b")
        return subprocess.Popen([f"{self.build}/{self.subject.program}"] + command, env=env,
                                stdout=out, stderr=out, start_new_session=True), out

    def run(self, timeout):
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            commands = [self.subject.args]
            if self.subject.pair:
                port = ["-p", str(free_port())]
                commands = [self.subject.args + port,
                            self.subject.args + port + [self.subject.address]]
            started = []
            for side, command in enumerate(commands):
                started.append(self.start(side, command, folder))
                if side == 0 and self.subject.pair:
                    time.sleep(0.05)
            done = self.wait([p for p, _ in started], timeout)
            texts = []
            for _, out in started:
                out.seek(0)
                texts.append(out.read().decode(errors="replace"))
                out.close()
            report = ""
            path = os.path.join(folder, "report")
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    report = file.read()
        return done, texts, report

    def wait(self, processes, timeout):
        """Exit statuses; None: was still running. Whose peer has failed is given a moment."""
        end = time.monotonic() + timeout
        statuses = [None] * len(processes)
        killed = [False] * len(processes)
        while None in statuses and time.monotonic() < end:
            for i, process in enumerate(processes):
                if statuses[i] is None:
                    statuses[i] = process.poll()
            failed = any(s not in (None, 0) for s in statuses)
            if failed and self.kind is not None and statuses[self.side] is not None:
                end = min(end, time.monotonic() + 0.3)
            time.sleep(0.005)
        for i, process in enumerate(processes):
            if statuses[i] is None:
                killed[i] = True
                if i == self.side and self.kind is not None:
                    # failing.c says where it is.
                    process.send_signal(signal.SIGABRT)
                    try:
                        process.wait(2)
                    except subprocess.TimeoutExpired:
                        pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        # A peer that was killed since the other had failed says nothing about us.
        return [("hangs" if (self.kind is None or i == self.side) else "stopped") if killed[i]
                else statuses[i] for i in range(len(processes))]


def count_calls(build, subject, kind, side, fabric, timeout):
    """How many there are to fail. With one that fails a program may wait in vain."""
    def trial(nth):
        return Run(build, subject, kind, side, nth, False, fabric).run(timeout)
    if kind not in RULES:
        _, _, report = trial(0)
        return max((int(line.split()[1]) for line in report.splitlines()
                    if line.startswith("counted")), default=0)
    # The device does not count for us: a rule for one that never comes does not fire.
    low, high = 0, 64
    while "fault: " in trial(high)[1][side]:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if "fault: " in trial(middle)[1][side]:
            low = middle
        else:
            high = middle
    return low


def judge(kind, statuses, texts, report):
    """One word, and what there is to know."""
    crash = [line for line in report.splitlines() if line.startswith("crash")]
    if "hangs" in statuses:
        # Programs wait for peers, which is theirs to do.
        where = crash[0][:600] if crash else texts[0][-300:]
        # Polling for a completion or a message that is lost is such waiting.
        ours = "libibverbs_exp" in where and not kind.startswith(("completion", "packet"))
        return ("hang" if ours or not crash else "waits"), where
    if crash:
        # An allocation of rdma-core's that it does not cope with, with nothing of ours around.
        fired = next((line for line in report.splitlines() if line.startswith("fired")), "")
        theirs = kind == "below" and "libibverbs_exp" not in fired + crash[0]
        return "theirs" if theirs else "crash", crash[0][:600]
    for status in statuses:
        if isinstance(status, int) and status < 0:
            return "crash", f"signal {-status}"
    for text in texts:
        for word in BROKEN:
            if word in text:
                return "broken", text[-300:]
    if all(s in (0, "stopped") for s in statuses):
        return "tolerated", ""
    expected = KINDS[kind][2]
    said = any(expected in text for text in texts)
    return ("refused" if said else "other"), "" if said else " | ".join(texts)[-200:]


def remove_fabric(fabric):
    left = []
    for place in ("/dev/shm", tempfile.gettempdir()):
        path = os.path.join(place, f"softhca-{os.getuid()}-{fabric}")
        if os.path.exists(path):
            left.append(path)
            shutil.rmtree(path, ignore_errors=True)
    return left


class Campaign:
    def __init__(self, args):
        self.args = args
        self.lock = threading.Lock()
        self.done, self.counts = {}, {}
        self.end = time.monotonic() + args.seconds if args.seconds else None
        if os.path.exists(args.state):
            with open(args.state, encoding="utf-8") as file:
                for line in file:
                    record = json.loads(line)
                    if "counted" in record:
                        self.counts[record["counted"]] = record["calls"]
                    else:
                        self.done[record["point"]] = record
        self.out = open(args.state, "a", encoding="utf-8")

    def note(self, point, verdict, more, fired=""):
        record = {"point": point, "verdict": verdict}
        if more:
            record["more"] = more
        if fired:
            record["fired"] = fired
        with self.lock:
            self.done[point] = record
            self.write(record)
            if verdict in ("crash", "hang", "broken", "unusable"):
                print(f"{point}: {verdict}: {more}", flush=True)

    def write(self, record):
        self.out.write(json.dumps(record) + "\n")
        self.out.flush()

    def calls(self, subject, kind, side, fabric, timeout):
        # Requests are as many with each syndrome.
        name = f"{subject.name}/{kind.split('-')[0]}/{side}"
        if name not in self.counts:
            self.counts[name] = count_calls(self.args.build, subject, kind, side, fabric, timeout)
            with self.lock:
                self.write({"counted": name, "calls": self.counts[name]})
        return self.counts[name]

    def late(self):
        return self.end is not None and time.monotonic() > self.end

    def point(self, subject, kind, side, nth, ever, timeout, patient=False):
        point = f"{subject.name}/{kind}/{side}/{'ever' if ever else 'once'}/{nth}"
        if point in self.done or self.late():
            return
        fabric = f"faults-{os.getpid()}-{threading.get_ident() % 100000}-{subject.name}"
        run = Run(self.args.build, subject, kind, side, nth, ever, fabric)
        statuses, texts, report = run.run(timeout)
        fired = next((line for line in report.splitlines() if line.startswith("fired")), "")
        verdict, more = judge(kind, statuses, texts, report)
        remove_fabric(fabric)
        if verdict == "hang" and not patient:
            # Or others have the processors.
            return self.point(subject, kind, side, nth, ever, 10 * timeout, patient=True)
        self.note(point, verdict, more, fired)

    def subject(self, subject, pool):
        fabric = f"faults-{os.getpid()}-{subject.name}"
        begun = time.monotonic()
        statuses, texts, _ = Run(self.args.build, subject, None, 0, 0, False, fabric).run(120)
        if any(s != 0 for s in statuses):
            self.note(f"{subject.name}/plain", "unusable", f"{statuses} {texts}"[-400:])
            return
        timeout = 4 + 15 * (time.monotonic() - begun)
        waiting = []
        for kind in self.args.kinds:
            for side in range(2 if subject.pair else 1):
                count = self.calls(subject, kind, side, fabric, timeout)
                stride = self.args.stride
                if kind.startswith(("completion", "packet")):
                    stride = max(stride, -(-count // self.args.most))
                for nth in range(1, count + 1, stride):
                    for ever in (False, True):
                        waiting.append(pool.submit(self.point, subject, kind, side, nth, ever,
                                                   timeout))
        for future in waiting:
            future.result()
        statuses, texts, _ = Run(self.args.build, subject, None, 0, 0, False, fabric).run(120)
        if any(s != 0 for s in statuses):
            self.note(f"{subject.name}/again", "unusable", f"{statuses} {texts}"[-400:])
        remove_fabric(fabric)

    def summary(self):
        """Points by subject and verdict; how many were not survived."""
        table = collections.defaultdict(collections.Counter)
        for record in self.done.values():
            table[record["point"].split("/")[0]][record["verdict"]] += 1
        columns = ["tolerated", "refused", "other", "waits", "theirs", "crash", "hang", "broken", "unusable"]
        print("| Subject | Points | Survived | " + " | ".join(columns) + " |")
        print("| --- | ---: | ---: |" + " ---: |" * len(columns))
        total = collections.Counter()
        for name, row in sorted(table.items()) + [("all", total)]:
            if row is not total:
                total.update(row)
            points, survived = sum(row.values()), sum(row[c] for c in columns[:5])
            print(f"| {name} | {points} | {survived} | " +
                  " | ".join(str(row[c]) for c in columns) + " |")
        return sum(total[c] for c in columns[5:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--state", default="faults.jsonl")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--kinds", default="command,allocation,below,mapping,file,completion,packet")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--stride", type=int, default=1, help="every Nth call only")
    parser.add_argument("--most", type=int, default=4, help="of completions and packets")
    parser.add_argument("--seconds", type=int, default=0, help="stop then; a further run goes on")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    args.kinds = [k for word in args.kinds.split(",") for k in KINDS
                  if k == word or k.startswith(word + "-")]
    chosen = [s for s in SUBJECTS
              if not args.only or any(fnmatch.fnmatch(s.name, p) for p in args.only)]
    if args.list:
        print("\n".join(s.name for s in chosen))
        return 0
    if not chosen:
        parser.error("no such subject")
    campaign = Campaign(args)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for subject in chosen:
            if not campaign.late():
                campaign.subject(subject, pool)
    return 1 if campaign.summary() else 0


if __name__ == "__main__":
    sys.exit(main())
