// See split_questions.h.
#include "controller/reconcile/split_questions.h"

#include <algorithm>
#include <set>
#include <utility>

#include "planner/policy/split.h"

namespace windlass::controller {
namespace {

constexpr double kMoved = 4.0 / 3;  // a change of the estimated times by this factor makes a new question

bool has_gpus(const planner::AcceleratorState& state) {
  return state.mode == planner::CapacityMode::kElastic ? state.max_gpus.value_or(1) > 0 : state.allocatable_gpus > 0;
}

// The parts that do not depend on load or usage.
SplitQuestion question_of(const planner::Service& service, const planner::Snapshot& snapshot) {
  SplitQuestion question;
  planner::Service& asked = question.service;
  asked.id = service.id;
  asked.shape = service.shape;
  asked.shape_unknown_reason = service.shape_unknown_reason;
  asked.max_context_tokens = service.max_context_tokens;
  asked.may_split = service.may_split && (!service.scaling.max_workers || *service.scaling.max_workers >= 2);
  asked.max_gpus_per_worker = service.max_gpus_per_worker;
  asked.engine = service.engine;
  asked.slo = service.slo;
  asked.workload = service.workload;
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
    question.classes.push_back({state.spec, state.mode, 0, 0, std::nullopt});
  }
  return question;
}

// A new measurement does not change the spec.
bool same_spec(planner::Service before, const planner::Service& now) {
  before.transfers = now.transfers;
  before.estimates = now.estimates;
  return before == now;
}

// Whether workers' times differ clearly from the estimates in the question. Estimates move a little with every page. An edited
// class makes a new question anyway.
bool estimates_moved(const SplitQuestion& before, const SplitQuestion& now) {
  const planner::ModelShape& shape = *now.service.shape;
  for (const planner::AcceleratorState& state : now.classes) {
    const auto then = std::find_if(before.classes.begin(), before.classes.end(),
                                   [&](const auto& one) { return one.spec.name == state.spec.name; });
    if (then == before.classes.end()) continue;
    for (const planner::WorkerEstimate& estimate : now.service.estimates) {
      if (estimate.accelerator != state.spec.name) continue;
      const int gpus = estimate.gpus_per_worker;
      const auto believed = planner::believed_coefficients(shape, then->spec, gpus, before.service.estimates);
      if (planner::moved_by(believed, planner::linear_coefficients(shape, state.spec, gpus), estimate.estimate) > kMoved)
        return true;
    }
  }
  return false;
}

// The classes with GPUs change with the nodes, and classes may be edited.
bool must_ask_again(const SplitQuestion& before, const SplitQuestion& now, const std::optional<planner::SplitAdvice>& advice,
                    const planner::Service& service) {
  if (!same_spec(before.service, now.service) || before.service.transfers != now.service.transfers) return true;
  if (estimates_moved(before, now)) return true;
  if (before.classes == now.classes) return false;
  if (!advice || !advice->holds) return true;
  const auto of_class = [](const std::vector<planner::AcceleratorState>& classes, const std::string& name) {
    const auto found = std::find_if(classes.begin(), classes.end(), [&](const auto& state) { return state.spec.name == name; });
    return found == classes.end() ? nullptr : &*found;
  };
  for (const planner::PhaseAdvice* phase : {&advice->prefill, &advice->decode}) {
    const planner::AcceleratorState* then = of_class(before.classes, phase->accelerator);
    const planner::AcceleratorState* there = of_class(now.classes, phase->accelerator);
    if (there != nullptr && (then == nullptr || then->spec != there->spec)) return true;
    const bool runs = std::any_of(service.workers.begin(), service.workers.end(),
                                  [&](const planner::Worker& worker) { return worker.accelerator == phase->accelerator; });
    if (there == nullptr && !runs) return true;
  }
  return false;
}

}  // namespace

bool SplitQuestions::advise(planner::Snapshot& snapshot) {
  const std::lock_guard lock(mutex_);
  std::set<std::string> there;
  bool news = false;
  for (planner::Service& service : snapshot.services) {
    const bool either = service.scaling.strategy == planner::Family::kAuto;
    if ((service.scaling.strategy != planner::Family::kDisaggregated && !either) || !service.shape) continue;
    there.insert(service.id.uid);
    SplitQuestion question = question_of(service, snapshot);
    const auto [found, is_new] = entries_.try_emplace(service.id.uid);
    Entry& entry = found->second;
    if (is_new || must_ask_again(entry.question, question, entry.advice, service)) {
      // With a new spec the old answer is invalid. With other classes or measurements it stays until there is a new one.
      if (is_new || !same_spec(entry.question.service, question.service)) entry.advice.reset();
      entry.question = std::move(question);
      entry.asked = false;
      entry.worth = !either || planner::split_may_pay(service, entry.question.classes);
      if (!entry.worth && !planner::runs_split(service, service.memory)) entry.advice.reset();
      entry.due = true;
    }
    // A service that is already split needs an answer.
    if (entry.due && (entry.worth || planner::runs_split(service, service.memory))) {
      entry.due = false;
      entry.asked = news = true;
      // otherwise the earlier question is queued, and this one takes its position
      if (entry.place == 0) entry.place = ++asked_;
      entry.stands_still = !either || planner::runs_split(service, service.memory);
    }
    service.split = entry.advice;
  }
  std::erase_if(entries_, [&](const auto& entry) { return !there.contains(entry.first); });
  return news;
}

std::optional<SplitQuestion> SplitQuestions::next() {
  const std::lock_guard lock(mutex_);
  Entry* oldest = nullptr;
  for (auto& [uid, entry] : entries_) {
    if (!entry.waits()) continue;
    const auto before = [](const Entry& one, const Entry& other) {
      return one.stands_still != other.stands_still ? one.stands_still : one.place < other.place;
    };
    if (oldest == nullptr || before(entry, *oldest)) oldest = &entry;
  }
  if (oldest == nullptr) return std::nullopt;
  oldest->place = 0;
  return oldest->question;
}

void SplitQuestions::answer(const SplitQuestion& question, planner::SplitAdvice advice) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(question.service.id.uid);
  if (found == entries_.end() || !found->second.asked || found->second.question != question) return;
  found->second.asked = false;
  found->second.advice = std::move(advice);
}

}  // namespace windlass::controller
