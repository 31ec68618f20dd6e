// See chain_runtime.h.
#include "controller/runtime/chain_runtime.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace windlass::controller {
namespace {

std::string server_name(const std::string& chain, int stage) {
  return stage == 0 ? chain : fmt::format("{}-s{}", chain, stage);
}

std::string chain_name(const Worker& server) {
  const std::string suffix = server_name("", server.stage);
  return server.name.substr(0, server.name.size() - suffix.size());
}

bool has_ended(const Worker& server) { return server.finished || server.node_gone; }

// The servers of each chain, by its namespace and name, in the order of stages.
using Chains = std::map<std::pair<std::string, std::string>, std::vector<Worker>>;

Chains chains_of(std::vector<Worker> workers, std::vector<Worker>* whole) {
  Chains chains;
  for (Worker& worker : workers) {
    if (worker.stages > 1) {
      chains[{worker.name_space, chain_name(worker)}].push_back(std::move(worker));
    } else if (whole != nullptr) {
      whole->push_back(std::move(worker));
    }
  }
  for (auto& [name, servers] : chains) {
    std::sort(servers.begin(), servers.end(), [](const Worker& a, const Worker& b) { return a.stage < b.stage; });
  }
  return chains;
}

// Nullopt unless all have a time; then the last.
std::optional<double> last_of(const std::vector<Worker>& servers, std::optional<double> Worker::*time) {
  std::optional<double> last;
  for (const Worker& server : servers) {
    if (!(server.*time)) return std::nullopt;
    last = std::max(last.value_or(*(server.*time)), *(server.*time));
  }
  return last;
}

// The chain as one worker. REQUIRES: at least one server.
Worker as_one(const std::string& name, const std::vector<Worker>& servers, double now_s) {
  const auto any = [&](auto what) { return std::any_of(servers.begin(), servers.end(), what); };
  const auto all = [&](auto what) { return std::all_of(servers.begin(), servers.end(), what); };
  Worker chain = servers.front();
  const bool complete = static_cast<int>(servers.size()) == chain.stages;
  const bool led = chain.stage == 0;
  chain.name = name;
  chain.stage = 0;
  chain.later.assign(static_cast<std::size_t>(chain.stages - 1), {});
  for (const Worker& server : servers) {
    if (server.stage > 0) chain.later[static_cast<std::size_t>(server.stage - 1)] = {server.address, server.node};
  }
  if (!led) chain.address = chain.node = "";
  chain.ready = complete && all([](const Worker& one) { return one.ready; });
  chain.says_ready = complete && all([](const Worker& one) { return one.ready || one.says_ready; });
  chain.failed = any([](const Worker& one) { return one.failed; });
  chain.unschedulable = any([](const Worker& one) { return one.unschedulable; });
  chain.gated = any([](const Worker& one) { return one.gated; });
  chain.terminating = any([](const Worker& one) { return one.terminating; });
  chain.finished = all([](const Worker& one) { return one.finished; });
  chain.node_gone = all([](const Worker& one) { return one.node_gone; });
  chain.node_leaving = any([](const Worker& one) { return one.node_leaving; });
  double last_created_s = 0;
  for (const Worker& server : servers) {
    chain.created_s = std::min(chain.created_s, server.created_s);
    last_created_s = std::max(last_created_s, server.created_s);
    if (!chain.draining_since_s) chain.draining_since_s = server.draining_since_s;
    if (chain.trouble == planner::WorkerTrouble::kNone) chain.trouble = server.trouble;
    if (chain.message.empty() && !server.message.empty()) {
      chain.message = fmt::format("server {} of {}: {}", server.stage + 1, chain.stages, server.message);
    }
  }
  chain.scheduled_s = last_of(servers, &Worker::scheduled_s);
  chain.ready_s = complete ? last_of(servers, &Worker::ready_s) : std::nullopt;
  const bool ends = chain.terminating || chain.draining_since_s || chain.finished;
  const bool lacks_one =
      (!complete && now_s - last_created_s > ChainRuntime::kMissingS) || any([](const Worker& one) { return one.finished; });
  if (lacks_one && !ends && !chain.failed) {
    chain.failed = true;
    chain.trouble = planner::WorkerTrouble::kFailed;
    chain.message = fmt::format("{} of its {} servers are left",
                                std::count_if(servers.begin(), servers.end(), [](const Worker& one) { return !one.finished; }),
                                chain.stages);
  }
  return chain;
}

}  // namespace

