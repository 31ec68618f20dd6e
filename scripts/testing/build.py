"""Configures and builds presets, and asks ninja which programs depend on which files."""
import os
import re
import signal
import subprocess

import priority


class BuildFailed(Exception):
    """A configure or a build failed; its output is above."""


def ccache_counts():
    """(hits, misses) since the cache was created; zeros without ccache."""
    try:
        text = subprocess.run(["ccache", "--print-stats"], capture_output=True, text=True).stdout
    except OSError:
        return 0, 0
    counts = dict(line.split("\t") for line in text.splitlines() if "\t" in line)
    number = lambda key: int(counts.get(key, 0))
    return number("direct_cache_hit") + number("preprocessed_cache_hit"), number("cache_miss")


def build(preset, targets, nice=0):
    """Configures `preset` and builds `targets` with this niceness. Returns ccache's (hits, misses)."""
    configured = subprocess.run(["cmake", "--preset", preset], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if configured.returncode != 0:
        print(configured.stdout)
        raise BuildFailed(f"cmake --preset {preset}")
    for line in configured.stdout.splitlines():
        if re.match(r"-- (windlass|CUDA)", line, re.IGNORECASE):
            print(line, flush=True)
    before = ccache_counts()
    command = ["cmake", "--build", "--preset", preset, "--target", *targets]
    environment = dict(os.environ, NINJA_STATUS=f"[{preset} %f/%t, %es] ")
    built = subprocess.Popen(command, env=environment, preexec_fn=lambda: priority.own_session(nice))
    try:
        status = built.wait()
    except BaseException:  # Ctrl-C reaches only this session
        os.killpg(built.pid, signal.SIGTERM)
        raise
    if status != 0:
        raise BuildFailed(f"cmake --build --preset {preset} --target {' '.join(targets)}")
    after = ccache_counts()
    return after[0] - before[0], after[1] - before[1]


def _ninja(folder, *arguments):
    return subprocess.run(["ninja", "-C", folder, "-t", *arguments], capture_output=True, text=True, check=True).stdout


def depending_objects(folder, files):
    """The objects of a built folder that were compiled from any of `files` (absolute paths)."""
    wanted, objects, current = {os.path.realpath(f) for f in files}, set(), None
    for line in _ninja(folder, "deps").splitlines():
        if line and not line.startswith(" "):
            current = line.split(":")[0]
        elif line.strip() and os.path.realpath(os.path.join(folder, line.strip())) in wanted:
            objects.add(current)
    return objects


def depends_on(folder, program, objects):
    """Whether any of `objects` is part of `program`, or of a program that is built first for its tests."""
    target = os.path.relpath(program, folder)
    return not objects.isdisjoint(_ninja(folder, "inputs", target).split("\n"))
