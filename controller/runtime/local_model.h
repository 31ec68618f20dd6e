// Where a model lies that processes on this machine are to load.
#pragma once

#include <string>

#include "planner/base/result.h"

namespace windlass::controller {

// The path of "file:///a/b", or below `root` of "file://a/b" and "file://./a/b": a Hugging Face folder, a GGUF file or a folder
// with GGUF files. Error: "spec.model.uri: found ...", another scheme or no model there.
[[nodiscard]] Result<std::string> local_model(const std::string& uri, const std::string& root);

}  // namespace windlass::controller
