// See worker_signals.h.
#include "controller/reconcile/worker_signals.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace windlass::controller {
namespace {

constexpr std::array<const char*, 2> kPaths = {"/metrics", "/prometheus/metrics"};

std::size_t first_path(const std::string& engine) { return engine == "TensorRTLLM" ? 1 : 0; }

}  // namespace

std::optional<planner::Reading> WorkerLoad::requests() const {
  if (!running) return std::nullopt;
  if (!waiting) return running;
  return planner::Reading{running->value + waiting->value, std::min(running->at_s, waiting->at_s)};
}

std::string WorkerSignals::url(const std::string& uid, const std::string& address, const std::string& engine) {
  const State& state = workers_.try_emplace(uid, State{first_path(engine), {}, {}}).first->second;
  return fmt::format("http://{}{}", address, kPaths.at(state.path));
}

WorkerSignals::Taken WorkerSignals::take(const std::string& uid, const Result<std::string>& body, double now_s) {
  State& state = workers_[uid];
  // If a worker does not answer at all, the other address will not work either; if it answers with something else, it may.
  const auto look_elsewhere = [&] {
    state.path = 1 - state.path;
    return Taken{};
  };
  if (!body.ok()) return body.error().code == ErrorCode::kNotFound ? look_elsewhere() : Taken{};
  auto read = metrics::parse_exposition_partially(*body, metrics::is_read_of_engines);
  if (!read.ok()) return look_elsewhere();
  auto engine = metrics::read_engine_metrics(read->page);
  if (!engine) return look_elsewhere();
  const auto set = [&](std::optional<planner::Reading>& reading, const std::optional<double>& value) {
    if (value) reading = planner::Reading{*value, now_s};
  };
  set(state.load.running, engine->requests_running);
  set(state.load.waiting, engine->requests_waiting);
  set(state.load.kv_use, engine->kv_share);
  state.page = WorkerPage{*std::move(engine), now_s};
  return {true, std::move(read->broken)};
}

void WorkerSignals::keep(const std::set<std::string>& uids) {
  std::erase_if(workers_, [&](const auto& one) { return !uids.contains(one.first); });
}

const WorkerLoad* WorkerSignals::load(const std::string& uid) const {
  const auto found = workers_.find(uid);
  return found == workers_.end() || !found->second.page ? nullptr : &found->second.load;
}

const WorkerPage* WorkerSignals::page(const std::string& uid) const {
  const auto found = workers_.find(uid);
  return found == workers_.end() || !found->second.page ? nullptr : &*found->second.page;
}

}  // namespace windlass::controller
