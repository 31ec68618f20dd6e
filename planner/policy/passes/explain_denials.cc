// The "Denials" pass: explains which workers limits and missing GPUs withheld, and who holds those GPUs. See passes.h.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "planner/policy/passes/passes.h"

namespace windlass::planner {
namespace {

// The services that hold GPUs of each class under this plan, largest first.
struct Holder {
  const Service* service = nullptr;
  int gpus = 0;
};
using Holders = std::map<std::string, std::vector<Holder>>;

Holders holders_of(const std::vector<Draft>& drafts) {
  Holders holders;
  for (const Draft& draft : drafts) {
    std::map<std::string, int> gpus;
    for (const Configuration& pool : draft.applies() ? draft.retiring : draft.as_is)
      gpus[pool.pool.spec.accelerator] += gpus_of(pool);
    if (draft.applies()) {
      gpus[draft.chosen->pool.spec.accelerator] += draft.granted * draft.chosen->pool.spec.gpus();
      for (std::size_t i = 0; i < draft.sides.pools.size(); ++i) {
        const Pool& pool = draft.sides.pools[i].configuration.pool;
        gpus[pool.spec.accelerator] += draft.sides_granted[i] * pool.spec.gpus();
      }
    }
    for (const auto& [accelerator, count] : gpus) {
      if (count > 0) holders[accelerator].push_back({draft.service, count});
    }
  }
  for (auto& [accelerator, list] : holders) {
    std::stable_sort(list.begin(), list.end(), [](const Holder& a, const Holder& b) { return a.gpus > b.gpus; });
  }
  return holders;
}

std::string who_has(const Draft& draft, const std::string& accelerator, const FleetDraft& fleet, const Holders& holders) {
  constexpr int kNamed = 3;
  const ClassCapacity& capacity = fleet.capacities.at(accelerator);
  std::string text = fmt::format("of {} GPUs,", capacity.limit);
  int named = 0;
  int others = 0;
  if (const auto list = holders.find(accelerator); list != holders.end()) {
    for (const Holder& holder : list->second) {
      if (holder.service == draft.service) continue;
      if (named < kNamed) {
        text += fmt::format("{} {}/{} (priority {}) holds {}", named == 0 ? "" : ",", holder.service->id.name_space,
                            holder.service->id.name, holder.service->priority, holder.gpus);
        ++named;
      } else {
        others += holder.gpus;
      }
    }
  }
  if (named == 0) text += " no other service holds any";
  if (others > 0) text += fmt::format(", other services hold {}", others);
  if (capacity.draining > 0) text += fmt::format("; {} are still held by draining workers", capacity.draining);
  if (const int taken = find_accelerator(*fleet.snapshot, accelerator)->used_by_others; taken > 0) {
    text += fmt::format("; other pods use {} more", taken);
  }
  return text;
}

// Workers of this kind were needed and not granted.
Denied denied(const Draft& draft, const WorkerSpec& spec, const char* kind, int needed, int granted, const FleetDraft& fleet,
              const Holders& holders) {
  const std::string code = shortage_of(fleet, spec);
  std::string message = fmt::format("{} {}workers of {} needed, {} granted: ", needed, kind, text_of(spec), granted);
  if (code == "NoRoomOnOneNode") {
    int largest = 0;
    for (const auto& [node, gpus] : fleet.free_on_nodes.at(spec.accelerator)) largest = std::max(largest, gpus);
    message += fmt::format("{} GPUs are free, but no node has {} of them (the most on one node: {}); ",
                           fleet.free_gpus.at(spec.accelerator), spec.tensor_parallel, largest);
  }
  message += who_has(draft, spec.accelerator, fleet, holders);
  return Denied{draft.service->id, code, std::move(message), spec.accelerator, needed, granted};
}

void deny(const Draft& draft, const Holders& holders, FleetDraft& fleet) {
  const Service& service = *draft.service;
  const Target& target = draft.target;
  const std::string& accelerator = draft.chosen->pool.spec.accelerator;
  const int wanted = std::max({target.wanted, target.allowed, service.scaling.min_workers});
  if (!target.limited_by.empty()) {
    fleet.denied.push_back(Denied{service.id, target.limited_by, target.limit_message, accelerator, wanted, target.allowed});
  }
  if (const int needed = needed_now(draft); draft.granted < needed) {
    fleet.denied.push_back(denied(draft, draft.chosen->pool.spec, "", needed, draft.granted, fleet, holders));
  }
  for (std::size_t i = 0; i < draft.sides.pools.size(); ++i) {
    const SidePool& side = draft.sides.pools[i];
    if (draft.sides_granted[i] >= draft.sides_wanted[i]) continue;
    fleet.denied.push_back(denied(draft, side.configuration.pool.spec, side.is_prefill() ? "prefill " : "",
                                  draft.sides_wanted[i], draft.sides_granted[i], fleet, holders));
  }
  const int existing = count_existing(service, draft.chosen->pool.id());
  if (is_refused(service, fleet.snapshot->now_s) && existing < draft.granted) {
    fleet.denied.push_back(
        Denied{service.id, service.refused->code, service.refused->message, accelerator, draft.granted, existing});
  }
}

}  // namespace

void explain_denials(FleetDraft& fleet) {
  const Holders holders = holders_of(fleet.services);
  for (const Draft& draft : fleet.services) {
    if (draft.applies()) deny(draft, holders, fleet);
  }
}

}  // namespace windlass::planner
