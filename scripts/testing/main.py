"""scripts/test: builds and runs the tests; see its --help."""
import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import build
import changes
import checks
import registry
import runner
import stages

# What each preset builds and runs, by label. Nothing runs twice for nothing: unit tests run under asan and ubsan; release runs
# what needs speed (long cases, simulations) and real programs; tsan runs what has threads.
LABELS = {"release": ("long", "simulation", "process", "cluster"), "asan": ("unit",), "tsan": ("unit",)}
# These wait more than they compute, and run next to the sanitizers' builds.
WAITING = ("process", "cluster")
BEHIND = 15  # their niceness meanwhile

DESCRIPTION = """Builds and runs the tests, and closes with "N passed, N failed, N skipped" alone on the last line.

Without arguments it runs everything: format and style checks; long cases, simulation, process and cluster tests in the release
build (cluster tests on a real Kubernetes control plane, which is built the first time); unit tests under the address and
undefined-behaviour sanitizers; tests of code with threads under the thread sanitizer."""

EPILOG = """Exits 0 when nothing failed, 1 when a test or a build did, 2 for a wrong argument. Builds are kept in build/PRESET, the control
plane in ~/.cache/windlass. docs/testing.md says more."""


def parse():
    parser = argparse.ArgumentParser(prog="scripts/test", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--quick", action="store_true", help="unit tests alone, in the release build, without long cases")
    what.add_argument("--changed", action="store_true",
                      help="what depends on files changed since the merge base: unit, simulation and process tests in the release build")
    what.add_argument("--label", choices=registry.LABELS, help="tests of one kind alone")
    parser.add_argument("--filter", metavar="REGEX", help="only tests whose name (program.Suite.Case) matches")
    parser.add_argument("--preset", action="append", choices=tuple(LABELS), help="only this preset; may be repeated")
    parser.add_argument("--base", metavar="REV", help="what --changed and clang-tidy compare with (default: the merge base with main)")
    parser.add_argument("--effort", choices=("ci", "full"), default="ci",
                        help="size of property, fuzz, emulation and simulation tests; full takes hours (default: ci)")
    parser.add_argument("--retry", action="store_true",
                        help="run a failed test once more; if it passes then, it is reported as FLAKY and does not fail the run")
    options = parser.parse_args()
    if options.base and subprocess.run(["git", "rev-parse", "-q", "--verify", options.base + "^{commit}"],
                                       capture_output=True).returncode:
        parser.error(f"argument --base: must be a commit of this repository (got {options.base!r})")
    return options


class Failed(Exception):
    """The run cannot go on; the message says why."""


class Run:
    def __init__(self, options):
        self.options = options
        self.all = not (options.quick or options.changed or options.label or options.filter)
        self.jobs = os.cpu_count() or 2
        self.base = options.base or changes.default_base()
        self.labels = self._labels()
        self.stages = stages.Stages(self._plan())
        self.runner = runner.Runner(self.jobs, self.stages.remembered["tests"], lambda text: print(text, flush=True))
        self.outcomes, self.caches, self.background = [], [], None

    def _labels(self):
        """preset -> labels to run there."""
        o = self.options
        if o.quick:
            labels = {"release": ("unit",)}
        elif o.changed:
            labels = {"release": ("unit", "simulation", "process")}
        elif o.filter and not o.label:
            labels = {"release": registry.LABELS}
        elif o.label == "unit":
            labels = {"asan": ("unit",)}
        elif o.label:
            labels = {"release": (o.label,)}
        else:
            labels = dict(LABELS)
        if o.preset:
            everything = labels if self.all else {preset: tuple(labels.values())[0] for preset in LABELS}
            labels = {preset: everything[preset] for preset in o.preset}
        return labels

    def _plan(self):
        """Names of the stages, and seconds to expect on two cores with cold caches."""
        plan = [("setup", 40)]
        if self.all and not self.options.preset:
            plan.append(("format and style", 60))
        if self._wants("cluster"):
            plan.append(("control plane", 480))
        cold = {"release": (480, 150), "asan": (480, 240), "tsan": (240, 90)}
        for preset, labels in self.labels.items():
            plan += [(f"build {preset}", cold[preset][0]), (f"test {preset}", cold[preset][1])]
        if self._fuzzes():
            plan.append(("fuzz", 300))
        if self._waiting():
            plan.append(("process and cluster tests", 30))
        return plan

    def _fuzzes(self):
        return self.all and not self.options.preset and self.options.effort == "full"

    def _wants(self, label):
        return any(label in labels for labels in self.labels.values())

    def _waiting(self):
        return [label for label in WAITING if label in self.labels.get("release", ())]

    def setup(self):
        self.stages.begin("setup")
        subprocess.run(["scripts/setup", "--test"] + (["--cuda"] if self.all else []), check=True)
        os.environ["WINDLASS_TEST_EFFORT"] = self.options.effort

    def check(self):
        if not (self.all and not self.options.preset):
            return
        self.stages.begin("format and style")
        for one in checks.run(self.jobs, self.base, self.options.effort == "full"):
            test = registry.Test(one.name, "tree", "style", "", (), "", 0)
            self.outcomes.append(runner.Outcome(test, one.status, one.seconds, one.output, one.reason))
            if not one.ok:
                print(f"FAILED {one.name}\n{one.output[-6000:]}", flush=True)

    def control_plane(self):
        if not self._wants("cluster"):
            return
        self.stages.begin("control plane")
        built = subprocess.run(["tests/cluster/tools/build"], stdout=subprocess.PIPE, text=True)
        if built.returncode != 0:
            raise Failed("tests/cluster/tools/build failed; see above")
        print(built.stdout.strip())
        os.environ["WINDLASS_REQUIRE_CLUSTER"] = "1"  # built for them: a cluster test that misses it fails

    def targets(self, preset):
        labels = self.labels[preset]
        if self.options.effort == "full" and preset == "release" and self.all:
            return ["all"]  # benchmarks, too
        return [f"tests-{label}" for label in labels]

    def tests(self, preset):
        """Tests of the preset's labels; REQUIRES: they are built."""
        try:
            found = registry.list_tests(preset, f"build/{preset}", self.labels[preset], self.options.filter)
        except registry.CtestFailed as failure:
            raise Failed(f"ctest cannot list the tests of {preset}: {failure}") from failure
        if self.options.changed:
            found = changes.concerned(found, f"build/{preset}", self.base)
            print(f"{len(found)} tests depend on what changed since {self.base[:12]}", flush=True)
        return found

    def nice(self):
        """Process and cluster tests have real clocks in them: what runs next to them stands back."""
        return BEHIND if self.background and self.background.thread.is_alive() else 0

    def one_preset(self, preset):
        self.stages.begin(f"build {preset}")
        hits, misses = build.build(preset, self.targets(preset), self.nice())
        if hits + misses:
            self.caches.append(f"ccache, {preset}: {hits} of {hits + misses} calls hit")
        self.stages.begin(f"test {preset}")
        tests = self.tests(preset)
        waiting = [test for test in tests if test.label in WAITING]
        if waiting:
            self.background = Background(self.runner, waiting, self.jobs + 3)
        self.outcomes += self.runner.run([test for test in tests if test.label not in WAITING], nice=self.nice())

    def fuzz(self):
        """Ten seconds for each target; another compiler's build of its own, which CI has no time for."""
        if not self._fuzzes():
            return
        self.stages.begin("fuzz")
        began = time.monotonic()
        done = subprocess.run(["scripts/fuzz", "--seconds", "10"], capture_output=True, text=True, errors="replace")
        test = registry.Test("scripts/fuzz", "fuzz", "unit", "", (), "", 0)
        self.outcomes.append(runner.Outcome(test, "passed" if done.returncode == 0 else "failed", time.monotonic() - began,
                                            done.stdout + done.stderr))

    def main(self):
        self.setup()
        self.check()
        self.control_plane()
        for preset in self.labels:
            self.one_preset(preset)
        self.fuzz()
        if self.background:
            self.stages.begin("process and cluster tests")
            self.outcomes += self.background.join()
        self.stages.end()
        if self.options.retry:
            self.outcomes = self.runner.again(self.outcomes)
        self.keep()
        stages.print_tables(self.stages, self.outcomes, self.caches)
        return stages.print_verdict(self.outcomes, may_be_none=self.options.changed)

    def keep(self):
        """What each failed test printed, whole, for whoever looks for its cause; and how long everything took."""
        folder = Path("build/test-results")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for outcome in self.outcomes:
            if outcome.status == "failed" or outcome.first_failure:
                file = folder / (outcome.name.replace(": ", "-").replace("/", "_") + ".log")
                file.write_text(outcome.first_failure or outcome.log)
        self.stages.remember([o for o in self.outcomes if o.status == "passed"])


class Background:
    """Process and cluster tests, which wait more than they compute, next to the builds and tests that follow."""

    def __init__(self, of, tests, jobs):
        self.outcomes, self.failure = [], None
        self.thread = threading.Thread(target=self._work, args=(of, tests, jobs), daemon=True)
        self.thread.start()

    def _work(self, of, tests, jobs):
        try:
            self.outcomes = of.run(tests, jobs=jobs, progress=False)
        except Exception as failure:  # reported by join()
            self.failure = failure

    def join(self):
        while self.thread.is_alive():
            self.thread.join(15)
        if self.failure:
            raise self.failure
        return self.outcomes


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    started = time.monotonic()
    try:
        return Run(options).main()
    except (Failed, build.BuildFailed, subprocess.CalledProcessError) as failure:
        print(f"\ntest: {failure}, after {stages.clock(time.monotonic() - started)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
