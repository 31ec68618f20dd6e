// ProbeQuestions: which workers are to be probed (latency_probe.h), and what was measured of them.
//
// The control loop asks and does not wait; a thread of its own (app/answers.h) takes questions and brings answers. Of each
// configuration one worker is asked at a time, and each worker once. Thread-safe.
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
  // Nothing where the worker was asked before, or another of its configuration is being asked.
  void ask(const ProbeQuestion& question);
  // Whether there is any question that ask() took and next() did not give yet.
  [[nodiscard]] bool waits() const;

  [[nodiscard]] std::optional<ProbeQuestion> next();
  // Of a question that was taken; empty: nothing could be measured.
  void answer(const ProbeQuestion& question, std::vector<planner::MeasuredIteration> measured);

  // What was measured of this worker, once.
  [[nodiscard]] std::optional<ProbeAnswer> take(const std::string& worker_uid);
  // Forgets other workers; an answer that is still to come of one of them is not kept.
  void keep(const std::set<std::string>& worker_uids);

 private:
  mutable std::mutex mutex_;
  std::deque<ProbeQuestion> waiting_;
  std::set<Configuration> open_;  // asked and not answered
  std::set<std::string> asked_;   // workers, by uid
  std::map<std::string, ProbeAnswer> answers_;
};

}  // namespace windlass::controller
