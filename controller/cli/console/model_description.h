// Reads a model's shape from its files, in the form that the planner uses.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "planner/base/result.h"
#include "planner/catalog/model_shape.h"

namespace windlass::cli {

struct ModelDescription {
  nlohmann::json config;  // for spec.model.config.inline
  planner::ModelShape shape;
};

// Reads a folder with a Hugging Face config.json, or a GGUF file (through windlass-worker). The error names the path.
[[nodiscard]] Result<ModelDescription> describe_model(const std::string& path);

}  // namespace windlass::cli
