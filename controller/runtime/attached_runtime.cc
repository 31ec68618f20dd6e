// Watches servers that somebody else runs; see attached_runtime.h.
#include "controller/runtime/attached_runtime.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/json_reader.h"

namespace windlass::controller {
namespace {

constexpr const char* kNamespace = "default";
constexpr double kLookPeriodS = 0.5;
constexpr double kLookTimeoutS = 2;
constexpr double kSilentS = 30;                               // after this long without an answer, a server is gone, not slow
constexpr std::size_t kMaxPageBytes = std::size_t{1} << 20U;  // only the page's status matters
constexpr int kAnyNumber = 1'000'000;                         // capacity is up to whoever starts the servers

Error not_ours(const std::string& what) {
  return Error{ErrorCode::kFailedPrecondition,
               fmt::format("{}: Windlass does not start or stop attached servers; whoever runs them does", what)};
}

}  // namespace

Result<std::vector<AttachedServer>> attached_servers_from_json(const std::string& text) {
  WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json list, parse_json(text, "servers"));
  if (!list.is_array()) return Error{ErrorCode::kInvalidArgument, "servers: must be a list"};
  std::vector<AttachedServer> servers;
  for (std::size_t i = 0; i < list.size(); ++i) {
    JsonReader reader(list[i], fmt::format("servers[{}]", i));
    AttachedServer& server = servers.emplace_back();
    server.service = reader.string("service");
    server.address = reader.string("address");
    server.accelerator = reader.string("accelerator");
    server.gpus = reader.int32("gpus", 1, 1024);
    server.slots = reader.int32("slots", 1, 1'000'000);
    WINDLASS_RETURN_IF_ERROR(reader.finish());
  }
  return servers;
}

std::string to_json(const std::vector<AttachedServer>& servers) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const AttachedServer& server : servers) {
    list.push_back({{"service", server.service},
                    {"address", server.address},
                    {"accelerator", server.accelerator},
                    {"gpus", server.gpus},
                    {"slots", server.slots}});
  }
  return list.dump(2) + "\n";
}

AttachedRuntime::AttachedRuntime(std::vector<AttachedServer> servers,
                                 std::function<std::string(const std::string& service)> uid_of, kube::HttpTransport& transport)
    : uid_of_(std::move(uid_of)), transport_(transport) {
  std::map<std::string, int> slot;  // by service
  for (const AttachedServer& one : servers) {
    Server& server = servers_.emplace_back();
    server.service = one.service;
    Worker& worker = server.worker;
    worker.slot = slot[one.service]++;
    worker.name = fmt::format("{}-attached-{}", one.service, worker.slot);
    worker.name_space = kNamespace;
    worker.service = one.service;
    worker.pool = fmt::format("{}-{}", one.accelerator, one.gpus);  // the name of the planner's pool, so that its figures match
    worker.role = "unified";
    worker.accelerator = one.accelerator;
    worker.gpus = one.gpus;
    worker.max_concurrency = one.slots;
    worker.address = one.address;
    worker.uid = worker.name;
  }
}

void AttachedRuntime::step(Instant now) {
  if (now.monotonic_s < next_look_s_) return;
  std::vector<kube::HttpRequest> requests;
  for (const Server& server : servers_) {
    requests.push_back({.url = fmt::format("http://{}/v1/models", server.worker.address),
                        .timeout_s = kLookTimeoutS,
                        .max_bytes = kMaxPageBytes});
  }
  const auto answers = transport_.send_all(requests);
  bool any_slow = false;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    Worker& worker = servers_[i].worker;
    if (worker.created_s == 0) worker.created_s = now.wall_s;
    const bool ready = answers[i].ok() && answers[i]->status == 200;
    // A busy server may answer slowly. Once it is ready, only an error or half a minute of silence makes it unready.
    const bool slow = !answers[i].ok() && answers[i].error().code == ErrorCode::kDeadlineExceeded;
    any_slow = any_slow || slow;
    if (answers[i].ok()) servers_[i].answered_s = now.monotonic_s;
    if (slow && worker.ready && now.monotonic_s - servers_[i].answered_s < kSilentS) continue;
    if (ready && !worker.ready) worker.ready_s = now.wall_s;
    if (!ready) worker.ready_s.reset();
    worker.ready = ready;
    worker.failed = !ready;
    worker.trouble = ready ? planner::WorkerTrouble::kNone : planner::WorkerTrouble::kFailed;
    worker.message = ready ? std::string()
                     : answers[i].ok()
                         ? fmt::format("{}: must answer with status 200 (got {})", requests[i].url, answers[i]->status)
                         : answers[i].error().message;
  }
  // Each request to a silent server delays the step, so poll less often.
  next_look_s_ = now.monotonic_s + kLookPeriodS + (any_slow ? 2 * kLookTimeoutS : 0);
  looked_ = true;
}

std::vector<Worker> AttachedRuntime::workers() const {
  std::vector<Worker> all;
  for (const Server& server : servers_) {
    all.push_back(server.worker);
    all.back().service_uid = uid_of_(server.service);
    if (all.back().service_uid.empty()) all.pop_back();  // its ModelService file was removed
  }
  return all;
}

std::map<std::string, GpuCapacity> AttachedRuntime::capacity(const std::vector<ClassSelector>& classes) const {
  std::map<std::string, GpuCapacity> all;
  for (const ClassSelector& one : classes) all[one.name] = GpuCapacity{1, kAnyNumber, 0};
  return all;
}

Result<void> AttachedRuntime::check(const Launch& spec) { return not_ours(spec.name); }
Result<void> AttachedRuntime::create(const Launch& spec) { return not_ours(spec.name); }
Result<void> AttachedRuntime::begin_drain(const Worker& worker, Instant) { return not_ours(worker.name); }
Result<void> AttachedRuntime::begin_role_change(const Worker& worker, const std::string& role, Instant) {
  return Error{ErrorCode::kFailedPrecondition,
               fmt::format("role: must be unified for an attached server (got {} for {})", role, worker.name)};
}

Result<void> AttachedRuntime::end_role_change(const Worker&) { return {}; }

Result<void> AttachedRuntime::terminate(const Worker& worker, std::optional<double>) { return not_ours(worker.name); }
Result<void> AttachedRuntime::release(const Worker&) { return {}; }

}  // namespace windlass::controller
