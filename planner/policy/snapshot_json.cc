// Lists the JSON fields of a Snapshot. See json_fields.h.
#include <set>

#include <fmt/format.h>

#include "planner/policy/json_fields.h"

namespace windlass::planner {
namespace {

constexpr int kFormat = 1;

constexpr JsonLimit kAboveZero{[](double value) { return value > 0; }, "greater than 0"};
constexpr JsonLimit kPercentile{[](double value) { return value > 0 && value < 100; }, "between 0 and 100, both excluded"};
constexpr JsonLimit kTolerance{[](double value) { return value >= 0 && value < 1; }, "at least 0 and below 1"};

void read_peak_flops(JsonReader& parent, AcceleratorSpec& spec) {
  const nlohmann::json& peak = parent.require("peakFlops");
  JsonReader reader(peak, parent.path_of("peakFlops"));
  if (peak.is_object()) {
    for (const auto& item : peak.items()) {
      spec.peak_flops[read_dtype(reader, item.key().c_str(), item.key())] = reader.number(item.key().c_str());
    }
  }
  parent.take(reader.finish());
}

constexpr auto kNodesOfClasses = [](const Snapshot& snapshot, const std::string&) -> Result<void> {
  std::set<std::string> classes;
  for (const AcceleratorState& state : snapshot.accelerators) classes.insert(state.spec.name);
  std::set<std::pair<std::string, std::string>> seen;
  for (std::size_t i = 0; i < snapshot.nodes.size(); ++i) {
    const NodeState& node = snapshot.nodes[i];
    if (!classes.contains(node.accelerator)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("nodes[{}].accelerator: must be a class in accelerators (got '{}')", i, node.accelerator)};
    }
    if (!seen.emplace(node.name, node.accelerator).second) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("nodes[{}].name: must be listed once per class (got '{}' twice)", i, node.name)};
    }
  }
  return {};
};

}  // namespace

// ---- enumerations

constexpr auto json_values(JsonType<CapacityMode>) { return std::array{CapacityMode::kObserved, CapacityMode::kElastic}; }

constexpr auto json_values(JsonType<Mode>) { return std::array{Mode::kApply, Mode::kRecommend, Mode::kPaused}; }

constexpr auto json_values(JsonType<WorkerState>) {
  return std::array{WorkerState::kStarting, WorkerState::kReady, WorkerState::kDraining, WorkerState::kFailed,
                    WorkerState::kUnschedulable};
}

constexpr auto json_values(JsonType<EngineType>) { return kAllEngineTypes; }

constexpr auto json_values(JsonType<WorkerTrouble>) {
  return std::array{WorkerTrouble::kNone,      WorkerTrouble::kUnschedulable, WorkerTrouble::kImagePull,
                    WorkerTrouble::kCrashLoop, WorkerTrouble::kOutOfMemory,   WorkerTrouble::kNodeLost,
                    WorkerTrouble::kFailed};
}

// ---- accelerators

constexpr auto json_fields(JsonType<AcceleratorSpec>) {
  using T = AcceleratorSpec;
  const auto write_peak_flops = [](Json& json, const T& spec) {
    Json& peak = json["peakFlops"] = Json::object();
    for (const auto& [dtype, flops] : spec.peak_flops) write_value(peak[to_string(dtype)], flops);
  };
  return json_object(field("name", &T::name), field("memoryBytes", &T::memory_bytes), hook(write_peak_flops, read_peak_flops),
                     field("memoryBandwidthBytesPerS", &T::memory_bandwidth_bytes_per_s),
                     field("intraLinkBandwidthBytesPerS", &T::intra_link_bandwidth_bytes_per_s),
                     field("intraLinkLatencyS", &T::intra_link_latency_s),
                     field("interLinkBandwidthBytesPerS", &T::inter_link_bandwidth_bytes_per_s),
                     field("interLinkLatencyS", &T::inter_link_latency_s), field("gpusPerNode", &T::gpus_per_node),
                     field("pricePerHour", &T::price_per_hour), field("powerWatts", &T::power_watts))
      .checked_by(kValidated);
}

