// See serving_simulation.h.
#include "planner/sim/serving_simulation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "planner/sim/serving_run.h"

namespace windlass::sim {
namespace {

constexpr const char* kTime = "a time of at least 0";

bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

Result<void> validate(const RunOptions& options, std::size_t services) {
  const auto wrong = [](const std::string& field, const std::string& found, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be {} (got {})", field, allowed, found)};
  };
  const WorkerFailures& failures = options.failures;
  for (std::size_t i = 0; i < failures.at.size(); ++i) {
    const auto& [time_s, worker] = failures.at[i];
    if (!is_time(time_s)) return wrong(fmt::format("failures.at[{}].time", i), fmt::format("{} s", time_s), kTime);
    if (worker < 0) return wrong(fmt::format("failures.at[{}].worker", i), std::to_string(worker), "a number of at least 0");
  }
  if (!is_time(failures.mean_time_between_s))
    return wrong("failures.meanTimeBetween", fmt::format("{} s", failures.mean_time_between_s), kTime);
  const bool undisturbed = failures.at.empty() && failures.mean_time_between_s == 0 && options.controller == nullptr;
  if (options.verdict_only && !(undisturbed && services == 1)) {
    return Error{ErrorCode::kInvalidArgument,
                 "verdict_only: must be unset unless there is one service without failures and controller"};
  }
  return {};
}

Result<void> validate_pairs(const ServingService& service, const std::string& prefix) {
  const bool chosen = service.dispatch.decode_choice == dispatch::DecodeChoice::kPairs;
  if (chosen == service.pairs.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 chosen ? prefix + "pairs: must have at least one pair, as the decode choice is pairs (got none)"
                        : prefix + "pairs: must be empty, as the decode choice is not pairs (got some)"};
  }
  const auto has_role = [&](int pool, dispatch::Role role) {
    return pool >= 0 && pool < static_cast<int>(service.pools.size()) &&
           service.pools[static_cast<std::size_t>(pool)].role == role;
  };
  for (std::size_t i = 0; i < service.pairs.size(); ++i) {
    const PoolPair& pair = service.pairs[i];
    const auto wrong = [&](const char* field, const std::string& found, const char* allowed) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}pairs[{}].{}: must be {} (got {})", prefix, i, field, allowed, found)};
    };
    if (!has_role(pair.prefill, dispatch::Role::kPrefill))
      return wrong("prefill", std::to_string(pair.prefill), "the index of a prefill pool");
    if (!has_role(pair.decode, dispatch::Role::kDecode))
      return wrong("decode", std::to_string(pair.decode), "the index of a decode pool");
    if (!(std::isfinite(pair.weight) && pair.weight > 0))
      return wrong("weight", fmt::format("{}", pair.weight), "a number above 0");
    if (!is_time(pair.path.latency_s)) return wrong("path.latency", fmt::format("{} s", pair.path.latency_s), kTime);
  }
  if (chosen && (service.dispatch.flip || service.dispatch.repurpose || service.dispatch.mixed_pool_threshold_tokens)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}pairs: must be empty if workers can change their role (flip, repurpose or mixedPool)", prefix)};
  }
  return {};
}

Result<void> validate_pool(const ServingPool& pool, std::size_t i, bool controlled, const std::string& prefix) {
  const auto wrong = [&](const char* field, const std::string& found, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}cluster.pools[{}].{}: must be {} (got {})", prefix, i, field, allowed, found)};
  };
  if (pool.workers < (controlled ? 0 : 1)) {
    return wrong("workers", std::to_string(pool.workers), controlled ? "a number of at least 0" : "a number of at least 1");
  }
  if (!is_time(pool.start_s)) return wrong("start", fmt::format("{} s", pool.start_s), kTime);
  if (!is_time(pool.swap_s_per_token)) return wrong("swap", fmt::format("{} s per token", pool.swap_s_per_token), kTime);
  const double tokens = pool.spec.engine.kv_blocks == 0
                            ? pool.model->kv_capacity_tokens()
                            : static_cast<double>(pool.spec.engine.kv_blocks * pool.spec.engine.block_tokens);
  if (!(tokens >= static_cast<double>(pool.spec.engine.block_tokens) * std::max(1, pool.model->pipeline_stages()))) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}cluster.pools[{}]: the model does not fit; memory leaves {:.0f} tokens for the KV cache",
                             prefix, i, tokens)};
  }
  return {};
}

