"""Unpacks a GGUF file into a folder in Hugging Face's format, in FP32: unpack_gguf.py FILE FOLDER."""

import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

file, folder = pathlib.Path(sys.argv[1]), sys.argv[2]
AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32,
                                             quantization_config=GgufConfig(dequantize=True))
# The saved model is no longer quantised, which save_pretrained() would refuse.
model.hf_quantizer = None
model.save_pretrained(folder)