constexpr auto json_fields(JsonType<AcceleratorState>) {
  using T = AcceleratorState;
  return json_object(field("spec", &T::spec), field("mode", &T::mode), field("allocatableGpus", &T::allocatable_gpus, 0),
                     field("usedByOthers", &T::used_by_others, 0), field("maxGpus", &T::max_gpus, 0));
}

constexpr auto json_fields(JsonType<NodeState>) {
  using T = NodeState;
  return json_object(field("name", &T::name), field("accelerator", &T::accelerator),
                     field("allocatableGpus", &T::allocatable_gpus, 0), rare("usedByOthers", &T::used_by_others, 0),
                     rare("zone", &T::zone), rare("unschedulable", &T::unschedulable));
}

// ---- the service's spec

constexpr auto json_fields(JsonType<AllowedAccelerator>) {
  return json_object(field("accelerator", &AllowedAccelerator::accelerator),
                     field("maxGpus", &AllowedAccelerator::max_gpus, 0));
}

constexpr auto json_fields(JsonType<Slo>) {
  using T = Slo;
  return json_object(field("ttftS", &T::ttft_s), field("tpotS", &T::tpot_s), field("percentile", &T::percentile),
                     field("windowS", &T::window_s), limit("ttftS", &T::ttft_s, kAboveZero),
                     limit("tpotS", &T::tpot_s, kAboveZero), limit("percentile", &T::percentile, kPercentile));
}

constexpr auto json_fields(JsonType<Scaling>) {
  using T = Scaling;
  return json_object(field("strategy", &T::strategy), field("minWorkers", &T::min_workers, 0),
                     field("maxWorkers", &T::max_workers, 0), field("maxCostPerHour", &T::max_cost_per_hour),
                     field("idleToZeroAfterS", &T::idle_to_zero_after_s), field("drainTimeoutS", &T::drain_timeout_s),
                     field("scaleUpStabilizationS", &T::scale_up_stabilization_s),
                     field("scaleDownStabilizationS", &T::scale_down_stabilization_s),
                     field("scaleUpMaxPerMinute", &T::scale_up_max_per_minute, 1),
                     field("scaleDownMaxPerMinute", &T::scale_down_max_per_minute, 1),
                     added("tolerance", &T::tolerance).within(kTolerance), field("mode", &T::mode));
}

// ---- measurements

constexpr auto json_fields(JsonType<Demand>) {
  using T = Demand;
  const auto write_counts = [](Json& json, const T& demand) {
    if (demand.recently_judged > 0) write_value(json["recentlyJudged"], demand.recently_judged);
    if (demand.measured_requests > 0) write_value(json["measuredRequests"], demand.measured_requests);
  };
  const auto read_counts = [](JsonReader& reader, T& demand) {
    if (reader.given("recentlyJudged")) demand.recently_judged = reader.number("recentlyJudged");
    if (reader.given("measuredRequests")) demand.measured_requests = reader.number("measuredRequests");
  };
  return json_object(field("arrivalsPerS", &T::arrivals_per_s), field("arrivalsTotal", &T::arrivals_total),
                     field("arrivalsWindowS", &T::arrivals_window_s), field("queued", &T::queued),
                     field("inputTokens", &T::input_tokens), field("outputTokens", &T::output_tokens),
                     field("lastArrivalAtS", &T::last_arrival_at_s), field("attainment", &T::attainment),
                     field("recentAttainment", &T::recent_attainment), hook(write_counts, read_counts),
                     rare("rebalanced", &T::rebalanced), field("ttftS", &T::ttft_s), field("tpotS", &T::tpot_s),
                     field("mixedPool", &T::mixed_pool));
}

