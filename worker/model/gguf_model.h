// A model in GGUF files: which they are, and its config and tensors in Hugging Face's words.
//
// Queries and keys of architecture "llama" come out in Hugging Face's order of rows (TensorView::rotary_pairs); a layer's
// experts, which stand in one tensor, come out one by one. Any thread.
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

// The GGUF files of a model: the file itself and all parts that belong to it ("-00001-of-00003.gguf"), the first one first; or
// those of a folder that has no config.json. None: the model is a folder in Hugging Face's format, or not there at all.
// Errors: kInvalidArgument (a folder has several models, a file is none), kNotFound (a part is missing).
[[nodiscard]] Result<std::vector<std::filesystem::path>> gguf_files_of(const std::filesystem::path& model);

struct GgufModel {
  std::vector<std::unique_ptr<const MappedFile>> files;
  Gguf gguf;  // with views into them

  // REQUIRES: at least one file.
  [[nodiscard]] static Result<GgufModel> open(const std::vector<std::filesystem::path>& files);
};

// Error: kInvalidArgument naming file and field.
[[nodiscard]] Result<ModelConfig> model_config_of(const Gguf& gguf);

// The text of a folder's config.json, or of one that says what GGUF files do. Errors: those of reading them.
[[nodiscard]] Result<std::string> config_text_of(const std::filesystem::path& model);

// Those that have no name at Hugging Face keep their own.
[[nodiscard]] Result<std::vector<TensorView>> tensors_of(const Gguf& gguf);

}  // namespace windlass::worker
