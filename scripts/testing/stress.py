"""scripts/stress: runs tests repeatedly under artificial load; see its --help."""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import build
import registry
import runner
import stages

STORE = registry.CACHE / "stress"
RECORD = "tests/stress-record.tsv"  # runs on machines that no longer exist
SHORT = 2.0  # seconds: a test that takes less runs --times times
LONG_SPAN, LONG_RUNS = 600, 20  # a longer one runs for ten minutes, and at least this many times

DESCRIPTION = """Runs every test whose name matches REGEX repeatedly under artificial CPU, memory and I/O load (stress-ng), and prints how
often each one failed, with the log of its first failure. A test of less than 2 s runs --times times, a longer one for ten minutes
and at least 20 times. Unit tests share processes, as in scripts/test. Results accumulate by commit in
~/.cache/windlass/stress; a tree with uncommitted changes counts separately.

With --owed, runs the tests with a thread, a socket, a process or a clock that have too few runs in tests/stress-record.tsv,
those with the fewest runs first, and adds the results to it. When you fix a test, delete its line."""


def parse():
    parser = argparse.ArgumentParser(prog="scripts/stress", description=DESCRIPTION, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Exits 0 if no run failed, 1 if one did, 2 for a wrong argument.")
    parser.add_argument("regex", metavar="REGEX", nargs="?", help="tests to run, by name: program.Suite.Case")
    parser.add_argument("--times", type=int, default=200, help="runs of a short test (default: 200)")
    parser.add_argument("--preset", choices=("release", "asan", "tsan"), default="release", help="build to use (default: release)")
    parser.add_argument("--label", choices=registry.LABELS, help="only tests of this kind")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="tests to run in parallel (default: one per core)")
    parser.add_argument("--no-load", action="store_true", help="without artificial load")
    parser.add_argument("--no-build", action="store_true", help="run the present programs without building")
    parser.add_argument("--minutes", type=float, help="start no further run after this many minutes")
    parser.add_argument("--owed", action="store_true", help="run tests that the record lacks (REGEX may narrow them) and add their results to it")
    parser.add_argument("--report", action="store_true", help="print the results for this commit without running tests")
    options = parser.parse_args()
    if not options.regex and not options.report and not options.owed:
        parser.error("argument REGEX: must name the tests to run, for instance 'kube_test', unless --owed or --report is given (got none)")
    if options.owed and (options.preset != "release" or options.no_load):
        parser.error("argument --owed: must be used with the release preset and with load")
    if options.times < 1:
        parser.error(f"argument --times: must be at least 1 (got {options.times})")
    if options.jobs < 1:
        parser.error(f"argument --jobs: must be at least 1 (got {options.jobs})")
    return options


def commit():
    head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    dirty = subprocess.run(["git", "status", "--porcelain", "--", ".", f":!{RECORD}"], capture_output=True, text=True, check=True).stdout.strip()
    return head + ("-changed" if dirty else "")


class Record:
    """The committed totals of each test: name, runs, failures, seconds, and the commit of the last run."""

    FIELDS = ("runs", "failures", "seconds")

    def __init__(self, path=RECORD):
        self.path, self.tests = path, {}
        with open(path) as file:
            for line in file.read().splitlines()[1:]:
                name, runs, failures, seconds, key = line.split("\t")
                self.tests[name] = {"runs": int(runs), "failures": int(failures), "seconds": float(seconds), "commit": key}

    def of(self, name):
        return self.tests.get(name, dict.fromkeys(self.FIELDS, 0))

    def add(self, new, key):
        for name, one in new.items():
            if one["runs"] == one["skipped"]:
                continue
            name = name.removeprefix("release: ")
            old = self.of(name)
            self.tests[name] = {field: old[field] + one[field] for field in self.FIELDS} | {"commit": key}
        lines = [f"{name}\t{one['runs']}\t{one['failures']}\t{one['seconds']:.0f}\t{one['commit']}"
                 for name, one in sorted(self.tests.items())]
        with open(self.path, "w") as file:
            file.write("\n".join(["test\truns\tfailures\tseconds\tlast commit", *lines]) + "\n")


def is_enough(runs, seconds, times):
    if runs == 0:
        return False
    if seconds / runs < SHORT:
        return runs >= times
    return runs >= min(LONG_RUNS, times) and seconds >= LONG_SPAN * times / 200


def that_may_flake(tests):
    """The tests with a thread, a socket, a process or a clock: process, cluster and threaded unit tests."""
    with open("build/release/threaded_tests.txt") as file:
        threaded = set(file.read().split())
    return [test for test in tests if test.label in ("process", "cluster") or test.name.split(".")[0] in threaded]