constexpr auto json_fields(JsonType<Worker>) {
  using T = Worker;
  return json_object(
      field("name", &T::name), field("pool", &T::pool), field("slot", &T::slot, 0), field("accelerator", &T::accelerator),
      field("gpus", &T::gpus, 0), field("state", &T::state), field("createdS", &T::created_s), field("readyS", &T::ready_s),
      field("running", &T::running), field("waiting", &T::waiting), field("kvUse", &T::kv_use), rare("trouble", &T::trouble),
      rare("troubleMessage", &T::trouble_message), field("address", &T::address), field("specHash", &T::spec_hash),
      rare("node", &T::node), rare("laterNodes", &T::later_nodes), rare("nodeLeaving", &T::node_leaving).or_null(),
      rare("role", &T::role), field("maxConcurrency", &T::max_concurrency, 0), rare("canChangeRole", &T::can_change_role),
      once_read([](T& worker) { worker.pool = pool_of_name(worker.pool, worker.accelerator, worker.gpus).name; }));
}

constexpr auto json_fields(JsonType<StartTimes>) {
  return json_object(field("p90S", &StartTimes::p90_s), field("count", &StartTimes::count, 0));
}

constexpr auto json_fields(JsonType<IterationEstimate>) {
  using T = IterationEstimate;
  return json_object(field("mean", &T::mean), field("covariance", &T::covariance), field("noiseVariance", &T::noise_variance),
                     field("samples", &T::samples, 0), field("outliers", &T::outliers, 0), field("changes", &T::changes, 0),
                     field("outlierRun", &T::outlier_run), field("promptOutlierRun", &T::prompt_outlier_run),
                     field("largestBatch", &T::largest_batch), field("seenBatch", &T::seen_batch),
                     field("decodeCount", &T::decode_count), rare("changedAtS", &T::changed_at_s));
}

constexpr auto json_fields(JsonType<TokenRange>) {
  return json_object(field("least", &TokenRange::least), field("most", &TokenRange::most));
}

constexpr auto json_fields(JsonType<WorkerEstimate>) {
  using T = WorkerEstimate;
  return json_object(field("accelerator", &T::accelerator), field("gpusPerWorker", &T::gpus_per_worker, 1),
                     added("fromProfile", &T::from_profile).or_null(), part(&T::estimate), rare("contexts", &T::contexts),
                     rare("prompts", &T::prompts), rare("stages", &T::stages, 1));
}

constexpr auto json_fields(JsonType<MeasuredTransfer>) {
  using T = MeasuredTransfer;
  return json_object(field("bandwidthBytesPerS", &T::bandwidth_bytes_per_s), field("latencyS", &T::latency_s),
                     field("bytesPerToken", &T::bytes_per_token), field("samples", &T::samples, 0),
                     limit("bandwidthBytesPerS", &T::bandwidth_bytes_per_s, kAboveZero),
                     limit("latencyS", &T::latency_s, kAtLeastZero), limit("bytesPerToken", &T::bytes_per_token, kAtLeastZero));
}

constexpr auto json_fields(JsonType<TransferToWorker>) {
  using T = TransferToWorker;
  return json_object(field("accelerator", &T::accelerator), field("gpusPerWorker", &T::gpus_per_worker, 1), part(&T::measured));
}

// ---- answers of strategies and of the cluster

constexpr auto json_fields(JsonType<CreationRefusal>) {
  using T = CreationRefusal;
  return json_object(field("code", &T::code), field("message", &T::message), field("untilS", &T::until_s));
}

constexpr auto json_fields(JsonType<Offers>) {
  using T = Offers;
  return json_object(field("requestsPerS", &T::requests_per_s), rare("inputTokens", &T::input_tokens),
                     field("complete", &T::complete), field("confirmed", &T::confirmed), field("answers", &T::answers),
                     rare("why", &T::why));
}

