// Reads the sections about the hardware of a service: pools and the link between them, or accelerators to choose among; start
// times; and the reference of slowdowns. See scenario_sections.h.
#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "planner/base/foreign_text.h"
#include "planner/whatif/scenario_sections.h"

namespace windlass::sim {
namespace {

using Pool = ScenarioPool;
using PoolLink = ScenarioLink;
using Start = ScenarioStart;

constexpr std::size_t kMaxPools = 1000;
constexpr std::size_t kMaxChoices = 32;  // of accelerators
constexpr std::array kRoles = {"unified", "prefill", "decode"};

// GPUs of a worker of this kind, checked against latency's parallelism.
template <class Worker>
void read_gpus(YamlReader& reader, Worker& worker, Reading& reading) {
  const int stages = reading.service->latency.pipeline_parallel;
  const auto& tensor_parallel = reading.tensor_parallel;
  worker.gpus_per_worker = tensor_parallel.value_or(1) * stages;
  whole("gpusPerWorker", &Worker::gpus_per_worker, 1, 1024).noted().read(reader, worker, reading);
  const int gpus = worker.gpus_per_worker;
  if (tensor_parallel && gpus != *tensor_parallel * stages) {
    reader.wrong("gpusPerWorker", fmt::format("must be latency.tensorParallel{}, {} (got {})",
                                              stages == 1 ? "" : " times pipelineParallel", *tensor_parallel * stages, gpus));
  } else if (gpus % stages != 0) {
    reader.wrong("gpusPerWorker", fmt::format("must be a multiple of latency.pipelineParallel, {} (got {})", stages, gpus));
  }
}

// Whether the service has a file of measurements for the accelerator.
bool is_measured(const std::string& accelerator, const Reading& reading) {
  return !reading.service->latency.file_for(accelerator).empty();
}

template <class Worker>
auto accelerator() {
  return hook([](YamlReader& reader, Worker& worker, Reading& reading) {
    const YamlValue* name = reader.find("accelerator");
    worker.accelerator = read_accelerator(reader, reading.known, name != nullptr && is_measured(name->text, reading));
  });
}

// An accelerator, its memory and its price, by default the data sheet's.
auto accelerator_fields() {
  constexpr NumberRange kMemoryGB{0.1, 1e5};
  return map(accelerator<Pool>(), hook([](YamlReader& reader, Pool& pool, Reading& reading) {
               pool.price_per_gpu_hour = pool.accelerator.price_per_hour;
               if (reader.find("memoryGB") != nullptr)
                 pool.accelerator.memory_bytes = kGiga * reader.number("memoryGB", kMemoryGB);
               if (has_data_sheet(pool.accelerator) || reader.find("pricePerGpuHour") != nullptr) return;
               reader.wrong("pricePerGpuHour", fmt::format("must be set, because the accelerator is not {} (got '{}')",
                                                           reading.known.allowed(), shown_text(pool.accelerator.name)));
             }));
}
auto price() { return number("pricePerGpuHour", &Pool::price_per_gpu_hour, kPrice); }

void check_pools(YamlReader& cluster, ScenarioService& service) {
  if (!cluster.ok()) return;
  int workers = 0;
  bool unified = false, prefill = false, decode = false;
  for (const Pool& pool : service.pools) {
    workers += pool.workers;
    if (workers > kMaxWorkers) {
      cluster.wrong_at(pool.line, "pools", fmt::format("must have at most {} workers in total (got {})", kMaxWorkers, workers));
    }
    unified = unified || pool.role == dispatch::Role::kUnified;
    prefill = prefill || pool.role == dispatch::Role::kPrefill;
    decode = decode || pool.role == dispatch::Role::kDecode;
  }
  if (unified ? !prefill && !decode : prefill && decode) return;
  const char* found = unified ? "unified and other pools" : prefill ? "no decode pool" : "no prefill pool";
  cluster.wrong_at(cluster.find("pools")->line, "pools",
                   fmt::format("must be all unified, or have both prefill and decode pools (got {})", found));
}

auto pool_fields() {
  return map(choice("role", &Pool::role, kRoles).noted(), accelerator_fields(), hook(read_gpus<Pool>),
             hook([](YamlReader& reader, Pool& pool, Reading& reading) {
               const int fewest = reading.autoscaled ? 0 : 1;
               whole("workers", &Pool::workers, fewest, kMaxWorkers).noted().read(reader, pool, reading);
             }),
             price(), number("dispatchWeight", &Pool::dispatch_weight, {0, 1e6}));
}

auto cluster_fields() {
  const auto link =
      map(number("bandwidthGBps", &PoolLink::bandwidth_bytes_per_s, kGBps, kGiga),
          duration("latency", &PoolLink::latency_s, kLatency_s), choice("transfer", &PoolLink::layer_wise, kTransfers).noted());
  const auto start = map(duration("imagePull", &Start::image_pull_s, {0, kYear_s}).noted(),
                         number("weightsGBps", &Start::weights_bytes_per_s, {1e-3, 1e6}, kGiga).noted(),
                         duration("engine", &Start::engine_s, {0, kYear_s}).noted());
  return map(
      when(&Reading::one_service, hook(read_run)),
      list("pools", &ScenarioService::pools, kMaxPools, "pools", pool_fields()).required(), hook(check_pools),
      only("prefill and decode pools (got unified pools)", &Reading::two_roles, section("link", &ScenarioService::link, link)),
      only("cluster.autoscaling or to failures with restart; otherwise no worker starts", &Reading::workers_start,
           section("start", &ScenarioService::start, start).or_defaults()));
}

void check_choice(YamlReader& reader, Pool& pool, Reading& reading) {
  for (const Pool& other : reading.service->pools) {
    if (&other == &pool || other.accelerator.name != pool.accelerator.name) continue;
    reader.wrong("accelerator", fmt::format("must be unique (got {} a second time)", pool.accelerator.name));
  }
}

void check_autoscaling(YamlReader& parent, const ScenarioService& service, const Reading& reading) {
  const int line = service.pools.front().line;
  if (reading.two_roles()) {
    parent.wrong_at(line, "cluster.pools",
                    "must be unified with autoscaling, because the policy plans no others (got prefill and decode pools)");
  }
  if (!service.slo || !service.slo->ttft_s || !service.slo->tpot_s) {
    parent.wrong_at(line, "slo",
                    fmt::format("must have timeToFirstToken and timePerOutputToken, which autoscaling plans for (got {})",
                                service.slo ? "one objective" : "none"));
  }
  if (service.latency.pipeline_parallel > 1) {
    parent.wrong_at(service.latency.line, "latency.pipelineParallel",
                    fmt::format("must be 1 with autoscaling, because the policy plans no pipeline stages (got {})",
                                service.latency.pipeline_parallel));
  }
  for (std::size_t i = 0; i < service.pools.size(); ++i) {
    const Pool& pool = service.pools[i];
    if (has_data_sheet(pool.accelerator)) continue;
    parent.wrong_at(pool.line, fmt::format("cluster.pools[{}].accelerator", i),
                    fmt::format("must be {} with autoscaling, because the policy plans with data sheets (got '{}')",
                                reading.known.allowed(), shown_text(pool.accelerator.name)));
  }
}

// Checks that the latency files match the workers' accelerators.
void check_files(YamlReader& parent, const ScenarioService& service, const char* workers_field) {
  const ScenarioLatency& latency = service.latency;
  // These files name no accelerator.
  const bool of_one = latency.source == LatencySource::kDistServe || latency.source == LatencySource::kOperators;
  const bool needs_file = of_one || latency.source == LatencySource::kProfile;
  const std::string& first = service.pools.front().accelerator.name;
  const auto check = [&](const planner::AcceleratorSpec& spec, int line, const std::string& field) {
    if (latency.files.contains(spec.name)) return;
    if (needs_file && latency.file.empty()) {
      parent.wrong_at(line, field + ".accelerator", fmt::format("must be listed in latency.files (got {})", spec.name));
    } else if (of_one && spec.name != first) {
      parent.wrong_at(
          line, field + ".accelerator",
          fmt::format("must be {}, because latency.file has one accelerator (got {}); use latency.files for several", first,
                      spec.name));
    }
  };
  for (std::size_t i = 0; i < service.pools.size(); ++i) {
    check(service.pools[i].accelerator, service.pools[i].line, fmt::format("{}[{}]", workers_field, i));
  }
  if (const auto& reference = service.slowdown_reference) check(reference->accelerator, reference->line, "slowdownReference");
}

// Checks the names in latency.files: each is known, or an accelerator of the workers.
void check_names(YamlReader& parent, const ScenarioService& service, const Reading& reading) {
  for (const auto& [name, path] : service.latency.files) {
    const auto is_it = [&, &wanted = name](const planner::AcceleratorSpec& spec) { return spec.name == wanted; };
    const auto& reference = service.slowdown_reference;
    if (reading.known.find(name) || (reference && is_it(reference->accelerator)) ||
        std::any_of(service.pools.begin(), service.pools.end(), [&](const Pool& pool) { return is_it(pool.accelerator); })) {
      continue;
    }
    refuse_name(parent, "latency.files", service.latency.line, name, reading.known.allowed());
  }
}

}  // namespace

void read_pools(YamlReader& parent, Reading& reading) {
  static const auto kCluster = section("cluster", cluster_fields()).required("a map with pools");
  kCluster.read(parent, *reading.service, reading);
}

void read_accelerators(YamlReader& parent, Reading& reading) {
  static const auto kAccelerators = list("accelerators", &ScenarioService::pools, kMaxChoices, "maps with accelerator",
                                         map(accelerator_fields(), preset(&Pool::workers, kMaxWorkers),
                                             whole("gpus", &Pool::workers, 1, kMaxWorkers).noted("unlimited"), price())
                                             .checked_by(check_choice))
                                        .required();
  kAccelerators.read(parent, *reading.service, reading);
}

void read_reference(YamlReader& parent, Reading& reading) {
  using Reference = ScenarioReference;
  static const auto kReference =
      section("slowdownReference", &ScenarioService::slowdown_reference,
              map(accelerator<Reference>(), hook([](YamlReader&, Reference& reference, Reading& reading) {
                    // What a pool says of an accelerator without a data sheet.
                    if (has_data_sheet(reference.accelerator)) return;
                    for (const Pool& pool : reading.service->pools) {
                      if (pool.accelerator.name == reference.accelerator.name) reference.accelerator = pool.accelerator;
                    }
                  }),
                  hook(read_gpus<Reference>)));
  kReference.read(parent, *reading.service, reading);
}

void check_service(YamlReader& parent, Reading& reading) {
  if (!parent.ok()) return;
  const ScenarioService& service = *reading.service;
  if (reading.autoscaled) check_autoscaling(parent, service, reading);
  const planner::Batching batching = service.engine.batching;
  if (reading.two_roles() && (batching == planner::Batching::kStatic || batching == planner::Batching::kOrca)) {
    parent.wrong_at(
        service.pools.front().line, "scheduling.batching",
        fmt::format("must be vllm, vllm-v1, mixed or sarathi with prefill and decode pools (got '{}')", to_string(batching)));
  }
  const char* workers_field = reading.for_plan() ? reading.plan().accelerators_field.c_str() : "cluster.pools";
  check_names(parent, service, reading);
  check_files(parent, service, workers_field);
}

}  // namespace windlass::sim
