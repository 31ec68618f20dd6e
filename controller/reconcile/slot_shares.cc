// See slot_shares.h.
#include "controller/reconcile/slot_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace windlass::controller {

std::vector<double> ShareBalance::move(const std::vector<std::string>& gateways,
                                       const std::map<std::string, GatewayLoad>& loads, int slots, double now_s) {
  if (gateways.empty()) return {};
  const double even = 1.0 / static_cast<double>(gateways.size());
  // A new gateway starts with an even share. A gateway that leaves gives its share to the rest.
  std::map<std::string, double> now;
  double sum = 0;
  for (const std::string& id : gateways) {
    const auto known = fractions_.find(id);
    sum += now[id] = known == fractions_.end() ? even : known->second;
  }
  for (auto& [id, fraction] : now) fraction /= sum;

  double requests = 0;
  int queued = 0;
  const auto load_of = [&](const std::string& id) {
    const auto load = loads.find(id);
    return load == loads.end() ? GatewayLoad{} : load->second;
  };
  for (const std::string& id : gateways) {
    requests += load_of(id).in_flight + load_of(id).queued;
    queued += load_of(id).queued;
  }
  if (fractions_.empty()) moved_s_ = now_s;
  const bool due = now_s - moved_s_ >= kPeriodS;
  if (queued > 0 && due) {
    // With few slots, a small step is less than one slot and would never move any.
    const double step = std::max(kStep, slots > 0 ? 1.0 / slots : 1.0);
    std::map<std::string, double> change;
    double most = 0;
    for (const std::string& id : gateways) {
      const double target = kEvenPart * even + (1 - kEvenPart) * (load_of(id).in_flight + load_of(id).queued) / requests;
      change[id] = target - now[id];
      most = std::max(most, std::abs(change[id]));
    }
    if (most > kDeadBand) {
      // Scale all changes alike, so that the sum stays 1.
      const double part = std::min(1.0, step / most);
      for (const std::string& id : gateways) now[id] += part * change[id];
      moved_s_ = now_s;
    }
  }
  fractions_ = now;
  std::vector<double> out;
  for (const std::string& id : gateways) out.push_back(fractions_[id]);
  return out;
}

std::vector<std::vector<int>> whole_slots(const std::vector<int>& capacities, const std::vector<double>& fractions) {
  const std::size_t gateways = fractions.size();
  std::vector<std::vector<int>> out(capacities.size(), std::vector<int>(gateways, 0));
  if (gateways == 0) return out;
  std::vector<double> owed(gateways, 0);  // fractional minus whole slots, over the chains so far
  for (std::size_t k = 0; k < capacities.size(); ++k) {
    const int capacity = std::max(0, capacities[k]);
    std::vector<int>& given = out[k];
    const int least = capacity >= static_cast<int>(gateways) ? 1 : 0;
    for (std::size_t g = 0; g < gateways; ++g) {
      given[g] = std::max(least, static_cast<int>(std::floor(fractions[g] * capacity + 1e-9)));
      owed[g] += fractions[g] * capacity;
    }
    int left = capacity - std::accumulate(given.begin(), given.end(), 0);
    const auto debt = [&](std::size_t g) { return owed[g] - given[g]; };
    // Give single slots to the gateways that are owed most. If the minimum of 1 gave out too many, take slots from those owed
    // least.
    std::vector<bool> topped(gateways, false);
    for (; left > 0; --left) {
      std::size_t best = gateways;
      for (std::size_t g = 0; g < gateways; ++g) {
        if (!topped[g] && (best == gateways || debt(g) > debt(best) + 1e-9)) best = g;
      }
      if (best == gateways) break;  // the fractions add up to less than 1
      ++given[best];
      topped[best] = true;
    }
    for (; left < 0; ++left) {
      std::size_t worst = gateways;
      for (std::size_t g = 0; g < gateways; ++g) {
        if (given[g] > least && (worst == gateways || debt(g) < debt(worst) - 1e-9)) worst = g;
      }
      if (worst == gateways) break;
      --given[worst];
    }
    for (std::size_t g = 0; g < gateways; ++g) owed[g] -= given[g];
  }
  return out;
}

}  // namespace windlass::controller
