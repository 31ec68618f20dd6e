#!/usr/bin/env python3
"""Golden token ids for each part that a tokenizer.json may have, for tests/unit/worker/tokenizer_parts_test.cc.

    python3 -m venv V && V/bin/pip install --require-hashes -r tests/golden/requirements.txt && V/bin/python tests/golden/tokenizers/make_parts.py

Small tokenizers, one for each normalizer, pre-tokenizer, decoder, option of BPE and flag of added tokens, encode 10,000 seeded
strings (part_text below, written out again in tests/unit/worker/golden_text.h) and decode their ids. Written: parts.json, a
vocabulary that they share, what each has of its own, and hashes of the ids and the decoded texts of each thousand strings.
"""
import json
import pathlib

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from make_tokenizers import LLAMA3, MASK, fnv, random_numbers, text

STRINGS, BLOCK = 10_000, 1_000
MORE_WORDS = [
    "def f(x):\n    return x", "for (int i = 0; i < n; ++i) {", "};\n", "\t\t", "x_1 += 2", "<div class=\"a\">", "// see", "SELECT * FROM t",
    "0x1F", "1,234.50", "\u0967\u0968\u0969", "\u0661\u0662", "\u2460", "\u00bd", "\u0645\u0631\u062d\u0628\u0627", "\u4f60\u597d\uff0c",
    "\uff21\uff22", "\u1e9e", "\u0130I", "\u03a3\u0391\u03a3", "e\u0301\u0323", "\u00c5", "\ufb01n", "\u2126", "\U0001f600", "\U0001f1eb\U0001f1f7",
    "\u2764\ufe0f", "a", "b", "ab", "abc", "aab", "A", "AB", "<m>", " <m> ", "  <m>\n", "<L>", "<r>  ", "[W]", "x[W]", "[W]y", "<n>", "<N>", "##b", "</w>",
    "--", "-", "\u00ab", "\u2026", "$5", "+", "a-b", "\x04", "\x7f", "\r", "https://example.org/a?b=c&d=1", "don't", "\"q\"", "(x)", "'"]


def part_text(index):
    numbers = random_numbers(index ^ 0x5EED)
    out = ""
    for _ in range(next(numbers) % 16):
        out += MORE_WORDS[next(numbers) % len(MORE_WORDS)]
        if next(numbers) % 2 == 0:
            out += " "
    return out if index % 2 == 0 else text(index) + out


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme="always", cuts=True, symbol="\u2581"):
    return {"type": "Metaspace", "replacement": symbol, "prepend_scheme": scheme, "split": cuts}


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(field, *parts):
    return {"type": "Sequence", field: list(parts)}


def pre(*parts):
    return sequence("pretokenizers", *parts)


def replace(kind, pattern, content):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def added(content, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False} | flags


STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
# What each has of its own. base: "bytes", whose vocabulary is in the byte alphabet and lacks some of it, or "characters".
PARTS = {
    **{form.lower(): {"base": "characters", "normalizer": {"type": form}}
       for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")},
    "strip": {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
    "strip_left": {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}},
    "prepend": {"base": "characters", "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"},
                                                             replace("String", " ", "\u2581"))},
    "replace_regex": {"normalizer": replace("Regex", "\\s+|a*b", "-")},
    "replace_longer": {"normalizer": replace("String", "--", "<m>")},
    "normalizers": {"base": "characters", "normalizer": sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"},
                                                                 {"type": "Lowercase"}, {"type": "Strip", "strip_left": False,
                                                                                         "strip_right": True})},
    **{"split_" + behavior.lower() + ("_inverted" if invert else ""): {"pre_tokenizer": pre(
        split("-", behavior, invert, "String"), byte_level(regex=False))}
       for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous") for invert in (False, True)},
    "split_empty_matches": {"pre_tokenizer": pre(split("a*", "MergedWithNext"), byte_level())},
    "split_lines": {"pre_tokenizer": pre(split("^.|\\w$"), byte_level(regex=False))},
    "split_llama3": {"pre_tokenizer": pre(split(LLAMA3), byte_level(regex=False))},
    "digits": {"pre_tokenizer": pre({"type": "Digits", "individual_digits": False}, byte_level())},
    "digits_each": {"pre_tokenizer": pre({"type": "Digits", "individual_digits": True}, byte_level())},
    "digits_after": {"pre_tokenizer": pre(byte_level(), {"type": "Digits", "individual_digits": True})},
    "byte_level_twice": {"pre_tokenizer": pre(byte_level(), byte_level(regex=False))},
    "byte_level_prefix": {"pre_tokenizer": byte_level(prefix=True)},
    "byte_level_whole": {"pre_tokenizer": byte_level(regex=False)},
    "whitespace": {"base": "characters", "pre_tokenizer": {"type": "Whitespace"}},
    "whitespace_split": {"base": "characters", "pre_tokenizer": {"type": "WhitespaceSplit"}},
    "whitespace_prefix": {"pre_tokenizer": pre({"type": "WhitespaceSplit"}, byte_level(prefix=True))},
    **{"punctuation_" + behavior.lower(): {"base": "characters", "pre_tokenizer": {"type": "Punctuation", "behavior": behavior}}
       for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")},
    "delimiter": {"base": "characters", "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "-"}},
    **{f"metaspace_{scheme}{'' if cuts else '_whole'}": {"base": "characters", "pre_tokenizer": metaspace(scheme, cuts),
                                                         "decoder": metaspace(scheme, cuts)}
       for scheme in ("always", "first", "never") for cuts in (True, False)},
    "metaspace_underline": {"base": "characters", "pre_tokenizer": metaspace(symbol="_")},
    "metaspace_digits": {"base": "characters", "pre_tokenizer": pre(
        split("-", "Removed", False, "String"), metaspace("first"), {"type": "Digits", "individual_digits": True})},
    "no_pretokenizer": {"base": "characters"},
    "unknown": {"model": {"unk_token": "<unk>"}},
    "unknown_fused": {"model": {"unk_token": "<unk>", "fuse_unk": True}},
    "unknown_characters": {"base": "characters", "model": {"unk_token": "<unk>"}},
    "unknown_characters_fused": {"base": "characters", "model": {"unk_token": "<unk>", "fuse_unk": True}},
    "fallback": {"base": "characters", "model": {"byte_fallback": True}, "decoder": sequence(
        "decoders", replace("String", "\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP),
        "pre_tokenizer": metaspace()},
    "fallback_unknown": {"base": "characters", "model": {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}, "lacks": "<0x9F>"},
    "fallback_byte_level": {"model": {"byte_fallback": True, "unk_token": "<unk>"}},
    "ignore_merges": {"model": {"ignore_merges": True}, "forgets_merges": True},
    "ignore_merges_characters": {"base": "characters", "model": {"ignore_merges": True}, "forgets_merges": True,
                                 "pre_tokenizer": {"type": "Whitespace"}},
    "word_suffix": {"base": "suffix", "pre_tokenizer": {"type": "Whitespace"}, "decoder": {"type": "BPEDecoder", "suffix": "</w>"}},
    "subword_prefix": {"base": "prefix", "pre_tokenizer": {"type": "Whitespace"}},
    "added": {"added_tokens": [added("<m>", lstrip=True, rstrip=True), added("<L>", lstrip=True), added("<r>", rstrip=True),
                               added("[W]", single_word=True), added("<|end|>", special=True), added("aab"), added("aa")]},
    "added_normalized": {"normalizer": {"type": "Lowercase"}, "added_tokens": [
        added("<N>", normalized=True), added("<m>"), added("AB", normalized=True), added("[W]", normalized=True, single_word=True)]},
    "added_nfkc": {"base": "characters", "normalizer": sequence("normalizers", {"type": "NFKC"}, replace("String", "-", "")),
                   "added_tokens": [added("\uff21\uff22", normalized=True), added("a-b", normalized=True, lstrip=True)]},
    "added_metaspace": {"base": "characters", "pre_tokenizer": metaspace("first"), "added_tokens": [
        added("<m>", lstrip=True), added("  ")], "decoder": metaspace("first")},
    "decoder_strip": {"base": "characters", "pre_tokenizer": metaspace(), "decoder": sequence(
        "decoders", replace("String", "\u2581", "  "), {"type": "Strip", "content": " ", "start": 1, "stop": 0})},
    "decoder_replace": {"base": "characters", "decoder": sequence(
        "decoders", replace("Regex", "[ae]+", "<\u00e9>"), {"type": "Fuse"}, replace("String", " ", "_"))},
}


def trained(base):
    """The shared vocabularies, of 400 tokens."""
    suffix = {"prefix": {"continuing_subword_prefix": "##"}, "suffix": {"end_of_word_suffix": "</w>"}}.get(base, {})
    tokenizer = Tokenizer(models.BPE(**suffix))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if base == "bytes" else pre_tokenizers.Split(" ", "isolated")
    if suffix:
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator((part_text(10**6 + i) for i in range(2000)), trainers.BpeTrainer(
        vocab_size=400, limit_alphabet=110, special_tokens=["<unk>"], show_progress=False, **suffix))
    model = json.loads(tokenizer.to_str())["model"]
    model = {field: model[field] for field in ("vocab", "merges")}
    model["merges"] = [list(merge) for merge in model["merges"]]
    if base == "characters":
        for byte in range(256):
            model["vocab"].setdefault(f"<0x{byte:02X}>", len(model["vocab"]))
        # Spaces as Metaspace has them, too.
        for token in list(model["vocab"]):
            if " " in token:
                model["vocab"].setdefault(token.replace(" ", "\u2581"), len(model["vocab"]))
        model["merges"] += [[a.replace(" ", "\u2581"), b.replace(" ", "\u2581")] for a, b in model["merges"] if " " in a + b]
    return model | {"subword_prefix": suffix.get("continuing_subword_prefix"), "word_suffix": suffix.get("end_of_word_suffix")}


def composed(part, bases):
    """The whole tokenizer.json. The test does the same."""
    base = bases[part.get("base", "bytes")]
    vocab = dict(base["vocab"])
    if "lacks" in part:
        del vocab[part["lacks"]]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": base["subword_prefix"],
             "end_of_word_suffix": base["word_suffix"], "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": vocab, "merges": [] if part.get("forgets_merges") else base["merges"]} | part.get("model", {})
    tokens = []
    for token in part.get("added_tokens", []):
        fresh = len(vocab) + sum(each["id"] >= len(vocab) for each in tokens)  # as the library numbers them
        tokens.append({"id": vocab.get(token["content"], fresh)} | token)
    for_bytes = part.get("base", "bytes") == "bytes"
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": part.get("normalizer"),
            "pre_tokenizer": part.get("pre_tokenizer", byte_level() if for_bytes else None), "post_processor": None,
            "decoder": part.get("decoder", byte_level() if for_bytes else {"type": "Fuse"}), "model": model}


def hashes_of(tokenizer, strings):
    ids_hashes, text_hashes = [], []
    for start in range(0, len(strings), BLOCK):
        ids_state = text_state = 0xCBF29CE484222325
        for encoded in tokenizer.encode_batch(strings[start:start + BLOCK], add_special_tokens=False):
            for token in encoded.ids:
                ids_state = fnv(ids_state, token)
            ids_state = fnv(ids_state, -1)
            for byte in tokenizer.decode(encoded.ids).encode():
                text_state = ((text_state ^ byte) * 0x100000001B3) & MASK
            text_state = fnv(text_state, -1)
        ids_hashes.append(f"{ids_state:016x}")
        text_hashes.append(f"{text_state:016x}")
    return ids_hashes, text_hashes


def main():
    strings = [part_text(i) for i in range(STRINGS)]
    bases = {base: trained(base) for base in ("bytes", "characters", "prefix", "suffix")}
    golden = {"tokenizers": tokenizers.__version__, "block": BLOCK, "bases": bases, "parts": {}}
    for name, part in PARTS.items():
        whole = composed(part, bases)
        part = part | ({"added_tokens": whole["added_tokens"]} if "added_tokens" in part else {})
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        part["ids"], part["texts"] = hashes_of(tokenizer, strings)
        golden["parts"][name] = part
    path = pathlib.Path(__file__).parent / "parts.json"
    path.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{len(PARTS)} tokenizers, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
