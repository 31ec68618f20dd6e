"""Measures whether vLLM gets the settings that the strategies choose, and then delivers what was predicted.

  scripts/bench settings    docs/engine-settings.md: the figures (half an hour on two idle cores; first run scripts/engines vllm)

1. One vLLM worker with a small model is measured by `windlass profile`.
2. `windlass plan` with that profile finds the highest rate that one worker serves, and the settings for it.
3. `windlass up` runs the same files. Its worker must have the plan's settings as arguments.
4. `windlass simulate` predicts the capacity with these arguments for the lengths that will be sent: those that the plan assumes, except
   for the tokens that the chat template adds to every prompt.
5. `windlass load` sends rates around the predicted capacity. The capacity delivered is where the share of requests that meet the
   objectives falls below what the service asks for, by a curve through all loads.

Results are in build/bench/settings. Exits 0 if all was measured, whatever the figures; 1 if not; 2 for a wrong argument.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import signal
import sys
from pathlib import Path

import main as loop
import processes
from engines import objects
from judge import Objectives
from one_engine import ANSWER_TOKENS, PROMPT_WORDS, TEMPLATE_TOKENS, PredictedEngine
from stack import INFEASIBLE, Stack

OBJECTIVES = Objectives(1.5, 0.2)
SHARES = (0.8, 0.9, 1.0, 1.1, 1.2)  # of the predicted capacity
LOAD_S = 240
LEAST_PER_S = 0.1
NEWTON_STEPS = 30
HEADROOM = 1.1  # that an offer keeps below what the simulator found (kDesignHeadroom)
RATE_STEPS = (1.2, 1.05, 1.015)  # one after the other
# Settings in the plan, and vLLM's options for them.
OPTIONS = {"maxSequences": "--max-num-seqs", "maxBatchTokens": "--max-num-batched-tokens"}


def crossing(points, share):
    """The rate where attainment falls below `share`; None if no load attained it, or each one did.

    `points`: loads [(rate, attainment, requests)]. The share that misses is a logistic function of the rate, fitted by maximum
    likelihood, with half a request that misses and half a one that does not added to each load, so that a share of 0 has a logit.
    """
    if not min(kept for _, kept, _ in points) < share <= max(kept for _, kept, _ in points):
        return None
    middle = sum(rate for rate, _, _ in points) / len(points)
    at, slope = 0.0, 0.0  # the logit of the share that misses: at + slope (rate - middle)
    for _ in range(NEWTON_STEPS):
        gradient, hessian = [0.0, 0.0], [0.0, 0.0, 0.0]
        for rate, kept, requests in points:
            x, expected = rate - middle, 1 / (1 + math.exp(-(at + slope * (rate - middle))))
            missed, weight = (1 - kept) * requests + 0.5, (requests + 1) * expected * (1 - expected)
            off = missed - (requests + 1) * expected
            gradient = [gradient[0] + off, gradient[1] + off * x]
            hessian = [hessian[0] + weight, hessian[1] + weight * x, hessian[2] + weight * x * x]
        determinant = hessian[0] * hessian[2] - hessian[1] ** 2
        at += (hessian[2] * gradient[0] - hessian[1] * gradient[1]) / determinant
        slope += (hessian[0] * gradient[1] - hessian[1] * gradient[0]) / determinant
    rate = middle + (math.log((1 - share) / share) - at) / slope
    return rate if min(points)[0] <= rate <= max(points)[0] else None


def option_of(command, option):
    """Value of an option on a command line; None if it is not there."""
    for i, word in enumerate(command):
        if word == option and i + 1 < len(command):
            return command[i + 1]
        if word.startswith(option + "="):
            return word.split("=", 1)[1]
    return None


class Bench(PredictedEngine):
    def __init__(self, out):
        super().__init__(out, "vllm", out)
        self.engine = dataclasses.replace(self.engine, objectives=OBJECTIVES)

    def profile_once(self):
        path = self.out / "profile.yaml"
        if path.exists():
            loop.say(f"  using {path}")
            return path
        with self.worker("profile-worker") as worker:
            return self.profile(worker, self.out)

    def service(self, rate):
        """A file with the class and the service, which assumes this rate."""
        text = objects(self.engine, 1, PROMPT_WORDS + TEMPLATE_TOKENS, ANSWER_TOKENS, 1)
        for old, new in (('requestsPerSecond: "0.1"', f'requestsPerSecond: "{rate:.3f}"'), ("gpusPerNode: 1", 'gpusPerNode: 1\n  pricePerHour: "1"')):
            assert old in text, old
            text = text.replace(old, new)
        path = self.out / "service.yaml"
        path.write_text(text)
        return path

    def plan(self, rate, profile):
        """The offer for a rate: its settings and capacity; None if one worker is not enough."""
        planned = json.loads(self.run("plan", "-f", self.service(rate), "-f", profile, "-o", "json", allowed=(0, INFEASIBLE)))["services"][0]
        offer = planned["memory"].get("offer")
        if offer is None or len(offer["pools"]) != 1 or offer["pools"][0]["workers"] != 1:
            return None
        return offer

    def highest(self, profile):
        """The highest rate that one worker serves, and the offer for it; with settings of the engine, if any rate needs them."""
        best = chosen = None
        for step in RATE_STEPS:
            rate = best[0] * step if best else LEAST_PER_S
            while (offer := self.plan(rate, profile)) is not None:
                best = (rate, offer)
                if "engine" in offer["pools"][0]:
                    chosen = best
                rate *= step
        if best is None:
            raise processes.RunFailed(f"windlass plan: no offer of one worker, not even for {LEAST_PER_S} requests/s")
        return chosen or best

    def measure(self):
        profile = self.profile_once()
        rate, offer = self.highest(profile)
        settings = offer["pools"][0].get("engine", {})
        planned = HEADROOM * offer["capacityPerS"]
        text = self.service(rate).read_text() + "---\n" + profile.read_text()
        folder = self.base.folder("up")
        system = Stack(self.windlass, text, folder, 1, self.engine.start_s, loop.ROOT)
        try:
            system.wait()
            given = self.arguments_of_worker(system.up.pid)
            loop.say(f"  vLLM's arguments: {given}")
            differs = {name: (settings[name], given[name]) for name in OPTIONS if name in settings and str(settings[name]) != given[name]}
            if differs:
                raise processes.RunFailed(f"vLLM's arguments: must be those of the plan (wanted and found: {differs})")
            # The worker's own, as slots are in each plan, but not among the settings that a strategy chose.
            self.scheduling.update({name: int(value) for name, value in given.items() if value is not None})
            capacity = self.capacity()
            loop.say(f"  settings {json.dumps(settings)}, by {offer['strategy']}; predicted: {planned:.2f} requests/s on one worker by the plan, "
                     f"{capacity:.2f} for the lengths that will be sent")
            points = []
            for number, share in enumerate(SHARES, 1):
                at = share * capacity
                loop.say(f"  {number} of {len(SHARES)}: {at:.2f} requests/s for {LOAD_S} s")
                record = self.load(system.url, at, LOAD_S, folder / f"load-{share:g}.json", number)
                points.append((at, record["attainment"], len(record["requests"])))
                loop.say(f"    {record['attainment']:.1%} attained")
        finally:
            system.close()
        asked = self.engine.objectives.share
        return {"machine": loop.machine(), "settings": settings, "given": given, "strategy": offer["strategy"], "planned": planned, "predicted": capacity,
                "points": points, "delivered": crossing(points, asked), "asked": asked}

    @staticmethod
    def arguments_of_worker(root):
        """Values of OPTIONS on the command line of the vLLM that descends from this process."""
        for pid in processes.descendants(root):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if "serve" in words:
                    return {name: option_of(words, option) for name, option in OPTIONS.items()}
        raise processes.RunFailed("windlass up: must run a vLLM (found none)")


def markdown(result):
    settings = ", ".join(f"`{OPTIONS[name]} {value}`" for name, value in result["given"].items() if value is not None)
    lines = [f"{result['machine']}. vLLM 0.32 with a random model of SmolLM2-135M's shape on one thread, {PROMPT_WORDS + TEMPLATE_TOKENS} prompt and "
             f"{ANSWER_TOKENS} answer tokens in the mean.", "",
             f"- Chosen by {result['strategy']}: {settings or 'the engine' + chr(39) + 's own settings'}.",
             f"- Predicted after profiling: {result['predicted']:.2f} requests/s within the objectives; {result['planned']:.2f} by the plan, whose "
             "lengths are more spread.",
             "- Delivered: " + (f"{result['delivered']:.2f} requests/s, {result['delivered'] / result['predicted']:.2f} times that."
                                if result["delivered"] else "outside of the rates below."), "",
             "| requests/s | of the prediction | attained |", "|---:|---:|---:|"]
    lines += [f"| {rate:.2f} | {rate / result['predicted']:.1f} | {kept:.1%} |" for rate, kept, _ in result["points"]]
    return "\n".join(lines) + "\n"


def main(words):
    parser = argparse.ArgumentParser(prog="scripts/bench settings", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", type=Path, metavar="FILE", help="use this PerformanceProfile instead of measuring one")
    arguments = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    loop.build()
    processes.adopt_orphans()
    out = loop.ROOT / "build/bench/settings"
    out.mkdir(parents=True, exist_ok=True)
    (out / "profile.yaml").unlink(missing_ok=True)
    if arguments.profile:
        (out / "profile.yaml").write_text(arguments.profile.read_text())
    try:
        bench = Bench(out)
        result = bench.measure()
    except processes.RunFailed as error:
        loop.say(f"settings: {error}")
        return 1
    finally:
        processes.end_all()
    (out / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "settings.md").write_text(markdown(result))
    loop.say("\n" + markdown(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
