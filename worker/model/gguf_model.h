// A model in GGUF files: finds the files, and translates config and tensors to Hugging Face's names.
//
// For architecture "llama", queries and keys are returned in Hugging Face's order of rows (TensorView::rotary_pairs). A layer's
// experts, stored in one tensor, are returned one by one. Any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "planner/base/gguf.h"
#include "planner/base/result.h"
#include "worker/model/config.h"
#include "worker/model/mapped_file.h"
#include "worker/model/tensor_store.h"

namespace windlass::worker {

// The GGUF files of a model, first part first: the file itself with all its parts ("-00001-of-00003.gguf"), or the files of a
// folder without config.json. Empty if the model is a folder in Hugging Face's format, or does not exist. Errors:
// kInvalidArgument (several models in a folder, or not a GGUF file), kNotFound (a part is missing).
[[nodiscard]] Result<std::vector<std::filesystem::path>> gguf_files_of(const std::filesystem::path& model);

struct GgufModel {
  std::vector<std::unique_ptr<const MappedFile>> files;
  Gguf gguf;  // contains views into the mapped files

  // REQUIRES: at least one file.
  [[nodiscard]] static Result<GgufModel> open(const std::vector<std::filesystem::path>& files);
};

// Error: kInvalidArgument naming file and field.
[[nodiscard]] Result<ModelConfig> model_config_of(const Gguf& gguf);

// The text of a folder's config.json, or the equivalent for GGUF files. Errors: those of reading them.
[[nodiscard]] Result<std::string> config_text_of(const std::filesystem::path& model);

// Tensors without a Hugging Face name keep their own.
[[nodiscard]] Result<std::vector<TensorView>> tensors_of(const Gguf& gguf);

}  // namespace windlass::worker
