#!/usr/bin/env python3
"""Golden logits of Hugging Face transformers, for tests/unit/worker/parity_test.cc.

    python3 -m venv V && V/bin/pip install --require-hashes -r tests/golden/parity/requirements.txt && V/bin/python tests/golden/parity/make_parity.py [NAME...]

For each architecture, or for those named, a small random model in FP32: logits after a prompt and after each of 64 greedy tokens.
Weights are a function of the tensor's name in the file that transformers saves and the element's index alone (values()), so that only
config.json, the tokens and the logits are kept; the test computes the same weights. Written beside this file: NAME/config.json, NAME/golden.json, NAME/logits.f32 (65 rows, little-endian).
"""
import json
import math
import pathlib
import shutil
import sys
import tempfile

import numpy
import safetensors.numpy
import torch
import transformers

PROMPT, STEPS, VOCAB = 40, 64, 80
COMMON = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, vocab_size=VOCAB,
              max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1, pad_token_id=None)
LLAMA31 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64,
               rope_theta=500000.0)
MODELS = {
    "llama2": lambda: transformers.LlamaConfig(**COMMON, num_key_value_heads=4),
    "llama31": lambda: transformers.LlamaConfig(**COMMON, num_key_value_heads=2, rope_theta=500000.0, rope_scaling=LLAMA31),
    "mistral": lambda: transformers.MistralConfig(**COMMON, num_key_value_heads=2, head_dim=16, sliding_window=24),
    "qwen2": lambda: transformers.Qwen2Config(**COMMON, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=1e6),
    "qwen2_windows": lambda: transformers.Qwen2Config(**COMMON, num_key_value_heads=1, use_sliding_window=True, sliding_window=20,
                                                      max_window_layers=1),
    "qwen3": lambda: transformers.Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=24),
    "opt": lambda: transformers.OPTConfig(hidden_size=48, ffn_dim=96, num_hidden_layers=3, num_attention_heads=4, vocab_size=VOCAB,
                                          max_position_embeddings=128, bos_token_id=0, eos_token_id=1, pad_token_id=None),
    "opt_350m": lambda: transformers.OPTConfig(hidden_size=48, ffn_dim=96, num_hidden_layers=3, num_attention_heads=4,
                                               vocab_size=VOCAB, max_position_embeddings=128, word_embed_proj_dim=32,
                                               do_layer_norm_before=False, bos_token_id=0, eos_token_id=1, pad_token_id=None),
    "mixtral": lambda: transformers.MixtralConfig(**COMMON, num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=2),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**COMMON, num_key_value_heads=2, head_dim=24, num_experts=8,
                                                     num_experts_per_tok=3, moe_intermediate_size=40, norm_topk_prob=True),
    "qwen3_moe_sparse": lambda: transformers.Qwen3MoeConfig(
        **{**COMMON, "num_hidden_layers": 4}, num_key_value_heads=1, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32,
        norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[3], use_sliding_window=True, sliding_window=24),
}


def values(name, shape, offset, scale):
    """offset + scale * u, u in [-1, 1) of 24 bits: splitmix64 of (FNV-1a of the name, the element's index)."""
    mask = (1 << 64) - 1
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & mask
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + numpy.arange(1, math.prod(shape) + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    u = (z >> numpy.uint64(40)).astype(numpy.float64) / 2.0**23 - 1
    return (offset + scale * u).astype(numpy.float32).reshape(shape)


def draw(name, shape, tied):
    """Offset and scale: powers of two, so that both sides round alike. A large tied embedding would say its own token again."""
    if name.endswith("norm.weight"):
        return 1.0, 0.25
    if name.endswith(".bias"):
        return 0.0, 0.5
    if name.endswith("embed_tokens.weight"):
        return 0.0, 0.125 if tied else 1.0
    if name.endswith("embed_positions.weight"):
        return 0.0, 1.0
    return 0.0, 2.0 ** round(math.log2(1.7 / math.sqrt(shape[1])))


def make(name, config, folder):
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    tensors = {}
    with tempfile.TemporaryDirectory() as scratch:
        transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(scratch)
        file = pathlib.Path(scratch) / "model.safetensors"
        for key, tensor in safetensors.numpy.load_file(file).items():
            shape = list(tensor.shape)
            offset, scale = draw(key, shape, config.tie_word_embeddings)
            tensors[key] = dict(shape=shape, offset=offset, scale=scale)
        safetensors.numpy.save_file({key: values(key, **how) for key, how in tensors.items()}, file, metadata={"format": "pt"})
        model, loaded = transformers.AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.float32, attn_implementation="eager",
                                                                          output_loading_info=True)
        assert not any(loaded.values()), loaded
    model.eval()

    prompt = numpy.random.default_rng(len(name)).integers(2, VOCAB, PROMPT).tolist()
    rows, tokens = [], []
    with torch.no_grad():
        out = model(torch.tensor([prompt]), use_cache=True)
        for _ in range(STEPS):
            rows.append(out.logits[0, -1])
            tokens.append(int(rows[-1].argmax()))
            out = model(torch.tensor([[tokens[-1]]]), past_key_values=out.past_key_values, use_cache=True)
        rows.append(out.logits[0, -1])
        # The same without a cache: what is kept must not hang on transformers' cache.
        whole = model(torch.tensor([prompt + tokens]), use_cache=False).logits[0, PROMPT - 1:]
    logits = torch.stack(rows)
    assert (logits - whole).abs().max() < 2e-5, (logits - whole).abs().max()

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config.architectures = [type(model).__name__]
    kept = {key: value for key, value in config.to_dict().items() if not key.startswith("_")}
    (folder / "config.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    golden = dict(torch=torch.__version__, transformers=transformers.__version__, prompt=prompt, tokens=tokens, tensors=tensors)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    (folder / "logits.f32").write_bytes(logits.numpy().astype("<f4").tobytes())
    print(f"{name}: logits from {logits.min():.2f} to {logits.max():.2f}, {len(set(tokens))} different tokens")


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS[name](), here / name)
