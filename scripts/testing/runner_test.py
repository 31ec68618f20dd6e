"""Tests of the runner (programs that fail, crash, hang, skip or leak, in batches) and of the checks that scripts/test runs with them."""
import os
import shutil
import stat
import tempfile
import unittest

import checks
import registry
import runner

# Behaves like a GoogleTest program: the name of each case determines what it does.
PROGRAM = r"""#!/usr/bin/env python3
import os, sys, time
cases = next(a for a in sys.argv if a.startswith("--gtest_filter=")).split("=", 1)[1].split(":")
status = 0
for case in cases:
    print(f"[ RUN      ] {case}", flush=True)
    kind = case.split(".")[1]
    if kind.startswith("Crashes"): os.abort()
    if kind.startswith("Hangs"): time.sleep(1000)
    if kind.startswith("Skips"):
        print("a_test.cc:7: Skipped\nneeds 2 GPUs, found 0\n\n[  SKIPPED ] %s (0 ms)" % case)
    elif kind.startswith("Fails"):
        status = 1
        print("a_test.cc:9: Failure\nExpected equality\n[  FAILED  ] %s, where GetParam() = (1, 2) (3 ms)" % case)
    elif kind.startswith("Flakes") and not os.path.exists(os.environ["MARK"]):
        open(os.environ["MARK"], "w").close()
        status = 1
        print("a_test.cc:9: Failure\nonce\n[  FAILED  ] %s (3 ms)" % case)
    else:
        print("said something[       OK ] %s (2 ms)" % case)
if any(c.split(".")[1].startswith("Leaks") for c in cases):
    status = 23
    print("ERROR: LeakSanitizer: detected memory leaks")
sys.exit(status)
"""


class RunnerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.program = os.path.join(self.folder.name, "a_test")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        os.chmod(self.program, os.stat(self.program).st_mode | stat.S_IXUSR)
        os.environ["MARK"] = os.path.join(self.folder.name, "mark")
        self.runner = runner.Runner(2, {}, lambda text: None)

    def run_cases(self, *kinds, label="unit"):
        tests = [registry.Test(f"a_test.S.{k}", "release", label, self.program, (f"--gtest_filter=S.{k}",), f"S.{k}", 2) for k in kinds]
        return {o.test.filter[2:]: o for o in self.runner.run(tests, progress=False)}

    def test_each_case_has_its_own_outcome(self):
        got = self.run_cases("Passes", "Fails", "Skips")
        self.assertEqual({k: o.status for k, o in got.items()}, {"Passes": "passed", "Fails": "failed", "Skips": "skipped"})
        self.assertEqual(got["Skips"].reason, "needs 2 GPUs, found 0")
        self.assertIn("Expected equality", got["Fails"].log)

    def test_a_crash_costs_only_its_case(self):
        got = self.run_cases("Passes1", "Crashes", "Passes2", "Crashes2", "Passes3")
        self.assertEqual([got[k].status for k in ("Passes1", "Crashes", "Passes2", "Crashes2", "Passes3")],
                         ["passed", "failed", "passed", "failed", "passed"])
        self.assertIn("ended with status -6", got["Crashes"].log)

    def test_a_case_that_hangs_is_ended_and_the_rest_runs(self):
        got = self.run_cases("Passes1", "Hangs", "Passes2")
        self.assertEqual([got[k].status for k in ("Passes1", "Hangs", "Passes2")], ["passed", "failed", "passed"])
        self.assertIn("hung", got["Hangs"].log)

    def test_a_leak_is_found_in_the_case_that_leaks(self):
        got = self.run_cases("Passes1", "Leaks", "Passes2")
        self.assertEqual([got[k].status for k in ("Passes1", "Leaks", "Passes2")], ["passed", "failed", "passed"])
        self.assertIn("detected memory leaks", got["Leaks"].log)

    def test_a_program_that_does_not_start_fails_all_its_cases(self):
        with open(self.program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 127\n")
        self.assertEqual([o.status for o in self.run_cases("Passes", "Skips").values()], ["failed", "failed"])

    def test_a_flaky_case_passes_and_is_named(self):
        outcomes = self.runner.again(list(self.run_cases("Flakes", "Fails", "Passes").values()))
        got = {o.test.filter[2:]: o for o in outcomes}
        self.assertEqual([got[k].status for k in ("Flakes", "Fails", "Passes")], ["passed", "failed", "passed"])
        self.assertIn("once", got["Flakes"].first_failure)
        self.assertEqual(got["Passes"].first_failure, "")

    def test_what_is_no_program_stays_failed(self):
        test = registry.Test("clang-format", "tree", "style", "", (), "", 0)
        self.assertEqual([o.status for o in self.runner.again([runner.Outcome(test, "failed", 1, "ill formed")])], ["failed"])

    def test_an_entry_of_several_cases_counts_them(self):
        test = registry.Test("a_test", "release", "process", self.program, ("--gtest_filter=S.Passes1:S.Passes2:S.Skips",), "", 3)
        got = sorted((o.status, o.test.name, o.cases, o.reason) for o in self.runner.run([test], progress=False))
        self.assertEqual(got, [("passed", "a_test", 2, ""), ("skipped", "a_test.S.Skips", 1, "needs 2 GPUs, found 0")])


class ChecksTest(unittest.TestCase):
    def test_an_optional_tool_that_is_missing_is_skipped_by_name(self):
        check = checks.Check("no-such-tool", [["no-such-tool"]], 1, optional=True)
        self.assertEqual((check.status, check.reason), ("skipped", "needs no-such-tool, which is not installed"))

    def test_a_tool_passes_or_fails_by_its_status(self):
        self.assertEqual(checks.Check("true", [["true"]], 1, optional=True).status, "passed")
        self.assertEqual(checks.Check("sh", [["true"], ["sh", "-c", "echo why; exit 3"]], 1).status, "failed")
        self.assertEqual(checks.Check("sh", [["sh", "-c", "echo why; exit 3"]], 1).output, "why\n")

    def test_misspelt_words_are_found_and_names_are_left_alone(self):
        if not shutil.which("codespell"):
            self.skipTest("needs codespell, which is not installed")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.md")
            for text, status in (("rec" + "ieve it\n", "failed"), ("receive it\n", "passed"), ("call kOwn and mape\n", "passed")):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                self.assertEqual(checks.Check("codespell", [["codespell", path]], 1).status, status, text)


if __name__ == "__main__":
    unittest.main()
