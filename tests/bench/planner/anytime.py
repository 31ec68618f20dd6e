#!/usr/bin/env python3
"""What `windlass plan` costs after 0.05 to 10 s, by `auto` and by each strategy alone, for the shipped examples.

Prints a Markdown table for docs/benchmarks/planner.md. Exits 1 if, after 0.2 s, `auto` costs more than a strategy that takes less.
"""
import argparse
import json
import pathlib
import subprocess
import sys

LIMITS = [0.05, 0.2, 0.5, 2, 10]
JUDGED = 0.2
STRATEGIES = ["auto", "vidur", "mix", "distserve", "splitwise", "tetriinfer", "aladdin"]


def plan(windlass, file, strategy, limit_s):
    """The plan's JSON; None without one."""
    command = [windlass, "plan", "-f", file, "--strategy", strategy, "-o", "json", "--time-limit", f"{round(1000 * limit_s)}ms"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode in (0, 3) and done.stdout else None


def cost(found):
    """Infinite if nothing holds."""
    return found["costPerHour"] if found and found["meetsObjectives"] else float("inf")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windlass", required=True, help="the program")
    parser.add_argument("files", nargs="+", help="examples that `plan` takes")
    arguments = parser.parse_args()
    print("| example | strategy |", " | ".join(f"{limit:g} s" for limit in LIMITS), "| ends after |")
    print("|---|---|" + "---|" * (len(LIMITS) + 1))
    worse, late = [], 0
    for file in arguments.files:
        ends = {strategy: plan(arguments.windlass, file, strategy, 60) for strategy in STRATEGIES}
        if cost(ends["auto"]) == float("inf"):
            continue  # nothing holds
        after = {}
        for strategy in STRATEGIES:
            if cost(ends[strategy]) == float("inf"):
                continue
            found = [plan(arguments.windlass, file, strategy, limit) for limit in LIMITS]
            costs = [cost(one) for one in found]
            if strategy == "auto":
                late = max([late] + [one["wallSeconds"] - limit for one, limit in zip(found, LIMITS)])
            after[strategy] = costs[LIMITS.index(JUDGED)]
            cells = " | ".join("-" if one == float("inf") else f"{one:.2f}" for one in costs)
            print(f"| `{file}` | {strategy} | {cells} | {ends[strategy]['wallSeconds']:.2f} s |", flush=True)
        quick = {s: cost(ends[s]) for s in after if s != "auto" and ends[s]["wallSeconds"] < JUDGED}
        worse += [f"{file}: {s} costs {of:.2f}, auto {after['auto']:.2f}" for s, of in quick.items() if of < after["auto"] - 1e-9]
    print(f"\n`auto` answered at most {late:.2f} s after its limit.")
    for line in worse:
        print(f"anytime: after {JUDGED} s: {line}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
