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

bool lacks_for_long(const std::vector<Worker>& servers, double now_s) {
  double last_created_s = 0;
  for (const Worker& server : servers) last_created_s = std::max(last_created_s, server.created_s);
  return now_s - last_created_s > ChainRuntime::kMissingS;
}

// Its first server is not there yet; it is the last to be created.
bool is_being_created(const std::vector<Worker>& servers, double now_s) {
  return servers.front().stage > 0 && !lacks_for_long(servers, now_s) &&
         std::none_of(servers.begin(), servers.end(),
                      [](const Worker& one) { return one.terminating || one.draining_since_s || has_ended(one); });
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
  chain.ready_servers = static_cast<int>(
      std::count_if(servers.begin(), servers.end(), [](const Worker& one) { return one.ready && !one.terminating; }));
  chain.trouble = planner::WorkerTrouble::kNone;
  chain.message.clear();
  for (const Worker& server : servers) {
    chain.created_s = std::min(chain.created_s, server.created_s);
    if (!chain.draining_since_s) chain.draining_since_s = server.draining_since_s;
    // Of the first that has one.
    if (chain.trouble != planner::WorkerTrouble::kNone || server.message.empty()) continue;
    chain.trouble = server.trouble;
    chain.message = fmt::format("server {} of {}: {}", server.stage + 1, chain.stages, server.message);
  }
  chain.scheduled_s = last_of(servers, &Worker::scheduled_s);
  chain.ready_s = complete ? last_of(servers, &Worker::ready_s) : std::nullopt;
  const bool ends = chain.terminating || chain.draining_since_s || chain.finished;
  const bool lacks_one = (!complete && lacks_for_long(servers, now_s)) || any([](const Worker& one) { return one.finished; });
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
  now_ = now;
}

Result<void> ChainRuntime::settle(Instant now) {
  Result<void> first_error;
  const auto note = [&](const Result<void>& done) {
    if (!done.ok() && done.error().code != ErrorCode::kNotFound && first_error.ok()) first_error = done;
  };
  const auto end = [&](const Worker& server, std::optional<double> grace_s) {
    if (!server.terminating && !has_ended(server)) note(servers_->terminate(server, grace_s));
  };
  for (const auto& [name, servers] : chains_of(servers_->workers(), nullptr)) {
    const Worker& first = servers.front();
    // On a node that does not answer, nobody would report its end.
    const bool lost = first.terminating && first.trouble == planner::WorkerTrouble::kNodeLost;
    const bool led = first.stage == 0 && !has_ended(first) && !lost;
    const bool broken = std::any_of(servers.begin(), servers.end(),
                                    [](const Worker& one) { return one.stage > 0 && (one.terminating || has_ended(one)); });
    const bool told =
        std::any_of(servers.begin(), servers.end(), [](const Worker& one) { return one.terminating || one.draining_since_s; });
    if (led) {
      if (broken) note(terminate_all(servers, std::nullopt, now));  // the first one finishes what it can
      continue;
    }
    if (!told && !broken) continue;
    for (const Worker& server : servers) end(server, kLeftGraceS);
  }
  return first_error;
}

// Ends the first server. The others are marked before, so that they end even if it vanishes at once.
Result<void> ChainRuntime::terminate_all(const std::vector<Worker>& servers, std::optional<double> grace_s, Instant now) {
  for (const Worker& server : servers) {
    if (server.stage == 0 || server.draining_since_s || server.terminating || has_ended(server)) continue;
    const auto marked = servers_->begin_drain(server, now);
    if (!marked.ok() && marked.error().code != ErrorCode::kNotFound) return marked;
  }
  const Worker& first = servers.front();
  return first.terminating || has_ended(first) ? Result<void>{} : servers_->terminate(first, grace_s);
}

std::vector<Worker> ChainRuntime::workers() const {
  std::vector<Worker> all;
  const Chains chains = chains_of(servers_->workers(), &all);
  if (chains.empty()) return all;
  for (const auto& [name, servers] : chains) {
    if (!is_being_created(servers, now_.wall_s)) all.push_back(as_one(name.second, servers, now_.wall_s));
  }
  std::sort(all.begin(), all.end(),
            [](const Worker& a, const Worker& b) { return std::tie(a.name_space, a.name) < std::tie(b.name_space, b.name); });
  return all;
}

Result<void> ChainRuntime::create(const Launch& spec) {
  Result<void> made;
  for (int stage = spec.stages - 1; stage >= 0; --stage) {
    Launch server = spec;
    server.name = server_name(spec.name, stage);
    server.stage = stage;
    made = servers_->create(server);
    const bool goes_on = made.ok() || (stage > 0 && made.error().code == ErrorCode::kAlreadyExists && is_there(server));
    if (!goes_on) return made;
  }
  return made;
}

bool ChainRuntime::is_there(const Launch& server) const {
  const std::vector<Worker> all = servers_->workers();
  return std::any_of(all.begin(), all.end(), [&](const Worker& one) {
    return one.name == server.name && one.name_space == server.name_space && one.service_uid == server.service_uid &&
           one.stage == server.stage && !one.terminating && !one.draining_since_s && server.matches(one.spec_hash);
  });
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
  return terminate_all(servers, grace_s, now_);
}

Result<void> ChainRuntime::release(const Worker& worker) {
  if (worker.stages == 1) return servers_->release(worker);
  for (const Worker& server : servers_of(worker)) WINDLASS_RETURN_IF_ERROR(servers_->release(server));
  return {};
}

}  // namespace windlass::controller