// What snapshots held before there were offers: how to split the phases. Read as an offer, never written.
struct OldPhase {
  WorkerSpec spec;
  double requests_per_s = 0;
  double closed_form_per_s = 0;
};
struct OldSplit {
  std::string strategy;
  bool holds = true;
  OldPhase prefill, decode;
  double cost_per_hour = 0, whole_cost_per_hour = 0;
  std::string why;
};

constexpr auto json_fields(JsonType<OldPhase>) {
  using T = OldPhase;
  return json_object(part(&T::spec), field("requestsPerS", &T::requests_per_s), rare("closedFormPerS", &T::closed_form_per_s),
                     limit("requestsPerS", &T::requests_per_s, kAboveZero));
}

constexpr auto json_fields(JsonType<OldSplit>) {
  using T = OldSplit;
  return json_object(field("strategy", &T::strategy), added("holds", &T::holds).or_null(),
                     when(&T::holds, field("prefill", &T::prefill), field("decode", &T::decode),
                          added("costPerHour", &T::cost_per_hour), rare("wholeCostPerHour", &T::whole_cost_per_hour)),
                     field("why", &T::why));
}

void read_split(JsonReader& reader, Service& service) {
  if (!reader.given("split")) return;
  const OldSplit split = reader.unwrap(read_json<OldSplit>(reader.require("split"), reader.path_of("split")));
  Offers& offers = service.offers.emplace();
  offers.requests_per_s = service.workload.requests_per_s;
  offers.complete = true;
  offers.why = split.why;
  if (!split.holds) return;
  Offer offer;
  offer.strategy = split.strategy;
  offer.pools = {
      {split.decode.spec, dispatch::Role::kDecode, 1, 1, split.decode.requests_per_s, split.decode.closed_form_per_s},
      {split.prefill.spec, dispatch::Role::kPrefill, 1, 1, split.prefill.requests_per_s, split.prefill.closed_form_per_s}};
  offer.requests_per_s = offers.requests_per_s;
  offer.cost_per_hour = split.cost_per_hour;
  offer.why = split.why;
  offers.confirmed = {offer};
}

// ---- the snapshot

constexpr auto json_fields(JsonType<Service>) {
  using T = Service;
  return json_object(field("id", &T::id), field("generation", &T::generation, 0), field("servedName", &T::served_name),
                     field("shape", &T::shape), rare("shapeUnknownReason", &T::shape_unknown_reason),
                     field("maxContextTokens", &T::max_context_tokens, 0),
                     rare("reservesContext", &T::reserves_context).or_null(), rare("engine", &T::engine),
                     rare("maySplit", &T::may_split).or_null(), field("maxGpusPerWorker", &T::max_gpus_per_worker, 1),
                     field("slo", &T::slo), field("workload", &T::workload), field("accelerators", &T::accelerators),
                     field("scaling", &T::scaling), field("priority", &T::priority), field("lastDesired", &T::last_desired, 0),
                     field("lastOffer", &T::last_offer), field("demand", &T::demand), field("workers", &T::workers),
                     field("starts", &T::starts), rare("estimates", &T::estimates), rare("transfers", &T::transfers),
                     field("refused", &T::refused), field("offers", &T::offers), hook([](Json&, const T&) {}, read_split),
                     field("searchingSinceS", &T::searching_since_s), field("memory", &T::memory));
}

constexpr auto json_fields(JsonType<Snapshot>) {
  using T = Snapshot;
  return json_object(hook([](Json& json, const T&) { json["snapshotFormat"] = kFormat; },
                          [](JsonReader& reader, T&) { static_cast<void>(reader.int32("snapshotFormat", kFormat, kFormat)); }),
                     field("nowS", &T::now_s), field("accelerators", &T::accelerators), rare("nodes", &T::nodes),
                     field("services", &T::services))
      .checked_by(kNodesOfClasses);
}

}  // namespace windlass::planner

namespace windlass {

template void write_fields(planner::Json&, const planner::Snapshot&);
template Result<planner::Snapshot> read_json(const nlohmann::json&, const std::string&);

}  // namespace windlass
