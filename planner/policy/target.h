// Target: how many workers a service should have before it competes with others for GPUs. Covers scale-up, stabilization,
// holding, idling to zero, and the service's own limits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/policy/configuration.h"
#include "planner/policy/demand_view.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

struct Target {
  int wanted = 0;           // after stabilization, before the service's own limits
  int allowed = 0;          // `wanted` within min and max workers, cost and the class's share; the input of arbitration
  int floor = 0;            // the part of `allowed` that minWorkers asks for
  int needed = 0;           // `wanted` without workers held only for load that is over; at least minWorkers
  int on_any_class = 0;     // like `allowed`, without the service's GPU limit of the class
  double demand_per_s = 0;  // arrivals to provide for: the larger of observation and forecast
  std::string limited_by;   // code of the limit that applies, or empty
  std::string limit_message;
  std::vector<Reason> reasons;
  PolicyMemory memory;
};

// What the last plan wanted, from memory or else from the status; without either, the number of existing workers.
[[nodiscard]] int current_workers(const Service& service);

// Workers needed for these arrivals, so that the wait meets the objective (Erlang C) and some slots stay free on average;
// `tolerance` reduces both. `burstiness`: PolicyMemory::burstiness at this rate; more slots stay free for it. Counts the
// configuration's share of the requests, and its capacity ratio.
[[nodiscard]] int workers_for(const Service& service, const Configuration& configuration, double requests_per_s,
                              double burstiness = 1, double tolerance = 0);
// The largest rate that needs at most this many workers. REQUIRES: workers >= 1.
[[nodiscard]] double capacity_of(const Service& service, const Configuration& configuration, int workers);

// How much of the service's own limits workers of an earlier configuration still use. maxWorkers bounds each configuration
// alone, or a service at this limit could never change.
struct Retiring {
  double cost_per_hour = 0;
  std::map<std::string, int> gpus = {};  // by class

  [[nodiscard]] int gpus_of(const std::string& accelerator) const {
    const auto found = gpus.find(accelerator);
    return found == gpus.end() ? 0 : found->second;
  }
};

// Whether this plan replaces the workers of a new service, of which nothing has been seen, by those of an offer: then their
// number counts for nothing. `service`: with all its workers.
[[nodiscard]] bool starts_over(const Service& service, const PolicyMemory& memory, double now_s, const DemandView& view);

// `memory` must include the arrivals up to now. `starts_over`: of the whole service; `service` may lack side workers.
[[nodiscard]] Target decide_target(const Service& service, const PolicyMemory& memory, double now_s, const DemandView& view,
                                   const Configuration& configuration, const Retiring& retiring, bool starts_over);

// The service's memory (a new one if it was written by another clock), with the arrivals up to now.
[[nodiscard]] PolicyMemory advance_memory(const Service& service, double now_s);

// Updates the memory of a service whose workers are held: records the held number as a recommendation.
[[nodiscard]] PolicyMemory remember(PolicyMemory memory, const Scaling& scaling, double now_s, int workers);

}  // namespace windlass::planner