std::vector<Worker> ChainRuntime::servers_of(const Worker& chain) const {
  auto chains = chains_of(servers_->workers(), nullptr);
  const auto found = chains.find({chain.name_space, chain.name});
  // Another chain of this name is not this one.
  if (found == chains.end() || found->second.front().uid != chain.uid) return {};
  return std::move(found->second);
}

void ChainRuntime::step(Instant now) {
  servers_->step(now);
  now_s_ = now.wall_s;
  problem_.clear();
  if (!servers_->synced()) return;
  const auto end = [&](const Worker& server, std::optional<double> grace_s) {
    if (server.terminating || has_ended(server) || now.monotonic_s < servers_->not_before_s()) return;
    const auto ended = servers_->terminate(server, grace_s);
    if (!ended.ok() && ended.error().code != ErrorCode::kNotFound) problem_ = ended.error().message;
  };
  for (const auto& [name, servers] : chains_of(servers_->workers(), nullptr)) {
    const Worker& first = servers.front();
    const bool led = first.stage == 0 && !has_ended(first);
    const bool ends =
        std::any_of(servers.begin(), servers.end(), [](const Worker& one) { return one.terminating || one.draining_since_s; });
    if (!ends) continue;
    if (led) {
      const bool broken = std::any_of(servers.begin() + 1, servers.end(), [](const Worker& one) { return one.terminating; });
      if (broken) end(first, std::nullopt);  // finishes what it can
      for (const Worker& server : servers) {
        if (first.terminating && !server.draining_since_s) (void)servers_->begin_drain(server, now);
      }
      continue;
    }
    for (const Worker& server : servers) end(server, 0);
  }
}

std::string ChainRuntime::problem() const {
  const std::string theirs = servers_->problem();
  return theirs.empty() ? problem_ : theirs;
}

std::vector<Worker> ChainRuntime::workers() const {
  std::vector<Worker> all;
  const Chains chains = chains_of(servers_->workers(), &all);
  if (chains.empty()) return all;
  for (const auto& [name, servers] : chains) all.push_back(as_one(name.second, servers, now_s_));
  std::sort(all.begin(), all.end(),
            [](const Worker& a, const Worker& b) { return std::tie(a.name_space, a.name) < std::tie(b.name_space, b.name); });
  return all;
}

Result<void> ChainRuntime::create(const Launch& spec) {
  Result<void> first = Result<void>{};
  for (int stage = spec.stages - 1; stage >= 0; --stage) {
    Launch server = spec;
    server.name = server_name(spec.name, stage);
    server.stage = stage;
    first = servers_->create(server);
    if (!first.ok() && (stage == 0 || first.error().code != ErrorCode::kAlreadyExists)) return first;
  }
  return first;
}

Result<void> ChainRuntime::begin_drain(const Worker& worker, Instant now) {
  if (worker.stages == 1) return servers_->begin_drain(worker, now);
  for (const Worker& server : servers_of(worker)) WINDLASS_RETURN_IF_ERROR(servers_->begin_drain(server, now));
  return {};
}

Result<void> ChainRuntime::terminate(const Worker& worker, std::optional<double> grace_s) {
  if (worker.stages == 1) return servers_->terminate(worker, grace_s);
  const std::vector<Worker> servers = servers_of(worker);
  if (servers.empty()) {
    return Error{ErrorCode::kNotFound, fmt::format("worker {}/{} is gone", worker.name_space, worker.name)};
  }
  return servers_->terminate(servers.front(), grace_s);
}

Result<void> ChainRuntime::release(const Worker& worker) {
  if (worker.stages == 1) return servers_->release(worker);
  for (const Worker& server : servers_of(worker)) WINDLASS_RETURN_IF_ERROR(servers_->release(server));
  return {};
}

}  // namespace windlass::controller
