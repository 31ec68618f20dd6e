// See serving_simulation.h.
#include "planner/sim/serving_simulation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "planner/sim/serving_run.h"

namespace windlass::sim {
namespace {

Result<void> validate(const ServingService& service, bool controlled, const std::string& prefix) {
  bool unified = false, prefill = false, decode = false;
  for (std::size_t i = 0; i < service.pools.size(); ++i) {
    const ServingPool& pool = service.pools[i];
    const auto wrong = [&](const char* field, const std::string& found, const char* allowed) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}cluster.pools[{}].{}: found {}, allowed is {}", prefix, i, field, found, allowed)};
    };
    if (pool.workers < (controlled ? 0 : 1)) {
      return wrong("workers", std::to_string(pool.workers), controlled ? "a number of at least 0" : "a number of at least 1");
    }
    if (!(pool.start_s >= 0)) return wrong("start", fmt::format("{} s", pool.start_s), "a time of at least 0");
    const double tokens = pool.engine.kv_blocks == 0 ? pool.model->kv_capacity_tokens()
                                                     : static_cast<double>(pool.engine.kv_blocks * pool.engine.block_tokens);
    if (!(tokens >= static_cast<double>(pool.engine.block_tokens) * std::max(1, pool.model->pipeline_stages()))) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}cluster.pools[{}]: the model does not fit: {:.0f} tokens are left for the KV cache", prefix,
                               i, tokens)};
    }
    unified = unified || pool.role == WorkerRole::kUnified;
    prefill = prefill || pool.role == WorkerRole::kPrefill;
    decode = decode || pool.role == WorkerRole::kDecode;
  }
  for (std::size_t i = 0; service.mixed_pool_threshold_tokens && i < service.pools.size(); ++i) {
    const Batching batching = service.pools[i].engine.batching;
    if (batching != Batching::kStatic && batching != Batching::kOrca) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}scheduling.batching: found {} with a mixed pool, allowed are those with paged caches", prefix,
                             to_string(batching))};
  }
  if (!(unified ? !prefill && !decode : prefill && decode)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}cluster.pools: found roles that serve no request, allowed are pools that are all unified, or "
                             "prefill and decode pools",
                             prefix)};
  }
  if (!prefill && (service.flip || service.decode_choice != DecodeChoice::kAtArrival)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}scheduling.{}: found with unified pools, allowed are prefill and decode pools", prefix,
                             service.flip ? "flip" : "decodeChoice")};
  }
  if (service.mixed_pool_threshold_tokens && service.decode_choice == DecodeChoice::kTwoChoice) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}scheduling.decodeChoice: found two-choice with a mixed pool, allowed is one of them", prefix)};
  }
  return {};
}

}  // namespace

const char* to_string(WorkerRole role) {
  switch (role) {
    case WorkerRole::kUnified: return "unified";
    case WorkerRole::kPrefill: return "prefill";
    case WorkerRole::kDecode: return "decode";
  }
  return "";
}

const char* to_string(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kStarting: return "starting";
    case WorkerPhase::kReady: return "ready";
    case WorkerPhase::kDraining: return "draining";
    case WorkerPhase::kEnded: return "ended";
  }
  return "";
}

Result<std::vector<ServingResult>> simulate_cluster(workload::RequestSource& source, const ClusterOptions& options) {
  for (std::size_t s = 0; s < options.services.size(); ++s) {
    WINDLASS_RETURN_IF_ERROR(validate(options.services[s], options.controller != nullptr,
                                      options.services.size() == 1 ? std::string() : fmt::format("services[{}].", s)));
  }
  return ServingRun(source, options).run();
}

Result<ServingResult> simulate_serving(workload::RequestSource& source, const ServingOptions& options) {
  ClusterOptions cluster;
  static_cast<RunOptions&>(cluster) = options;
  cluster.services.push_back(options);
  WINDLASS_ASSIGN_OR_RETURN(auto results, simulate_cluster(source, cluster));
  return std::move(results.front());
}

}  // namespace windlass::sim
