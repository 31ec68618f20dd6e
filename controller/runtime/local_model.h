// Finds the model file or folder that a worker process on this machine should load.
#pragma once

#include <string>

#include "planner/base/result.h"

namespace windlass::controller {

// The path for "file:///a/b", or the path below `root` for "file://a/b" and "file://./a/b". It must be a Hugging Face folder, a
// GGUF file or a folder with GGUF files. Error: "spec.model.uri: must be ...", for another scheme or a missing model.
[[nodiscard]] Result<std::string> local_model(const std::string& uri, const std::string& root);

}  // namespace windlass::controller
