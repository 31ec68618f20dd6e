// Question: a strategy's Problem together with the data it borrows. All questions are made here, so that `windlass plan`, the
// controller and the simulator ask in the same way. This file makes them from a ModelService; plan_scenario.h and
// cluster_scenario.h make them from files. Pure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "planner/base/result.h"
#include "planner/policy/snapshot.h"
#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/worker_kinds.h"

namespace windlass::search {

class Question {
 public:
  // `problem` borrows `requests`.
  Question(std::unique_ptr<const Requests> requests, Problem problem, std::vector<std::string> notes = {})
      : requests_(std::move(requests)), problem_(std::move(problem)), notes_(std::move(notes)) {}

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] Problem& problem() { return problem_; }
  // For people: fields left open, and the values used for them.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  void note(std::string text) { notes_.push_back(std::move(text)); }
  template <class Wanted>
  void keep_notes(const Wanted& wanted) {
    std::erase_if(notes_, [&](const std::string& note) { return !wanted(note); });
  }

 private:
  std::unique_ptr<const Requests> requests_;
  Problem problem_;
  std::vector<std::string> notes_;
};

// Question for a service as the policy knows it: its assumed workload with kDesignHeadroom, and the accelerators it allows.
// Lengths are log-normal around the spec's means with a coefficient of variation of 1, cut to the context; arrivals are
// Poisson; latencies are the controller's: linear models from measurements, or else from data sheets. Caches are transferred
// over the classes' links, or as measured for the decode worker. `accelerators` are the cluster's. `nodes` are what the service
// may use of each node; with them the problem has a cluster, on which strategies may place workers. Errors name the service and
// the field: an unknown shape, no rate, a missing class; plus those of validate().
[[nodiscard]] Result<Question> question_of(const planner::Service& service,
                                           std::span<const planner::AcceleratorState> accelerators,
                                           std::span<const planner::NodeState> nodes = {});

// Shared by all kinds of questions.

using MeasuredTransfers = std::map<std::pair<std::string, int>, planner::MeasuredTransfer>;  // by accelerator and its GPUs

// The smallest value of a data-sheet figure among the accelerators.
[[nodiscard]] double slowest(const Problem& problem, double planner::AcceleratorSpec::*figure);

// The problem's transfer paths to workers of a kind, as measured; null: nothing was measured. Layers are the problem's.
struct MeasuredPaths {
  planner::KvTransferPath within_node, between_nodes;
};
[[nodiscard]] std::optional<MeasuredPaths> measured_paths(const Problem& problem, const WorkerKind& kind,
                                                          const MeasuredTransfers& transfers);

}  // namespace windlass::search
