// Computes the flow between prefill and decode workers; see pair_flow.h.
#include "planner/dispatch/pair_flow.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace windlass::hetero {
namespace {

// The workers of one phase: those of one machine, or all.
struct PhaseShare {
  std::vector<std::size_t> workers;
  std::vector<double> offers;  // requests/s of each worker
  std::vector<double> stuck;   // the part of the offers that can flow nowhere else; empty: none

  [[nodiscard]] double total() const { return std::accumulate(offers.begin(), offers.end(), 0.0); }

  // Divides `amount`, at most total(), among the workers.
  [[nodiscard]] std::vector<double> divide(double amount) const {
    const double first = std::accumulate(stuck.begin(), stuck.end(), 0.0);
    const double rest = total() - first;
    std::vector<double> parts(offers.size(), 0);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double here = stuck.empty() ? 0 : stuck[i];
      if (first > 0) parts[i] += here * std::min(1.0, amount / first);
      if (amount > first && rest > 0) parts[i] += (offers[i] - here) * std::min(1.0, (amount - first) / rest);
    }
    return parts;
  }
};

PhaseShare inside(const std::vector<PairedWorker>& workers, std::vector<std::size_t> here) {
  PhaseShare share;
  for (const std::size_t i : here) {
    const PairedWorker& worker = workers[i];
    share.offers.push_back(std::min(worker.requests_per_s, worker.within_per_s));
    share.stuck.push_back(std::clamp(worker.requests_per_s - worker.between_per_s, 0.0, share.offers.back()));
  }
  share.workers = std::move(here);
  return share;
}

using Flows = std::map<std::pair<std::size_t, std::size_t>, double>;

// Lets requests flow between the two sides and subtracts them from the workers' `left`.
void join(const PhaseShare& from, const PhaseShare& to, std::vector<double>& prefill_left, std::vector<double>& decode_left,
          Flows& flows) {
  const double amount = std::min(from.total(), to.total());
  if (!(amount > 0)) return;
  const std::vector<double> out = from.divide(amount), in = to.divide(amount);
  for (std::size_t p = 0; p < out.size(); ++p) {
    prefill_left[from.workers[p]] -= out[p];
    for (std::size_t d = 0; d < in.size(); ++d) {
      const double flow = out[p] * in[d] / amount;
      if (flow > 0) flows[{from.workers[p], to.workers[d]}] += flow;
    }
  }
  for (std::size_t d = 0; d < in.size(); ++d) decode_left[to.workers[d]] -= in[d];
}

}  // namespace

std::vector<PairFlow> pair_flow(const std::vector<PairedWorker>& prefill, const std::vector<PairedWorker>& decode) {
  struct Machine {
    std::vector<std::size_t> prefill, decode;
  };
  std::map<std::string, Machine> machines;
  std::vector<double> prefill_left, decode_left;
  for (std::size_t p = 0; p < prefill.size(); ++p) {
    machines[prefill[p].node].prefill.push_back(p);
    prefill_left.push_back(prefill[p].requests_per_s);
  }
  for (std::size_t d = 0; d < decode.size(); ++d) {
    machines[decode[d].node].decode.push_back(d);
    decode_left.push_back(decode[d].requests_per_s);
  }
  Flows flows;
  for (auto& [name, machine] : machines) {
    join(inside(prefill, std::move(machine.prefill)), inside(decode, std::move(machine.decode)), prefill_left, decode_left,
         flows);
  }
  const auto between = [](const std::vector<PairedWorker>& workers, const std::vector<double>& left) {
    PhaseShare share;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      // Below this only a rounding error is left.
      if (left[i] <= 1e-12 * workers[i].requests_per_s) continue;
      share.workers.push_back(i);
      share.offers.push_back(std::min(left[i], workers[i].between_per_s));
    }
    return share;
  };
  join(between(prefill, prefill_left), between(decode, decode_left), prefill_left, decode_left, flows);
  std::vector<PairFlow> pairs;
  for (const auto& [pair, flow] : flows) pairs.push_back({pair.first, pair.second, flow});
  return pairs;
}

}  // namespace windlass::hetero
