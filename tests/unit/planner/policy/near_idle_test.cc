// Tests small workers and few requests: a service scales from one worker to many in a burst and is back at minWorkers soon
// after, whatever it learned during the burst.
#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/make_plan.h"
#include "planner/policy/tuning.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

constexpr double kTickS = 1;
constexpr double kStartS = 5;

AcceleratorSpec small_cpu(double bytes_per_s, double flops_per_s) {
  AcceleratorSpec spec;
  spec.name = "cpu";
  spec.memory_bytes = 256 * 1024.0 * 1024;
  spec.memory_bandwidth_bytes_per_s = bytes_per_s;
  spec.peak_flops = {{DType::kBFloat16, flops_per_s}, {DType::kFloat32, flops_per_s}};
  spec.gpus_per_node = 1;
  spec.price_per_hour = 1;
  return spec;
}

Service small_service(int layers, int hidden, int intermediate, DType dtype) {
  Service service = testing::chat_service();
  ModelShape shape;
  shape.architecture = "llama";
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = hidden / 32;
  shape.kv_heads = shape.heads / 2;
  shape.head_dim = 32;
  shape.intermediate = intermediate;
  shape.vocab = 512;
  shape.max_context_tokens = 2048;
  shape.dtype = dtype;
  service.shape = shape;
  service.accelerators = {AllowedAccelerator{"cpu", std::nullopt}};
  return service;
}

// The service of tests/cluster/loop_test.cc.
std::pair<Service, AcceleratorSpec> of_the_cluster_test() {
  Service service = small_service(2, 64, 128, DType::kFloat32);
  service.max_context_tokens = 256;
  service.slo = Slo{20, 0.1, 95, 60};
  service.workload = AssumedWorkload{0, 32, 16};
  service.scaling.max_workers = 3;
  service.scaling.scale_down_stabilization_s = 5;
  return {service, small_cpu(20e6, 20e6)};
}

// The service of examples/tiny.yaml.
std::pair<Service, AcceleratorSpec> of_the_example() {
  Service service = small_service(4, 256, 688, DType::kFloat32);
  service.slo = Slo{0.5, 0.05, 95, 60};
  service.workload = AssumedWorkload{1, 32, 32};
  service.scaling.max_workers = 4;
  service.scaling.scale_down_stabilization_s = 15;
  return {service, small_cpu(2e9, 4e9)};
}

// A service whose requests arrive evenly or as a Poisson process and take the model's times; workers start in kStartS.
class Loop {
 public:
  Loop(std::pair<Service, AcceleratorSpec> of, bool poisson) : poisson_(poisson), rng_(7, "arrivals") {
    of.first.scaling.min_workers = 1;
    of.first.estimates = {testing::measured(of.first, of.second, 1, 1, 1)};
    snapshot_.now_s = 1000;
    snapshot_.accelerators = {testing::with_gpus(of.second, 8)};
    snapshot_.services = {of.first};
  }

  // Workers that serve after this many seconds at this rate.
  int run(double rate_per_s, double seconds) {
    for (double at_s = 0; at_s < seconds; at_s += kTickS) tick(rate_per_s);
    return serving();
  }

  // Seconds at this rate until a plan keeps only one worker.
  double until_one(double rate_per_s, double max_s) {
    double took_s = 0;
    while (snapshot_.services[0].workers.size() > 1 && took_s < max_s) {
      tick(rate_per_s);
      took_s += kTickS;
    }
    return took_s;
  }

  [[nodiscard]] std::string words() const {
    std::string text;
    for (const Reason& reason : plan_.reasons) text += reason.code + ": " + reason.message + "\n";
    return fmt::format("{}burstiness {}, slots {}", text, plan_.memory.burstiness, plan_.pools.at(0).each.slots);
  }

 private:
  [[nodiscard]] int serving() const {
    const auto& workers = snapshot_.services[0].workers;
    return static_cast<int>(
        std::count_if(workers.begin(), workers.end(), [](const Worker& w) { return w.state == WorkerState::kReady; }));
  }

