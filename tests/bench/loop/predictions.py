"""Measures how true predictions are for engines that run here, after `windlass profile`.

  scripts/bench predictions                 docs/predictions.md: the figures (under an hour on two idle cores)
  scripts/bench predictions --only own      one engine: own, llama.cpp or vllm; repeatable; the others keep their last results
  scripts/bench predictions --again         predict again for the last profiles and loads, without measuring

For each engine that is installed (scripts/engines):
1. One worker with a small model on one thread is measured by `windlass profile`.
2. `windlass simulate` with that profile looks for the highest rate at which the objectives are still met: its capacity.
3. At 30, 60 and 90 % of it, `windlass load` measures P50 and P95 of TTFT and TPOT on the same worker, with lengths of the same
   distribution, and `windlass simulate` predicts them with 90 % intervals for the arrivals and lengths of that load.
4. The load is raised until the objectives have been missed twice: the capacity delivered.

Results are in build/bench/predictions. Exits 0 if all was measured, whatever the figures; 1 if not; 2 for a wrong argument.
"""

import argparse
import datetime
import json
import math
import signal
import sys

import main as loop
import processes
from engines import BATCH, all_engines
from one_engine import ANSWER_TOKENS, PROMPT_WORDS, TEMPLATE_TOKENS, PredictedEngine
from settings import crossing

SHARES = (0.3, 0.6, 0.9)  # of the predicted capacity
BEYOND = (1.0, 1.1, 1.2, 1.35)  # until the objectives have been missed twice
LOAD_S = 120
TIMES = (("ttft", "TTFT"), ("tpot", "TPOT"))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else math.nan


class Bench(PredictedEngine):
    def __init__(self, out, name):
        super().__init__(out, name, out / name)

    def replayed(self, rate):
        """The workload of a SCENARIO: the requests of the load at this rate."""
        rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
        for one in json.loads(self.record_of(rate).read_text())["requests"]:
            if one["outcome"] == "completed":
                at = datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=one["scheduledSeconds"])
                rows.append(f"{at:%Y-%m-%d %H:%M:%S.%f},{one['promptTokens']},{one['tokens']}")
        (self.out / f"load-{rate:.3f}.csv").write_text("\n".join(rows) + "\n")
        return f"{{trace: load-{rate:.3f}.csv, arrivals: trace"

    def record_of(self, rate):
        return self.out / f"load-{rate:.3f}.json"

    def seen(self, worker, rate, seed):
        """What a load at this rate met: attainment, and the percentiles of its times."""
        others = processes.Others()
        record = self.load(f"http://127.0.0.1:{worker.port}", rate, LOAD_S, self.record_of(rate), seed)
        done = [one for one in record["requests"] if one["outcome"] == "completed"]
        times = {"ttft": [one["timeToFirstTokenSeconds"] for one in done if one["timeToFirstTokenSeconds"] is not None],
                 "tpot": [one["timePerOutputTokenSeconds"] for one in done if one["timePerOutputTokenSeconds"]]}
        return {"attainment": record["attainment"], "requests": len(record["requests"]), "others": others.share(),
                **{name: {"p50": percentile(values, 0.5), "p95": percentile(values, 0.95)} for name, values in times.items()}}

    def measure(self):
        with self.worker(self.engine.name + "-worker") as worker:
            loop.say("  profiling")
            others = processes.Others()
            self.profile(worker, self.out)
            most = others.share()
            can = self.capacity()
            if not can:
                raise processes.RunFailed("windlass simulate: the profile must allow some rate at which the objectives are met (got none)")
            loop.say(f"  predicted: {can:.2f} requests/s")
            loads, points = [], []
            for seed, share in enumerate(SHARES + BEYOND, 1):
                rate = share * can
                seen = self.seen(worker, rate, seed)
                loop.say(f"  {rate:.2f} requests/s ({share:.0%}): {seen['attainment']:.1%} attained; others took {seen['others']:.1%} of the processors")
                most = max(most, seen["others"])
                points.append((rate, seen["attainment"], seen["requests"]))
                if share in SHARES:
                    loads.append((rate, seen))
                elif sum(attained < self.engine.objectives.share for _, attained, _ in points) >= 2:
                    break  # a crossing needs loads on both sides
        return self.compare(loads, points, most)

    def compare(self, loads, points, others):
        """Predictions next to measured loads [(rate, what was seen)] and attainment [(rate, share, requests)]."""
        capacity = self.capacity(), self.capacity(0), self.capacity(1)
        rows = [{"share": rate / capacity[0], "rate": rate, "measured": seen, "predicted": self.predicted(self.replayed(rate))} for rate, seen in loads]
        return {"engine": self.engine.title, "capacity": capacity, "rows": rows, "points": points,
                **({} if others is None else {"others": others}), "delivered": crossing(points, self.engine.objectives.share)}


