// SplitQuestions: which services want their phases split, or would save by it (strategy Auto), what the strategies have said of
// each, and what they are to be asked.
//
// The loop asks for advice in every step and goes on without an answer; somebody with time (app/answers.h) takes the
// questions and brings the answers. An answer stands as long as the spec, for strategies that are asked again because a node
// went must not restart every worker: it is asked again only where no split held, a class that the answer counts on has no GPUs
// any more and runs none of the service's workers, another PerformanceProfile says how fast caches come, or workers are
// measured at times that are off by a third from those that it was asked with. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "planner/policy/snapshot.h"

namespace windlass::controller {

// What split_advice() is to be asked.
struct SplitQuestion {
  planner::Service service;                        // its spec, and what was measured of its workers and transfers to them
  std::vector<planner::AcceleratorState> classes;  // with GPUs

  bool operator==(const SplitQuestion&) const = default;
};

class SplitQuestions {
 public:
  // Gives the services that want it their advice, as far as it is there. Returns whether there is anything new to ask.
  bool advise(planner::Snapshot& snapshot);

  // The next question: of services that stand still without an answer before others, then oldest first; none: nothing is asked.
  [[nodiscard]] std::optional<SplitQuestion> next();
  // Of a question that was taken. Is not counted where the spec has changed meanwhile.
  void answer(const SplitQuestion& question, planner::SplitAdvice advice);

 private:
  struct Entry {
    SplitQuestion question;
    std::optional<planner::SplitAdvice> advice;
    bool worth = false;         // asking: always but with Auto (split_may_pay)
    bool due = false;           // the question is new
    bool asked = false;         // and not answered
    bool stands_still = false;  // its service does not scale without an answer: it goes before those that would only save
    std::uint64_t place = 0;    // in the line of those that nobody has taken yet; 0: in none

    [[nodiscard]] bool waits() const { return asked && place > 0; }
  };

  std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by uid
  std::uint64_t asked_ = 0;
};

}  // namespace windlass::controller
