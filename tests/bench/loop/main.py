"""Measures the control loop with a real model, compared with the same workers without Windlass.

  scripts/bench loop                    all cases, and the tables and the chart in docs/control-loop-measured.md (under an hour)
  scripts/bench loop --quick            one case for one minute, to check that everything works
  scripts/bench loop --only own-low     one case, or with an engine's name all of its cases; repeatable
  scripts/bench loop --list             list the cases

SmolLM2-135M on one thread per worker, at most two workers. Each engine that is installed (Windlass' worker, llama.cpp, vLLM) serves the
same Poisson load, with a step and a ramp. Windlass runs it with a data sheet that is right (ENGINE-right), four times too low
(ENGINE-low) and four times too high (ENGINE-high). Without Windlass, behind round robin and without slot limits, it runs on one worker
(ENGINE-one), on two workers all the time (ENGINE-fleet), and on the number that KEDA's rule for requests in flight gives (ENGINE-keda).

Results are in build/bench/loop: results.json, loop.md, loop.svg, and a folder per case with the programs' output. Exits 0 if every
case was measured, whatever the figures; 1 if one was not; 2 for a wrong argument.
"""

import argparse
import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import draw
import judge
import processes
from autoscaler import ConcurrencyRule
from engines import RANDOM_SHAPE, SERVED, all_engines, objects
from fleet import Fleet, measure_capacity
from stack import Refused, Stack

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("windlass", "windlass-controller", "windlass-gateway", "windlass-worker")
TARGETS = ("windlass-cli", *PROGRAMS[1:])
SHEETS = {"right": 1, "low": 0.25, "high": 4}
SYSTEMS = ("one", "fleet", "keda")
ENGINES = ("own", "llama.cpp", "vllm")
MOST = 2  # workers
PROMPT_WORDS, ANSWER_TOKENS = 60, 40
LOW_SHARE, HIGH_SHARE = 0.5, 1.3  # of one worker's measured capacity: it can serve the low rate alone, but not the high one
KEDA_TARGET = 6  # requests in flight per worker; one worker kept the objectives with 8
PATIENCE_S = 20  # after the load; requests without an answer by then have missed anyway
WHOLE_MINUTES, QUICK_MINUTES = 2.5, 1.0


@dataclasses.dataclass(frozen=True)
class Case:
    engine: str
    system: str
    sheet: str = ""

    @property
    def name(self):
        return f"{self.engine}-{self.sheet or self.system}"


def all_cases():
    return [case for engine in ENGINES
            for case in [*(Case(engine, system) for system in SYSTEMS), *(Case(engine, "windlass", sheet) for sheet in SHEETS)]]


def say(text):
    print(text, flush=True)


def rates(text):
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        low = high = math.nan
    if not 0 < low < high < 1000:
        raise argparse.ArgumentTypeError(f"must be LOW,HIGH in requests per second, such as 1.2,2.0 (got '{text}')")
    return low, high


def rates_of(case):
    """Low and high rate of a case in results.json."""
    return case["phases"][0][0], case["phases"][1][0]


def bounded(kind, least, most):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be {least} to {most} (got '{text}')")
        return value
    return parse


def parse(words):
    parser = argparse.ArgumentParser(prog="scripts/bench loop", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument("--quick", action="store_true", help="run only own-low, or the cases of --only, for one minute")
    parser.add_argument("--only", action="append", metavar="CASE", help="run this case, or this engine's; repeatable")
    parser.add_argument("--minutes", type=bounded(float, 0.5, 600), help=f"minutes of load per case (default: {WHOLE_MINUTES:g})")
    parser.add_argument("--rates", type=rates, metavar="LOW,HIGH", 
                        help="requests per second before and after the step (default: those of --before, otherwise "
                        f" {LOW_SHARE:g} and {HIGH_SHARE:g} times the measured capacity of one worker of the engine)")
    parser.add_argument("--seed", type=bounded(int, 0, 2**32), help="seed of arrivals and prompts (default: 1)")
    parser.add_argument("--before", type=Path, metavar="FILE",
                        help="results.json of an earlier run; repeat its load and show both runs")
    parser.add_argument("--bin", type=Path, metavar="DIR",
                        help="use the programs in DIR without building (default: build/release, built first)")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench/loop", metavar="DIR", help="folder for the results (default: build/bench/loop)")
    arguments = parser.parse_args(words)
    names = [case.name for case in all_cases()]
    for name in arguments.only or []:
        if name not in names and name not in ENGINES:
            parser.error(f"argument --only: must be a case that --list prints or one of {', '.join(ENGINES)} (got '{name}')")
    if arguments.before:
        try:
            earlier = json.loads(arguments.before.read_text())
            arguments.earlier = earlier["cases"]
            # The same load as before.
            arguments.minutes = arguments.minutes or (QUICK_MINUTES if arguments.quick else earlier["minutes"])
            arguments.seed = earlier["seed"] if arguments.seed is None else arguments.seed
        except (OSError, ValueError, KeyError, TypeError):
            parser.error(f"argument --before: must be a results.json of this bench (got '{arguments.before}')")
    else:
        arguments.earlier = []
    if arguments.bin:
        lacking = [name for name in PROGRAMS if not os.access(arguments.bin / name, os.X_OK)]
        if lacking:
            parser.error(f"argument --bin: must be a folder with {', '.join(PROGRAMS)} (got '{arguments.bin}', which lacks {', '.join(lacking)})")
    return arguments


def chosen(arguments):
    only = arguments.only or (["own-low"] if arguments.quick else None)
    return [case for case in all_cases() if only is None or case.name in only or case.engine in only]


def build():
    subprocess.run([ROOT / "scripts/setup"], cwd=ROOT, check=True)
    log = ROOT / "build/bench/loop-build.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    say("building (the first build takes minutes)")
    with open(log, "w", encoding="utf-8") as out:
        for command in (["cmake", "--preset", "release"], ["cmake", "--build", "--preset", "release", "--target", *TARGETS]):
            if subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=False).returncode != 0:
                sys.exit(f"loop: the build failed: {processes.last_words(log, 20)}")


