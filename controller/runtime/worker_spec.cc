// The hash that says whether two workers are interchangeable.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/worker_runtime.h"
#include "planner/base/fnv.h"

namespace windlass::controller {

std::string Launch::hash() const {
  nlohmann::json variables = nlohmann::json::array();
  for (const WorkerEnv& one : env) {
    variables.push_back({one.name, one.value});
    if (one.secret) variables.back().push_back({"secret", one.secret->first, one.secret->second});
    if (one.config_map) variables.back().push_back({"configMap", one.config_map->first, one.config_map->second});
  }
  nlohmann::json identity = {{"pool", pool},
                             {"role", role},
                             {"accelerator", accelerator},
                             {"resource", resource_name},
                             {"nodes", node_selector},
                             {"gpus", gpus},
                             {"engine", engine},
                             {"image", image},
                             {"args", extra_args},
                             {"env", variables},
                             {"podTemplate", pod_template_json},
                             {"served", served_name},
                             {"model", model_uri},
                             {"context", max_context_tokens},
                             {"priority", priority_class}};
  if (!program.empty()) identity["program"] = program;  // absent otherwise: an upgrade replaces nobody
  Fnv1a hash;
  hash.mix(identity.dump());
  return fmt::format("v1-{:016x}", hash.value());
}

bool Launch::matches(std::string_view recorded_hash, std::string_view hash) {
  constexpr std::string_view kVersion = "v1-";
  while (!recorded_hash.empty()) {
    const std::size_t end = std::min(recorded_hash.find(' '), recorded_hash.size());
    const std::string_view word = recorded_hash.substr(0, end);
    recorded_hash.remove_prefix(std::min(end + 1, recorded_hash.size()));
    if (word == hash) return true;
    // Before there were versions the digits stood alone.
    if (hash.starts_with(kVersion) && word == hash.substr(kVersion.size())) return true;
  }
  return false;
}

}  // namespace windlass::controller
