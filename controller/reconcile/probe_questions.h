// ProbeQuestions passes work between the control loop and the thread that probes workers (latency_probe.h): which workers to
// measure, and the results.
//
// The control loop asks and does not wait; the other thread (app/answers.h) takes questions and stores answers. At most one
// worker per configuration is probed at a time, and each worker only once. Thread-safe.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/reconcile/latency_probe.h"

namespace windlass::controller {

struct ProbeAnswer {
  ProbeQuestion question;
  std::vector<planner::MeasuredIteration> measured;
};

class ProbeQuestions {
 public:
  // Does nothing if the worker was probed before, or if another one of its configuration is being probed.
  void ask(const ProbeQuestion& question);
  // Whether ask() has stored a question that next() has not returned yet.
  [[nodiscard]] bool waits() const;

  [[nodiscard]] std::optional<ProbeQuestion> next();
  // The answer to a question that was taken; empty: nothing could be measured.
  void answer(const ProbeQuestion& question, std::vector<planner::MeasuredIteration> measured);

  // The measurements of this worker; returned once.
  [[nodiscard]] std::optional<ProbeAnswer> take(const std::string& worker_uid);
  // Forgets all other workers, including answers that arrive later.
  void keep(const std::set<std::string>& worker_uids);

 private:
  mutable std::mutex mutex_;
  std::deque<ProbeQuestion> waiting_;
  std::set<Configuration> open_;  // asked and not answered
  std::set<std::string> asked_;   // UIDs of workers
  std::map<std::string, ProbeAnswer> answers_;
};

}  // namespace windlass::controller
