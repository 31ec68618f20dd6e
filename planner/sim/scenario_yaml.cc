// See scenario_yaml.h. One function a part of the file, in the order of docs/simulate.md.
#include "planner/sim/scenario_yaml.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/base/foreign_text.h"
#include "planner/base/yaml_reader.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/dispatch/policies.h"

namespace windlass::sim {
namespace {

constexpr int kMostWorkers = 100'000;
constexpr int kMostPools = 1000;
constexpr double kYear_s = 366 * 86400.0;
constexpr NumberRange kRate{1e-6, 1e6};
constexpr NumberRange kSpan_s{1e-3, kYear_s};
constexpr const char* kDispatchTokens =
    "jsq-tokens";  // the shortest queue in pending tokens; planner/dispatch's jsq counts requests

class Parser {
 public:
  explicit Parser(const std::string& source) { scenario_.source = source; }

  Result<Scenario> parse(const YamlValue& root) {
    YamlReader reader(root, "", mistake_);
    refuse_unsupported(reader, {{"autoscaler", "workers do not change during a run yet"},
                                {"models", "one model per scenario is simulated yet"},
                                {"failures", "workers do not fail yet"}});
    if (reader.find("seed") == nullptr) note("seed", "0");
    scenario_.seed = static_cast<std::uint64_t>(reader.whole("seed", 0, std::int64_t{1} << 53, 0));
    if (const auto* model = reader.require("model", "a map with name or config")) read_model(*model);
    if (const auto* latency = reader.require("latency", "a map with source")) read_latency(*latency);
    if (const auto* workload = reader.require("workload", "a map with trace, lengths or inputTokens and outputTokens")) {
      read_workload(*workload);
    }
    if (const auto* cluster = reader.require("cluster", "a map with pools")) read_cluster(*cluster);
    static const YamlValue kNothing = [] {
      YamlValue map;
      map.kind = YamlValue::Kind::kMap;
      return map;
    }();
    const auto* scheduling = reader.find("scheduling");
    read_scheduling(scheduling != nullptr ? *scheduling : kNothing);
    if (const auto* slo = reader.find("slo")) read_slo(*slo);
    if (const auto* reference = reader.find("slowdownReference")) read_reference(*reference);
    reader.finish();
    if (mistake_.what.empty()) check_together();
    if (!mistake_.what.empty()) return mistake_.error(scenario_.source);
    return std::move(scenario_);
  }

 private:
  struct Unsupported {
    const char* key;
    const char* why;
  };

  void note(const std::string& field, const std::string& value) { scenario_.defaults.push_back(field + ": " + value); }

  // Fields that the simulator will have: better told apart from a spelling mistake.
  void refuse_unsupported(YamlReader& reader, std::initializer_list<Unsupported> fields) {
    for (const Unsupported& field : fields) {
      for (const YamlMember& member : reader.members()) {
        if (member.key != field.key) continue;
        mistake_.keep(member.line,
                      fmt::format("{}: cannot be simulated: {}; leave it out", reader.path_of(field.key), field.why));
      }
    }
  }

  void read_model(const YamlValue& value) {
    YamlReader reader(value, "model", mistake_);
    ScenarioModel& model = scenario_.model;
    model.line = value.line;
    const auto* name = reader.find("name");
    const auto* config = reader.find("config");
    if ((name == nullptr) == (config == nullptr)) {
      mistake_.keep(value.line, fmt::format("model: found {}, allowed is either name or config",
                                            name == nullptr ? "neither name nor config" : "name and config"));
    }
    if (name != nullptr) {
      model.name = reader.text("name", "a name of the catalog");
      if (auto shape = planner::model_shape_by_name(model.name); shape.ok()) {
        model.shape = std::move(shape).value();
      } else {
        mistake_.keep(name->line, fmt::format("model.name: found '{}', allowed is {}", shown_text(model.name),
                                              fmt::join(planner::model_shape_names(), ", ")));
      }
    }
    if (config != nullptr) model.config_file = reader.text("config", "the path of a config.json");
    if (reader.find("maxContextTokens") != nullptr) {
      model.max_context_tokens = static_cast<int>(reader.whole("maxContextTokens", 2, workload::kMostTokens));
    }
    reader.finish();
  }

