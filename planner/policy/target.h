// Target: how many workers a service should have, before it competes with others for GPUs. Where scale-up, stabilisation,
// holding, idling to zero and the service's own limits stand.
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
  int wanted = 0;           // after stabilisation, before the service's own limits
  int allowed = 0;          // wanted, inside min and max workers, cost and the class' share: what goes into arbitration
  int floor = 0;            // the part of `allowed` that minWorkers asks for
  int needed = 0;           // `wanted` less what is held only for a load that is over, and at least minWorkers
  int on_any_class = 0;     // as `allowed`, whatever GPUs of its class the service may hold
  double demand_per_s = 0;  // arrivals that are provided for: what is observed, or what is forecast where that is more
  std::string limited_by;   // code of the limit that bites, or empty
  std::string limit_message;
  std::vector<Reason> reasons;
  PolicyMemory memory;
};

// What the last plan wanted, by our own memory or else by the status; where there was none, the workers that are there.
[[nodiscard]] int current_workers(const Service& service);

// Workers that these arrivals need with this configuration: so many that the wait stays inside the objective (Erlang C) and
// that some slots are free in the mean; of these, `tolerance` gives a share away.
// `burstiness`: PolicyMemory::burstiness of these arrivals; slots are kept free for what it adds to the busy ones.
[[nodiscard]] int workers_for(const Service& service, const Configuration& configuration, double arrivals_per_s,
                              double burstiness = 1, double tolerance = 0);

// What workers of an earlier configuration still take of the service's own limits.
struct Retiring {
  double cost_per_hour = 0;
  std::map<std::string, int> gpus = {};  // by class

  [[nodiscard]] int gpus_of(const std::string& accelerator) const {
    const auto found = gpus.find(accelerator);
    return found == gpus.end() ? 0 : found->second;
  }
};

// `memory`: with the arrivals counted up to now.
[[nodiscard]] Target decide_target(const Service& service, const PolicyMemory& memory, double now_s, const DemandView& view,
                                   const Configuration& configuration, const Retiring& retiring);

// The service's memory, or a new one where it is of another clock; the arrivals counted up to now.
[[nodiscard]] PolicyMemory advance_memory(const Service& service, double now_s);

// The memory of a service whose workers are held as they are: the held number is on record as a recommendation.
[[nodiscard]] PolicyMemory remember(PolicyMemory memory, const Scaling& scaling, double now_s, int workers);

}  // namespace windlass::planner
