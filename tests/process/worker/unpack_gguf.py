"""Unpacks a GGUF file into a folder in Hugging Face's format, in FP32: unpack_gguf.py FILE FOLDER."""

import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

file, folder = pathlib.Path(sys.argv[1]), sys.argv[2]
AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).save_pretrained(folder)
