// The fields of a Snapshot.
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "planner/policy/json_fields.h"

namespace windlass::planner {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

// ---- writing

Json fields_of(const AcceleratorSpec& spec) {
  Json peak = Json::object();
  for (const auto& [dtype, flops] : spec.peak_flops) peak[to_string(dtype)] = number(flops);
  return Json{{"name", spec.name},
              {"memoryBytes", number(spec.memory_bytes)},
              {"peakFlops", std::move(peak)},
              {"memoryBandwidthBytesPerS", number(spec.memory_bandwidth_bytes_per_s)},
              {"intraLinkBandwidthBytesPerS", number(spec.intra_link_bandwidth_bytes_per_s)},
              {"intraLinkLatencyS", number(spec.intra_link_latency_s)},
              {"interLinkBandwidthBytesPerS", number(spec.inter_link_bandwidth_bytes_per_s)},
              {"interLinkLatencyS", number(spec.inter_link_latency_s)},
              {"gpusPerNode", spec.gpus_per_node},
              {"pricePerHour", number(spec.price_per_hour)},
              {"powerWatts", number(spec.power_watts)}};
}

Json fields_of(const AcceleratorState& state) {
  Json object{{"spec", fields_of(state.spec)},
              {"mode", to_string(state.mode)},
              {"allocatableGpus", state.allocatable_gpus},
              {"usedByOthers", state.used_by_others}};
  put(object, "maxGpus", state.max_gpus);
  return object;
}

Json fields_of(const Scaling& scaling) {
  Json object{{"strategy", to_string(scaling.strategy)}, {"minWorkers", scaling.min_workers}};
  put(object, "maxWorkers", scaling.max_workers);
  put(object, "maxCostPerHour", scaling.max_cost_per_hour);
  put(object, "idleToZeroAfterS", scaling.idle_to_zero_after_s);
  object["drainTimeoutS"] = number(scaling.drain_timeout_s);
  object["scaleUpStabilizationS"] = number(scaling.scale_up_stabilization_s);
  object["scaleDownStabilizationS"] = number(scaling.scale_down_stabilization_s);
  put(object, "scaleUpMaxPerMinute", scaling.scale_up_max_per_minute);
  put(object, "scaleDownMaxPerMinute", scaling.scale_down_max_per_minute);
  object["tolerance"] = number(scaling.tolerance);
  object["mode"] = to_string(scaling.mode);
  return object;
}

Json fields_of(const Demand& demand) {
  Json object = Json::object();
  put(object, "arrivalsPerS", demand.arrivals_per_s);
  put(object, "arrivalsTotal", demand.arrivals_total);
  object["arrivalsWindowS"] = number(demand.arrivals_window_s);
  put(object, "queued", demand.queued);
  put(object, "inputTokens", demand.input_tokens);
  put(object, "outputTokens", demand.output_tokens);
  put(object, "lastArrivalAtS", demand.last_arrival_at_s);
  put(object, "attainment", demand.attainment);
  put(object, "recentAttainment", demand.recent_attainment);
  if (demand.recently_judged > 0) object["recentlyJudged"] = number(demand.recently_judged);
  put(object, "ttftS", demand.ttft_s);
  put(object, "tpotS", demand.tpot_s);
  return object;
}

Json fields_of(const Worker& worker) {
  Json object{{"name", worker.name},
              {"pool", worker.pool},
              {"slot", worker.slot},
              {"accelerator", worker.accelerator},
              {"gpus", worker.gpus},
              {"state", to_string(worker.state)},
              {"createdS", number(worker.created_s)}};
  put(object, "readyS", worker.ready_s);
  put(object, "running", worker.running);
  put(object, "waiting", worker.waiting);
  put(object, "kvUse", worker.kv_use);
  if (worker.trouble != WorkerTrouble::kNone) object["trouble"] = to_string(worker.trouble);
  if (!worker.trouble_message.empty()) object["troubleMessage"] = worker.trouble_message;
  object["address"] = worker.address;
  object["specHash"] = worker.spec_hash;
  if (worker.node_leaving) object["nodeLeaving"] = true;
  if (worker.role != dispatch::Role::kUnified) object["role"] = dispatch::to_string(worker.role);
  object["maxConcurrency"] = worker.max_concurrency;
  return object;
}

Json fields_of(const WorkerEstimate& worker) {
  const auto numbers = [](const auto& values) {
    Json list = Json::array();
    for (const double value : values) list.push_back(number(value));
    return list;
  };
  const IterationEstimate& estimate = worker.estimate;
  return Json{{"accelerator", worker.accelerator},
              {"gpusPerWorker", worker.gpus_per_worker},
              {"fromProfile", worker.from_profile},
              {"mean", numbers(estimate.mean)},
              {"covariance", numbers(estimate.covariance)},
              {"noiseVariance", number(estimate.noise_variance)},
              {"samples", estimate.samples},
              {"outliers", estimate.outliers},
              {"changes", estimate.changes},
              {"outlierRun", estimate.outlier_run},
              {"promptOutlierRun", estimate.prompt_outlier_run},
              {"largestBatch", number(estimate.largest_batch)},
              {"seenBatch", number(estimate.seen_batch)},
              {"decodeCount", number(estimate.decode_count)}};
}

Json fields_of(const TransferToWorker& transfer) {
  return Json{{"accelerator", transfer.accelerator},
              {"gpusPerWorker", transfer.gpus_per_worker},
              {"bandwidthBytesPerS", number(transfer.measured.bandwidth_bytes_per_s)},
              {"latencyS", number(transfer.measured.latency_s)},
              {"bytesPerToken", number(transfer.measured.bytes_per_token)},
              {"samples", transfer.measured.samples}};
}

Json fields_of(const PhaseAdvice& phase) {
  Json object{{"accelerator", phase.accelerator},
              {"gpusPerWorker", phase.gpus_per_worker},
              {"requestsPerS", number(phase.requests_per_s)}};
  if (phase.closed_form_per_s) object["closedFormPerS"] = number(*phase.closed_form_per_s);
  return object;
}

Json fields_of(const SplitAdvice& advice) {
  Json object{{"strategy", advice.strategy}, {"holds", advice.holds}};
  if (advice.holds) {
    object["prefill"] = fields_of(advice.prefill);
    object["decode"] = fields_of(advice.decode);
    object["costPerHour"] = advice.cost_per_hour;
    put(object, "wholeCostPerHour", advice.whole_cost_per_hour);
  }
  object["why"] = advice.why;
  return object;
}

Json fields_of(const Service& service) {
  Json accelerators = Json::array();
  for (const AllowedAccelerator& allowed : service.accelerators) {
    Json entry{{"accelerator", allowed.accelerator}};
    put(entry, "maxGpus", allowed.max_gpus);
    accelerators.push_back(std::move(entry));
  }
  Json workers = Json::array();
  for (const Worker& worker : service.workers) workers.push_back(fields_of(worker));
  Json object{{"id", fields_of(service.id)}, {"generation", service.generation}, {"servedName", service.served_name}};
  if (service.shape) object["shape"] = fields_of(*service.shape);
  if (!service.shape_unknown_reason.empty()) object["shapeUnknownReason"] = service.shape_unknown_reason;
  object["maxContextTokens"] = service.max_context_tokens;
  if (service.reserves_context) object["reservesContext"] = true;
  if (!service.may_split) object["maySplit"] = false;
  put(object, "maxGpusPerWorker", service.max_gpus_per_worker);
  object["slo"] = Json{{"ttftS", number(service.slo.ttft_s)},
                       {"tpotS", number(service.slo.tpot_s)},
                       {"percentile", number(service.slo.percentile)},
                       {"windowS", number(service.slo.window_s)}};
  object["workload"] = Json{{"requestsPerS", number(service.workload.requests_per_s)},
                            {"inputTokens", number(service.workload.input_tokens)},
                            {"outputTokens", number(service.workload.output_tokens)}};
  object["accelerators"] = std::move(accelerators);
  object["scaling"] = fields_of(service.scaling);
  object["priority"] = service.priority;
  put(object, "lastDesired", service.last_desired);
  object["demand"] = fields_of(service.demand);
  object["workers"] = std::move(workers);
  if (service.starts) {
    object["starts"] = Json{{"p90S", number(service.starts->p90_s)}, {"count", service.starts->count}};
  }
  if (!service.estimates.empty()) {
    Json estimates = Json::array();
    for (const WorkerEstimate& estimate : service.estimates) estimates.push_back(fields_of(estimate));
    object["estimates"] = std::move(estimates);
  }
  if (!service.transfers.empty()) {
    Json transfers = Json::array();
    for (const TransferToWorker& transfer : service.transfers) transfers.push_back(fields_of(transfer));
    object["transfers"] = std::move(transfers);
  }
  if (service.refused) {
    object["refused"] = Json{
        {"code", service.refused->code}, {"message", service.refused->message}, {"untilS", number(service.refused->until_s)}};
  }
  if (service.split) object["split"] = fields_of(*service.split);
  object["memory"] = fields_of(service.memory);
  return object;
}

// ---- reading

Result<AcceleratorSpec> read_accelerator_spec(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  AcceleratorSpec spec;
  spec.name = reader.string("name");
  spec.memory_bytes = reader.number("memoryBytes");
  const json& peak = reader.require("peakFlops");
  JsonReader peak_reader(peak, reader.path_of("peakFlops"));
  if (peak.is_object()) {
    for (const auto& item : peak.items()) {
      spec.peak_flops[read_dtype(peak_reader, item.key().c_str(), item.key())] = peak_reader.number(item.key().c_str());
    }
  }
  reader.take(peak_reader.finish());
  spec.memory_bandwidth_bytes_per_s = reader.number("memoryBandwidthBytesPerS");
  spec.intra_link_bandwidth_bytes_per_s = reader.number("intraLinkBandwidthBytesPerS");
  spec.intra_link_latency_s = reader.number("intraLinkLatencyS");
  spec.inter_link_bandwidth_bytes_per_s = reader.number("interLinkBandwidthBytesPerS");
  spec.inter_link_latency_s = reader.number("interLinkLatencyS");
  spec.gpus_per_node = reader.int32("gpusPerNode");
  spec.price_per_hour = reader.number("pricePerHour");
  spec.power_watts = reader.number("powerWatts");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  if (Result<void> valid = validate(spec); !valid.ok()) return valid.error().within(path);
  return spec;
}

Result<AcceleratorState> read_accelerator(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  AcceleratorState state;
  state.spec = child<AcceleratorSpec>(reader, "spec", read_accelerator_spec);
  state.mode = read_enum(reader, "mode", {CapacityMode::kObserved, CapacityMode::kElastic});
  state.allocatable_gpus = reader.int32("allocatableGpus", 0);
  state.used_by_others = reader.int32("usedByOthers", 0);
  state.max_gpus = optional_int(reader, "maxGpus", 0);
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return state;
}

Result<Slo> read_slo(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Slo slo;
  slo.ttft_s = reader.number("ttftS");
  slo.tpot_s = reader.number("tpotS");
  slo.percentile = reader.number("percentile");
  slo.window_s = reader.number("windowS");
  if (!(slo.ttft_s > 0)) reader.fail("ttftS", json_number(slo.ttft_s), "greater than 0");
  if (!(slo.tpot_s > 0)) reader.fail("tpotS", json_number(slo.tpot_s), "greater than 0");
  if (!(slo.percentile > 0 && slo.percentile < 100)) {
    reader.fail("percentile", json_number(slo.percentile), "between 0 and 100, both excluded");
  }
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return slo;
}

Result<AssumedWorkload> read_workload(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  AssumedWorkload workload;
  workload.requests_per_s = reader.number("requestsPerS");
  workload.input_tokens = reader.number("inputTokens");
  workload.output_tokens = reader.number("outputTokens");
  if (!(workload.requests_per_s >= 0)) reader.fail("requestsPerS", json_number(workload.requests_per_s), "at least 0");
  if (!(workload.input_tokens >= 1)) reader.fail("inputTokens", json_number(workload.input_tokens), "at least 1");
  if (!(workload.output_tokens >= 1)) reader.fail("outputTokens", json_number(workload.output_tokens), "at least 1");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return workload;
}

Result<Scaling> read_scaling(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Scaling scaling;
  scaling.strategy =
      read_enum(reader, "strategy", {Strategy::kAuto, Strategy::kReplicated, Strategy::kDisaggregated, Strategy::kChained});
  scaling.min_workers = reader.int32("minWorkers", 0);
  scaling.max_workers = optional_int(reader, "maxWorkers", 0);
  scaling.max_cost_per_hour = optional_number(reader, "maxCostPerHour");
  scaling.idle_to_zero_after_s = optional_number(reader, "idleToZeroAfterS");
  scaling.drain_timeout_s = reader.number("drainTimeoutS");
  scaling.scale_up_stabilization_s = reader.number("scaleUpStabilizationS");
  scaling.scale_down_stabilization_s = reader.number("scaleDownStabilizationS");
  scaling.scale_up_max_per_minute = optional_int(reader, "scaleUpMaxPerMinute", 1);
  scaling.scale_down_max_per_minute = optional_int(reader, "scaleDownMaxPerMinute", 1);
  if (reader.find("tolerance") != nullptr) {
    scaling.tolerance = reader.number("tolerance");
    if (!(scaling.tolerance >= 0 && scaling.tolerance < 1)) {
      reader.fail("tolerance", json_number(scaling.tolerance), "at least 0 and below 1");
    }
  }
  scaling.mode = read_enum(reader, "mode", {Mode::kApply, Mode::kRecommend, Mode::kPaused});
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return scaling;
}

Result<Demand> read_demand(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Demand demand;
  demand.arrivals_per_s = optional_reading(reader, "arrivalsPerS");
  demand.arrivals_total = optional_reading(reader, "arrivalsTotal");
  demand.arrivals_window_s = reader.number("arrivalsWindowS");
  demand.queued = optional_reading(reader, "queued");
  demand.input_tokens = optional_reading(reader, "inputTokens");
  demand.output_tokens = optional_reading(reader, "outputTokens");
  demand.last_arrival_at_s = optional_number(reader, "lastArrivalAtS");
  demand.attainment = optional_reading(reader, "attainment");
  demand.recent_attainment = optional_reading(reader, "recentAttainment");
  if (reader.given("recentlyJudged")) demand.recently_judged = reader.number("recentlyJudged");
  demand.ttft_s = optional_reading(reader, "ttftS");
  demand.tpot_s = optional_reading(reader, "tpotS");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return demand;
}

Result<Worker> read_worker(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Worker worker;
  worker.name = reader.string("name");
  worker.pool = reader.string("pool");
  worker.slot = reader.int32("slot", 0);
  worker.accelerator = reader.string("accelerator");
  worker.gpus = reader.int32("gpus", 0);
  worker.state = read_enum(
      reader, "state",
      {WorkerState::kStarting, WorkerState::kReady, WorkerState::kDraining, WorkerState::kFailed, WorkerState::kUnschedulable});
  worker.created_s = reader.number("createdS");
  worker.ready_s = optional_number(reader, "readyS");
  worker.running = optional_reading(reader, "running");
  worker.waiting = optional_reading(reader, "waiting");
  worker.kv_use = optional_reading(reader, "kvUse");
  if (reader.find("trouble") != nullptr) {
    worker.trouble =
        read_enum(reader, "trouble",
                  {WorkerTrouble::kNone, WorkerTrouble::kUnschedulable, WorkerTrouble::kImagePull, WorkerTrouble::kCrashLoop,
                   WorkerTrouble::kOutOfMemory, WorkerTrouble::kNodeLost, WorkerTrouble::kFailed});
  }
  if (reader.find("troubleMessage") != nullptr) worker.trouble_message = reader.string("troubleMessage");
  worker.address = reader.string("address");
  worker.spec_hash = reader.string("specHash");
  worker.node_leaving = reader.boolean_or("nodeLeaving", false);
  if (reader.find("role") != nullptr) {
    worker.role = read_enum(reader, "role", {dispatch::Role::kUnified, dispatch::Role::kPrefill, dispatch::Role::kDecode});
  }
  worker.max_concurrency = reader.int32("maxConcurrency", 0);
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return worker;
}

Result<StartTimes> read_starts(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  const StartTimes starts{reader.number("p90S"), reader.int32("count", 0)};
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return starts;
}

Result<WorkerEstimate> read_estimate(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  WorkerEstimate worker;
  IterationEstimate& estimate = worker.estimate;
  const auto numbers = [&](const char* key, auto& values) {
    const json& list = reader.require(key);
    if (!list.is_array() || list.size() != values.size()) {
      reader.fail(key, list, fmt::format("a list of {} numbers", values.size()).c_str());
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (list[i].is_number()) {
        values[i] = list[i].get<double>();
      } else {
        reader.fail(key, list[i], "a number");
      }
    }
  };
  worker.accelerator = reader.string("accelerator");
  worker.gpus_per_worker = reader.int32("gpusPerWorker", 1);
  worker.from_profile = reader.boolean_or("fromProfile", false);
  numbers("mean", estimate.mean);
  numbers("covariance", estimate.covariance);
  estimate.noise_variance = reader.number("noiseVariance");
  estimate.samples = reader.integer("samples", 0, INT64_MAX);
  estimate.outliers = reader.integer("outliers", 0, INT64_MAX);
  estimate.changes = reader.integer("changes", 0, INT64_MAX);
  estimate.outlier_run = reader.int32("outlierRun");
  estimate.prompt_outlier_run = reader.int32("promptOutlierRun");
  estimate.largest_batch = reader.number("largestBatch");
  estimate.seen_batch = reader.number("seenBatch");
  estimate.decode_count = reader.number("decodeCount");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return worker;
}

Result<TransferToWorker> read_transfer(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  TransferToWorker transfer{reader.string("accelerator"), reader.int32("gpusPerWorker", 1), {}};
  MeasuredTransfer& measured = transfer.measured;
  measured.bandwidth_bytes_per_s = reader.number("bandwidthBytesPerS");
  measured.latency_s = reader.number("latencyS");
  measured.bytes_per_token = reader.number("bytesPerToken");
  measured.samples = reader.integer("samples", 0, INT64_MAX);
  if (!(measured.bandwidth_bytes_per_s > 0)) {
    reader.fail("bandwidthBytesPerS", json_number(measured.bandwidth_bytes_per_s), "greater than 0");
  }
  if (!(measured.latency_s >= 0)) reader.fail("latencyS", json_number(measured.latency_s), "at least 0");
  if (!(measured.bytes_per_token >= 0)) reader.fail("bytesPerToken", json_number(measured.bytes_per_token), "at least 0");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return transfer;
}

Result<CreationRefusal> read_refusal(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  CreationRefusal refusal{reader.string("code"), reader.string("message"), reader.number("untilS")};
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return refusal;
}

Result<PhaseAdvice> read_phase(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  PhaseAdvice phase{reader.string("accelerator"), reader.int32("gpusPerWorker", 1), reader.number("requestsPerS")};
  if (reader.find("closedFormPerS") != nullptr) phase.closed_form_per_s = reader.number("closedFormPerS");
  if (!(phase.requests_per_s > 0)) reader.fail("requestsPerS", json_number(phase.requests_per_s), "greater than 0");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return phase;
}

Result<SplitAdvice> read_split(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  SplitAdvice advice;
  advice.strategy = reader.string("strategy");
  advice.holds = reader.boolean_or("holds", false);
  if (advice.holds) {
    advice.prefill = child<PhaseAdvice>(reader, "prefill", read_phase);
    advice.decode = child<PhaseAdvice>(reader, "decode", read_phase);
    advice.cost_per_hour = optional_number(reader, "costPerHour").value_or(0);
    advice.whole_cost_per_hour = optional_number(reader, "wholeCostPerHour");
  }
  advice.why = reader.string("why");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return advice;
}

Result<Service> read_service(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Service service;
  service.id = child<ServiceId>(reader, "id", read_service_id);
  service.generation = reader.integer("generation", 0, INT64_MAX);
  service.served_name = reader.string("servedName");
  if (const json* shape = reader.find("shape"); shape != nullptr) {
    service.shape = reader.unwrap(read_model_shape(*shape, reader.path_of("shape")));
  }
  if (reader.find("shapeUnknownReason") != nullptr) service.shape_unknown_reason = reader.string("shapeUnknownReason");
  service.max_context_tokens = reader.int32("maxContextTokens", 0);
  service.reserves_context = reader.boolean_or("reservesContext", false);
  service.may_split = reader.boolean_or("maySplit", true);
  service.max_gpus_per_worker = optional_int(reader, "maxGpusPerWorker", 1);
  service.slo = child<Slo>(reader, "slo", read_slo);
  service.workload = child<AssumedWorkload>(reader, "workload", read_workload);
  reader.list("accelerators", [&](const json& entry, const std::string& entry_path) {
    JsonReader allowed(entry, entry_path);
    service.accelerators.push_back(AllowedAccelerator{allowed.string("accelerator"), optional_int(allowed, "maxGpus", 0)});
    reader.take(allowed.finish());
  });
  service.scaling = child<Scaling>(reader, "scaling", read_scaling);
  service.priority = reader.int32("priority");
  service.last_desired = optional_int(reader, "lastDesired", 0);
  service.demand = child<Demand>(reader, "demand", read_demand);
  reader.list("workers", [&](const json& worker, const std::string& worker_path) {
    service.workers.push_back(reader.unwrap(read_worker(worker, worker_path)));
  });
  if (reader.find("starts") != nullptr) service.starts = child<StartTimes>(reader, "starts", read_starts);
  if (reader.find("estimates") != nullptr) {
    reader.list("estimates", [&](const json& estimate, const std::string& estimate_path) {
      service.estimates.push_back(reader.unwrap(read_estimate(estimate, estimate_path)));
    });
  }
  if (reader.find("transfers") != nullptr) {
    reader.list("transfers", [&](const json& transfer, const std::string& transfer_path) {
      service.transfers.push_back(reader.unwrap(read_transfer(transfer, transfer_path)));
    });
  }
  if (reader.find("refused") != nullptr) service.refused = child<CreationRefusal>(reader, "refused", read_refusal);
  if (reader.find("split") != nullptr) service.split = child<SplitAdvice>(reader, "split", read_split);
  service.memory = child<PolicyMemory>(reader, "memory", read_memory);
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return service;
}

}  // namespace

