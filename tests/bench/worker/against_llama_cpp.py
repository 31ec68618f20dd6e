"""Compares the worker's CPU backend with llama.cpp's own tools on one GGUF file, in turn on the same threads; prints a table.

Speed: medians over rounds; each round measures every side once. Perplexity: of the text, in windows of 512 tokens.
`scripts/bench worker --llama-cpp` runs it.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

KINDS = {"prefill": "prefill, 512 tokens", "decode_1": "decode, batch 1", "decode_8": "decode, batch 8"}


def output_of(command):
    """Returns a program's output. If it fails, exits with its last lines."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"against_llama_cpp: {command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def ours(args, weights):
    command = [args.worker, "--model", args.model, "--threads", args.threads, "--weights", weights]
    return json_lines(output_of(command))[-1]


def theirs(args):
    """llama-bench starts with a warm-up run of each kind, like our program."""
    common = ["-m", args.model, "-t", args.threads]
    bench = json_lines(output_of([args.llama / "llama-bench", *common, "-p", 512, "-n", 128, "-r", 1, "-o", "jsonl"]))
    batched = json_lines(output_of([args.llama / "llama-batched-bench", *common, "-c", 2048, "-npp", 16, "-ntg", 128,
                                    "-npl", 8, "--output-format", "jsonl"]))
    return {"prefill": next(run["avg_ts"] for run in bench if run["n_prompt"] == 512),
            "decode_1": next(run["avg_ts"] for run in bench if run["n_gen"] == 128),
            "decode_8": batched[-1]["speed_tg"]}


def spread(values):
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def speeds(args):
    rounds = []
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        sides = {"blocks": lambda: ours(args, "blocks"), "llama.cpp": lambda: theirs(args), "fp32": lambda: ours(args, "fp32")}
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        rounds.append({side: sides[side]() for side in order})
    print("| tokens/s | the worker, blocks | llama.cpp | times llama.cpp | the worker, fp32 |")
    print("|---|---:|---:|---:|---:|")
    for kind, name in KINDS.items():
        of = {side: [one[side][kind] for one in rounds] for side in rounds[0]}
        ratio = statistics.median(one["blocks"][kind] / one["llama.cpp"][kind] for one in rounds)
        print(f"| {name} | {spread(of['blocks'])} | {spread(of['llama.cpp'])} | {ratio:.2f} | {spread(of['fp32'])} |")


def perplexities(args):
    text = args.out / "text.txt"
    text.write_bytes(b"".join(pathlib.Path(file).read_bytes() for file in args.text))
    print("perplexities", file=sys.stderr, flush=True)
    windows = ["--windows", args.windows, "--threads", args.threads]
    found = {weights: json_lines(output_of([args.worker, "--model", args.model, "--perplexity", text, "--weights", weights,
                                            *windows]))[-1] for weights in ("blocks", "fp32")}
    spoken = output_of([args.llama / "llama-perplexity", "-m", args.model, "-f", text, "-t", args.threads, "-c", 512,
                        "-b", 512, "--chunks", args.windows])
    estimate = re.search(r"Final estimate: PPL = ([0-9.]+)", spoken)
    if not estimate:
        sys.exit(f"against_llama_cpp: llama-perplexity gave no estimate:\n{spoken[-2000:]}")
    reference = float(estimate[1])
    windows_read = found["blocks"]["windows"]
    print(f"\n| perplexity of {windows_read * 512:,} tokens | | from llama.cpp's |")
    print("|---|---:|---:|")
    print(f"| llama.cpp | {reference:.4f} | |")
    for weights, result in found.items():
        print(f"| the worker, {weights} | {result['perplexity']:.4f} | {(result['perplexity'] / reference - 1) * 100:+.2f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", required=True, type=pathlib.Path, help="worker_gguf_benchmark")
    parser.add_argument("--llama", required=True, type=pathlib.Path, help="folder with llama.cpp's programs")
    parser.add_argument("--model", required=True, type=pathlib.Path, help="a GGUF file")
    parser.add_argument("--text", required=True, nargs="+", help="files to measure the perplexity of, joined in this order")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder for the joined text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--windows", type=int, default=16, help="maximum number of windows of 512 tokens")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    speeds(args)
    perplexities(args)


if __name__ == "__main__":
    main()
