// Controller is the control loop: step(now) observes, plans and applies once.
//
// Level-based and single-threaded: it may run at any time, twice, or after a crash, with the same final result. It never waits;
// the Outcome says when it wants to run again. All I/O goes through the constructor's arguments, which outlive this.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/kube/http_transport.h"
#include "controller/reconcile/decision.h"
#include "controller/reconcile/event_queue.h"
#include "controller/reconcile/leadership.h"
#include "controller/reconcile/metrics_report.h"
#include "controller/reconcile/observe.h"
#include "controller/reconcile/offer_questions.h"
#include "controller/reconcile/outcome.h"
#include "controller/reconcile/probe_questions.h"
#include "controller/reconcile/routing_publisher.h"
#include "controller/reconcile/signals.h"
#include "controller/reconcile/state.h"
#include "controller/runtime/worker_runtime.h"
#include "controller/store/object_store.h"
#include "metrics/bundles.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

struct ControllerOptions {
  SignalOptions signals;
  double scrape_period_s = 1;
  double load_status_period_s = 30;        // between writes of a status that differs only in figures; longer with many services
  int max_queued = 1024;                   // requests that may wait at one gateway for one model
  OfferQuestions* offers = nullptr;        // borrowed; null: closed forms decide alone
  ProbeQuestions* probes = nullptr;        // borrowed; null: workers are not probed
  std::function<void()> on_question = {};  // called when either has a new question
  std::function<double()> stopwatch = {};  // monotonic seconds; used to time and limit the parts of a step; empty: neither
};

class Controller {
 public:
  Controller(ObjectStore& store, WorkerRuntime& runtime, Leadership& leadership, kube::HttpTransport& scraper,
             RoutingPublisher& publisher, metrics::ControllerMetrics& metrics, ControllerOptions options);
  ~Controller();

  [[nodiscard]] Outcome step(Instant now);

  // The last plan and its input, until the next step (keep last_decision() for longer); nullptr before the first.
  [[nodiscard]] const std::shared_ptr<const Decision>& last_decision() const { return decision_; }
  [[nodiscard]] const planner::Snapshot* last_snapshot() const { return decision_ ? &decision_->snapshot : nullptr; }
  [[nodiscard]] const planner::Plan* last_plan() const { return decision_ ? &decision_->plan : nullptr; }
  // Increases with every plan.
  [[nodiscard]] std::uint64_t plans_made() const { return plans_made_; }

 private:
  void take_lead(Instant now);
  void lose_lead();
  std::string note_problems();
  [[nodiscard]] Observation look(Instant now);
  void write_down(const Observation& observation, const planner::Plan& plan, Instant now, std::vector<std::string>& errors);
  [[nodiscard]] Outcome outcome_of(const Applied& applied) const;
  void scrape(std::vector<Worker>& workers, Instant now);
  void note(const Applied& applied);
  void remember(const Observation& observation, const planner::Plan& plan);
  // Returns the services' statuses, parallel to observation.services.
  std::vector<api::ModelServiceStatus> write_statuses(const Observation& observation, const planner::Plan& plan, Instant now,
                                                      std::vector<std::string>& errors);
  void write_class_statuses(const Observation& observation, Instant now, std::vector<std::string>& errors);
  void status_failed(const std::string& uid, const Error& error, Instant now, std::vector<std::string>& errors);
  void write_profile_statuses(Instant now, std::vector<std::string>& errors);
  void tell_broken(Instant now, std::vector<std::string>& errors);
  void calibrate(const Observation& observation, Instant now);
  // Adds the time since the last call to that part of the step.
  void timed(const char* part);
  [[nodiscard]] std::function<bool()> within(double seconds, Instant began);
  [[nodiscard]] Instant later(Instant began) const;
  [[nodiscard]] bool keep_lead(Instant began);

  ObjectStore& store_;
  WorkerRuntime& runtime_;
  Leadership& leadership_;
  RoutingPublisher& publisher_;
  metrics::ControllerMetrics& metrics_;
  ControllerOptions options_;

  ControllerState state_;
  std::unique_ptr<Signals> signals_;
  kube::HttpTransport& scraper_;
  bool leading_ = false;
  std::int64_t term_ = 0;  // the term in which we lead
  double next_scrape_s_ = 0;
  // plan clock - monotonic clock. The plan clock is near wall time and never goes back
  std::optional<double> plan_clock_offset_s_;
  std::shared_ptr<const Decision> decision_;
  std::uint64_t plans_made_ = 0;
  EventQueue events_;
  MetricsReport report_;
  double next_report_s_ = 0;
  double now_taken_s_ = 0;  // stopwatch time at which the step's time was taken
  double part_began_s_ = 0;
  std::string last_problem_;
};

}  // namespace windlass::controller
