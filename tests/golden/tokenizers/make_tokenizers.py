#!/usr/bin/env python3
"""Golden token ids of Hugging Face tokenizers, for tests/unit/worker/tokenizer_golden_test.cc.

    python3 -m venv V && V/bin/pip install --require-hashes -r tests/golden/requirements.txt && V/bin/python tests/golden/tokenizers/make_tokenizers.py

Trains a small tokenizer of each kind on seeded words of many scripts and encodes 100,000 seeded strings with it. The strings are
text(i), a function of the index alone, written out again in the test. Written beside this file: NAME/tokenizer.json and
NAME/golden.json, a hash of the ids of each thousand strings: FNV-1a over the little-endian ids and -1 after each string.
"""
import json
import pathlib

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

STRINGS, BLOCK, VOCAB = 100_000, 1_000, 900
MASK = (1 << 64) - 1
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# First and last code point of what one piece of a string is drawn from.
RANGES = [(0x20, 0x7E), (0x61, 0x7A), (0x61, 0x7A), (0x61, 0x7A), (0x41, 0x5A), (0x30, 0x39), (0xA0, 0x17F), (0x370, 0x3FF),
          (0x400, 0x45F), (0x5D0, 0x5EA), (0x620, 0x66F), (0x905, 0x96F), (0xE01, 0xE5B), (0x300, 0x34E), (0x1100, 0x1112),
          (0x1161, 0x1175), (0xAC00, 0xD7A3), (0x4E00, 0x9FA5), (0x3041, 0x30FE), (0x1F300, 0x1F64F), (0x2000, 0x206F),
          (0x660, 0x669), (0xE000, 0xE0FF), (0x1D400, 0x1D433), (0xB0, 0xBF), (0x2150, 0x218B)]
WORDS = [" ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\u0085", "\v", "\f", "\u200b", "\u2581",
         "\u2581\u2581", " the", "The ", " don't", "I'LL", "we've", "'s", "'S", "\u017f", "\ufb01", "e\u0301", "\u01c4", "\ud55c\uae00",
         "\U0001f469\u200d\U0001f469\u200d\U0001f467", "<s>", "</s>", "<|end|>", "<|en", "<0x41>", "12345", "3.14", "...", "!?", "_x_"]


def random_numbers(seed):
    """splitmix64"""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def text(index):
    numbers = random_numbers(index)
    out = ""
    for _ in range(next(numbers) % 20):
        if next(numbers) % 3 == 0:
            out += WORDS[next(numbers) % len(WORDS)]
            continue
        low, high = RANGES[next(numbers) % len(RANGES)]
        for _ in range(1 + next(numbers) % 6):
            out += chr(low + next(numbers) % (high - low + 1))
    return out


def byte_level(pattern, nfc=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=pattern == LLAMA3))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    if pattern:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<s>", "</s>", "<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def sentencepiece(scheme, split=False):
    """scheme: "prepend", as Llama 2's first file has it, or Metaspace's first, always and never."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    special = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=VOCAB + 256, special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)], limit_alphabet=120,
        show_progress=False))
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = whole["added_tokens"][:len(special)]  # bytes are ordinary tokens
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    to_spaces = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    if scheme == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        whole = json.loads(tokenizer.to_str())
        whole["pre_tokenizer"] = None
        tokenizer = Tokenizer.from_str(json.dumps(whole))
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    strip = [] if scheme == "never" else [decoders.Strip(content=" ", left=1, right=0)]
    tokenizer.decoder = decoders.Sequence(to_spaces + strip)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def corpus():
    """Words that come again, so that there is something to merge."""
    lexicon = [text(10**9 + i).strip() for i in range(400)]
    numbers = random_numbers(7)
    for _ in range(4000):
        yield " ".join(lexicon[(next(numbers) % 400) * (next(numbers) % 400) // 400] for _ in range(12))


TOKENIZERS = {
    "gpt2": lambda: byte_level(None),
    "llama3": lambda: byte_level(LLAMA3),
    "qwen2": lambda: byte_level(QWEN2, nfc=True),
    "llama2": lambda: sentencepiece("prepend"),
    "mistral": lambda: sentencepiece("first"),
    "metaspace": lambda: sentencepiece("always", split=True),
    "never": lambda: sentencepiece("never"),
}


def fnv(state, number):
    for byte in (number & 0xFFFFFFFF).to_bytes(4, "little"):
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def main():
    here = pathlib.Path(__file__).parent
    strings = [text(i) for i in range(STRINGS)]
    for name, make in TOKENIZERS.items():
        tokenizer = make()
        folder = here / name
        folder.mkdir(exist_ok=True)
        # One line: a tenth of the size.
        (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False) + "\n")
        hashes, tokens = [], 0
        for start in range(0, STRINGS, BLOCK):
            state = 0xCBF29CE484222325
            for encoded in tokenizer.encode_batch(strings[start:start + BLOCK], add_special_tokens=False):
                tokens += len(encoded.ids)
                for token in encoded.ids:
                    state = fnv(state, token)
                state = fnv(state, -1)
            hashes.append(f"{state:016x}")
        examples = [{"text": t, "ids": tokenizer.encode(t, add_special_tokens=False).ids,
                     "decoded": tokenizer.decode(tokenizer.encode(t, add_special_tokens=False).ids)}
                    for t in ("Hello  world", " a", "a <s> b", "na\u00efve \u65e5\u672c", "", "\u2581x", "x\n")]
        golden = {"tokenizers": tokenizers.__version__, "strings": STRINGS, "tokens": tokens, "block": BLOCK, "hashes": hashes,
                  "examples": examples}
        (folder / "golden.json").write_text(json.dumps(golden, indent=1, ensure_ascii=True) + "\n")
        print(f"{name}: {tokenizer.get_vocab_size()} tokens, {tokens / STRINGS:.1f} a string")


if __name__ == "__main__":
    main()
