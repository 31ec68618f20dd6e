"""`windlass up` for one case: started in a fresh folder, sampled once a second, ended with all its processes."""

import json
import re
import subprocess

import processes
from engines import SERVED

INFEASIBLE = 3  # exit status of `windlass up`


def metric_sum(text, name, **labels):
    """Sum of a metric's series that have these labels; None if there is none."""
    values = []
    for line in (text or "").splitlines():
        match = re.match(re.escape(name) + r"(?:\{(.*)\})? (\S+)", line)
        if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
            values.append(float(match[2]))
    return sum(values) if values else None


class Refused(processes.RunFailed):
    """Windlass reports that the objective cannot be met."""


class Stack:
    def __init__(self, windlass, objects, folder, most, start_s, cwd):
        self.windlass, self.folder, self.start_s, self.cwd = windlass, folder / "run", start_s, cwd
        self.log = folder / "up.log"
        file = folder / "service.yaml"
        file.write_text(objects)
        port = processes.free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.last = {}
        self.up = processes.start([windlass, "up", "-f", file, "--dir", self.folder, "--listen", f"127.0.0.1:{port}", "--gpus", str(most)],
                                  self.log, cwd)

    def wait(self):
        processes.wait_until(lambda: self._read().get("slots"), self.start_s, "a worker that takes requests")

    def tick(self, now_s):
        """Like Fleet.tick(), plus the slots and the gateway's queue. If nothing can be read, returns the last reading."""
        return self._read()

    def close(self):
        explained = subprocess.run([self.windlass, "explain", f"ms/{SERVED}", "--dir", self.folder], cwd=self.cwd, capture_output=True,
                                   text=True, check=False)
        (self.folder.parent / "explain.txt").write_text(explained.stdout + explained.stderr)
        processes.stop(self.up, 90)

    def _read(self):
        if self.up.poll() is not None:
            words = processes.last_words(self.log)
            raise (Refused if self.up.returncode == INFEASIBLE else processes.RunFailed)(f"windlass up: exit status {self.up.returncode}: {words}")
        try:
            endpoints = json.loads((self.folder / "endpoints.json").read_text())
        except (OSError, ValueError):
            return self.last
        controller = processes.page(endpoints["controller"] + "/metrics")
        gateway = processes.page(endpoints["gatewayAdmin"][0] + "/metrics")
        # Each existing worker is in exactly one of these states.
        workers = metric_sum(controller, "windlass_controller_workers")
        if workers is not None and gateway is not None:
            self.last = {"workers": workers, "ready": metric_sum(controller, "windlass_controller_workers", state="ready") or 0,
                         "in_flight": metric_sum(gateway, "windlass_gateway_requests_in_flight") or 0,
                         "queued": metric_sum(gateway, "windlass_gateway_queue_length") or 0,
                         "slots": metric_sum(gateway, "windlass_gateway_chain_slots") or 0}
        return self.last
