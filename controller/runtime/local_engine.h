// Runs an engine of another project as a process on this machine: finds its program and model, and reads the end of its log.
#pragma once

#include <string>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

// The path of spec.program, or of the engine's usual program: on the PATH, then where scripts/engines installs it. Error: has
// the field and the places searched.
[[nodiscard]] Result<std::string> engine_program(const Launch& spec);

// The model path in the form that the engine takes. llama.cpp takes a GGUF file, so a folder must hold exactly one model. vLLM
// takes a folder in Hugging Face's format.
[[nodiscard]] Result<std::string> engine_model_path(const Launch& spec, const std::string& path);

// The last meaningful lines of a log, starting at byte `from`, joined by " | "; "" if there are none.
[[nodiscard]] std::string last_words(const std::string& log, long from);

}  // namespace windlass::controller
