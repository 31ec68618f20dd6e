// The pages that a pod's probes ask of each engine. None generates a token.
//
// Sources (read, not run here):
//   SGLang       0.5.9, srt/entrypoints/http_server.py: /health generates a token, waits at least a second, and answers 503
//                until the warm-up has ended. With kSglangHealthGenerates=false (sgl-project/sglang pull request 13320 of
//                2025-11-15; read in 0.5.9) it only does the latter. /v1/models answers from memory, but also during the
//                warm-up. A hung scheduler is ended by SGLang's own --watchdog-timeout.
//   TensorRT-LLM commit 00057725, serve/openai_server.py: /health asks whether the engine is alive; /health_generate generates.
//   vLLM         docs.vllm.ai: /health asks whether the engine is alive.
//   llama.cpp    tools/server/README.md: /health is 503 while the model is loaded, and 200 afterwards.
#pragma once

#include <string>

#include "controller/runtime/engine_drain.h"

namespace windlass::controller {

struct ProbePaths {
  const char* startup = "/health";  // succeeds once the model is loaded
  const char* readiness = "/health";
  const char* liveness = "/health";
};

[[nodiscard]] ProbePaths probe_paths(const std::string& engine, EngineVersion version);

// The variable of SGLang that keeps its /health from generating. Its value in our pods is "false", unless the user sets it.
inline constexpr const char* kSglangHealthGenerates = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION";

}  // namespace windlass::controller