def milliseconds(seconds):
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def markdown(results, machine):
    lines = [f"{machine}. One worker on one thread, at most {BATCH} requests at once. Prompts of {PROMPT_WORDS + TEMPLATE_TOKENS} and answers of "
             f"{ANSWER_TOKENS} tokens in the mean, with a coefficient of variation of 1; Poisson arrivals, {LOAD_S} s for each rate. "
             "Milliseconds: measured, predicted with its 90 % interval; **bold**: measured outside of it.", "",
             "| engine | requests/s | of capacity | " + " | ".join(f"{title} {p.upper()}" for _, title in TIMES for p in ("p50", "p95")) + " |",
             "|---|---:|---:|" + "---:|" * (2 * len(TIMES))]
    inside = cells = 0
    for result in results:
        for row in result["rows"]:
            texts = []
            for name, _ in TIMES:
                for p in ("p50", "p95"):
                    measured, at = row["measured"][name][p], row["predicted"][f"{name}Seconds"][p]
                    low, high = row["predicted"]["intervals"][f"{name}Seconds"][p]
                    holds = low <= measured <= high
                    inside, cells = inside + holds, cells + 1
                    shown = milliseconds(measured) if holds else f"**{milliseconds(measured)}**"
                    texts.append(f"{shown}, {milliseconds(at)} ({milliseconds(low)} to {milliseconds(high)})")
            lines.append(f"| {result['engine']} | {row['rate']:.2f} | {row['share']:.0%} | " + " | ".join(texts) + " |")
    shares = ", ".join(f"{result['engine']} {result['others']:.1%}" for result in results if "others" in result)
    lines += ["", f"{inside} of {cells} inside. Other programs took at most this share of the processors during a measurement: {shares or 'not known'}.", "", "| engine | capacity predicted, requests/s | delivered | delivered / predicted |", "|---|---:|---:|---:|"]
    for result in results:
        can, least, most = result["capacity"]
        got = result["delivered"]
        lines.append(f"| {result['engine']} | {can:.2f} ({least:.2f} to {most:.2f}) | " +
                     (f"{got:.2f} | {got / can:.2f} |" if got else "outside of the rates | |"))
    return "\n".join(lines) + "\n"


def main(words):
    parser = argparse.ArgumentParser(prog="scripts/bench predictions", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=loop.ENGINES, help="only this engine; repeatable")
    parser.add_argument("--again", action="store_true", help="predict again for the loads and profiles of the last run")
    arguments = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    loop.build()
    processes.adopt_orphans()
    out = loop.ROOT / "build/bench/predictions"
    out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name, engine in all_engines(loop.ROOT, loop.ROOT / "build/release").items():
        kept = out / name / "result.json"
        if arguments.only and name not in arguments.only:
            continue
        if isinstance(engine, str):
            loop.say(f"{name}: skipped: {engine}")
            continue
        if arguments.again and not kept.exists():
            loop.say(f"{name}: skipped: there is no earlier run")
            continue
        loop.say(engine.title)
        try:
            bench = Bench(out, name)
            if arguments.again:
                last = json.loads(kept.read_text())
                last["result"] = bench.compare([(row["rate"], row["measured"]) for row in last["result"]["rows"]], last["result"]["points"], last["result"].get("others"))
            else:
                last = {"machine": loop.machine(), "result": bench.measure()}
            kept.write_text(json.dumps(last, indent=1) + "\n")
        except processes.RunFailed as error:
            loop.say(f"predictions: {error}")
            failed = True
        finally:
            processes.end_all()
    found = [json.loads((out / name / "result.json").read_text()) for name in loop.ENGINES if (out / name / "result.json").exists()]
    results = [one["result"] for one in found]
    text = markdown(results, ", ".join(dict.fromkeys(one["machine"] for one in found)))
    if len(found) == len(loop.ENGINES):
        (out / "predictions.md").write_text(text)
    loop.say("\n" + text)
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
