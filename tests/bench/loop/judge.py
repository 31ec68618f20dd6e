"""Evaluates runs: which requests met their objectives, attainment over time, worker-seconds. Pure arithmetic.

All times are seconds since the load's start. A request counts at the time at which it was due, whenever its answer arrived.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Objectives:
    ttft_s: float
    tpot_s: float
    share: float = 0.95


@dataclasses.dataclass(frozen=True)
class Load:
    """Phases of (requests per second, seconds). One worker suffices for a phase whose rate is at most `one_worker`."""

    phases: tuple
    step_s: float  # when the rate jumps
    one_worker: float

    @property
    def seconds(self):
        return sum(seconds for _, seconds in self.phases)

    @property
    def text(self):
        """Formatted for `windlass load --phases`."""
        return ",".join(f"{rate:.3f}/{seconds:g}s" for rate, seconds in self.phases)

    def share_for_one_worker(self):
        return sum(seconds for rate, seconds in self.phases if rate <= self.one_worker) / self.seconds


RAMP_PIECES = 6


def step_and_ramp(low, high, minutes):
    """Low, a step to high, low again, and a ramp from low to high. One worker is enough for more than half of it."""
    part = minutes * 4  # seconds
    ramp = [(low + (high - low) * (i + 0.5) / RAMP_PIECES, round(3 * part / RAMP_PIECES, 3)) for i in range(RAMP_PIECES)]
    phases = [(low, round(5 * part, 3)), (high, round(4 * part, 3)), (low, round(3 * part, 3)), *ramp]
    return Load(tuple(phases), round(5 * part, 3), low + (high - low) / 3)


def judged(record, objectives):
    """(due time, whether it attained) of each request in the output of `windlass load -o json`."""
    out = []
    for one in record["requests"]:
        kept = one["outcome"] == "completed"
        if kept:
            first_s = one["timeToFirstTokenSeconds"]
            if first_s is None:
                first_s = one["finishedSeconds"] - one["scheduledSeconds"]
            kept = first_s <= objectives.ttft_s and (one["timePerOutputTokenSeconds"] or 0) <= objectives.tpot_s
        out.append((one["scheduledSeconds"], kept))
    return out


def share(requests):
    """Share that attained; None without requests."""
    return sum(kept for _, kept in requests) / len(requests) if requests else None


def rolling(requests, end_s, window_s=30, every_s=1):
    """[(t, share of the requests due in the window that ends at t)]. Times without due requests are omitted."""
    out = []
    for i in range(int(end_s / every_s) + 1):
        t = i * every_s
        part = share([one for one in requests if t - window_s < one[0] <= t])
        if part is not None:
            out.append((t, part))
    return out


def time_to_recover(course, step_s, target):
    """From the step until the rolling attainment is back at the target: 0 if it never fell below, None if it never came back."""
    below = False
    for t, value in course:
        if t < step_s:
            continue
        below = below or value < target
        if below and value >= target:
            return t - step_s
    return None if below else 0.0


def worker_seconds(samples, end_s):
    """Computed from samples [(t, workers)]. Each holds until the next one; the first also holds before it."""
    total = 0.0
    for i, (t, workers) in enumerate(samples):
        begin = 0.0 if i == 0 else min(t, end_s)
        until = samples[i + 1][0] if i + 1 < len(samples) else end_s
        total += workers * max(0.0, min(until, end_s) - begin)
    return total


def claims(cases):
    """[(case name, whether the claim holds, why)] of each case of Windlass next to its engine's fixed fleet.

    The claim: where the fixed fleet attains the objective, Windlass does too, with at most 0.8 times its worker-seconds where
    half of the run needs one worker.
    """
    fleets = {case["engine"]: case for case in cases if case["system"] == "fleet" and not case.get("refused")}
    out = []
    for case in cases:
        fleet = fleets.get(case["engine"])
        goal = case["objectives"]["share"]
        if case["system"] != "windlass" or fleet is None or (fleet["attainment"] or 0) < goal:
            continue
        attained = case["attainment"] or 0
        ratio = case["worker_seconds"] / fleet["worker_seconds"]
        cheap = ratio <= 0.8 or case["share_for_one_worker"] < 0.5
        text = f"{attained:.1%} attained with {ratio:.2f} times the worker-seconds of the fixed fleet ({fleet['attainment']:.1%})"
        out.append((case["name"], attained >= goal and cheap, text))
    return out
