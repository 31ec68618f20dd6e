// See engine_probes.h.
#include "controller/runtime/engine_probes.h"

namespace windlass::controller {

ProbePaths probe_paths(const std::string& engine, EngineVersion version) {
  if (engine == "Windlass") return {.readiness = "/ready"};
  if (engine != "SGLang") return {};
  constexpr EngineVersion kWithoutGeneration{0, 5, 9};
  return {version < kWithoutGeneration ? "/v1/models" : "/health", "/v1/models", "/v1/models"};
}

}  // namespace windlass::controller
