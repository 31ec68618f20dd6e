// The hash that says whether two workers are interchangeable.
#include <cstdint>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {
namespace {

// FNV-1a, 64 bit: small, the same everywhere; it names a version and protects nothing.
std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const unsigned char byte : text) {
    hash ^= byte;
    hash *= 1099511628211ULL;
  }
  return hash;
}

}  // namespace

std::string WorkerSpec::hash() const {
  nlohmann::json variables = nlohmann::json::array();
  for (const WorkerEnv& one : env) {
    variables.push_back({one.name, one.value});
    if (one.secret) variables.back().push_back({"secret", one.secret->first, one.secret->second});
    if (one.config_map) variables.back().push_back({"configMap", one.config_map->first, one.config_map->second});
  }
  const nlohmann::json identity = {{"pool", pool},
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
  return fmt::format("v1-{:016x}", fnv1a(identity.dump()));
}

bool WorkerSpec::matches(const std::string& recorded_hash) const {
  const std::string mine = hash();
  std::istringstream words(recorded_hash);
  for (std::string word; words >> word;) {
    if (word == mine || "v1-" + word == mine) return true;  // before there were versions the digits stood alone
  }
  return false;
}

}  // namespace windlass::controller
