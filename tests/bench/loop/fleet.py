"""Workers without Windlass: engine processes behind plain round robin, as behind a Kubernetes Service.

Windlass decides nothing here: each request goes to the next worker, whatever its load. `windlass load` opens a
connection per request, so round robin over connections is round robin over requests.
"""

import asyncio
import threading

import processes
from engines import BATCH


class RoundRobin:
    """A TCP proxy on its own thread. `in_flight` counts open connections by the worker's port."""

    def __init__(self):
        self.targets = []  # the workers' ports; replaced as a whole
        self.in_flight = {}
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop).result()
        self.port = server.sockets[0].getsockname()[1]

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader, writer):
        targets = self.targets
        if not targets:
            writer.close()
            return
        port = targets[self._turn % len(targets)]
        self._turn += 1
        self.in_flight[port] = self.in_flight.get(port, 0) + 1
        try:
            from_worker, to_worker = await asyncio.open_connection("127.0.0.1", port)
            copies = {asyncio.create_task(self._copy(reader, to_worker)), asyncio.create_task(self._copy(from_worker, writer))}
            _, pending = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            for one in pending:
                one.cancel()
            to_worker.close()
        except OSError:
            pass  # the client sees a broken connection
        finally:
            self.in_flight[port] -= 1
            writer.close()

    @staticmethod
    async def _copy(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass


class Worker:
    def __init__(self, engine, folder, number):
        self.port = processes.free_port()
        self.log = folder / f"worker-{number}.log"
        self.ready_url = f"http://127.0.0.1:{self.port}{engine.ready_page}"
        self.process = processes.start(engine.command(self.port), self.log, cwd=folder, env=engine.env)
        self.ready = self.draining = False

    def look(self):
        if self.process.poll() is not None:
            raise processes.RunFailed(f"a worker ended with {self.process.returncode}: {processes.last_words(self.log)}")
        self.ready = self.ready or processes.page(self.ready_url) is not None


class Fleet:
    """`workers` of an engine; a ConcurrencyRule may change their number. Call tick() once a second."""

    def __init__(self, engine, folder, workers, rule=None):
        self.engine, self.folder, self.rule = engine, folder, rule
        self.proxy = RoundRobin()
        self.url = f"http://127.0.0.1:{self.proxy.port}"
        self.workers, self.started = [], 0
        self._scale_to(workers)

    def wait(self):
        processes.wait_until(lambda: self._look() or all(one.ready for one in self.workers), self.engine.start_s, "workers ready")

    def tick(self, now_s):
        """Returns the numbers of existing workers, of workers that accept requests, and of requests in flight."""
        self._look()
        in_flight = sum(self.proxy.in_flight.values())
        staying = [one for one in self.workers if not one.draining]
        if self.rule:
            self._scale_to(self.rule.decide(now_s, len(staying), in_flight))
        return {"workers": len(self.workers), "ready": len(self.proxy.targets), "in_flight": in_flight}

    def close(self):
        for one in self.workers:
            processes.stop(one.process, 10)
        self.proxy.close()

    def _scale_to(self, count):
        staying = [one for one in self.workers if not one.draining]
        for one in staying[count:]:
            one.draining = True
        for _ in range(count - len(staying)):
            self.started += 1
            self.workers.append(Worker(self.engine, self.folder, self.started))

    def _look(self):
        for one in self.workers:
            one.look()
        self.proxy.targets = [one.port for one in self.workers if one.ready and not one.draining]
        for one in [one for one in self.workers if one.draining and not self.proxy.in_flight.get(one.port)]:
            processes.stop(one.process, 10)
            self.workers.remove(one)


def measure_capacity(engine, folder, load):
    """Requests per second of one overloaded worker, over a time long enough that start and end hardly matter."""
    fleet = Fleet(engine, folder, 1)
    try:
        fleet.wait()
        def served_per_s(phases, seed):
            record = load(fleet.url, phases, seed)
            if not record["completed"]:
                raise processes.RunFailed("the worker answered nothing while its capacity was measured")
            return record["completed"] / record["elapsedSeconds"]
        # Prompts of one seed are the same each time, and a cache would hit.
        about = served_per_s(f"{BATCH}/2s", 1001)
        return served_per_s(f"{3 * about:.2f}/8s", 1002)
    finally:
        fleet.close()
