// See offer_book.h.
#include "planner/whatif/offer_book.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "planner/policy/asked_workload.h"
#include "planner/policy/capacity.h"
#include "planner/policy/configuration.h"
#include "planner/policy/split.h"

namespace windlass::search {
namespace {

constexpr double kMoved = 4.0 / 3;  // a change of the estimated times by this factor makes a new question

bool has_gpus(const planner::AcceleratorState& state) {
  return state.mode == planner::CapacityMode::kElastic ? state.max_gpus.value_or(1) > 0 : state.allocatable_gpus > 0;
}

// The parts that do not depend on load or usage. `largest_nodes`: GPUs of the largest node of each class. No worker gets more.
OfferQuestion question_of(const planner::Service& service, const planner::Snapshot& snapshot,
                          const std::map<std::string, int>& largest_nodes) {
  OfferQuestion question;
  planner::Service& asked = question.service;
  asked.id = service.id;
  asked.shape = service.shape;
  asked.shape_unknown_reason = service.shape_unknown_reason;
  asked.max_context_tokens = service.max_context_tokens;
  asked.may_split = service.may_split && (!service.scaling.max_workers || *service.scaling.max_workers >= 2);
  asked.reserves_context = service.reserves_context;
  asked.max_gpus_per_worker = service.max_gpus_per_worker;
  asked.engine = service.engine;
  asked.slo = service.slo;
  asked.workload = planner::workload_to_ask(service);
  asked.accelerators = service.accelerators;
  asked.scaling.strategy = service.scaling.strategy;
  for (const planner::TransferToWorker& transfer : service.transfers) {
    if (planner::may_use(service, transfer.accelerator)) asked.transfers.push_back(transfer);
  }
  for (const planner::WorkerEstimate& estimate : service.estimates) {
    if (planner::may_use(service, estimate.accelerator)) asked.estimates.push_back(estimate);
  }
  for (const planner::AcceleratorState& state : snapshot.accelerators) {
    if (!has_gpus(state) || !planner::may_use(service, state.spec.name)) continue;
    planner::AcceleratorSpec& spec =
        question.classes.emplace_back(state.spec, planner::CapacityMode::kElastic, 0, 0, std::nullopt).spec;
    const auto largest = largest_nodes.find(spec.name);
    if (state.mode != planner::CapacityMode::kElastic && largest != largest_nodes.end())
      spec.gpus_per_node = std::min(spec.gpus_per_node, largest->second);
  }
  return question;
}

// Neither a new measurement nor another load changes the spec.
bool same_spec(planner::Service before, const planner::Service& now) {
  before.transfers = now.transfers;
  before.estimates = now.estimates;
  before.workload = now.workload;
  return before == now;
}

// Whether workers' times differ clearly from the estimates in the question, or a profile has come. Estimates move a little with
// every page. An edited class makes a new question anyway.
bool estimates_moved(const OfferQuestion& before, const OfferQuestion& now) {
  const planner::ModelShape& shape = *now.service.shape;
  const planner::EngineType engine = now.service.engine;
  for (const planner::AcceleratorState& state : now.classes) {
    const planner::AcceleratorState* then = planner::find_accelerator(before.classes, state.spec.name);
    if (then == nullptr) continue;
    for (const planner::WorkerEstimate& estimate : now.service.estimates) {
      if (estimate.accelerator != state.spec.name || estimate.stages > 1) continue;  // strategies are not asked about chains
      const int gpus = estimate.gpus_per_worker;
      const bool known = std::any_of(before.service.estimates.begin(), before.service.estimates.end(), [&](const auto& one) {
        return one.accelerator == estimate.accelerator && one.gpus_per_worker == gpus;
      });
      if (estimate.from_profile && !known) return true;
      const auto believed = planner::believed_coefficients(shape, then->spec, gpus, engine, before.service.estimates);
      if (planner::moved_by(believed, planner::linear_coefficients(shape, state.spec, gpus, engine), estimate.estimate) >
          kMoved)
        return true;
    }
  }
  return false;
}

// The classes with GPUs change with the nodes, and classes may be edited.
bool must_ask_again(const OfferQuestion& before, const OfferQuestion& now, const std::optional<planner::Offers>& offers,
                    const planner::Service& service) {
  if (!same_spec(before.service, now.service) || before.service.transfers != now.service.transfers ||
      before.service.workload != now.service.workload) {
    return true;
  }
  if (estimates_moved(before, now)) return true;
  if (before.classes == now.classes) return false;
  if (!offers || offers->confirmed.empty()) return true;
  // Workers on a class that is new or was edited may cost less.
  const auto was_asked = [&](const planner::AcceleratorState& state) {
    return std::find(before.classes.begin(), before.classes.end(), state) != before.classes.end();
  };
  if (!std::all_of(now.classes.begin(), now.classes.end(), was_asked)) return true;
  for (const planner::Offer& offer : offers->confirmed) {
    for (const planner::OfferedPool& pool : offer.pools) {
      const std::string& name = pool.spec.accelerator;
      const bool runs = std::any_of(service.workers.begin(), service.workers.end(),
                                    [&](const planner::Worker& worker) { return worker.accelerator == name; });
      if (planner::find_accelerator(now.classes, name) == nullptr && !runs) return true;
    }
  }
  return false;
}

// Whether both ask the same; the services may differ in name.
bool equal_questions(OfferQuestion one, const OfferQuestion& other) {
  one.service.id = other.service.id;
  one.ticket = other.ticket;
  return one == other;
}

// Without any rate, the cheapest deployment would be the smallest one. Closed forms then compare costs per request.
bool wants_offers(const planner::Service& service) {
  if (!service.shape || service.scaling.strategy == planner::Family::kChained) return false;
  return service.scaling.strategy == planner::Family::kDisaggregated || planner::workload_to_ask(service).requests_per_s > 0;
}

}  // namespace

bool OfferBook::attach(planner::Snapshot& snapshot) {
  for (const planner::NodeState& node : snapshot.nodes) {
    if (node.allocatable_gpus < 1) continue;
    int& largest = largest_nodes_[node.accelerator];
    largest = std::max(largest, node.allocatable_gpus);
  }
  std::set<planner::ServiceId> there;
  bool news = false;
  for (planner::Service& service : snapshot.services) {
    if (!wants_offers(service)) continue;
    there.insert(service.id);
    OfferQuestion question = question_of(service, snapshot, largest_nodes_);
    const auto [found, is_new] = entries_.try_emplace(service.id);
    Entry& entry = found->second;
    if (is_new || must_ask_again(entry.question, question, entry.offers, service)) {
      // With a new spec the old answer is invalid. With other classes or measurements it stays until there is a new one.
      if (is_new || !same_spec(entry.question.service, question.service)) entry.offers.reset();
      entry.question = std::move(question);
      entry.ticket = 0;
      if (!entry.due) {
        entry.due = true;
        entry.place = ++asked_;
        entry.asked_at_s = snapshot.now_s;
      }
      entry.stands_still =
          service.scaling.strategy == planner::Family::kDisaggregated || planner::runs_split(service, service.memory);
      news = true;
    }
    service.offers = entry.offers;
    service.searching_since_s = entry.due && !entry.offers ? std::optional(entry.asked_at_s) : std::nullopt;
  }
  std::erase_if(entries_, [&](const auto& entry) { return !there.contains(entry.first); });
  return news;
}

std::optional<OfferQuestion> OfferBook::next() {
  Entry* first = nullptr;
  const auto rank = [](const Entry& entry) { return std::tuple(entry.question.round, !entry.stands_still, entry.place); };
  for (auto& [id, entry] : entries_) {
    if (entry.due && entry.ticket == 0 && (first == nullptr || rank(entry) < rank(*first))) first = &entry;
  }
  if (first == nullptr) return std::nullopt;
  first->ticket = ++tickets_;
  for (auto& [id, entry] : entries_) {
    if (entry.due && equal_questions(entry.question, first->question)) entry.ticket = first->ticket;
  }
  OfferQuestion question = first->question;
  question.ticket = first->ticket;
  return question;
}

void OfferBook::answer(const OfferQuestion& question, const planner::Offers& offers) {
  for (auto& [id, entry] : entries_) {
    if (!entry.due || (entry.ticket != question.ticket && !equal_questions(entry.question, question))) continue;
    entry.offers = offers;
    entry.ticket = 0;
    entry.due = !offers.complete && question.round + 1 < rounds_;  // a longer search follows
    entry.offers->complete = !entry.due;
    if (entry.due) {
      ++entry.question.round;
      entry.place = ++asked_;
    }
  }
}

Result<void> attach_all_offers(OfferBook& book, planner::Snapshot& snapshot, const Effort& effort,
                               const std::function<void(const OfferQuestion&)>& told) {
  book.attach(snapshot);
  while (const auto question = book.next()) {
    if (told) told(*question);
    WINDLASS_ASSIGN_OR_RETURN(const planner::Offers offers, search_offers(*question, effort));
    book.answer(*question, offers);
  }
  book.attach(snapshot);
  return {};
}

}  // namespace windlass::search