Json fields_of(const ServiceId& id) { return Json{{"namespace", id.name_space}, {"name", id.name}, {"uid", id.uid}}; }

Json fields_of(const Snapshot& snapshot) {
  Json accelerators = Json::array();
  for (const AcceleratorState& state : snapshot.accelerators) accelerators.push_back(fields_of(state));
  Json services = Json::array();
  for (const Service& service : snapshot.services) services.push_back(fields_of(service));
  return Json{{"snapshotFormat", kFormat},
              {"nowS", number(snapshot.now_s)},
              {"accelerators", std::move(accelerators)},
              {"services", std::move(services)}};
}

Result<ServiceId> read_service_id(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  ServiceId id{reader.string("namespace"), reader.string("name"), reader.string("uid")};
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return id;
}

Result<Snapshot> read_snapshot(const json& document) {
  JsonReader reader(document, "");
  Snapshot snapshot;
  static_cast<void>(reader.int32("snapshotFormat", kFormat, kFormat));
  snapshot.now_s = reader.number("nowS");
  reader.list("accelerators", [&](const json& state, const std::string& path) {
    snapshot.accelerators.push_back(reader.unwrap(read_accelerator(state, path)));
  });
  reader.list("services", [&](const json& service, const std::string& path) {
    snapshot.services.push_back(reader.unwrap(read_service(service, path)));
  });
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return snapshot;
}

}  // namespace windlass::planner
