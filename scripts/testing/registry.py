"""The tests of a build folder, as listed by ctest.

A Test is one ctest entry. Unit and simulation tests are single cases of a GoogleTest program; process and cluster tests may be a
whole suite. The label names the kind (see tests/CMakeLists.txt).
"""
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

LABELS = ("unit", "long", "simulation", "process", "cluster", "engines")
# Kept across checkouts: times of earlier runs, results of scripts/stress.
CACHE = Path(os.environ.get("WINDLASS_CACHE", Path.home() / ".cache/windlass"))


@dataclass(frozen=True)
class Test:
    name: str  # in ctest: program.Suite.Case
    preset: str
    label: str  # unit, long, simulation, process or cluster
    program: str  # path of the executable; empty for entries without a program, such as the format check
    arguments: tuple
    filter: str  # the GoogleTest filter of a single case; empty for a suite or another kind of program
    timeout: float  # seconds after which the test counts as hung
    environment: tuple = field(default=())  # (name, value)
    alone: bool = False  # nothing else runs next to it

    @property
    def shares_a_process(self):
        """Whether it may run in one process with other cases of its program."""
        return bool(self.filter) and self.label in ("unit", "long", "simulation")


class CtestFailed(Exception):
    """ctest could not list the tests, for instance because a program does not start."""


def _value(properties, name, default):
    return next((p["value"] for p in properties if p["name"] == name), default)


def _label(entry):
    return _value(entry.get("properties", []), "LABELS", ["unit"])[0]


def _one(entry, preset):
    properties = entry.get("properties", [])
    command = entry.get("command")
    if not command:
        raise CtestFailed(f"{entry['name']}: the program is not built")
    arguments = command[1:]
    case = next((a.split("=", 1)[1] for a in arguments if a.startswith("--gtest_filter=")), "")
    environment = tuple(tuple(e.split("=", 1)) for e in _value(properties, "ENVIRONMENT", []))
    name = entry["name"].split("  # ")[0]  # CMake appends a parameter's bytes, which differ between builds
    return Test(name, preset, _label(entry), command[0], tuple(arguments), "" if "*" in case else case,
                float(_value(properties, "TIMEOUT", 600)), environment, bool(_value(properties, "RUN_SERIAL", False)))


def list_tests(preset, folder, labels, regex=None):
    """Tests of build folder `folder` with one of `labels`; with `regex`, only those whose name matches it by ctest's rules.

    REQUIRES: the programs of those labels are built; others may be missing.
    """
    command = ["ctest", "--test-dir", folder, "--show-only=json-v1"] + (["-R", regex] if regex else [])
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode != 0:
        raise CtestFailed(listed.stderr[-4000:] or f"ctest ended with status {listed.returncode}")
    entries = [entry for entry in json.loads(listed.stdout)["tests"] if not entry["name"].endswith("_NOT_BUILT")]
    return [_one(entry, preset) for entry in entries if _label(entry) in labels]
