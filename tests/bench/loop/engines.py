"""The engines of the bench: how to start each one without Windlass, and its part of the ModelService.

Every worker computes on one thread. The model is SmolLM2-135M: its GGUF file for our workers and llama.cpp. vLLM needs a folder in
Hugging Face's format, so it gets a random model of the same shape, which takes the same time.
"""

import dataclasses
import os
import shutil
from pathlib import Path

from judge import Objectives

SERVED = "smollm2"
CONTEXT = 2048
BATCH = 8  # concurrent sequences of a worker without Windlass: our worker's default, used for all engines
GGUF = "build/models/smollm2-135m.gguf"
RANDOM = "build/models/smollm2-random"
RANDOM_SHAPE = "--layers 30 --hidden 576 --heads 9 --kv-heads 3 --intermediate 1536 --vocab 49152".split()
SHAPE = """architectures: [LlamaForCausalLM]
        model_type: llama
        num_hidden_layers: 30
        hidden_size: 576
        num_attention_heads: 9
        num_key_value_heads: 3
        head_dim: 64
        intermediate_size: 1536
        vocab_size: 49152
        max_position_embeddings: 8192
        rms_norm_eps: 0.00001
        rope_theta: 100000.0
        attention_bias: false
        torch_dtype: float32
"""
GGUF_SHAPE = SHAPE + """        tie_word_embeddings: true
        quantization_config: {quant_method: gguf, bits: 5, embedding_bits: 8.5}
"""


@dataclasses.dataclass(frozen=True)
class Engine:
    name: str
    title: str
    program: Path
    words: tuple  # command line; {port} is replaced by the worker's port
    model: Path
    shape: str
    spec: str  # of spec.engine
    ready_page: str
    start_s: float  # start-up timeout
    objectives: Objectives
    env: dict = dataclasses.field(default_factory=dict)

    def command(self, port):
        return [self.program, *(word.replace("{port}", str(port)) for word in self.words)]


def _program(name, installed):
    cache = Path(os.environ.get("WINDLASS_CACHE") or Path.home() / ".cache/windlass")
    found = shutil.which(name) or cache / "engines" / installed
    return Path(found) if os.access(found, os.X_OK) else None


def all_engines(root, binaries):
    """Maps names to an Engine, or to a text that says why it is missing."""
    gguf, random = root / GGUF, root / RANDOM
    threads = {"OMP_NUM_THREADS": "1"}
    found = {}
    found["own"] = Engine(
        "own", "Windlass' worker", binaries / "windlass-worker",
        (f"--model={gguf}", "--listen=127.0.0.1:{port}", f"--name={SERVED}", f"--max-concurrent={BATCH}", f"--max-context-tokens={CONTEXT}"),
        gguf, GGUF_SHAPE, "{type: Windlass}", "/ready", 60, Objectives(1.0, 0.15))
    program = _program("llama-server", "llama.cpp/bin/llama-server")
    found["llama.cpp"] = "no llama-server; `scripts/engines llama.cpp` builds it" if program is None else Engine(
        "llama.cpp", "llama.cpp", program,
        ("--model", str(gguf), "--alias", SERVED, "--host", "127.0.0.1", "--port", "{port}", "--parallel", str(BATCH), "--ctx-size",
         str(BATCH * CONTEXT), "--metrics", "--threads", "1"),
        gguf, GGUF_SHAPE, '{type: LlamaCpp, args: [--threads, "1"]}', "/health", 60,
        Objectives(3.0, 0.3))  # a prompt alone takes 0.7 s
    program = _program("vllm", "vllm/bin/vllm")
    # No binding: vLLM would put the threads of all workers on the same cores.
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", **threads}
    found["vllm"] = "no vllm; `scripts/engines vllm` installs it" if program is None else Engine(
        "vllm", "vLLM", program,
        ("serve", str(random), "--served-model-name", SERVED, "--host", "127.0.0.1", "--port", "{port}", "--max-num-seqs", str(BATCH),
         "--max-model-len", str(CONTEXT), "--dtype", "float32", "--enforce-eager"),
        random, SHAPE + "        tie_word_embeddings: false\n",
        "{type: VLLM, args: [--dtype, float32, --enforce-eager], env: [" +
        ", ".join(f'{{name: {name}, value: "{value}"}}' for name, value in env.items()) + "]}", "/health", 600, Objectives(2.0, 0.2), env)
    return found


# Approximate rates of one core; the factor makes the data sheet wrong.
RIGHT_BYTES_PER_S = 25e9
RIGHT_FLOPS_PER_S = 300e9
OBJECTS = """# Made by scripts/bench loop: a data sheet {factor:g} times what a core can do.
apiVersion: windlass.dev/v1alpha1
kind: AcceleratorClass
metadata: {{name: core}}
spec:
  resourceName: windlass.dev/cpu
  memory: 2Gi
  memoryBandwidthBytesPerSecond: {bandwidth:.3f}G
  peakFlopsPerSecond: {{fp32: {flops:.3f}G}}
  gpusPerNode: 1
---
apiVersion: windlass.dev/v1alpha1
kind: ModelService
metadata: {{name: {served}}}
spec:
  model:
    servedName: {served}
    uri: file://{model}
    maxContextTokens: {context}
    config:
      inline:
        {shape}
  engine: {engine}
  slo: {{timeToFirstToken: {ttft_ms:.0f}ms, timePerOutputToken: {tpot_ms:.0f}ms, percentile: {percentile:g}, window: 1m}}
  workload: {{requestsPerSecond: "0.1", inputTokens: {prompt}, outputTokens: {answer}}}  # assumed until observed
  accelerators: [{{class: core}}]
  scaling:
    strategy: Replicated
    minWorkers: 1
    maxWorkers: {most}
    drainTimeout: 1m
    behavior: {{scaleDown: {{stabilizationWindow: 15s}}}}
"""


def objects(engine, factor, prompt, answer, most):
    objectives = engine.objectives
    return OBJECTS.format(factor=factor, bandwidth=RIGHT_BYTES_PER_S * factor / 1e9, flops=RIGHT_FLOPS_PER_S * factor / 1e9, served=SERVED,
                          model=engine.model, context=CONTEXT, shape=engine.shape.strip(), engine=engine.spec,
                          ttft_ms=objectives.ttft_s * 1e3, tpot_ms=objectives.tpot_s * 1e3, percentile=objectives.share * 100, prompt=prompt,
                          answer=answer, most=most)
