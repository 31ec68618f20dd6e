// SplitQuestions passes questions and answers about splitting services into prefill and decode workers between the control loop
// and a slower thread. It covers services that ask for a split, and services with strategy Auto that would save money with one.
//
// The loop asks for advice in every step and continues without an answer. The slower thread (app/answers.h) takes the questions
// and stores the answers. An answer stays valid while the spec is unchanged: asking again whenever a node disappears could
// restart every worker. A question is repeated only if no split was possible, if a class that the answer uses has no GPUs any
// more and runs none of the service's workers, if a different PerformanceProfile gives transfer times, or if the workers'
// measured times differ by a third from those in the question. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "planner/policy/snapshot.h"

namespace windlass::controller {

// Input of split_advice().
struct SplitQuestion {
  planner::Service service;                        // its spec, with measurements of its workers and of transfers to them
  std::vector<planner::AcceleratorState> classes;  // those with GPUs

  bool operator==(const SplitQuestion&) const = default;
};

class SplitQuestions {
 public:
  // Copies the available advice to the services that want it. Returns whether there is a new question.
  bool advise(planner::Snapshot& snapshot);

  // The next question: first services that cannot scale without an answer, then oldest first. nullopt: there is none.
  [[nodiscard]] std::optional<SplitQuestion> next();
  // Stores the answer to a question that was taken; ignored if the spec has changed meanwhile.
  void answer(const SplitQuestion& question, planner::SplitAdvice advice);

 private:
  struct Entry {
    SplitQuestion question;
    std::optional<planner::SplitAdvice> advice;
    bool worth = false;  // whether a split is worth asking about; always true except with Auto (split_may_pay)
    bool due = false;    // the question must be asked
    bool asked = false;  // and not answered yet
    // the service does not scale without an answer, so it comes before those that would only save money
    bool stands_still = false;
    std::uint64_t place = 0;  // position in the queue of questions that nobody has taken yet; 0: not queued

    [[nodiscard]] bool waits() const { return asked && place > 0; }
  };

  std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by uid
  std::uint64_t asked_ = 0;
};

}  // namespace windlass::controller
