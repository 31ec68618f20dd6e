"""Tests of the bench's evaluation, KEDA rule, charts and round robin. scripts/test runs them with its other checks."""

import contextlib
import io
import math
import socket
import threading
import unittest
import xml.dom.minidom

import draw
import fleet
import judge
import main
import processes
import settings
from autoscaler import ConcurrencyRule
from stack import metric_sum


def request(due, ttft=0.5, tpot=0.1, outcome="completed", finished=1.0):
    return {"scheduledSeconds": due, "finishedSeconds": finished, "outcome": outcome, "timeToFirstTokenSeconds": ttft,
            "timePerOutputTokenSeconds": tpot}


class SettingsTest(unittest.TestCase):
    def test_capacity_lies_where_attainment_falls_below_the_goal(self):
        def crossing(*shares):
            return settings.crossing([(rate, kept, 300) for rate, kept in enumerate(shares, 2)], 0.95)
        exact = [1 / (1 + math.exp(-(3 - (rate - 4)))) for rate in range(2, 7)]  # 0.95 at 4 + 3 - ln 19
        self.assertAlmostEqual(crossing(*exact), 7 - math.log(19), delta=0.1)
        self.assertTrue(2 < crossing(0.93, 0.99, 0.94) < 3, "one load's chance moves the curve little")
        self.assertTrue(3 < crossing(1.0, 1.0, 0.0) < 4, "also without a load between")
        self.assertIsNone(crossing(1.0, 0.96), "each load attained it")
        self.assertIsNone(crossing(0.9, 0.8), "no load attained it")

    def test_an_option_has_its_value_in_the_same_word_or_the_next(self):
        self.assertEqual(settings.option_of(["serve", "--a", "1", "--b=2"], "--a"), "1")
        self.assertEqual(settings.option_of(["serve", "--a", "1", "--b=2"], "--b"), "2")
        self.assertIsNone(settings.option_of(["serve", "--a"], "--a"))


class JudgeTest(unittest.TestCase):
    def test_a_request_attains_inside_both_objectives(self):
        record = {"requests": [request(0), request(1, ttft=1.01), request(2, tpot=0.151), request(3, outcome="rejected"),
                               request(4, outcome="lost"), request(5, tpot=None), request(6, ttft=None, finished=6.9),
                               request(7, ttft=None, finished=8.1)]}
        kept = [kept for _, kept in judge.judged(record, judge.Objectives(1.0, 0.15))]
        self.assertEqual(kept, [True, False, False, False, False, True, True, False])

    def test_the_rolling_share_is_of_requests_due_in_the_window(self):
        course = judge.rolling([(0.5, True), (1.5, False), (4.2, True)], 6, window_s=2)
        self.assertEqual(course, [(1, 1.0), (2, 0.5), (3, 0.0), (5, 1.0), (6, 1.0)])

    def test_recovery_counts_from_the_step_to_the_return(self):
        fine = [(t, 1.0) for t in range(20)]
        dip = [(t, 0.5 if 8 <= t < 13 else 1.0) for t in range(20)]
        self.assertEqual(judge.time_to_recover(fine, 5, 0.95), 0)
        self.assertEqual(judge.time_to_recover(dip, 5, 0.95), 8)
        self.assertEqual(judge.time_to_recover(dip, 14, 0.95), 0)
        self.assertIsNone(judge.time_to_recover(dip[:12], 5, 0.95))

    def test_worker_seconds_end_with_the_load(self):
        self.assertEqual(judge.worker_seconds([(0.5, 1), (10, 2), (20, 1)], 30), 10 + 20 + 10)
        self.assertEqual(judge.worker_seconds([(0, 2), (50, 1), (60, 1)], 30), 60)
        self.assertEqual(judge.worker_seconds([], 30), 0)

    def test_half_of_the_load_needs_one_worker(self):
        load = judge.step_and_ramp(1.2, 2.0, 2.5)
        self.assertAlmostEqual(load.seconds, 150)
        self.assertEqual((load.step_s, load.phases[0], load.phases[1]), (50, (1.2, 50), (2.0, 40)))
        self.assertAlmostEqual(load.share_for_one_worker(), 0.6)
        self.assertTrue(load.text.startswith("1.200/50s,2.000/40s,1.200/30s,1.267/5s"))
        self.assertEqual([rate for rate, _ in load.phases[3:]], sorted(rate for rate, _ in load.phases[3:]))

    def test_windlass_is_held_to_what_the_fixed_fleet_can(self):
        def case(name, system, attained, cost):
            return {"name": name, "engine": "own", "system": system, "objectives": {"share": 0.95}, "attainment": attained,
                    "worker_seconds": cost, "share_for_one_worker": 0.57}
        runs = [case("own-right", "windlass", 0.96, 200), case("own-low", "windlass", 0.94, 200), case("own-high", "windlass", 0.99, 250)]
        verdicts = judge.claims([case("own-fleet", "fleet", 0.97, 300), *runs])
        self.assertEqual([(name, holds) for name, holds, _ in verdicts], [("own-right", True), ("own-low", False), ("own-high", False)])
        self.assertEqual(judge.claims([case("own-fleet", "fleet", 0.9, 300), *runs]), [])