// Checks each setting on its own.
Result<void> validate_settings(const dispatch::DispatchSettings& dispatch, const std::string& prefix) {
  const auto wrong = [&](const char* field, const std::string& found, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}scheduling.{}: must be {} (got {})", prefix, field, allowed, found)};
  };
  if (const auto& flip = dispatch.flip) {
    if (!is_time(flip->window_s) || flip->window_s == 0)
      return wrong("flip.window", fmt::format("{} s", flip->window_s), "a time above 0");
    if (!is_time(flip->flip_s)) return wrong("flip.time", fmt::format("{} s", flip->flip_s), kTime);
  }
  if (const auto& repurpose = dispatch.repurpose) {
    if (!is_time(repurpose->window_s) || repurpose->window_s == 0)
      return wrong("repurpose.window", fmt::format("{} s", repurpose->window_s), "a time above 0");
    if (!(repurpose->above >= 0 && repurpose->above <= 1))
      return wrong("repurpose.above", fmt::format("{}", repurpose->above), "a share from 0 to 1");
    if (!dispatch.mixed_pool_threshold_tokens) return wrong("repurpose", "none", "used with mixedPool");
  }
  if (const auto& prediction = dispatch.prediction) {
    if (prediction->bucket_tokens < 1)
      return wrong("prediction.bucketTokens", std::to_string(prediction->bucket_tokens), "a number of at least 1");
    if (!(prediction->accuracy >= 0 && prediction->accuracy <= 1))
      return wrong("prediction.accuracy", fmt::format("{}", prediction->accuracy), "a share from 0 to 1");
  }
  return {};
}

// Checks settings against the pools' engines and roles.
Result<void> validate_together(const ServingService& service, const std::string& prefix) {
  bool unified = false, prefill = false, decode = false;
  for (const ServingPool& pool : service.pools) {
    const planner::Batching batching = pool.spec.engine.batching;
    if (service.dispatch.mixed_pool_threshold_tokens &&
        (batching == planner::Batching::kStatic || batching == planner::Batching::kOrca)) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("{}scheduling.batching: must have paged caches with a mixed pool (got {})", prefix, to_string(batching))};
    }
    unified = unified || pool.role == dispatch::Role::kUnified;
    prefill = prefill || pool.role == dispatch::Role::kPrefill;
    decode = decode || pool.role == dispatch::Role::kDecode;
  }
  if (!(unified ? !prefill && !decode : prefill && decode)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}cluster.pools: must be all unified, or have both prefill and decode pools", prefix)};
  }
  if (!prefill && (service.dispatch.flip || service.dispatch.decode_choice != dispatch::DecodeChoice::kAtArrival)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}scheduling.{}: must be used with prefill and decode pools (got unified pools)", prefix,
                             service.dispatch.flip ? "flip" : "decodeChoice")};
  }
  if (service.dispatch.mixed_pool_threshold_tokens && service.dispatch.decode_choice == dispatch::DecodeChoice::kTwoChoice) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}scheduling.decodeChoice: must not be two-choice with a mixed pool", prefix)};
  }
  return {};
}

Result<void> validate(const ServingService& service, bool controlled, const std::string& prefix) {
  for (std::size_t i = 0; i < service.pools.size(); ++i) {
    WINDLASS_RETURN_IF_ERROR(validate_pool(service.pools[i], i, controlled, prefix));
  }
  WINDLASS_RETURN_IF_ERROR(validate_settings(service.dispatch, prefix));
  WINDLASS_RETURN_IF_ERROR(validate_together(service, prefix));
  return validate_pairs(service, prefix);
}

}  // namespace

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
  WINDLASS_RETURN_IF_ERROR(validate(options, options.services.size()));
  std::vector<const ServingService*> services;
  for (std::size_t s = 0; s < options.services.size(); ++s) {
    WINDLASS_RETURN_IF_ERROR(validate(options.services[s], options.controller != nullptr,
                                      options.services.size() == 1 ? std::string() : fmt::format("services[{}].", s)));
    services.push_back(&options.services[s]);
  }
  return ServingRun(source, services, options).run();
}

Result<ServingResult> simulate_serving(workload::RequestSource& source, const ServingOptions& options) {
  WINDLASS_RETURN_IF_ERROR(validate(static_cast<const RunOptions&>(options), 1));
  WINDLASS_RETURN_IF_ERROR(validate(options, options.controller != nullptr, ""));
  return std::move(ServingRun(source, {&options}, options).run().front());
}

}  // namespace windlass::sim
