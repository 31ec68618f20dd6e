"""One engine without Windlass, for benches that compare predictions with what it delivers: its worker, its PerformanceProfile, and loads
whose lengths are as spread as a plan assumes."""

import argparse
import contextlib
import json
import subprocess

import main as loop
import processes
from engines import CONTEXT, SERVED
from fleet import Worker

PROMPT_WORDS, TEMPLATE_TOKENS, ANSWER_TOKENS = 60, 19, 40  # means; the chat template adds the same tokens to each prompt


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