class Load:
    """Artificial load: every core, half a gigabyte of memory, and files that are written and synced."""

    COMMAND = ["stress-ng", "--quiet", "--cpu", str(os.cpu_count() or 2), "--vm", "1", "--vm-bytes", "512M", "--hdd", "1",
               "--hdd-bytes", "128M", "--hdd-opts", "fsync"]

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="windlass-stress-")
        self.process = subprocess.Popen([*self.COMMAND, "--temp-path", self.folder], start_new_session=True,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Results:
    """Runs and failures of each test at one commit, in a file that every run adds to."""

    def __init__(self, key, record=None):
        self.key, self.record = key, record  # the record, which gets these results as well
        self.path, self.lock, self.new = STORE / f"{key}.json", threading.Lock(), {}
        self.names = set()  # tests of this run

    def add(self, outcome):
        with self.lock:
            one = self.new.setdefault(outcome.name, {"runs": 0, "failures": 0, "seconds": 0.0, "skipped": 0, "first_failure": ""})
            one["runs"] += 1
            one["seconds"] += outcome.seconds
            one["skipped"] += outcome.status == "skipped"
            if outcome.status == "failed":
                one["failures"] += 1
                one["first_failure"] = one["first_failure"] or outcome.log

    def load(self):
        try:
            return json.loads(self.path.read_text())
        except OSError:
            return {}

    def save(self):
        """Adds new results to the file, which other runs may have changed in the meantime."""
        with self.lock:
            kept = self.load()
            for name, one in self.new.items():
                self.names.add(name)
                if name in kept:
                    old = kept[name]
                    one = {key: old[key] + one[key] for key in ("runs", "failures", "seconds", "skipped")} | {
                        "first_failure": old["first_failure"] or one["first_failure"]}
                kept[name] = one
            if self.record:
                self.record.add(self.new, self.key)
            self.new = {}
            STORE.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(kept, indent=1))
        return kept


def report(kept):
    """Prints the totals, failed tests first. Returns the number of failed tests."""
    failing = {name: one for name, one in kept.items() if one["failures"]}
    for name, one in failing.items():
        print(f"\n{name}: {one['failures']} of {one['runs']} runs failed. Output of the first failure:")
        print(runner.shorten(one["first_failure"], 60))
    runs = sum(one["runs"] for one in kept.values())
    skipped = sum(1 for one in kept.values() if one["skipped"] == one["runs"])
    few = sum(1 for one in kept.values() if one["runs"] < LONG_RUNS)
    print(f"\n{len(kept)} tests, {runs} runs, {sum(one['failures'] for one in kept.values())} failures in {len(failing)} tests; "
          f"{skipped} tests skip here, {few} ran fewer than {LONG_RUNS} times")
    return len(failing)


def run_all(tests, options, results):
    deadline = time.monotonic() + options.minutes * 60 if options.minutes else None
    runs = runner.Runner(1, {}, lambda text: print(text, flush=True))
    done, lock, spoke = [0], threading.Lock(), [time.monotonic()]

    def until_enough(batch):
        """Runs a batch's tests together, as scripts/test does, each until it has enough runs."""
        known = {}  # runs and seconds of each test so far
        for test in batch:
            of = results.record.of(test.name) if results.record else {"runs": 0, "seconds": 0}
            known[test.name] = (of["runs"], of["seconds"])
        left = batch
        while left := [test for test in left if not is_enough(*known[test.name], options.times)]:
            if deadline and time.monotonic() > deadline:
                break
            outcomes = runs.run(left, jobs=1, progress=False)
            for outcome in outcomes:
                results.add(outcome)
                count, spent = known.get(outcome.test.name, (0, 0))
                known[outcome.test.name] = (count + 1, spent + outcome.seconds)
            results.save()  # it may be stopped early
            ran = {outcome.test.name for outcome in outcomes if outcome.status != "skipped"}
            left = [test for test in left if test.name in ran]
        with lock:
            done[0] += len(batch)
            if time.monotonic() - spoke[0] > 15 or done[0] == len(tests):
                spoke[0] = time.monotonic()
                print(f"   {done[0]} of {len(tests)} tests", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        for future in [pool.submit(until_enough, batch) for batch in runner.batches(tests)]:
            future.result()


def main():
    options = parse()
    results = Results(commit(), Record() if options.owed else None)
    if options.report:
        return 1 if report(results.load()) else 0
    subprocess.run(["scripts/setup", "--test"], check=True)
    labels = [options.label] if options.label else registry.LABELS if options.preset == "release" else ["unit"]
    if not options.no_build:
        build.build(options.preset, [f"tests-{label}" for label in labels])
    tests = registry.list_tests(options.preset, f"build/{options.preset}", labels, options.regex)
    if options.owed:
        tests = sorted(that_may_flake(tests), key=lambda test: results.record.of(test.name)["runs"])
    if not tests:
        print(f"stress: no test of build/{options.preset} matches '{options.regex}'", file=sys.stderr)
        return 2
    load = None if options.no_load else Load()
    print(f"{len(tests)} tests, {options.jobs} in parallel, load: {' '.join(Load.COMMAND) if load else 'none'}", flush=True)
    started = time.monotonic()
    try:
        if load:
            with load:
                run_all(tests, options, results)
        else:
            run_all(tests, options, results)
    finally:
        kept = results.save()
    failing = report({name: one for name, one in kept.items() if name in results.names})
    print(f"took {stages.clock(time.monotonic() - started)}; kept in {results.path}")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
