"""Runs tests in parallel and reports how each one ended.

Cases of one GoogleTest program run in batches, one process each: a start costs more than most cases, above all under a
sanitizer. The result of each case is read from the program's output, so that a crash fails only the case that crashed: the
rest of its batch runs again without it.
"""
import atexit
import os
import re
import signal
import subprocess
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import priority

BATCH = 24  # cases per process at most: few enough that two cores end at about the same time

# A sanitizer's finding fails the test that it occurs in.
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1",
              "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}

STARTED = re.compile(r"\[ RUN      \] (\S+)")
ENDED = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:, where .*)? \((\d+) ms\)")
SKIP_PLACE = re.compile(r":\d+: Skipped$")
FAILURE_PLACE = re.compile(r":\d+: Failure$|^ERROR: \w+Sanitizer|^WARNING: ThreadSanitizer|runtime error:")


@dataclass
class Outcome:
    test: object  # registry.Test
    status: str  # passed, failed or skipped
    seconds: float
    log: str = ""  # its output, if it failed
    reason: str = ""  # why it was skipped
    first_failure: str = ""  # of a flaky test: its output when it failed
    cases: int = 1  # GoogleTest cases that the entry holds

    @property
    def name(self):
        return f"{self.test.preset}: {self.test.name}"


@dataclass
class _Case:
    """What is known about one case so far."""
    started: float
    lines: list = field(default_factory=list)


def _skip_reason(lines):
    """The line below "FILE:LINE: Skipped"."""
    for at, line in enumerate(lines):
        if SKIP_PLACE.search(line.strip()) and at + 1 < len(lines):
            return lines[at + 1].strip()
    return "no reason printed"


def _end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class _Watch:
    """Ends a process whose current case exceeds its time limit."""

    def __init__(self, process, limit):
        self.process, self.limit = process, limit
        self.since, self.hung = time.monotonic(), False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while not self._done.wait(1):
            if time.monotonic() - self.since > self.limit:
                self.hung = True
                _end_group(self.process)
                return

    def stop(self):
        self._done.set()
        self._thread.join()


_running = set()  # killed when this program ends, however it ends


@atexit.register
def _end_all():
    for process in list(_running):
        _end_group(process)