  void tick(double rate_per_s) {
    snapshot_.now_s += kTickS;
    const double now_s = snapshot_.now_s;
    Service& service = snapshot_.services[0];
    due_ += rate_per_s * kTickS;
    const double came = poisson_ ? static_cast<double>(rng_.poisson(rate_per_s * kTickS)) : std::floor(due_);
    due_ -= std::floor(due_);
    total_ += came;
    counts_.push_back(came);
    while (counts_.size() > 10) counts_.pop_front();
    double recent = 0;
    for (const double count : counts_) recent += count;

    for (Worker& worker : service.workers) {
      if (worker.state == WorkerState::kStarting && now_s - worker.created_s >= kStartS) {
        worker.state = WorkerState::kReady;
        worker.ready_s = now_s;
      }
    }
    const int ready = serving();
    // Requests leave at the workers' rate; those beyond their slots wait.
    inside_ += came;
    inside_ -=
        std::min(inside_, std::min(inside_, static_cast<double>(ready * slots_)) * kTickS / std::max(kTickS, service_s_));
    const double running = std::min(std::floor(inside_), static_cast<double>(ready * slots_));
    for (Worker& worker : service.workers) {
      worker.running = Reading{ready > 0 ? std::round(running / ready) : 0, now_s};
      worker.waiting = Reading{0, now_s};
    }
    testing::observe(service, now_s, recent / 10, std::floor(inside_) - running);
    service.demand.arrivals_total = Reading{total_, now_s};
    service.demand.arrivals_window_s = 10;
    service.starts = StartTimes{kStartS, 3};

    plan_ = make_plan(snapshot_).services[0];
    service.memory = plan_.memory;
    service.last_desired = plan_.desired_workers();
    ASSERT_EQ(plan_.pools.size(), 1U) << plan_.feasible.message;
    const Pool& pool = plan_.pools[0];
    slots_ = pool.each.slots;
    service_s_ = 1 / pool.each.service_rate_per_s;
    while (static_cast<int>(service.workers.size()) > pool.workers) service.workers.pop_back();
    while (static_cast<int>(service.workers.size()) < pool.workers) {
      Worker worker = testing::ready_worker(pool.name, "cpu", 1, static_cast<int>(service.workers.size()), now_s);
      worker.state = WorkerState::kStarting;
      worker.created_s = now_s;
      worker.ready_s.reset();
      worker.max_concurrency = pool.each.max_concurrency;
      service.workers.push_back(worker);
    }
  }

  bool poisson_;
  Rng rng_;
  Snapshot snapshot_;
  ServicePlan plan_;
  std::deque<double> counts_;
  double due_ = 0;
  double total_ = 0;
  double inside_ = 0;
  int slots_ = 1;
  double service_s_ = 1;
};

// Given the cluster test's service and the example's: a quiet start, a burst of a minute that needs all workers they may have,
// and the quiet load again; expects one worker as soon as the level's minute (with the intervals that end later), the
// scale-down window and a start have passed.
TEST(NearIdle, IsBackAtOneWorkerSoonAfterABurst) {
  for (const bool example : {false, true}) {
    for (const bool poisson : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}", example ? "example" : "cluster test", poisson ? "Poisson" : "even"));
      const auto of = example ? of_the_example() : of_the_cluster_test();
      Loop loop(of, poisson);
      const double quiet_per_s = example ? 1 : 0.25;
      loop.run(quiet_per_s, 20);
      EXPECT_GE(loop.run(example ? 8 : 5, 50), 3) << loop.words();
      const double max_s = kLevelWindowS + 2 * kCountIntervalS + of.first.scaling.scale_down_stabilization_s + kStartS;
      EXPECT_LE(loop.until_one(quiet_per_s, 2 * max_s), max_s) << loop.words();
      EXPECT_EQ(loop.run(quiet_per_s, 120), 1) << loop.words();
    }
  }
}

}  // namespace
}  // namespace windlass::planner
