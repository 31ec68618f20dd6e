"""Stages of a run: the current one, an estimate of the remaining time, and the tables at the end.

The durations of stages and tests are kept in ~/.cache/windlass/test-times.json. A machine that has
not run them yet estimates from the durations on two cores.
"""
import json
import os
import time
from collections import Counter, defaultdict

import registry

TIMES = registry.CACHE / "test-times.json"


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Stages:
    """`plan`: (name, seconds to expect on two cores with cold caches) of each stage, in order."""

    def __init__(self, plan):
        self.plan = plan
        self.started = time.monotonic()
        self.times = {}  # name -> seconds
        self.current = None
        try:
            self.remembered = json.loads(TIMES.read_text())
        except (OSError, ValueError):
            self.remembered = {"stages": {}, "tests": {}}

    def elapsed(self):
        return time.monotonic() - self.started

    def begin(self, name):
        self.end()
        names = [n for n, _ in self.plan]
        at = names.index(name)
        rest = sum(self.remembered["stages"].get(n, cold) for n, cold in self.plan[at:])
        print(f"\n== stage {at + 1} of {len(names)}: {name} ({clock(self.elapsed())} gone, about {clock(rest)} left) ==", flush=True)
        self.current = (name, time.monotonic())

    def end(self):
        if self.current:
            name, since = self.current
            self.times[name] = time.monotonic() - since
            self.current = None

    def remember(self, outcomes):
        """Saves the durations of stages and tests, for the next run's estimates and order."""
        self.remembered["stages"].update({name: round(seconds, 1) for name, seconds in self.times.items()})
        self.remembered["tests"].update({o.name: round(o.seconds, 2) for o in outcomes if o.seconds >= 0.05})
        TIMES.parent.mkdir(parents=True, exist_ok=True)
        scratch = TIMES.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(self.remembered))
        scratch.replace(TIMES)


def print_tables(stages, outcomes, caches):
    """Prints durations and the compiler caches' hits."""
    print("\nSeconds per stage")
    for name, seconds in stages.times.items():
        print(f"  {seconds:8.0f}  {name}")
    print(f"  {stages.elapsed():8.0f}  in all")
    by_label = defaultdict(lambda: [0, 0.0])
    for o in outcomes:
        by_label[o.test.preset, o.test.label][0] += o.cases
        by_label[o.test.preset, o.test.label][1] += o.seconds
    if by_label:
        print("\nTests: number, seconds of tests (they run in parallel)")
        for (preset, label), (count, seconds) in by_label.items():
            print(f"  {count:8}  {seconds:8.0f}  {preset} {label}")
    slow = sorted(outcomes, key=lambda o: -o.seconds)[:10]
    if slow:
        print("\nThe ten slowest tests, in seconds")
        for o in slow:
            print(f"  {o.seconds:8.1f}  {o.name}")
    if caches:
        print("\nCaches")
        for line in caches:
            print(f"  {line}")


def print_verdict(outcomes, may_be_none=False):
    """Prints skipped tests by reason, flaky and failed ones by name, then the closing line. Returns the exit status.

    A run without a test fails, unless `may_be_none`.
    """
    skips = Counter(o.reason for o in outcomes if o.status == "skipped")
    if skips:
        print("\nSkipped, by reason")
        for reason, count in skips.most_common():
            names = [o.test.name for o in outcomes if o.status == "skipped" and o.reason == reason]
            programs = sorted({name.split(".")[0] for name in names})
            print(f"  {count:4}  {reason}\n        {', '.join(names if count <= 3 else programs)}")
    flaky = [o for o in outcomes if o.first_failure]
    for o in flaky:
        print(f"\nFLAKY: {o.name}: failed, then passed on a second run. Its output when it failed:\n{o.first_failure.rstrip()[-3000:]}")
    failed = [o for o in outcomes if o.status == "failed"]
    if failed:
        print("\nFailed (see above for their output)")
        for o in failed:
            print(f"  {o.name}")
    passed = sum(o.cases for o in outcomes if o.status == "passed")
    print(f"\n{passed} passed, {len(failed)} failed, {sum(skips.values())} skipped")
    return 0 if not failed and (passed or may_be_none) else 1
