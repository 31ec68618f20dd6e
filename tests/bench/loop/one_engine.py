"""One engine without Windlass, for benches that compare predictions with what it delivers: its worker, its PerformanceProfile, loads
whose lengths are as spread as a plan assumes, and what `windlass simulate` predicts for them."""

import argparse
import contextlib
import json
import math
import random
import subprocess

import main as loop
import processes
from engines import BATCH, CONTEXT, SERVED, objects
from fleet import Worker

PROMPT_WORDS, TEMPLATE_TOKENS, ANSWER_TOKENS = 60, 19, 40  # means; the chat template adds the same tokens to each prompt
SIMULATED_S = 3000
DRAWN = 4000  # lengths
# What the engine's scheduler does, in the simulator's words. Our worker keeps the template's tokens as pages, and llama.cpp does because
# a slot's next prompt begins as its last one did. vLLM's pages on a CPU have 128 tokens, more than the template, and it does not schedule
# ahead there (vllm/platforms/cpu.py).
SCHEDULING = {"own": {"batching": "sarathi", "maxBatchTokens": 256, "prefixCaching": True},
              "llama.cpp": {"batching": "sarathi", "maxBatchTokens": 2048, "prefixCaching": True},
              "vllm": {"batching": "vllm-v1", "maxBatchTokens": 2048, "blockTokens": 128, "schedulesAhead": False}}


def draw_lengths(path):
    """A CSV of prompt and answer lengths as `windlass load --length-cv 1` draws them."""
    rng = random.Random(1)
    sigma = math.sqrt(math.log(2))  # of a log-normal with a coefficient of variation of 1

    def draw(mean):
        return max(1, round(rng.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)))
    rows = ["num_prefill_tokens,num_decode_tokens"]
    for _ in range(DRAWN):
        prompt = draw(PROMPT_WORDS)
        answer = min(draw(ANSWER_TOKENS), CONTEXT - 64 - prompt)
        rows.append(f"{TEMPLATE_TOKENS + prompt},{max(1, answer)}")
    path.write_text("\n".join(rows) + "\n")


class OneEngine:
    def __init__(self, out, name):
        """`out`: the folder of the bench. Raises RunFailed if the engine is not installed."""
        self.base = loop.Bench(argparse.Namespace(out=out, seed=1, bin=None, minutes=None, quick=False, rates=None, earlier=[]))
        self.windlass = self.base.windlass
        self.engine = self.base.engines[name]
        if isinstance(self.engine, str):
            raise processes.RunFailed(self.engine)

    def run(self, *words, allowed=(0,)):
        done = subprocess.run([str(word) for word in (self.windlass, *words)], capture_output=True, text=True, check=False, cwd=loop.ROOT)
        if done.returncode not in allowed:
            raise processes.RunFailed(f"windlass {words[0]}: {done.stderr.strip()}")
        return done.stdout

    @contextlib.contextmanager
    def worker(self, folder):
        """A worker that is ready, with its logs in this folder of the bench."""
        worker = Worker(self.engine, self.base.folder(folder), 0)
        try:
            def ready():
                worker.look()
                return worker.ready
            processes.wait_until(ready, self.engine.start_s, f"a worker of {self.engine.title} that is ready")
            yield worker
        finally:
            processes.stop(worker.process, 30)

    def objectives(self):
        return "--ttft", f"{self.engine.objectives.ttft_s}s", "--tpot", f"{self.engine.objectives.tpot_s}s"

    def profile(self, worker, folder):
        """Measures the worker; returns the path of profile.yaml, next to which are a page and the rows."""
        path = folder / "profile.yaml"
        self.run("profile", "--worker", f"http://127.0.0.1:{worker.port}", "--model", SERVED, "--accelerator", "core", *self.objectives(),
                 "--fit", "linear", "-o", path, "--html", folder / "profile.html", "--csv", folder / "profile.csv")
        return path

    def load(self, url, rate, seconds, record, seed):
        """Sends a Poisson load. Returns what `windlass load` measured, and keeps it in the file `record`."""
        record.write_text(self.run("load", "--url", url, "--model", SERVED, "--phases", f"{rate:.3f}/{seconds}s", "--prompt-tokens",
                                   PROMPT_WORDS, "--max-tokens", ANSWER_TOKENS, "--length-cv", 1, "--context-tokens", CONTEXT - 64,
                                   "--ignore-eos", "--seed", seed, *self.objectives(), "--quiet", "-o", "json", allowed=(0, 1)))
        return json.loads(record.read_text())


class PredictedEngine(OneEngine):
    """With its simulation by the profile in its folder."""

    def __init__(self, out, name, folder):
        super().__init__(out, name)
        self.out = folder
        self.reports = {}  # by workload and scheduling
        self.scheduling = {**SCHEDULING[name], "maxSequences": BATCH}
        self.out.mkdir(parents=True, exist_ok=True)
        self.base.make_model(self.engine)
        draw_lengths(self.out / "lengths.csv")

    def drawn(self, rate):
        """The workload of a SCENARIO: requests at this rate."""
        return f"{{lengths: lengths.csv, arrivals: poisson, requestsPerSecond: {rate:.4f}, duration: {SIMULATED_S}s"

    def scenario(self, workload):
        """A SCENARIO with the class, of one worker with this workload."""
        objectives = self.engine.objectives
        accelerator = objects(self.engine, 1, PROMPT_WORDS, ANSWER_TOKENS, 1).split("---\n")[0]
        text = f"""seed: 1
model:
  maxContextTokens: {CONTEXT}
  config:
    inline:
        {self.engine.shape.strip()}
latency: {{source: linear, file: profile.yaml, model: {SERVED}, kvCapacityTokens: {max(BATCH, self.scheduling["maxSequences"]) * CONTEXT}}}
workload: {workload}, sharedPrefixes: {{count: 1, tokens: {TEMPLATE_TOKENS}}}}}
cluster:
  pools: [{{accelerator: core, workers: 1, pricePerGpuHour: 1}}]
scheduling: {json.dumps(self.scheduling)}
slo: {{timeToFirstToken: {objectives.ttft_s}s, timePerOutputToken: {objectives.tpot_s}s, percentile: {100 * objectives.share:g}}}
"""
        path = self.out / "scenario.yaml"
        path.write_text(text)
        (self.out / "class.yaml").write_text(accelerator)
        return path

    def predicted(self, workload):
        """The simulator's report for this workload."""
        key = workload, json.dumps(self.scheduling)
        if key not in self.reports:
            self.reports[key] = json.loads(self.run("simulate", "-f", self.scenario(workload), "-f", self.out / "class.yaml", "-o", "json"))
        return self.reports[key]

    def capacity(self, end=None):
        """The highest rate at which the share of requests that must attain does, by the simulator; at an end of its interval: 0, 1."""
        def attains(rate):
            report = self.predicted(self.drawn(rate))
            share = report["sloAttainment"] if end is None else report["intervals"]["sloAttainment"][end]
            return share >= self.engine.objectives.share
        low, high = 0.0, 0.1
        while attains(high):
            low, high = high, 2 * high
        while high > 1.02 * max(low, 1e-3):
            middle = (low + high) / 2
            low, high = (middle, high) if attains(middle) else (low, middle)
        return low
