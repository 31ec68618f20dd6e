// Collects samples and writes CSV; see command_simulate_log.h.
#include "controller/cli/simulate/command_simulate_log.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace windlass::cli {
namespace {

constexpr std::size_t kMaxSamples = 1600;  // per role

}  // namespace

void RequestLog::on_request(const sim::ServedRequest& request) {
  if (requests_wanted_) requests_.push_back(request);
}

void RequestLog::on_sample(const sim::WorkerSample& sample) {
  if (sample.time_s != moment_s_) {
    ++moment_;
    moment_s_ = sample.time_s;
    const auto full = [](const auto& kept) { return kept.second.size() >= kMaxSamples; };
    if (std::any_of(samples_.begin(), samples_.end(), full)) {
      for (auto& [who, kept] : samples_) {
        for (std::size_t i = 0; 2 * i < kept.size(); ++i) kept[i] = kept[2 * i];
        kept.resize((kept.size() + 1) / 2);
      }
      every_ *= 2;
    }
  }
  if (moment_ % every_ != 0) return;
  auto& kept = samples_[{sample.service, sample.role}];
  if (kept.empty() || kept.back().time_s != sample.time_s) kept.push_back(RoleSample{sample.time_s});
  RoleSample& sum = kept.back();
  ++sum.workers;
  switch (sample.phase) {
    case sim::WorkerPhase::kStarting: ++sum.starting; return;
    case sim::WorkerPhase::kReady: ++sum.ready; break;
    case sim::WorkerPhase::kDraining: ++sum.draining; break;
    case sim::WorkerPhase::kEnded: return;
  }
  sum.kv_in_use += (sample.kv_in_use - sum.kv_in_use) / sum.serving();
  sum.busy += sample.busy ? 1 : 0;
  sum.waiting += sample.waiting;
  sum.running += sample.running;
}

std::map<dispatch::Role, std::vector<RoleSample>> RequestLog::samples(int service) const {
  std::map<dispatch::Role, std::vector<RoleSample>> own;
  for (const auto& [who, kept] : samples_) {
    if (who.first == service) own[who.second] = kept;
  }
  return own;
}

std::string requests_csv(std::span<const RequestLog> replications, std::span<const std::string> services) {
  std::string csv = services.empty() ? "" : "service,";
  csv +=
      "replication,request,arrival_s,input_tokens,output_tokens,outcome,prefill_worker,decode_worker,scheduling_delay_s,ttft_s,"
      "tbt_s,e2e_s\n";
  for (std::size_t r = 0; r < replications.size(); ++r) {
    std::vector<sim::ServedRequest> requests = replications[r].requests();
    std::sort(requests.begin(), requests.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
    for (const sim::ServedRequest& request : requests) {
      if (!services.empty()) csv += services[static_cast<std::size_t>(request.service)] + ",";
      fmt::format_to(std::back_inserter(csv), "{},{},{:.9f},{},{},", r, request.number, request.arrival_s, request.input_tokens,
                     request.output_tokens);
      if (request.refused || request.failed) {
        csv += request.refused ? "refused,,,,,,\n" : "failed,,,,,,\n";
        continue;
      }
      fmt::format_to(std::back_inserter(csv), "completed,{},{},{:.9f},{:.9f},", request.prefill_worker, request.decode_worker,
                     request.scheduling_delay_s, request.ttft_s);
      if (request.output_tokens > 1) fmt::format_to(std::back_inserter(csv), "{:.9f}", request.tbt_s);
      fmt::format_to(std::back_inserter(csv), ",{:.9f}\n", request.e2e_s);
    }
  }
  return csv;
}

}  // namespace windlass::cli