  void read_latency(const YamlValue& value) {
    static constexpr std::array kSources = {"profile", "linear", "distserve", "operators", "roofline"};
    static constexpr std::array kReadings = {"batchTokens", "batchShape"};
    static constexpr std::array kForms = {"aladdin", "huawei"};
    YamlReader reader(value, "latency", mistake_);
    ScenarioLatency& latency = scenario_.latency;
    latency.line = value.line;
    latency.source = static_cast<LatencySource>(reader.choice("source", kSources));
    const bool profile = latency.source == LatencySource::kProfile, distserve = latency.source == LatencySource::kDistServe;
    const bool linear = latency.source == LatencySource::kLinear;
    if (profile || distserve) {
      latency.file = reader.text("file", profile ? "the path of a CSV file with Splitwise's columns"
                                                 : "the path of a profiler-*.json file of DistServe");
    } else if (latency.source == LatencySource::kOperators) {
      latency.file =
          reader.text("file", "the path of a folder with gemm_perf.csv.gz and the other operator tables of one accelerator");
    } else if (linear) {
      latency.file = reader.text("file", "the path of a CSV file with Splitwise's columns", "");
    } else if (const auto* file = reader.find("file")) {
      mistake_.keep(file->line,
                    fmt::format("latency.file: belongs to the sources profile, distserve, operators and linear; found {}",
                                to_string(latency.source)));
    }
    if (profile) {
      if (reader.find("reading") == nullptr) note("latency.reading", kReadings[0]);
      latency.reading = static_cast<planner::ProfileReading>(reader.choice("reading", kReadings, 0));
    }
    if (linear && !latency.file.empty()) {
      if (reader.find("form") == nullptr) note("latency.form", kForms[0]);
      latency.form = static_cast<planner::LinearForm>(reader.choice("form", kForms, 0));
    }
    if (distserve) latency.capacities_file = reader.text("capacities", "the path of a max_num_tokens.csv of DistServe", "");
    if (!latency.file.empty() && latency.source != LatencySource::kOperators) {
      latency.model = reader.text("model", "the model's name in latency.file", scenario_.model.name);
      if (latency.model.empty() && scenario_.model.shape == std::nullopt) {
        mistake_.keep(value.line,
                      "latency.model: missing, allowed is the model's name in latency.file: model.config gives none");
      }
    }
    if (reader.find("tensorParallel") != nullptr) {
      tensor_parallel_ = static_cast<int>(reader.whole("tensorParallel", 1, 1024));
    } else {
      note("latency.tensorParallel", "each pool's gpusPerWorker");
    }
    if (const auto* stages = reader.find("pipelineParallel")) {
      const auto found = plain_number(*stages);
      if (found != 1) {
        reader.refuse("pipelineParallel", *stages, "1: pipeline stages cannot be simulated yet");
      }
    }
    if (reader.find("kvCapacityTokens") != nullptr) {
      latency.kv_capacity_tokens = reader.number("kvCapacityTokens", {1, 1e12});
    } else if (latency.capacities_file.empty()) {
      note("latency.kvCapacityTokens", "what a worker's memory leaves");
    }
    reader.finish();
  }

  std::optional<workload::TokenDistribution> read_distribution(YamlReader& parent, const char* key) {
    const YamlValue* value = parent.find(key);
    if (value == nullptr) return std::nullopt;
    if (value->kind != YamlValue::Kind::kMap) {
      return workload::FixedTokens{static_cast<int>(parent.whole(key, 1, workload::kMostTokens))};
    }
    static constexpr std::array kKinds = {"fixed", "uniform", "lognormal"};
    YamlReader reader(*value, parent.path_of(key), mistake_);
    workload::TokenDistribution distribution;
    switch (reader.choice("distribution", kKinds)) {
      case 0: distribution = workload::FixedTokens{static_cast<int>(reader.whole("tokens", 1, workload::kMostTokens))}; break;
      case 1: {
        const auto low = static_cast<int>(reader.whole("min", 1, workload::kMostTokens, 1));
        distribution = workload::UniformTokens{low, static_cast<int>(reader.whole("max", low, workload::kMostTokens))};
        break;
      }
      default: {
        const double mean = reader.number("mean", {1, workload::kMostTokens});
        const double cv = reader.number("cv", {0, 100});
        const auto most = static_cast<int>(reader.whole("max", 1, workload::kMostTokens, workload::kMostTokens));
        distribution = workload::LogNormalTokens{mean, cv, most};
      }
    }
    reader.finish();
    return distribution;
  }

