// The event loop of simulate_sessions(). A session's times are known when it starts (nothing interrupts it), so it is recorded
// then.
#include "planner/sim/session_simulation.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <deque>
#include <optional>
#include <queue>
#include <utility>

#include "planner/chain/ws_rr.h"
#include "planner/sim/chain_simulation.h"
#include "planner/sim/event_time.h"

namespace windlass::sim {
namespace {

struct Session {
  workload::Request request;
  std::int64_t number = 0;  // in order of arrival
  std::int64_t arrived_ns = 0;
  chain::Route route;
  double service_s = 0;             // the true service time
  double estimated_end_s = 0;       // as WS-RR's states hold it
  std::size_t servers_missing = 0;  // unless kBackoff: servers that have not reserved slots for it yet
  double next_backoff_s = 0;        // kBackoff
};

enum class EventKind { kArrival, kRetry, kEnd };

struct Event {
  std::int64_t time_ns = 0;
  std::uint64_t id = 0;
  EventKind kind = EventKind::kArrival;
  std::size_t session = 0;  // index into sessions_

  bool operator>(const Event& other) const { return time_ns != other.time_ns ? time_ns > other.time_ns : id > other.id; }
};

struct Claim {
  std::size_t session = 0;
  long slots = 0;
};

struct ServerSlots {
  long free = 0;              // neither reserved nor in use
  long unclaimed = 0;         // those less the claims that wait; negative if more are claimed than exist
  std::deque<Claim> waiting;  // in order of arrival; empty under kBackoff
};

class SessionSimulation {
 public:
  SessionSimulation(const chain::Instance& instance, const chain::Placement& placement, const SessionPolicy& policy,
                    workload::RequestSource& source, const SessionSimulationOptions& options)
      : instance_(instance),
        policy_(policy),
        source_(source),
        options_(options),
        slots_(options.slots.empty() ? chain::cache_slots(instance, placement) : options.slots),
        graph_(instance, placement, slots_),
        shortest_(graph_.cheapest(graph_.times_s())),
        ws_rr_(graph_, slots_),
        petals_(instance, graph_, policy.petals),
        recorder_(options.max_requests - options.warm_up_requests) {
    for (const long slots : slots_) servers_.push_back({slots, slots, {}});
  }

  Result<SimulationResult> run() {
    if (!shortest_) {
      return Error{ErrorCode::kFailedPrecondition,
                   "placement: must have a chain of servers that holds every block with room for its cache (got none)"};
    }
    take_next_arrival();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ns_ = event.time_ns;
      switch (event.kind) {
        case EventKind::kArrival: arrive(event.session); break;
        case EventKind::kRetry: retry(event.session); break;
        case EventKind::kEnd: end(event.session); break;
      }
    }
    return recorder_.result(now_ns_);
  }

 private:
  void take_next_arrival() {
    if (arrivals_ == options_.max_requests) return;
    const auto request = source_.next();
    if (!request) return;
    const std::int64_t arrival_ns = after(0, request->arrival_s);
    assert(arrival_ns >= now_ns_);
    if (arrival_ns == kEndOfTimeNs) return;
    std::size_t session = sessions_.size();
    if (unused_.empty()) {
      sessions_.emplace_back();
    } else {
      session = unused_.back();
      unused_.pop_back();
    }
    sessions_[session] = Session{};
    sessions_[session].request = *request;
    sessions_[session].number = arrivals_;
    sessions_[session].arrived_ns = arrival_ns;
    sessions_[session].next_backoff_s = policy_.first_backoff_s;
    ++arrivals_;
    schedule(arrival_ns, EventKind::kArrival, session);
  }

  void arrive(std::size_t session) {
    take_next_arrival();
    choose_route(session);
    if (policy_.start == StartRule::kBackoff) {
      start_or_back_off(session);
    } else {
      claim(session);
    }
  }

  void retry(std::size_t session) {
    if (policy_.start == StartRule::kClaimAndRetry) {
      start(session);
      return;
    }
    if (policy_.reroute_on_retry) {
      forget_estimate(session);
      choose_route(session);
    }
    start_or_back_off(session);
  }

  // --- routing

  void choose_route(std::size_t index) {
    Session& session = sessions_[index];
    session.route = route_for(session);
    const SimulatedChain chain{session.route.time_s, 1,
                               token_service_time(instance_, session.route.servers, session.route.blocks)};
    session.service_s = policy_.setup_s + chain.service_time_of(session.request);
    if (policy_.routing == SessionRouting::kWsRr) {
      const double wait_s = ws_rr_.wait_s(session.route, now_s());
      expect_end(session, policy_.start == StartRule::kClaimAndRetry ? first_try_s(wait_s) : wait_s);
    }
    report(SessionStep::kRouted, session);
  }

  chain::Route route_for(const Session& session) const {
    std::optional<chain::Route> route;
    switch (policy_.routing) {
      case SessionRouting::kShortest: return *shortest_;
      case SessionRouting::kWsRr: route = ws_rr_.route(now_s(), policy_.sizes_known ? session.request.size : 1); break;
      case SessionRouting::kPetals: {
        std::vector<long> free;
        for (const ServerSlots& server : servers_) free.push_back(server.unclaimed);
        route = petals_.route(free);
        break;
      }
    }
    assert(route);  // because a shortest route exists and every wait and penalty on its links is finite
    return *std::move(route);
  }

