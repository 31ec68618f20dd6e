#!/usr/bin/env python3
"""A small GGUF file with blocks of every kind, and what Hugging Face makes of it, for tests/unit/worker/gguf_test.cc.

    python3 -m venv V && V/bin/pip install --require-hashes -r tests/golden/gguf/requirements.txt && V/bin/python tests/golden/gguf/make_gguf.py

Written beside this file: blocks.json, two blocks of each kind and the numbers that PyPI's gguf reads from them (bytes and F32 in
hexadecimal); tiny.gguf, a Llama model of random weights in the kinds that gguf can write, the rows of queries and keys in pairs as
llama.cpp's converter has them (convert_hf_to_gguf.py, LlamaModel.permute); tiny.json, the logits of transformers for it, after a
prompt and after each of some tokens.
"""
import json
import pathlib

import gguf
import numpy
import torch
import transformers
from gguf import GGMLQuantizationType as Kind

FOLDER = pathlib.Path(__file__).parent
WRITTEN = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0)
READ_ALONE = (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K)  # gguf writes none of these
HIDDEN, LAYERS, HEADS, KV_HEADS, WIDTH, VOCAB = 64, 2, 4, 2, 96, 96
PROMPT, TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79], [32, 38, 46, 26, 43, 38, 32, 79]


def blocks(random):
    """Bytes of two blocks; scales are F16 numbers of a sensible size, all else is random."""
    for kind in WRITTEN:
        size = max(2, 2 * gguf.GGML_QUANT_SIZES[kind][0])
        yield kind, gguf.quants.quantize(random.normal(size=size).astype(numpy.float32), kind).tobytes()
    for kind in READ_ALONE:
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        data = random.integers(0, 256, (2, size), dtype=numpy.uint8)
        scales = (0, 2) if kind != Kind.Q6_K else (size - 2,)
        for at in scales:
            data[:, at:at + 2] = random.uniform(0.001, 0.1, (2, 1)).astype(numpy.float16).view(numpy.uint8)
        yield kind, data.tobytes()


def write_blocks(random):
    out = {}
    for kind, data in blocks(random):
        plain = {Kind.F32: numpy.float32, Kind.F16: numpy.float16}.get(kind)
        raw = numpy.frombuffer(data, plain or numpy.uint8)
        numbers = raw.astype(numpy.float32) if plain else gguf.quants.dequantize(raw, kind)
        out[kind.name] = {"bytes": data.hex(), "numbers": numbers.astype("<f4").tobytes().hex()}
    (FOLDER / "blocks.json").write_text(json.dumps(out, indent=1) + "\n")


def in_pairs(weights, heads):
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)


def write_model(random):
    path = FOLDER / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    alphabet = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    writer.add_token_list(["<|end|>"] + alphabet[:VOCAB - 1])
    writer.add_token_types([3] + [1] * (VOCAB - 1))
    writer.add_token_merges([])
    writer.add_eos_token_id(0)
    kinds = [kind for kind in WRITTEN if kind != Kind.F32]
    count = 0

    def matrix(name, rows, columns, heads=0):
        nonlocal count
        weights = (random.normal(size=(rows, columns)) * 0.4 / columns**0.5 * (4 if name == "token_embd" else 1)).astype(numpy.float32)
        kind = kinds[count % len(kinds)]
        count += 1
        weights = in_pairs(weights, heads) if heads else weights
        writer.add_tensor(name + ".weight", gguf.quants.quantize(weights, kind), raw_dtype=kind)

    def norm(name):
        writer.add_tensor(name + ".weight", random.uniform(0.5, 1.5, HIDDEN).astype(numpy.float32))

    matrix("token_embd", VOCAB, HIDDEN)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        norm(at + "attn_norm")
        matrix(at + "attn_q", HIDDEN, HIDDEN, HEADS)
        matrix(at + "attn_k", HIDDEN // HEADS * KV_HEADS, HIDDEN, KV_HEADS)
        matrix(at + "attn_v", HIDDEN // HEADS * KV_HEADS, HIDDEN)
        matrix(at + "attn_output", HIDDEN, HIDDEN)
        norm(at + "ffn_norm")
        matrix(at + "ffn_gate", WIDTH, HIDDEN)
        matrix(at + "ffn_up", WIDTH, HIDDEN)
        matrix(at + "ffn_down", HIDDEN, WIDTH)
    norm("output_norm")
    matrix("output", VOCAB, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_logits(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=path.name, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + TOKENS])).logits[0, len(PROMPT) - 1:]
    out = {"prompt": PROMPT, "tokens": TOKENS, "logits": logits.numpy().astype("<f4").tobytes().hex()}
    (FOLDER / "tiny.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    generator = numpy.random.default_rng(1)
    write_blocks(generator)
    write_logits(write_model(generator))
