// simulate_sessions(): discrete-event simulation of requests that are routed through servers one by one, as BPRR and PETALS do.
//
// Sun et al., "Optimizing Resource Allocation for Geographically-Distributed Inference by Large Language Models", Sections 2.2
// and 3.3.2. A request is routed when it arrives. It starts when every server of its route has m_ij cache slots for it at the
// same time, and holds them until it ends; its duration does not depend on other requests. Time is integer nanoseconds and
// events are ordered by (time, insertion id), so one source and policy give the same result on every platform. Memory grows
// with the longest backlog, not with the number of requests. Time per request: O(sum_j m_j) for its route, plus the logarithm
// of the backlog.
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
  kShortest,  // the fastest route, ignoring queues
  kWsRr,      // WS-RR: least inference time plus waiting (planner/chain/ws_rr.h)
  kPetals,    // PETALS' weights (planner/chain/petals.h); a slot is free if no request holds or claims it
};

enum class StartRule {
  // Every server gives its slots in order of arrival: it reserves a request's slots once earlier unfinished requests leave
  // enough, and keeps them reserved until the request ends. The request starts when the last server of its route has reserved.
  // So a later request never delays an earlier one, as Eq. 20 assumes.
  kWhenFree,
  // As kWhenFree, but the request starts at its first try after that: tries are 0, 1, 3, 7, ... s after its arrival, from 63 s
  // on every 60 s. Its slots rest until then, so a backlog may never clear. The simulator that Sun et al. published has PETALS
  // and WS-RR so (Petals_online.m, WS_RR.m; Section 3.3.2, footnote 8).
  kClaimAndRetry,
  // PETALS' clients: the same tries, but a request that waits claims nothing, and others may overtake it. All slots at the same
  // time or none. Each waiting request retries by itself, so an overloaded run takes time proportional to its backlog times its
  // length.
  kBackoff,
};

struct SessionPolicy {
  SessionRouting routing = SessionRouting::kWsRr;
  StartRule start = StartRule::kWhenFree;
  double first_backoff_s = 1;  // of kClaimAndRetry and kBackoff; doubles after each try, up to max_backoff_s; > 0
  double max_backoff_s = 60;
  double setup_s = 0;             // added to every session's service time, with its slots held: allocation at the servers
  bool reroute_on_retry = false;  // with kBackoff: every retry chooses a new route
  // WS-RR only: link costs scale with the request's size and the states hold the true service times. False: every request is
  // treated as one of mean size.
  bool sizes_known = false;
  chain::PetalsOptions petals;
};

enum class SessionStep { kRouted, kStarted, kEnded };

struct SessionEvent {
  SessionStep step = SessionStep::kRouted;
  std::int64_t request = 0;  // 0, 1, 2, ... in order of arrival
  std::int64_t time_ns = 0;
  const chain::Route& route;
};

struct SessionSimulationOptions {
  // Requests taken from the source, including warm-up; the run ends when the last of them is served.
  std::int64_t max_requests = std::numeric_limits<std::int64_t>::max();
  std::int64_t warm_up_requests = 0;                  // the first requests, which are served but not measured
  std::vector<long> slots;                            // cache slots per server; empty: as many as memory allows
  std::function<void(const SessionEvent&)> on_event;  // may be empty
};

// A request takes the time that simulated_chain() (planner/sim/chain_simulation.h) gives for its route: from its tokens if it
// and all servers of the route have them, otherwise its size times the route's time. Error kFailedPrecondition if no route
// leads through the placement: a block is on no server, or its servers have no room for a cache. REQUIRES: one range per server
// in the placement; arrival times that never decrease; sizes and times >= 0 and finite. An arrival later than 2^62 ns (146
// years) ends the run.
[[nodiscard]] Result<SimulationResult> simulate_sessions(const chain::Instance& instance, const chain::Placement& placement,
                                                         const SessionPolicy& policy, workload::RequestSource& source,
                                                         const SessionSimulationOptions& options);

}  // namespace windlass::sim
