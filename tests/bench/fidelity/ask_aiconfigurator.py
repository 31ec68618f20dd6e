"""Writes what aiconfigurator predicts for the rows of ../shared/data/measured, to be compared with our predictions.

  ask_aiconfigurator.py DATA OUT.csv    DATA: ../shared/data; columns row, ttft_ms, tpot_ms (empty: it refused the row)

Needs the package aiconfigurator (0.12.0 was used); five minutes on one core. It has no tables for the measured engine versions, so
it answers from those of the versions that it has. Rows are numbered as in load_end_to_end(): H100's file, then H200's.
"""

import contextlib
import csv
import logging
import os
import sys
from pathlib import Path

os.environ["AIC_ALLOW_UNLISTED_VERSIONS"] = "1"

# Its package has no config.json of these models; the one named has the same shape.
SAME_SHAPE = {
    "meta-llama/Llama-3.1-8B-Instruct": {"model_path": "meta-llama/Meta-Llama-3.1-8B"},
    "nvidia/Llama-3.1-8B-Instruct-FP8": {"model_path": "meta-llama/Meta-Llama-3.1-8B", "kvcache_quant_mode": "fp8"},
}
DEGREES = ("batch_size", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")


def question(row):
    asked = {
        "model_path": row["model_path"],
        "system_name": row["system"],
        "mode": row["mode"],
        "backend_name": row["backend"],
        "backend_version": row["backend_version"] or None,
        "isl": int(row["isl"]),
        "osl": int(row["osl"]),
        "gemm_quant_mode": row["gemm_quant_mode"] or None,
        "moe_quant_mode": row["moe_quant_mode"] or None,
    }
    asked |= {key: int(row[key]) for key in DEGREES if row.get(key)}
    if row["backend"] == "trtllm" and row["precision"] == "fp8":
        asked["kvcache_quant_mode"] = "fp8"  # as in load_recipe.cc
    return asked | SAME_SHAPE.get(row["model_path"], {})


def predict(cli_estimate, asked, refusals):
    """(TTFT, TPOT) in ms; None if it refuses, usually because the row does not fit its memory."""
    with contextlib.redirect_stdout(sys.stderr):
        for version in (asked["backend_version"], None):
            try:
                found = cli_estimate(**(asked | {"backend_version": version}))
                return found.ttft, found.tpot
            except Exception as refusal:  # its own errors have no common type
                if version is None or "perf database" not in str(refusal):
                    refusals.add(str(refusal).splitlines()[0][:200])
                    return None
    return None


def main(data, out):
    from aiconfigurator.cli.api import cli_estimate

    logging.disable(logging.WARNING)
    rows, refusals, answered = [], set(), 0
    for name in ("e2e_h100.csv", "e2e_h200.csv"):
        with (Path(data) / "measured" / name).open() as file:
            rows += csv.DictReader(file)
    with open(out, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["row", "ttft_ms", "tpot_ms"])
        for number, row in enumerate(rows):
            found = predict(cli_estimate, question(row), refusals)
            answered += found is not None
            table.writerow([number, *(f"{value:.4f}" for value in found)] if found else [number, "", ""])
            print(f"\r  aiconfigurator: {number + 1} of {len(rows)} rows", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for refusal in sorted(refusals):
        print(f"  refused: {refusal}", file=sys.stderr)
    return 0 if answered else 1


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
