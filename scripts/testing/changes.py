"""Finds changed files and the tests that depend on them."""
import os
import subprocess
from functools import lru_cache

import build


def _git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def default_base():
    """The merge base with the upstream's main; on main itself, the commit before the newest one."""
    head = _git("rev-parse", "HEAD")
    for upstream in ("origin/main", "main"):
        base = _git("merge-base", "HEAD", upstream)
        if base and base != head:
            return base
    return _git("rev-parse", "HEAD~1") or head


@lru_cache
def changed_files(base):
    """Files that differ from `base`, including uncommitted, new and deleted ones."""
    listed = _git("diff", "--name-only", base) + "\n" + _git("ls-files", "-o", "--exclude-standard")
    return sorted({f for f in listed.splitlines() if f})


def _readers(path, sources):
    """Sources that mention a changed file which is not a source, or its folder: charts/windlass, examples/tiny.yaml."""
    parts = path.split("/")
    name = "/".join(parts[:2]) if len(parts) > 2 else path
    found = []
    for source in sources:
        with open(source, encoding="utf-8", errors="replace") as file:
            if any(name in line and not line.lstrip().startswith(("#include", "//")) for line in file):
                found.append(source)
    return found


def concerned(tests, folder, base):
    """The `tests` (built in `folder`) whose program, or a program it starts, depends on a change since `base`."""
    changed = changed_files(base)
    compiled = (".h", ".cc", ".cu", ".cuh")
    sources = {f for f in changed if f.endswith(compiled)}
    test_sources = [f for f in _git("ls-files", "tests").splitlines() if f.endswith(compiled) and os.path.exists(f)]
    for path in changed:
        if not path.endswith(compiled):
            sources.update(_readers(path, test_sources))
    objects = build.depending_objects(folder, [os.path.abspath(f) for f in sources])
    verdicts = {program: build.depends_on(folder, program, objects) for program in {test.program for test in tests}}
    return [test for test in tests if verdicts[test.program]]
