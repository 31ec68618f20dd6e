// See side_pools.h.
#include "planner/policy/side_pools.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace windlass::planner {
namespace {

constexpr double kSlack = 1e-9;  // of a product that should be a whole number

int to_workers(double value) { return static_cast<int>(std::clamp(value, 0.0, 1e6)); }

// "3 decode workers and 2 prefill workers"; "3 workers of h100-1 and 2 of l4-1".
std::string text_of_units(const Configuration& chosen, const SidePools& sides, int workers, const std::vector<int>& beside) {
  const auto of = [](const Configuration& pool) { return title(pool.pool.id()); };
  std::string text =
      sides.split() ? fmt::format("{} decode workers", workers) : fmt::format("{} workers of {}", workers, of(chosen));
  int prefills = 0;
  for (std::size_t i = 0; i < beside.size(); ++i) {
    if (sides.pools[i].is_prefill()) {
      prefills += beside[i];
    } else {
      text += fmt::format(" and {} of {}", beside[i], of(sides.pools[i].configuration));
    }
  }
  return sides.split() ? fmt::format("{} and {} prefill workers", text, prefills) : text;
}

// The service's own limit that these workers exceed, and how; empty if none.
std::pair<const char*, std::string> objection_to(const Service& service, const Configuration& chosen, const SidePools& sides,
                                                 const Retiring& retiring, int workers, const std::vector<int>& beside) {
  const auto text = [&] { return text_of_units(chosen, sides, workers, beside); };
  int total = workers;
  for (const int of : beside) total += of;
  if (const auto& most = service.scaling.max_workers; most && total > *most) {
    return {"MaxWorkers", fmt::format("{} are needed; maxWorkers allows {} in total", text(), *most)};
  }
  std::map<std::string, int> gpus;
  double cost = workers * chosen.price_per_hour + retiring.cost_per_hour;
  gpus[chosen.pool.spec.accelerator] += workers * chosen.pool.spec.gpus();
  std::vector<const Configuration*> all = {&chosen};
  for (std::size_t i = 0; i < beside.size(); ++i) {
    const Configuration& side = sides.pools[i].configuration;
    gpus[side.pool.spec.accelerator] += beside[i] * side.pool.spec.gpus();
    cost += beside[i] * side.price_per_hour;
    all.push_back(&side);
  }
  for (const Configuration* pool : all) {
    const std::string& name = pool->pool.spec.accelerator;
    if (!pool->max_gpus || gpus[name] <= *pool->max_gpus - retiring.gpus_of(name)) continue;
    return {"MaxGpus", fmt::format("{} need {} GPUs of {}; maxGPUs allows {}", text(), gpus[name], name, *pool->max_gpus)};
  }
  if (const auto& most = service.scaling.max_cost_per_hour; most && cost > *most + 1e-9) {
    return {"MaxCost", fmt::format("{} cost {:.4g} per hour; maxCostPerHour allows {:.4g}", text(), cost, *most)};
  }
  return {"", ""};
}

// The most workers below `too_many` without an objection; 0 counts as allowed.
template <class Objects>
int most_without(int too_many, const Objects& objects) {
  int fits = 0;
  while (too_many - fits > 1) {
    const int middle = fits + (too_many - fits) / 2;
    (objects(middle) ? too_many : fits) = middle;
  }
  return fits;
}

}  // namespace

int SidePool::workers(int chosen) const {
  return chosen <= 0 ? 0 : std::max(1, to_workers(std::ceil(chosen * share - kSlack)));
}

bool SidePools::split() const {
  return std::any_of(pools.begin(), pools.end(), [](const SidePool& pool) { return pool.is_prefill(); });
}

std::vector<int> SidePools::workers(int chosen) const {
  std::vector<int> counts;
  for (const SidePool& pool : pools) counts.push_back(pool.workers(chosen));
  return counts;
}

int SidePools::total(int chosen) const {
  int sum = chosen;
  for (const SidePool& pool : pools) sum += pool.workers(chosen);
  return sum;
}

int SidePools::chosen_within(int total_workers) const {
  double each = 1;
  for (const SidePool& pool : pools) each += pool.share;
  int chosen = to_workers(total_workers / each);
  while (chosen > 0 && total(chosen) > total_workers) --chosen;
  while (total(chosen + 1) <= total_workers) ++chosen;
  return std::max(chosen, std::min(1, total_workers));
}

int SidePools::chosen_from(int total_workers) const {
  const int within = chosen_within(total_workers);
  return total(within) >= total_workers ? within : within + 1;
}

Reason objection_to_unit(const Service& service, const Configuration& chosen, const SidePools& sides,
                         const std::vector<int>& beside) {
  auto [code, message] = objection_to(service, chosen, sides, Retiring{}, 1, beside);
  return Reason{code, std::move(message), {}};
}

Service chosen_side(const Service& service, const SidePools& sides) {
  Service side = service;
  std::erase_if(side.workers, [&](const Worker& worker) {
    return worker.role == dispatch::Role::kPrefill ||
           std::any_of(sides.pools.begin(), sides.pools.end(),
                       [&](const SidePool& pool) { return pool.configuration.pool.id() == worker.pool_id(); });
  });
  Scaling& scaling = side.scaling;
  scaling.min_workers = sides.chosen_from(scaling.min_workers);
  if (scaling.max_workers) scaling.max_workers = sides.chosen_within(*scaling.max_workers);
  for (auto* per_minute : {&scaling.scale_up_max_per_minute, &scaling.scale_down_max_per_minute}) {
    if (*per_minute) *per_minute = std::max(1, sides.chosen_within(**per_minute));
  }
  if (side.last_desired) side.last_desired = sides.chosen_from(*side.last_desired);
  return side;
}

std::vector<int> limit_units(const Service& service, const Configuration& chosen, const SidePools& sides,
                             const Retiring& retiring, Target& target) {
  const auto objection = [&](int workers, const std::vector<int>& beside) {
    return objection_to(service, chosen, sides, retiring, workers, beside);
  };
  if (target.limited_by == "MaxWorkers") {  // the message so far counts the chosen pool only
    target.limit_message = objection(target.wanted, sides.workers(target.wanted)).second;
    for (Reason& reason : target.reasons) {
      if (reason.code == target.limited_by) reason.message = target.limit_message;
    }
  }
  const int wanted = target.allowed;
  const auto [code, message] = objection(wanted, sides.workers(wanted));
  if (message.empty()) return sides.workers(wanted);
  const auto too_many = [&](int workers) { return !objection(workers, sides.workers(workers)).second.empty(); };
  target.allowed = most_without(wanted, too_many);
  std::vector<int> beside = sides.workers(target.allowed);
  if (target.allowed == 0 && objection(1, std::vector<int>(beside.size(), 0)).second.empty()) {
    target.allowed = 1;
    for (std::size_t i = 0; i < beside.size(); ++i) {
      beside[i] = most_without(sides.pools[i].workers(1), [&](int workers) {
        std::vector<int> tried = beside;
        tried[i] = workers;
        return !objection(1, tried).second.empty();
      });
    }
  }
  target.on_any_class = std::min(target.on_any_class, target.allowed);
  target.floor = std::min(target.floor, target.allowed);
  target.limited_by = code;
  target.limit_message = message;
  int total = target.allowed;
  for (const int of : beside) total += of;
  target.reasons.push_back(Reason{code, message, {{"allowed", std::to_string(total)}}});
  return beside;
}

}  // namespace windlass::planner
