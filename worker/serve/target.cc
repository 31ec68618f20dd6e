// Maps paths to targets; see target.h.
#include "worker/serve/target.h"

#include "worker/serve/chain_http.h"
#include "worker/serve/kv_http.h"

namespace windlass::worker {

Target target_of(std::string_view path) {
  if (path == "/v1/chat/completions" || path == "/v1/completions") return Target::kGenerate;
  if (path == "/tokenize" || path == "/detokenize") return Target::kTokenize;
  if (path == "/role") return Target::kRole;
  if (path == "/blocks") return Target::kBlocks;
  if (path == "/v1/models") return Target::kModels;
  if (path == "/metrics") return Target::kMetrics;
  if (path == "/health") return Target::kHealth;
  if (path == "/ready") return Target::kReady;
  if (path.starts_with(kModelPath)) return Target::kModel;
  if (path.starts_with(kKvPath)) return Target::kKv;
  return chain_verb_of(path) ? Target::kChain : Target::kUnknown;
}

std::string_view methods_of(Target target) {
  switch (target) {
    case Target::kGenerate:
    case Target::kTokenize:
    case Target::kChain: return "POST";
    case Target::kRole:
    case Target::kBlocks: return "GET, POST";
    default: return "GET";
  }
}

bool allows(Target target, std::string_view method) {
  const std::string_view methods = methods_of(target);
  return method == methods || (methods == "GET, POST" && (method == "GET" || method == "POST"));
}

}  // namespace windlass::worker