class ConcurrencyRuleTest(unittest.TestCase):
    def test_goes_up_at_once_and_down_after_five_minutes(self):
        rule = ConcurrencyRule(6, 1, 4)
        self.assertEqual(rule.decide(0, 1, 6.5), 1)  # within the tolerance
        self.assertEqual(rule.decide(14, 1, 24), 1)  # between two evaluations of the rule
        self.assertEqual(rule.decide(15, 1, 13), 3)
        self.assertEqual(rule.decide(30, 3, 100), 4)
        self.assertEqual([rule.decide(t, 4, 1) for t in range(45, 330, 15)], [4] * 19)
        self.assertEqual(rule.decide(330, 4, 1), 1)

    def test_keeps_the_least(self):
        self.assertEqual(ConcurrencyRule(6, 1, 4).decide(0, 1, 0), 1)


class RoundRobinTest(unittest.TestCase):
    """Given two servers that send their name, and one client after another; expects alternating servers and counts that return to zero."""

    def setUp(self):
        self.proxy = fleet.RoundRobin()
        self.addCleanup(self.proxy.close)

    def server(self, name):
        listener = socket.create_server(("127.0.0.1", 0))

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(100)
                        client.sendall(name)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(listener.close)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)
        return listener.getsockname()[1]

    def ask(self):
        with socket.create_connection(("127.0.0.1", self.proxy.port)) as client:
            answer = b""
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                client.sendall(b"hello")
                while part := client.recv(100):
                    answer += part
            return answer

    def test_requests_take_turns(self):
        self.proxy.targets = [self.server(b"one"), self.server(b"two")]
        self.assertEqual([self.ask() for _ in range(4)], [b"one", b"two", b"one", b"two"])
        processes.wait_until(lambda: not any(self.proxy.in_flight.values()), 60, "no request in flight")
        self.proxy.targets = self.proxy.targets[1:]
        self.assertEqual([self.ask() for _ in range(2)], [b"two", b"two"])

    def test_without_a_worker_the_connection_ends(self):
        self.assertEqual(self.ask(), b"")


class StackTest(unittest.TestCase):
    def test_metrics_are_summed_by_label(self):
        text = '# HELP w x\nw{name="a",state="ready"} 1\nw{name="a",state="starting"} 2\nw_total 7\n'
        self.assertEqual(metric_sum(text, "w"), 3)
        self.assertEqual(metric_sum(text, "w", state="ready"), 1)
        self.assertEqual(metric_sum(text, "w_total"), 7)
        self.assertIsNone(metric_sum(text, "w", state="failed"))
        self.assertIsNone(metric_sum(None, "w"))


