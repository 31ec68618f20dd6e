// Stores worker processes as JSON files; see worker_records.h.
#include "controller/runtime/worker_records.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "metrics/host/whole_file.h"
#include "planner/deployment/pool_name.h"

namespace windlass::controller {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

json to_json(std::optional<double> seconds) { return seconds ? json(*seconds) : json(); }

std::optional<double> seconds_of(const json& value) {
  return value.is_null() ? std::nullopt : std::optional<double>(value.get<double>());
}

json to_json(const WorkerRecord& record) {
  const Worker& worker = record.worker;
  return {{"name", worker.name},
          {"namespace", worker.name_space},
          {"service", worker.service},
          {"serviceUid", worker.service_uid},
          {"pool", worker.pool},
          {"slot", worker.slot},
          {"role", worker.role},
          {"accelerator", worker.accelerator},
          {"gpus", worker.gpus},
          {"stages", worker.stages},
          {"stage", worker.stage},
          {"maxConcurrency", worker.max_concurrency},
          {"specHash", worker.spec_hash},
          {"uid", worker.uid},
          {"address", worker.address},
          {"created", worker.created_s},
          {"ready", to_json(worker.ready_s)},
          {"drainingSince", to_json(worker.draining_since_s)},
          {"changingRoleSince", to_json(worker.changing_role_since_s)},
          {"engine", record.engine},
          {"log", record.log},
          {"drainTimeout", record.drain_timeout_s},
          {"pid", record.pid},
          {"startTicks", record.start_ticks},
          {"stopping", record.stopping},
          {"sentSigterm", record.sent_sigterm},
          {"killAt", record.kill_at_s}};
}

// Throws json::exception.
WorkerRecord record_of(const json& value) {
  WorkerRecord record;
  Worker& worker = record.worker;
  value.at("name").get_to(worker.name);
  value.at("namespace").get_to(worker.name_space);
  value.at("service").get_to(worker.service);
  value.at("serviceUid").get_to(worker.service_uid);
  value.at("slot").get_to(worker.slot);
  value.at("role").get_to(worker.role);
  value.at("accelerator").get_to(worker.accelerator);
  value.at("gpus").get_to(worker.gpus);
  worker.stages = value.value("stages", 1);
  worker.stage = value.value("stage", 0);
  worker.pool = planner::pool_of_name(value.at("pool").get<std::string>(), worker.accelerator, worker.gpus).name;
  value.at("maxConcurrency").get_to(worker.max_concurrency);
  value.at("specHash").get_to(worker.spec_hash);
  value.at("uid").get_to(worker.uid);
  value.at("address").get_to(worker.address);
  value.at("created").get_to(worker.created_s);
  worker.ready_s = seconds_of(value.at("ready"));
  worker.draining_since_s = seconds_of(value.at("drainingSince"));
  if (value.contains("changingRoleSince")) worker.changing_role_since_s = seconds_of(value["changingRoleSince"]);
  value.at("engine").get_to(record.engine);
  value.at("log").get_to(record.log);
  value.at("drainTimeout").get_to(record.drain_timeout_s);
  value.at("pid").get_to(record.pid);
  value.at("startTicks").get_to(record.start_ticks);
  value.at("stopping").get_to(record.stopping);
  value.at("sentSigterm").get_to(record.sent_sigterm);
  value.at("killAt").get_to(record.kill_at_s);
  worker.ready = worker.ready_s.has_value() && !record.stopping;
  worker.terminating = record.stopping;
  return record;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

Result<WorkerRecords> WorkerRecords::open(fs::path directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return Error{ErrorCode::kPermissionDenied, fmt::format("{}: {}", directory.string(), error.message())};
  return WorkerRecords(std::move(directory));
}

fs::path WorkerRecords::file_of(const std::string& name_space, const std::string& name) const {
  return directory_ / fmt::format("{}.{}.json", name_space, name);
}

Result<void> WorkerRecords::write(const WorkerRecord& record) const {
  // A folder's name may not be valid UTF-8.
  return write_whole_file(file_of(record.worker.name_space, record.worker.name),
                          to_json(record).dump(2, ' ', false, json::error_handler_t::replace) + '\n');
}

void WorkerRecords::erase(const std::string& name_space, const std::string& name) const {
  std::error_code ignored;
  fs::remove(file_of(name_space, name), ignored);
}

std::vector<WorkerRecord> WorkerRecords::read() const {
  std::vector<WorkerRecord> records;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    bool usable = entry.path().extension() == ".json";  // otherwise an unfinished draft, perhaps of a worker that has ended
    try {
      if (usable) records.push_back(record_of(json::parse(text_of(entry.path()))));
    } catch (const json::exception&) {
      usable = false;
    }
    std::error_code ignored;
    if (!usable) fs::remove(entry.path(), ignored);
  }
  std::sort(records.begin(), records.end(), [](const WorkerRecord& a, const WorkerRecord& b) {
    return std::tie(a.worker.name_space, a.worker.name) < std::tie(b.worker.name_space, b.worker.name);
  });
  return records;
}

long long start_ticks_of(pid_t pid) {
  // The second field, the program's name in parentheses, may contain anything, so count the fields after its last parenthesis.
  const std::string stat = text_of(fmt::format("/proc/{}/stat", pid));
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  constexpr int kFieldsBetween = 19;  // 3 to 21
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  long long ticks = 0;
  fields >> ticks;
  return ticks;
}

}  // namespace windlass::controller