  void read_lengths(YamlReader& reader, const YamlValue& value) {
    ScenarioWorkload& workload = scenario_.workload;
    workload.trace_file = reader.text("trace", "the path of a CSV file with TIMESTAMP,ContextTokens,GeneratedTokens", "");
    workload.lengths_file = reader.text("lengths", "the path of a CSV file with num_prefill_tokens and num_decode_tokens", "");
    workload.input_tokens = read_distribution(reader, "inputTokens");
    workload.output_tokens = read_distribution(reader, "outputTokens");
    workload.truncate = reader.flag("truncate", false);
    std::vector<std::string> given;
    if (!workload.trace_file.empty()) given.emplace_back("trace");
    if (!workload.lengths_file.empty()) given.emplace_back("lengths");
    if (workload.input_tokens || workload.output_tokens) given.emplace_back("inputTokens and outputTokens");
    if (given.size() != 1) {
      mistake_.keep(value.line,
                    fmt::format("workload: found {}, allowed is one of trace, lengths, and inputTokens with outputTokens",
                                given.empty() ? "no lengths of requests" : fmt::format("{}", fmt::join(given, " beside "))));
    } else if (workload.input_tokens.has_value() != workload.output_tokens.has_value()) {
      const char* missing = workload.input_tokens ? "outputTokens" : "inputTokens";
      mistake_.keep(value.line,
                    fmt::format("workload.{}: missing, allowed is a number of tokens or a map with distribution", missing));
    }
  }

  void read_diurnal(const YamlValue& value) {
    YamlReader reader(value, "workload.diurnal", mistake_);
    workload::DiurnalArrivals& diurnal = scenario_.workload.diurnal;
    diurnal.peak_to_trough = reader.number("peakToTrough", {1, 1e6});
    if (reader.find("period") == nullptr) note("workload.diurnal.period", "24h");
    diurnal.period_s = reader.duration_s("period", kSpan_s, diurnal.period_s);
    if (reader.find("peakAt") == nullptr) note("workload.diurnal.peakAt", "0s");
    diurnal.peak_at_s = reader.duration_s("peakAt", {0, kYear_s}, 0);
    if (const auto* bursts = reader.find("bursts")) {
      YamlReader fields(*bursts, "workload.diurnal.bursts", mistake_);
      diurnal.burst_rate_per_s = 1 / fields.duration_s("every", kSpan_s);
      diurnal.burst_requests = fields.number("requests", {1, 1e6});
      diurnal.burst_duration_s = fields.duration_s("duration", kSpan_s);
      fields.finish();
    }
    reader.finish();
  }

  void read_states(const YamlValue& value) {
    const char* allowed = "a list of 1 to 100 maps with requestsPerSecond and meanDwell";
    if (value.kind != YamlValue::Kind::kList || value.items.empty() || value.items.size() > 100) {
      mistake_.keep(value.line, fmt::format("workload.states: found {}, allowed is {}", found_text(value), allowed));
      return;
    }
    double fastest = 0;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      YamlReader reader(value.items[i], fmt::format("workload.states[{}]", i), mistake_);
      workload::MarkovModulatedArrivals::State state;
      state.rate_per_s = reader.number("requestsPerSecond", {0, kRate.high});
      state.mean_dwell_s = reader.duration_s("meanDwell", kSpan_s);
      reader.finish();
      fastest = std::max(fastest, state.rate_per_s);
      scenario_.workload.states.states.push_back(state);
    }
    if (!(fastest >= kRate.low)) {
      mistake_.keep(value.line,
                    fmt::format("workload.states: found no state with arrivals, allowed is a requestsPerSecond of at "
                                "least {} in one of them",
                                kRate.low));
    }
  }