def measured(name, system, sheet="", **other):
    engine = name.rsplit("-", 1)[0]
    return {"name": name, "engine": engine, "system": system, "sheet": sheet,
            "objectives": {"ttft_s": 1.0, "tpot_s": 0.15, "share": 0.95}, "phases": judge.step_and_ramp(1.2, 2.0, 1).phases, "step_s": 20,
            "share_for_one_worker": 0.57, "attainment": 0.96, "worker_seconds": 80.0, "recover_s": 12.0, "ttft_p95_s": 0.9, "tpot_p95_s": 0.1,
            "course": [(0, 1.0), (30, 0.9), (60, 1.0)], "samples": [{"t": 0.1, "workers": 1}, {"t": 20.1, "workers": 2}], **other}


class DrawTest(unittest.TestCase):
    def setUp(self):
        refused = measured("llama.cpp-low", "windlass", "low", refused="no plan", attainment=0.0, worker_seconds=0.0, recover_s=None, course=[],
                           samples=[])
        self.results = {"machine": "two cores & more", "when": "today", "load_average_before": 0.1, "seed": 1, "left_out": {"vllm": "no vllm"},
                        "cases": [measured("own-one", "one", recover_s=None), measured("own-fleet", "fleet", worker_seconds=120.0),
                                  measured("own-low", "windlass", "low"), refused]}

    def test_the_table_has_a_row_per_case_and_the_verdicts(self):
        text = draw.markdown(self.results)
        rows = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len({row.count("|") for row in rows}), 1)
        self.assertIn("| Windlass' worker | one worker | 96.0 % | 80 | 0.67 | never | 900 ms | 100 ms |", rows)
        self.assertIn("| llama.cpp | Windlass, data sheet 4 times too low | refused: infeasible | | | | | |", rows)
        self.assertIn("- holds: own-low, 96.0%", text)
        self.assertIn("vLLM is left out: no vllm.", text)

    def test_an_earlier_run_has_a_column(self):
        text = draw.markdown(self.results, [measured("own-low", "windlass", "low", attainment=0.4)])
        rows = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len({row.count("|") for row in rows}), 1)
        self.assertTrue(any("too low | 96.0 % | 40.0 % | 80 |" in row for row in rows))

    def test_the_chart_is_xml_with_a_line_for_each_run(self):
        text = draw.chart(self.results, [measured("own-low", "windlass", "low")])
        document = xml.dom.minidom.parseString(text)
        colours = [path.getAttribute("stroke") for path in document.getElementsByTagName("path")]
        for key in ("one", "fleet", "before", "windlass"):
            self.assertEqual(colours.count(draw.COLOURS[key]), 3, key)  # the legend, attainment, workers
        self.assertIn("refused, infeasible", text)


class ArgumentsTest(unittest.TestCase):
    def test_wrong_ones_end_with_2_and_are_named(self):
        for words, name in ((["--only", "x"], "--only"), (["--rates", "2,1"], "--rates"), (["--minutes", "0"], "--minutes"),
                            (["--seed", "-1"], "--seed"), (["--bin", "/no/such"], "--bin"), (["--before", "/no/such"], "--before"),
                            (["--bogus"], "--bogus"), (["x"], "x")):
            said = io.StringIO()
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(said):
                main.parse(words)
            self.assertEqual(ended.exception.code, 2, words)
            self.assertIn(name, said.getvalue())

    def test_the_rates_of_an_earlier_run_are_known(self):
        self.assertEqual(main.rates_of(measured("own-low", "windlass", "low")), (1.2, 2.0))

    def test_cases_are_chosen_by_name_and_by_engine(self):
        names = lambda words: [case.name for case in main.chosen(main.parse(words))]
        self.assertEqual(names(["--quick"]), ["own-low"])
        self.assertEqual(names(["--only", "own-high", "--only", "vllm-keda"]), ["own-high", "vllm-keda"])
        self.assertEqual(len(names(["--only", "own"])), 6)
        self.assertEqual(len(names([])), 18)


if __name__ == "__main__":
    unittest.main()
