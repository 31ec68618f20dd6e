// Computes the hash of a worker's specification. If the hash that a worker was started with no longer matches, the worker is
// replaced.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/worker_runtime.h"
#include "planner/base/fnv.h"
#include "planner/deployment/pool_name.h"

namespace windlass::controller {
namespace {

using dispatch::Role;
using nlohmann::json;

// The chosen settings of the engine; none for its defaults.
json settings_of(const Launch& launch) {
  const planner::ToldSettings told = planner::told(launch.settings);
  json out = json::object();
  if (told.batching) out["batching"] = planner::to_string(*told.batching);
  if (told.max_sequences) out["maxSequences"] = *told.max_sequences;
  if (told.max_batch_tokens) out["maxBatchTokens"] = *told.max_batch_tokens;
  if (told.precision) out["precision"] = planner::to_string(*told.precision);
  return out;
}

// A pod keeps the tolerations that it was made with, so one that waits for a node must be replaced to get others.
json tolerations_of(const Launch& launch) {
  json out = json::array();
  for (const api::Toleration& one : launch.tolerations) out.push_back({one.key, one.comparison, one.value, one.effect});
  return out;
}

// The fields that require a restart.
json identity_of(const Launch& launch) {
  json variables = json::array();
  for (const WorkerEnv& one : launch.env) {
    variables.push_back({one.name, one.value});
    if (one.secret) variables.back().push_back({"secret", one.secret->first, one.secret->second});
    if (one.config_map) variables.back().push_back({"configMap", one.config_map->first, one.config_map->second});
  }
  return {{"accelerator", launch.accelerator},
          {"resource", launch.resource_name},
          {"nodes", launch.node_selector},
          {"tolerations", tolerations_of(launch)},
          {"gpus", launch.gpus},
          {"engine", launch.engine},
          {"image", launch.image},
          {"program", launch.program},
          {"args", launch.extra_args},
          {"env", variables},
          {"podTemplate", launch.pod_template_json},
          {"served", launch.served_name},
          {"model", launch.model_uri},
          {"context", launch.max_context_tokens},
          {"priority", launch.priority_class},
          {"settings", settings_of(launch)}};
}

std::string digest_of(const char* version, const json& identity) {
  Fnv1a hash;
  hash.mix(identity.dump());
  return fmt::format("{}-{:016x}", version, hash.value());
}

// Default values are not hashed, so a setting added by a later version restarts no worker.
std::string second_version(const Launch& launch) {
  json said = identity_of(launch);
  if (launch.stages > 1) said["stages"] = launch.stages;
  for (auto one = said.begin(); one != said.end();) {
    const bool nothing = one->is_structured() ? one->empty() : *one == "" || *one == 0;
    one = nothing ? said.erase(one) : std::next(one);
  }
  return digest_of("v2", said);
}

// Versions until 2026-11-28 also hashed the role, which was part of the pool's name.
std::string first_version(const Launch& launch, Role role) {
  json identity = identity_of(launch);
  if (launch.program.empty()) identity.erase("program");
  if (launch.tolerations.empty()) identity.erase("tolerations");
  if (identity["settings"].empty()) identity.erase("settings");
  identity["role"] = dispatch::to_string(role);
  identity["pool"] = role == Role::kUnified ? launch.pool : planner::former_pool_name(launch.accelerator, launch.gpus, role);
  return digest_of("v1", identity);
}

}  // namespace

std::string Launch::hash() const {
  const Role duty = role == "prefill" ? Role::kPrefill : role == "decode" ? Role::kDecode : Role::kUnified;
  return second_version(*this) + " " + first_version(*this, duty);
}

std::string Launch::known_hashes() const {
  std::string all = second_version(*this);
  for (const Role each : {Role::kUnified, Role::kPrefill, Role::kDecode}) all += " " + first_version(*this, each);
  return all;
}

bool Launch::matches(std::string_view recorded_hash, std::string_view known_hashes) {
  constexpr std::size_t kDigits = 16, kWord = 3 + kDigits;
  const std::size_t own = recorded_hash.find("v2-");
  // If this version's hash is present, ignore the former one, which covers less.
  if (own != std::string_view::npos) recorded_hash = recorded_hash.substr(own, kWord);
  while (!recorded_hash.empty()) {
    const std::string_view word = recorded_hash.substr(0, recorded_hash.find(' '));
    // The oldest records have bare digits without a version.
    const bool whole = word.size() == kWord || word.size() == kDigits;
    if (whole && known_hashes.find(word) != std::string_view::npos) return true;
    recorded_hash.remove_prefix(std::min(word.size() + 1, recorded_hash.size()));
  }
  return false;
}

}  // namespace windlass::controller
