"""Child processes that are always cleaned up, and small HTTP helpers."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


class RunFailed(Exception):
    """A case could not be measured; the message says why."""


def adopt_orphans():
    """Makes orphaned descendants our children, so that end_all() ends them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid):
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found += [int(folder.name), *descendants(int(folder.name))]
        except (OSError, ValueError):
            pass  # it has ended in the meantime
    return found


def _ticks(pid):
    """Processor time of a process and of its children that have ended, in clock ticks."""
    with contextlib.suppress(OSError):
        return sum(int(word) for word in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:15])
    return 0


class Others:
    """How much of this machine's processors others took since the start: programs that do not descend from this one, and, on a virtual
    machine, its host. A bench that shares its processors measures them, too."""

    def __init__(self):
        self.begin = self._now()

    @staticmethod
    def _now():
        user, nice, system, _, _, irq, softirq, steal = (int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
        busy = user + nice + system + irq + softirq + steal
        return time.monotonic(), busy - sum(_ticks(pid) for pid in (os.getpid(), *descendants(os.getpid())))

    def share(self):
        at_s, ticks = (now - then for now, then in zip(self._now(), self.begin, strict=True))
        return max(0.0, ticks / os.sysconf("SC_CLK_TCK") / (os.cpu_count() * at_s))


def end_all(patience_s=5):
    """Ends every process that descends from this one."""
    deadline = time.monotonic() + patience_s
    number = signal.SIGTERM
    while left := descendants(os.getpid()):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.1)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] > 0:
                pass
        if time.monotonic() > deadline:
            number = signal.SIGKILL


def start(command, log, cwd, env=None):
    """Starts a process in its own process group; all its output goes to the file `log`."""
    with open(log, "ab") as out:
        return subprocess.Popen([str(word) for word in command], stdout=out, stderr=out, cwd=cwd, start_new_session=True,
                                env={**os.environ, **(env or {})})


def stop(process, patience_s):
    """Sends SIGTERM, then after the given time SIGKILL to the whole group. Returns the exit status."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def last_words(log, lines=5):
    with contextlib.suppress(OSError):
        return " | ".join(Path(log).read_text(errors="replace").strip().splitlines()[-lines:])
    return ""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def page(url, timeout_s=2):
    """The page's text; None if it cannot be read or its status is not 200."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return answer.read().decode(errors="replace")
    except (OSError, urllib.error.URLError, ValueError):
        return None


def wait_until(condition, patience_s, what):
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise RunFailed(f"{what}: must happen within {patience_s:.0f} s")
        time.sleep(0.1)