  // Fields that one kind of arrivals needs and the others refuse. Null where the kind is another.
  const YamlValue* field_of(YamlReader& reader, const char* key, bool wanted, const char* kind, std::string_view allowed) {
    if (wanted) return reader.require(key, allowed);
    if (const auto* found = reader.find(key)) {
      mistake_.keep(found->line, fmt::format("workload.{}: belongs to arrivals: {}", key, kind));
    }
    return nullptr;
  }

  void read_workload(const YamlValue& value) {
    static constexpr std::array kArrivals = {"poisson", "gamma", "trace", "diurnal", "markovModulated"};
    static constexpr std::array kScales = {"time", "rate"};
    YamlReader reader(value, "workload", mistake_);
    ScenarioWorkload& workload = scenario_.workload;
    workload.line = value.line;
    read_lengths(reader, value);
    if (reader.find("arrivals") == nullptr) note("workload.arrivals", kArrivals[0]);
    workload.arrivals = static_cast<ArrivalKind>(reader.choice("arrivals", kArrivals, 0));
    const bool trace_times = workload.arrivals == ArrivalKind::kTrace;
    const bool states = workload.arrivals == ArrivalKind::kMarkovModulated;
    if (trace_times && workload.trace_file.empty()) {
      mistake_.keep(value.line,
                    "workload.arrivals: found 'trace' without workload.trace, allowed is poisson, gamma, diurnal or "
                    "markovModulated");
    }
    if (field_of(reader, "cv", workload.arrivals == ArrivalKind::kGamma, "gamma", "a number from 0 to 1000") != nullptr) {
      workload.cv = reader.number("cv", {0, 1000});
      if (workload.cv > 0 && workload.cv < 1e-6) reader.refuse("cv", *reader.find("cv"), "0 or a number from 1e-06 to 1000");
    }
    if (const auto* diurnal =
            field_of(reader, "diurnal", workload.arrivals == ArrivalKind::kDiurnal, "diurnal", "a map with peakToTrough")) {
      read_diurnal(*diurnal);
    }
    if (const auto* list =
            field_of(reader, "states", states, "markovModulated", "a list of maps with requestsPerSecond and meanDwell")) {
      read_states(*list);
    }
    if (const auto* found = reader.find("requestsPerSecond"); found != nullptr && states) {
      mistake_.keep(found->line, "workload.requestsPerSecond: belongs to the states of arrivals: markovModulated");
    } else if (found != nullptr) {
      workload.requests_per_second = reader.number("requestsPerSecond", kRate);
    } else if (!workload.trace_file.empty() && !states) {
      note("workload.requestsPerSecond", "the trace's own");
    } else if (!states) {
      reader.number("requestsPerSecond", kRate);  // missing: told
    }
    if (trace_times && workload.requests_per_second) {
      if (reader.find("scale") == nullptr) note("workload.scale", kScales[0]);
      workload.scale_time = reader.choice("scale", kScales, 0) == 0;
    } else if (const auto* scale = reader.find("scale")) {
      mistake_.keep(scale->line, "workload.scale: belongs to arrivals: trace with requestsPerSecond");
    }
    if (reader.find("duration") != nullptr) workload.duration_s = reader.duration_s("duration", kSpan_s);
    if (reader.find("requests") != nullptr) workload.requests = reader.whole("requests", 1, 1'000'000'000);
    if (!workload.duration_s && !workload.requests) {
      if (trace_times) {
        note("workload.duration", "the trace's own");
      } else {
        mistake_.keep(value.line,
                      "workload.duration: missing, allowed is a time such as 120s, or workload.requests in its place");
      }
    }
    reader.finish();
  }

  std::optional<planner::AcceleratorSpec> read_accelerator(YamlReader& reader) {
    const YamlValue* value = reader.require("accelerator", "a name of the catalog");
    if (value == nullptr) return std::nullopt;
    const std::string name = reader.text("accelerator", "a name of the catalog");
    auto spec = planner::accelerator_by_name(name);
    if (spec.ok()) return std::move(spec).value();
    mistake_.keep(value->line, fmt::format("{}: found '{}', allowed is {}", reader.path_of("accelerator"), shown_text(name),
                                           fmt::join(planner::accelerator_names(), ", ")));
    return std::nullopt;
  }

  int read_gpus(YamlReader& reader) {
    if (reader.find("gpusPerWorker") == nullptr)
      note(reader.path_of("gpusPerWorker"), fmt::format("{}", tensor_parallel_.value_or(1)));
    const auto gpus = static_cast<int>(reader.whole("gpusPerWorker", 1, 1024, tensor_parallel_.value_or(1)));
    if (tensor_parallel_ && mistake_.what.empty() && gpus != *tensor_parallel_) {
      mistake_.keep(reader.line(), fmt::format("{}: found {} beside latency.tensorParallel {}, allowed are equal numbers",
                                               reader.path_of("gpusPerWorker"), gpus, *tensor_parallel_));
    }
    return gpus;
  }

  void read_cluster(const YamlValue& value) {
    static constexpr std::array kRoles = {"unified", "prefill", "decode"};
    YamlReader reader(value, "cluster", mistake_);
    const std::string allowed = fmt::format("a list of 1 to {} pools", kMostPools);
    const YamlValue* pools = reader.require("pools", allowed);
    if (pools != nullptr &&
        (pools->kind != YamlValue::Kind::kList || pools->items.empty() || pools->items.size() > kMostPools)) {
      reader.refuse("pools", *pools, allowed);
      pools = nullptr;
    }
    int workers = 0;
    bool prefill = false, decode = false, unified = false;
    for (std::size_t i = 0; pools != nullptr && i < pools->items.size() && mistake_.what.empty(); ++i) {
      YamlReader fields(pools->items[i], fmt::format("cluster.pools[{}]", i), mistake_);
      refuse_unsupported(fields, {{"pipelineParallel", "pipeline stages are not simulated yet"},
                                  {"startDelay", "workers do not start during a run yet"},
                                  {"failures", "workers do not fail yet"}});
      ScenarioPool pool;
      pool.line = pools->items[i].line;
      if (fields.find("role") == nullptr) note(fields.path_of("role"), kRoles[0]);
      pool.role = static_cast<WorkerRole>(fields.choice("role", kRoles, 0));
      if (auto spec = read_accelerator(fields)) pool.accelerator = std::move(*spec);
      pool.gpus_per_worker = read_gpus(fields);
      if (fields.find("workers") == nullptr) note(fields.path_of("workers"), "1");
      pool.workers = static_cast<int>(fields.whole("workers", 1, kMostWorkers, 1));
      pool.price_per_gpu_hour = fields.number("pricePerGpuHour", {0, 1e6}, pool.accelerator.price_per_hour);
      fields.finish();
      workers += pool.workers;
      if (workers > kMostWorkers) {
        mistake_.keep(pool.line,
                      fmt::format("cluster.pools: found {} workers, allowed are {} together", workers, kMostWorkers));
      }
      unified = unified || pool.role == WorkerRole::kUnified;
      prefill = prefill || pool.role == WorkerRole::kPrefill;
      decode = decode || pool.role == WorkerRole::kDecode;
      scenario_.pools.push_back(std::move(pool));
    }
    if (pools != nullptr && !(unified ? !prefill && !decode : prefill && decode)) {
      const char* found = unified ? "unified pools beside others" : prefill ? "no decode pool" : "no prefill pool";
      mistake_.keep(
          pools->line,
          fmt::format("cluster.pools: found {}, allowed are pools that are all unified, or prefill and decode pools", found));
    }
    if (const auto* link = reader.find("link")) {
      if (prefill || decode) {
        read_link(*link);
      } else if (unified) {
        mistake_.keep(link->line, "cluster.link: belongs to prefill and decode pools; found unified ones");
      }
    }
    reader.finish();
  }

  void read_link(const YamlValue& value) {
    static constexpr std::array kTransfers = {"serialised", "layerwise"};
    YamlReader reader(value, "cluster.link", mistake_);
    if (reader.find("bandwidthGBps") != nullptr) {
      scenario_.link.bandwidth_bytes_per_s = 1e9 * reader.number("bandwidthGBps", {1e-6, 1e6});
    }
    if (reader.find("latency") != nullptr) scenario_.link.latency_s = reader.duration_s("latency", {0, 60});
    if (reader.find("transfer") == nullptr) note("cluster.link.transfer", kTransfers[0]);
    scenario_.link.layer_wise = reader.choice("transfer", kTransfers, 0) == 1;
    reader.finish();
  }

  void read_dispatch(YamlReader& reader) {
    std::vector<const char*> allowed = {dispatch::to_string(dispatch::PolicyKind::kJsq), kDispatchTokens};
    std::vector<std::optional<dispatch::PolicyKind>> kinds = {dispatch::PolicyKind::kJsq, std::nullopt};
    for (const dispatch::PolicyKind kind : dispatch::kAllPolicies) {
      if (kind == dispatch::PolicyKind::kJsq) continue;
      allowed.push_back(dispatch::to_string(kind));
      kinds.emplace_back(kind);
    }
    if (reader.find("dispatch") == nullptr) note("scheduling.dispatch", allowed[0]);
    scenario_.dispatch = kinds[reader.choice("dispatch", allowed, 0)];
  }

  void read_scheduling(const YamlValue& value) {
    static constexpr std::array kBatchings = {Batching::kStatic, Batching::kOrca, Batching::kVllm, Batching::kMixed,
                                              Batching::kSarathi};
    YamlReader reader(value, "scheduling", mistake_);
    refuse_unsupported(reader, {{"prefillScheduling", "TetriInfer's scheduler is not simulated yet"},
                                {"decodeAdmission", "TetriInfer's admission is not simulated yet"},
                                {"flip", "instances do not change their role yet"}});
    if (const auto* preemption = reader.find("preemption")) {
      if (preemption->kind != YamlValue::Kind::kText || preemption->text != "recompute") {
        reader.refuse("preemption", *preemption, "recompute: no other way is simulated yet");
      }
    }
    if (const auto* caching = reader.find("prefixCaching"); caching != nullptr && reader.flag("prefixCaching", false)) {
      reader.refuse("prefixCaching", *caching, "false: shared prefixes are not simulated yet");
    }
    EngineOptions& engine = scenario_.engine;
    std::vector<const char*> names;
    std::size_t standard = 0;
    for (std::size_t i = 0; i < kBatchings.size(); ++i) {
      names.push_back(to_string(kBatchings[i]));
      if (kBatchings[i] == engine.batching) standard = i;
    }
    if (reader.find("batching") == nullptr) note("scheduling.batching", names[standard]);
    engine.batching = kBatchings[reader.choice("batching", names, standard)];
    read_dispatch(reader);
    const auto whole = [&](const char* key, std::int64_t low, std::int64_t high, std::int64_t otherwise) {
      if (reader.find(key) == nullptr) note(reader.path_of(key), fmt::format("{}", otherwise));
      return reader.whole(key, low, high, otherwise);
    };
    engine.max_batch_tokens = static_cast<int>(whole("maxBatchTokens", 1, workload::kMostTokens, engine.max_batch_tokens));
    engine.max_sequences = static_cast<int>(whole("maxSequences", 1, 1'000'000, engine.max_sequences));
    engine.block_tokens = static_cast<int>(whole("blockTokens", 1, 65536, engine.block_tokens));
    if (reader.find("admissionReserve") == nullptr)
      note("scheduling.admissionReserve", fmt::format("{}", engine.admission_reserve));
    engine.admission_reserve = reader.number("admissionReserve", {0, 0.9}, engine.admission_reserve);
    const bool mixed = reader.flag("mixedPool", false);
    if (mixed) {
      scenario_.mixed_pool_threshold_tokens = whole("mixedPoolThresholdTokens", 0, 1'000'000'000, 8192);
      const bool two_roles = std::any_of(scenario_.pools.begin(), scenario_.pools.end(),
                                         [](const ScenarioPool& pool) { return pool.role != WorkerRole::kUnified; });
      if (!two_roles)
        mistake_.keep(value.line, "scheduling.mixedPool: belongs to prefill and decode pools; found unified ones");
    } else if (const auto* threshold = reader.find("mixedPoolThresholdTokens")) {
      mistake_.keep(threshold->line, "scheduling.mixedPoolThresholdTokens: belongs to mixedPool: true");
    }
    reader.finish();
  }

  void read_slo(const YamlValue& value) {
    YamlReader reader(value, "slo", mistake_);
    ScenarioSlo slo;
    if (reader.find("timeToFirstToken") != nullptr) slo.ttft_s = reader.duration_s("timeToFirstToken", {1e-6, kYear_s});
    if (reader.find("timePerOutputToken") != nullptr) slo.tpot_s = reader.duration_s("timePerOutputToken", {1e-6, kYear_s});
    if (!slo.ttft_s && !slo.tpot_s) {
      mistake_.keep(value.line, "slo: found no objective, allowed is timeToFirstToken, timePerOutputToken or both");
    }
    if (reader.find("percentile") == nullptr) note("slo.percentile", fmt::format("{}", slo.percentile));
    slo.percentile = reader.number("percentile", {0, 100}, slo.percentile);
    reader.finish();
    scenario_.slo = slo;
  }

  void read_reference(const YamlValue& value) {
    YamlReader reader(value, "slowdownReference", mistake_);
    ScenarioReference reference;
    reference.line = value.line;
    if (auto spec = read_accelerator(reader)) reference.accelerator = std::move(*spec);
    reference.gpus_per_worker = read_gpus(reader);
    reader.finish();
    scenario_.slowdown_reference = std::move(reference);
  }

  // What fields say of each other.
  void check_together() {
    const bool two_roles = scenario_.pools.front().role != WorkerRole::kUnified;
    const Batching batching = scenario_.engine.batching;
    if (two_roles && (batching == Batching::kStatic || batching == Batching::kOrca)) {
      mistake_.keep(
          scenario_.pools.front().line,
          fmt::format("scheduling.batching: found '{}' with prefill and decode pools, allowed is vllm, mixed or sarathi",
                      to_string(batching)));
    }
    if (scenario_.latency.source != LatencySource::kDistServe && scenario_.latency.source != LatencySource::kOperators) return;
    // These files name no accelerator.
    const auto differs = [&](const planner::AcceleratorSpec& spec) {
      return spec.name != scenario_.pools.front().accelerator.name;
    };
    for (std::size_t i = 0; i < scenario_.pools.size(); ++i) {
      if (!differs(scenario_.pools[i].accelerator)) continue;
      mistake_.keep(
          scenario_.pools[i].line,
          fmt::format("cluster.pools[{}].accelerator: found {} beside {}, allowed is one accelerator: latency.file holds one",
                      i, scenario_.pools[i].accelerator.name, scenario_.pools.front().accelerator.name));
    }
    if (scenario_.slowdown_reference && differs(scenario_.slowdown_reference->accelerator)) {
      mistake_.keep(scenario_.slowdown_reference->line,
                    fmt::format("slowdownReference.accelerator: found {}, allowed is {}: latency.file holds one accelerator",
                                scenario_.slowdown_reference->accelerator.name, scenario_.pools.front().accelerator.name));
    }
  }

  Scenario scenario_;
  YamlMistake mistake_;
  std::optional<int> tensor_parallel_;
};

}  // namespace

Result<Scenario> parse_scenario(std::string_view yaml, const std::string& source) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(yaml, source));
  return Parser(source).parse(root);
}

}  // namespace windlass::sim