def _start(tests, arguments, nice):
    environment = {**SANITIZERS, **os.environ, **dict(tests[0].environment)}
    process = subprocess.Popen([tests[0].program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
                               preexec_fn=lambda: priority.own_session(nice))
    _running.add(process)
    return process


def _wait(process, watch):
    """The exit status of a program that has closed its output; also ends what it left running."""
    status = process.wait()
    process.stdout.close()
    watch.stop()
    _end_group(process)
    _running.discard(process)
    return status


def _run_entry(test, nice):
    """Runs one ctest entry that is a whole program, a suite or several. Returns its outcome, and one for each skipped case."""
    started = time.monotonic()
    process = _start([test], test.arguments, nice)
    watch = _Watch(process, test.timeout)
    text = process.stdout.read()
    status = _wait(process, watch)
    seconds = time.monotonic() - started
    if status != 0 or watch.hung:
        text += f"\nhung: no end within {test.timeout:.0f} s" if watch.hung else f"\nexit status {status}"
        return [Outcome(test, "failed", seconds, text)]
    outcomes, since, passed = [], 0, 0
    for end in ENDED.finditer(text):
        if end[1] == "SKIPPED":
            case = replace(test, name=f"{os.path.basename(test.program)}.{end[2]}")
            outcomes.append(Outcome(case, "skipped", 0, reason=_skip_reason(text[since:end.start()].splitlines())))
        else:
            passed += 1
        since = end.end()
    if passed or not outcomes:
        outcomes.append(Outcome(test, "passed", seconds, cases=max(1, passed)))
    return outcomes


def _run_cases(tests, nice):
    """Runs cases of one program in one process. Returns (outcomes, cases that did not run)."""
    by_filter = {test.filter: test for test in tests}
    arguments = [a for a in tests[0].arguments if not a.startswith("--gtest_filter=")]
    process = _start(tests, arguments + ["--gtest_filter=" + ":".join(by_filter)], nice)
    watch = _Watch(process, max(test.timeout for test in tests))
    outcomes, current, name, between = {}, None, None, []
    for line in process.stdout:
        if start := STARTED.search(line):
            name, current = start[1], _Case(time.monotonic())
            watch.since = current.started
            continue
        end = ENDED.search(line)
        if end and end[2] == name and name in by_filter:
            seconds, test = int(end[3]) / 1000, by_filter[name]
            if end[1] == "SKIPPED":
                outcomes[name] = Outcome(test, "skipped", seconds, reason=_skip_reason(current.lines))
            elif end[1] == "OK":
                outcomes[name] = Outcome(test, "passed", seconds)
            else:
                outcomes[name] = Outcome(test, "failed", seconds, "".join(current.lines))
            current = name = None
            watch.since = time.monotonic()
        else:
            (between if current is None else current.lines).append(line)
    status = _wait(process, watch)
    if name in by_filter:  # it ended in the middle of a case
        what = f"hung: no end within {by_filter[name].timeout:.0f} s" if watch.hung else f"ended with status {status}"
        outcomes[name] = Outcome(by_filter[name], "failed", time.monotonic() - current.started, "".join(current.lines) + what)
    left = [test for key, test in by_filter.items() if key not in outcomes]
    if not left and status != 0 and not any(o.status == "failed" for o in outcomes.values()):
        # A leak, or something else that shows only at the end: running each case alone tells which one it was.
        if len(tests) == 1:
            only = outcomes[tests[0].filter]
            only.status, only.log = "failed", "".join(between) + f"the case passed, the program ended with status {status}"
        else:
            return [], [[test] for test in tests]
    if len(left) == len(tests):  # it did not even start
        return [Outcome(test, "failed", 0, f"{test.program} ended with status {status} before its first case") for test in tests], []
    return list(outcomes.values()), [left] if left else []


def batches(tests):
    """Lists of tests that run in one process each."""
    programs, entries = defaultdict(list), []
    for test in tests:
        if test.shares_a_process:
            programs[test.program, test.environment].append(test)
        else:
            entries.append([test])
    found = []
    for cases in programs.values():
        count = -(-len(cases) // BATCH)
        found += [cases[i::count] for i in range(count)]  # dealt out in turn: neighbours often cost about the same
    return found + entries


class Runner:
    """Runs lists of tests. `seconds_of`: earlier durations by name, to start the longest ones first."""

    def __init__(self, jobs, seconds_of, say):
        self.jobs, self.seconds_of, self.say = jobs, seconds_of, say

    def run(self, tests, jobs=None, nice=0, progress=True):
        """Returns the outcome of each test. Tests that must run alone run after the others."""
        outcomes = []
        together = [test for test in tests if not test.alone]
        alone = [test for test in tests if test.alone]
        for group, width in ((together, jobs or self.jobs), (alone, 1)):
            outcomes += self._run_side_by_side(group, width, nice, progress)
        return outcomes

    def _run_side_by_side(self, tests, width, nice, progress):
        ordered = sorted(batches(tests), key=lambda batch: -sum(self.seconds_of.get(t.name, 0.05) for t in batch))
        outcomes, lock, spoke = [], threading.Lock(), time.monotonic()

        def work(batch):
            nonlocal spoke
            queue = [batch]
            while queue:
                now = queue.pop()
                if now[0].shares_a_process:
                    done, left = _run_cases(now, nice)
                else:
                    done, left = _run_entry(now[0], nice), []
                queue += left
                with lock:
                    outcomes.extend(done)
                    for outcome in done:
                        if outcome.status == "failed":
                            self.say(f"FAILED {outcome.name} ({outcome.seconds:.1f} s)\n{shorten(outcome.log)}")
                    if progress and time.monotonic() - spoke > 15:
                        spoke = time.monotonic()
                        self.say(f"   {len(outcomes)} of {len(tests)} tests")

        with ThreadPoolExecutor(width) as pool:
            for future in [pool.submit(work, batch) for batch in ordered]:
                future.result()
        return outcomes

    def again(self, outcomes):
        """Runs each failed test once more, alone. If it passes then, it is flaky: it counts as passed and is listed."""
        result = []
        for outcome in outcomes:
            if outcome.status == "failed" and outcome.test.program:
                second = self.run([outcome.test], jobs=1, progress=False)
                if all(one.status != "failed" for one in second):
                    result += [replace(one, first_failure=outcome.log) for one in second]
                    continue
            result.append(outcome)
        return result


def shorten(log, lines=30):
    """The part of a log that shows the reason: from the first failure on, otherwise its end."""
    text = log.strip("\n").splitlines()
    first = next((i for i, line in enumerate(text) if FAILURE_PLACE.search(line.strip())), max(0, len(text) - lines))
    return "\n".join("    " + line[:300] for line in text[first:first + lines])
