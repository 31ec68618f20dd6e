// simulate_sessions(): discrete-event simulation of requests that are routed through servers one by one, as BPRR and PETALS do.
//
// Sun et al., "Optimizing Resource Allocation for Geographically-Distributed Inference by Large Language Models", Sections 2.2
// and 3.3.2. A request is routed when it arrives. It starts when every server of its route has m_ij cache slots for it at once,
// and holds them all until it ends; how long it takes does not depend on the others. Time is integer nanoseconds, and events
// are ordered by (time, insertion id), so that one source and policy give one result on every platform. Memory grows with the
// longest backlog, not with the number of requests. Time per request: O(sum_j m_j) for its route and the logarithm of the
// backlog.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/petals.h"
#include "planner/chain/routes.h"
#include "planner/sim/recorder.h"
#include "planner/workload/request_source.h"

namespace windlass::sim {

enum class SessionRouting {
  kShortest,  // the fastest route, whatever waits there
  kWsRr,      // WS-RR: least inference time plus waiting (planner/chain/ws_rr.h)
  kPetals,    // PETALS' weights (planner/chain/petals.h); a slot is free that no started or reserved request holds
};

enum class StartRule {
  // Every server gives its slots in the order of arrival: a slot is reserved for a request once those that came before it and
  // have not ended leave enough, and stays reserved until it ends. The request starts at the moment when the last server of its
  // route has reserved. So a later claim never delays an earlier one: what Eq. 20 takes for granted.
  kWhenFree,
  // PETALS: all slots at once or none. A request that finds too few tries again after 1 s, 2 s, 4 s, ... up to 60 s each, and
  // others may overtake it meanwhile. Each waiting request costs its own retries: an overloaded run takes time in proportion to
  // the backlog times its length.
  kBackoff,
};

struct SessionPolicy {
  SessionRouting routing = SessionRouting::kWsRr;
  StartRule start = StartRule::kWhenFree;
  double first_backoff_s = 1;
  double max_backoff_s = 60;
  bool reroute_on_retry = false;  // with kBackoff: every retry looks for a route anew
  // WS-RR alone: its link costs scale with the request's size and its states hold the true service times. False: it takes every
  // request for one of mean size.
  bool sizes_known = false;
  chain::PetalsOptions petals;
};

enum class SessionStep { kRouted, kStarted, kEnded };

struct SessionEvent {
  SessionStep step = SessionStep::kRouted;
  std::int64_t request = 0;  // 0, 1, 2, ... in the order of arrival
  std::int64_t time_ns = 0;
  const chain::Route& route;
};

struct SessionSimulationOptions {
  // Requests taken from the source, those of the warm-up included; the run ends when the last of them is served.
  std::int64_t max_requests = std::numeric_limits<std::int64_t>::max();
  std::int64_t warm_up_requests = 0;                  // the first ones, which are served but not measured
  std::vector<long> slots;                            // cache slots per server; empty: all that memory leaves
  std::function<void(const SessionEvent&)> on_event;  // may be empty
};

// A request takes on its route what simulated_chain() (planner/sim/chain_simulation.h) says: by its tokens where it and all
// servers of the route have them, else its size times the route's time. Error kFailedPrecondition when no route leads through
// the placement: some block is on no server, or its servers have no room for a cache. REQUIRES: one range a server in the
// placement; arrival times that never fall; sizes and times >= 0 and finite. An arrival later than 2^62 ns (146 years) ends the
// run.
[[nodiscard]] Result<SimulationResult> simulate_sessions(const chain::Instance& instance, const chain::Placement& placement,
                                                         const SessionPolicy& policy, workload::RequestSource& source,
                                                         const SessionSimulationOptions& options);

}  // namespace windlass::sim
