// An engine of another project as a process on this machine: where its program lies, and what its log says last.
#pragma once

#include <string>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

// The path of spec.program, or of the engine's usual program: on the PATH, then where scripts/engines installs it. Error: names
// the field and the places that were looked at.
[[nodiscard]] Result<std::string> engine_program(const Launch& spec);

// The model as the engine wants it: llama.cpp takes a GGUF file, so that a folder must hold one model's; vLLM takes a folder in
// Hugging Face's format.
[[nodiscard]] Result<std::string> engine_model_path(const Launch& spec, const std::string& path);

// The last lines that say something of a log from this byte on, joined by " | "; "" where there are none.
[[nodiscard]] std::string last_words(const std::string& log, long from);

}  // namespace windlass::controller