  // Adds the session to WS-RR's states until its estimated end, after this wait.
  void expect_end(Session& session, double wait_s) {
    const double service_s = policy_.sizes_known ? session.service_s : policy_.setup_s + session.route.time_s;
    session.estimated_end_s = now_s() + wait_s + service_s;
    ws_rr_.add(session.number, session.route, session.estimated_end_s);
  }

  void forget_estimate(std::size_t index) {
    if (policy_.routing != SessionRouting::kWsRr) return;
    ws_rr_.remove(sessions_[index].number, sessions_[index].route, sessions_[index].estimated_end_s);
  }

  // --- start and end

  void claim(std::size_t index) {
    const chain::Route& route = sessions_[index].route;
    sessions_[index].servers_missing = route.servers.size();
    for (std::size_t hop = 0; hop < route.servers.size(); ++hop) {
      ServerSlots& server = servers_[static_cast<std::size_t>(route.servers[hop])];
      server.waiting.push_back({index, route.blocks[hop]});
      server.unclaimed -= route.blocks[hop];
      reserve_for_next(server);
    }
  }

  void reserve_for_next(ServerSlots& server) {
    while (!server.waiting.empty() && server.waiting.front().slots <= server.free) {
      const Claim claim = server.waiting.front();
      server.waiting.pop_front();
      server.free -= claim.slots;
      if (--sessions_[claim.session].servers_missing == 0) start_at_next_try(claim.session);
    }
  }

  // All slots are reserved.
  void start_at_next_try(std::size_t index) {
    const std::int64_t arrived_ns = sessions_[index].arrived_ns;
    if (policy_.start == StartRule::kWhenFree || arrived_ns == now_ns_) {
      start(index);
    } else {
      const std::int64_t try_ns = after(arrived_ns, first_try_s(seconds_between(arrived_ns, now_ns_)));
      schedule(std::max(try_ns, now_ns_), EventKind::kRetry, index);
    }
  }

  // The first try at or after this wait.
  [[nodiscard]] double first_try_s(double wait_s) const {
    double try_s = 0;
    for (double backoff_s = policy_.first_backoff_s; try_s < wait_s;
         backoff_s = std::min(2 * backoff_s, policy_.max_backoff_s)) {
      try_s += backoff_s;
    }
    return try_s;
  }

  void start_or_back_off(std::size_t index) {
    Session& session = sessions_[index];
    const chain::Route& route = session.route;
    for (std::size_t hop = 0; hop < route.servers.size(); ++hop) {
      if (servers_[static_cast<std::size_t>(route.servers[hop])].free >= route.blocks[hop]) continue;
      schedule(after(now_ns_, session.next_backoff_s), EventKind::kRetry, index);
      session.next_backoff_s = std::min(2 * session.next_backoff_s, policy_.max_backoff_s);
      return;
    }
    for (std::size_t hop = 0; hop < route.servers.size(); ++hop) {
      ServerSlots& server = servers_[static_cast<std::size_t>(route.servers[hop])];
      server.free -= route.blocks[hop];
      server.unclaimed -= route.blocks[hop];
    }
    // The estimate did not include the retries.
    if (policy_.routing == SessionRouting::kWsRr) {
      forget_estimate(index);
      expect_end(session, 0);
    }
    start(index);
  }

  void start(std::size_t index) {
    const Session& session = sessions_[index];
    const std::int64_t end_ns = after(now_ns_, session.service_s);
    const std::int64_t measured = session.number - options_.warm_up_requests;
    if (measured >= 0) recorder_.observe(measured, session.arrived_ns, now_ns_, end_ns);
    schedule(end_ns, EventKind::kEnd, index);
    report(SessionStep::kStarted, session);
  }

  void end(std::size_t index) {
    forget_estimate(index);
    report(SessionStep::kEnded, sessions_[index]);
    const chain::Route route = std::move(sessions_[index].route);
    unused_.push_back(index);
    for (std::size_t hop = 0; hop < route.servers.size(); ++hop) {
      ServerSlots& server = servers_[static_cast<std::size_t>(route.servers[hop])];
      server.free += route.blocks[hop];
      server.unclaimed += route.blocks[hop];
      reserve_for_next(server);
    }
  }

  void schedule(std::int64_t time_ns, EventKind kind, std::size_t session) {
    events_.push({time_ns, next_event_id_++, kind, session});
  }

  void report(SessionStep step, const Session& session) const {
    if (options_.on_event) options_.on_event({step, session.number, now_ns_, session.route});
  }

  [[nodiscard]] double now_s() const { return seconds_between(0, now_ns_); }

  const chain::Instance& instance_;
  const SessionPolicy& policy_;
  workload::RequestSource& source_;
  const SessionSimulationOptions& options_;
  std::vector<long> slots_;
  chain::RouteGraph graph_;
  std::optional<chain::Route> shortest_;
  chain::WsRr ws_rr_;
  chain::PetalsRouting petals_;

  std::vector<ServerSlots> servers_;
  std::vector<Session> sessions_;  // arrived and not ended, and the next to arrive
  std::vector<std::size_t> unused_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t now_ns_ = 0;
  std::uint64_t next_event_id_ = 0;
  std::int64_t arrivals_ = 0;
  RunRecorder recorder_;
};

}  // namespace

Result<SimulationResult> simulate_sessions(const chain::Instance& instance, const chain::Placement& placement,
                                           const SessionPolicy& policy, workload::RequestSource& source,
                                           const SessionSimulationOptions& options) {
  assert(placement.size() == instance.servers.size());
  return SessionSimulation(instance, placement, policy, source, options).run();
}

}  // namespace windlass::sim
