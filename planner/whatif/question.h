// Question: what strategies are asked, with what its Problem borrows. The one place where questions are made, so that `windlass
// plan`, the controller and the simulator ask alike: of a ModelService here, of files in plan_scenario.h and
// cluster_scenario.h. Pure.
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
  // For people: what was left open, and what was taken for it.
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

// Of a service as the policy knows it: its assumed workload and the accelerators that it allows. Lengths are log-normal about
// the spec's means with a coefficient of variation of 1 and cut to the context; arrivals are Poisson; latencies are those of
// the controller: lines from what workers were measured at, else from data sheets. Caches come over the classes' links, or as
// it was measured of the decode worker. `accelerators` are the cluster's. Errors name the service and the field: a shape that
// is not known, no rate, a class that is not there; and those of validate().
[[nodiscard]] Result<Question> question_of(const planner::Service& service,
                                           std::span<const planner::AcceleratorState> accelerators);

// What every kind of question takes part of.

using MeasuredTransfers = std::map<std::pair<std::string, int>, planner::MeasuredTransfer>;  // by accelerator and its GPUs

// A figure of the accelerators' data sheets: the least.
[[nodiscard]] double slowest(const Problem& problem, double planner::AcceleratorSpec::*figure);

// The problem's paths to workers of a kind with what was measured of them; null: nothing was. Layers are the problem's.
struct MeasuredPaths {
  planner::KvTransferPath within_node, between_nodes;
};
[[nodiscard]] std::optional<MeasuredPaths> measured_paths(const Problem& problem, const WorkerKind& kind,
                                                          const MeasuredTransfers& transfers);

}  // namespace windlass::search
