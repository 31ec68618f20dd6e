// A model's shape as the planner reads it, from its files.
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

// Of a folder with a Hugging Face config.json, or of a GGUF file, which windlass-worker reads. Error: names the path.
[[nodiscard]] Result<ModelDescription> describe_model(const std::string& path);

}  // namespace windlass::cli
