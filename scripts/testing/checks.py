"""Format and style by tool: clang-format and codespell over the tree, shellcheck over the scripts, clang-tidy over changed lines."""
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import changes

SOURCES = (".h", ".cc", ".cu", ".cuh")
MAX_TIDY = 8  # sources that clang-tidy reads in CI: each takes seconds


def tracked():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    return [f for f in listed.stdout.splitlines() if os.path.isfile(f)]


def is_shell(path):
    if os.path.splitext(path)[1] not in ("", ".sh"):
        return False
    with open(path, "rb") as file:
        first = file.readline(80)
    return first.startswith(b"#!") and b"sh" in first.split(b"/")[-1]


def _run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode == 0, done.stdout


class Check:
    """One tool's result; it counts as one test. An `optional` tool that is not installed is skipped: `reason` says so."""

    def __init__(self, name, commands, jobs, optional=False):
        self.name, self.ok, self.output, self.reason = name, True, "", ""
        started = time.monotonic()
        if optional and not shutil.which(name):
            self.reason, commands = f"needs {name}, which is not installed", []
        with ThreadPoolExecutor(jobs) as pool:
            for ok, output in pool.map(_run, commands):
                if not ok:
                    self.ok, self.output = False, self.output + output
        self.seconds = time.monotonic() - started

    @property
    def status(self):
        return "skipped" if self.reason else "passed" if self.ok else "failed"


def run(jobs, base, all_sources):
    """Runs all checks. clang-tidy checks the lines changed since `base`, in CI only of the first MAX_TIDY sources."""
    files = tracked()
    sources = [f for f in files if f.endswith(SOURCES)]
    shells = [f for f in files if is_shell(f)]
    batches = [sources[i::2 * jobs] for i in range(2 * jobs)]
    yield Check("clang-format", [["clang-format", "--dry-run", "-Werror", *batch] for batch in batches if batch], jobs)
    yield Check("shellcheck", [["shellcheck", "--severity=warning", *shells]], jobs)
    yield Check("codespell", [["codespell", *files]], jobs, optional=True)  # .codespellrc says which words and files it leaves
    yield Check("scripts/testing", [["python3", "scripts/testing/runner_test.py"]], jobs)
    yield Check("tests/bench/loop", [["python3", "tests/bench/loop/loop_test.py"]], jobs)
    changed = [f for f in changes.changed_files(base) if f.endswith(".cc") and os.path.exists(f)]
    looked_at = changed if all_sources else changed[:MAX_TIDY]
    if looked_at:
        # One source at a time, as in an editor: without unity files and without a precompiled header.
        configured, output = _run(["cmake", "--preset", "tidy"])
        if not configured:
            print(output)
        extra = "" if all_sources else "-checks=-clang-analyzer-*"  # the analyser takes most of the time
        yield Check("clang-tidy", [["bash", "-c", 'git diff -U0 "$1" -- "$2" | clang-tidy-diff-14.py -p1 -path build/tidy -quiet $3',
                                    "clang-tidy", base, f, extra] for f in looked_at], jobs)
    if len(looked_at) < len(changed):
        print(f"   clang-tidy read {len(looked_at)} of {len(changed)} changed sources; scripts/test --effort full reads all")