def machine():
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else 'unknown processor'}, {os.cpu_count()} cores"


class Bench:
    def __init__(self, arguments):
        self.out, self.seed = arguments.out.resolve(), 1 if arguments.seed is None else arguments.seed
        self.binaries = (arguments.bin or ROOT / "build/release").resolve()
        self.windlass = self.binaries / "windlass"
        self.minutes = arguments.minutes or (QUICK_MINUTES if arguments.quick else WHOLE_MINUTES)
        self.rates, self.earlier = arguments.rates, arguments.earlier
        self.engines = all_engines(ROOT, self.binaries)
        self.loads = {}

    def folder(self, name):
        folder = self.out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def make_model(self, engine):
        if engine.model.exists():
            return
        say(f"  fetching {engine.model.relative_to(ROOT)}")
        random = engine.model.suffix != ".gguf"
        command = ["init", *RANDOM_SHAPE, engine.model] if random else ["fetch", "smollm2-135m", "-o", engine.model]
        done = subprocess.run([self.windlass, "model", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise processes.RunFailed(f"windlass model {command[0]}: {done.stderr.strip()}")

    def send(self, engine, folder, url, phases, end_s, tick=lambda now_s: None, seed=None):
        """Sends the load and calls tick every second. Returns the load's measurements."""
        record = folder / "load.json"
        objectives = engine.objectives
        command = [self.windlass, "load", "--url", url, "--model", SERVED, "--phases", phases, "--prompt-tokens", str(PROMPT_WORDS),
                   "--max-tokens", str(ANSWER_TOKENS), "--seed", str(self.seed if seed is None else seed), "--ttft", f"{objectives.ttft_s * 1e3:.0f}ms",
                   "--tpot", f"{objectives.tpot_s * 1e3:.0f}ms", "--quiet", "-o", "json"]
        with open(record, "wb") as out, open(folder / "load.log", "wb") as log:
            process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=log)
        begun = time.monotonic()
        try:
            while process.poll() is None:
                now_s = time.monotonic() - begun
                tick(now_s)
                if now_s > end_s + PATIENCE_S:
                    process.terminate()  # requests without an answer yet are lost and count as missed
                time.sleep(max(0.05, math.floor(now_s) + 1 - (time.monotonic() - begun)))
        finally:
            processes.stop(process, 10)
        try:
            return json.loads(record.read_text())
        except ValueError:
            raise processes.RunFailed(f"windlass load: {processes.last_words(folder / 'load.log')}") from None

    def load_of(self, engine):
        """The same for every case of an engine."""
        if engine.name not in self.loads:
            low, high = self.rates or next((rates_of(case) for case in self.earlier if case["engine"] == engine.name), (None, None))
            if low is None:
                say(f"  measuring the capacity of one worker ({engine.title})")
                folder = self.folder(f"{engine.name}-capacity")
                can = measure_capacity(engine, folder, lambda url, phases, seed: self.send(engine, folder, url, phases, 60, seed=seed))
                low, high = round(LOW_SHARE * can, 2), round(HIGH_SHARE * can, 2)
                say(f"  {can:.2f} requests/s; the load goes from {low:g} to {high:g}")
            self.loads[engine.name] = judge.step_and_ramp(low, high, self.minutes)
        return self.loads[engine.name]

    def start(self, case, engine, folder):
        if case.system == "windlass":
            text = objects(engine, SHEETS[case.sheet], PROMPT_WORDS, ANSWER_TOKENS, MOST)
            return Stack(self.windlass, text, folder, MOST, engine.start_s, ROOT)
        rule = ConcurrencyRule(KEDA_TARGET, 1, MOST) if case.system == "keda" else None
        return Fleet(engine, folder, MOST if case.system == "fleet" else 1, rule)

    def measure(self, case, engine):
        """One case, as results.json has it."""
        load = self.load_of(engine)
        result = {"name": case.name, "engine": case.engine, "system": case.system, "sheet": case.sheet, "phases": load.phases,
                  "objectives": dataclasses.asdict(engine.objectives), "step_s": load.step_s, "share_for_one_worker": load.share_for_one_worker()}
        folder = self.folder(case.name)
        samples = []
        system = self.start(case, engine, folder)
        try:
            system.wait()
            record = self.send(engine, folder, system.url, load.text, load.seconds, lambda now_s: samples.append((now_s, dict(system.tick(now_s)))))
        except Refused as refused:
            return {**result, "refused": str(refused), "attainment": 0.0, "worker_seconds": 0.0, "recover_s": None, "course": [], "samples": []}
        finally:
            system.close()
        requests = judge.judged(record, engine.objectives)
        course = judge.rolling(requests, load.seconds)
        p95 = {key: (record[field] or {}).get("p95") for key, field in
               (("ttft_p95_s", "timeToFirstTokenSeconds"), ("tpot_p95_s", "timePerOutputTokenSeconds"))}
        return {**result, **p95, "sent": record["sent"], "completed": record["completed"], "rejected": record["rejected"], "lost": record["lost"],
                "attainment": judge.share(requests), "recover_s": judge.time_to_recover(course, load.step_s, engine.objectives.share),
                "worker_seconds": judge.worker_seconds([(t, seen["workers"]) for t, seen in samples], load.seconds),
                "course": course, "samples": [{"t": round(t, 2), **seen} for t, seen in samples]}


def main(words):
    arguments = parse(words)
    cases = chosen(arguments)
    if arguments.list:
        for case in cases:
            print(f"{case.name:16} {draw.ENGINE_TITLES[case.engine]}: {draw.title(dataclasses.asdict(case))}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not arguments.bin:
        build()
    processes.adopt_orphans()
    bench = Bench(arguments)
    bench.out.mkdir(parents=True, exist_ok=True)
    missing = {name: engine for name, engine in bench.engines.items() if isinstance(engine, str)}
    for name, why in missing.items():
        if any(case.engine == name for case in cases):
            say(f"skipping {name}: {why}")
    cases = [case for case in cases if case.engine not in missing]
    results = {"machine": machine(), "when": time.strftime("%Y-%m-%d %H:%M"), "load_average_before": os.getloadavg()[0],
               "minutes": bench.minutes, "seed": bench.seed, "left_out": missing, "cases": []}
    if results["load_average_before"] > 0.5:
        say(f"other programs are using this machine (load average {results['load_average_before']:.1f}): the figures are unreliable")
    failed = 0
    try:
        for number, case in enumerate(cases, 1):
            say(f"{number} of {len(cases)}: {case.name}, about {bench.minutes + 0.3:.1f} min ({draw.ENGINE_TITLES[case.engine]}: "
                f"{draw.title(dataclasses.asdict(case))})")
            begun = time.monotonic()
            engine = bench.engines[case.engine]
            try:
                bench.make_model(engine)
                result = bench.measure(case, engine)
            except processes.RunFailed as error:
                failed += 1
                say(f"  FAILED {error}")
                continue
            finally:
                processes.end_all()
            results["cases"].append(result)
            say(f"  {draw.summary(result)}; took {time.monotonic() - begun:.0f} s")
            (bench.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    finally:
        processes.end_all()
    if not results["cases"]:
        say("loop: nothing was measured")
        return 1
    text = draw.markdown(results, arguments.earlier)
    (bench.out / "loop.md").write_text(text)
    (bench.out / "loop.svg").write_text(draw.chart(results, arguments.earlier))
    as_published = (bench.minutes, bench.seed) == (WHOLE_MINUTES, 1) and not (arguments.only or arguments.rates or arguments.bin)
    (bench.out / "whole").unlink(missing_ok=True)
    if as_published and not failed:
        (bench.out / "whole").touch()  # scripts/bench publishes it
    say("\n" + text + f"\nsee {bench.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
