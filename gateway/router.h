// The router makes every decision of the gateway about a request. It does no I/O and has no thread or clock.
//
// Events go in (a request arrived, the table changed, a worker answered, the client left, time passed), with the time of one
// monotonic clock. Actions come out, to be carried out in order. The shell (http_exchange.h, dispatcher.h) owns sockets and
// carries them out. It reports results as further events, never from within the call that returned the actions.
// Single-threaded.
//
// A model with prefill and decode chains serves a request in two steps (docs/decisions/2026-11-22-kv-is-pulled.md). The request
// waits for a chain that can begin it. If that is a prefill chain, the request starts waiting for a decode chain when the head
// of the prefill worker's answer arrives; the decode chain's answer goes to the client. The request holds the prefill chain's
// slot until that worker's body ends, and so also while it waits for the decode chain. When decode chains are full, prefill
// chains therefore fill up, and then requests wait at the gateway. Which chains can begin a request depends on the table and on
// which workers answer:
//   - unified chains, always
//   - prefill chains, while some decode chain takes requests: without one, no request could be finished
//   - decode chains, while no prefill chain takes requests: they then serve the whole request and compute the prompt themselves
// The policy chooses among these. The second step goes before requests that would begin at a decode chain. It works the same
// under every policy but `splitwise`: there any chain can begin a request and do a second step, and the policy says which
// (planner/dispatch/splitwise_policy.h). A worker gets a phase that is not its role's only under that policy; the header
// X-Windlass-Mixed-Pool asks it to take it. A worker that refuses such a phase for its role gets no other one for a minute, or
// until it answers again after a silence; phases of its own role go on. The table may give a prefill chain weights for decode
// chains. Its requests then go to those of them that have a free slot, in turns by weight (planner/dispatch/weighted_turns.h).
// Without weights, or when none of these has a free slot, JFFC chooses among all decode chains. Under JFFC, prefill chains that
// are equally fast and equally full also take turns, by the sums of their weights; those whose decode chains have a free slot
// go first.
//
// Invariants after every event, which the tests check over random event sequences:
//   - every request that arrived gets exactly one Finished action, and no action after it
//   - a chain holds at most its capacity of our requests, except when the table lowers the capacity below the number in flight
//   - a prefill chain's slot is held until its worker's body ends, its worker is lost, or the request ends or goes elsewhere;
//     any other chain's slot is held until the request ends or goes elsewhere
//   - while no decode chain is full or closed, each takes its weighted share of a prefill chain's second steps, to within two
//     requests
//   - while a request waits for a decode chain, no decode chain has a free slot (other than chains that refused us a moment
//     ago); the queue for decode chains has the same order as the first queue. When the table no longer lists a decode chain
//     that is not draining, the requests that wait for one start over, at their old place in the first queue
//   - whatever happens to a prefill worker after its head, its request loses only time: the decode worker computes the prompt
//   - a draining or vanished chain gets no new request; its current requests go on
//   - a worker that does not answer (contact.h) gets no new request. A request whose worker was lost or broke, and may have
//     worked on it, moves to another worker at most once, and never after a byte of an answer has gone to the client
//   - under JFFC: while a request waits, no chain that can begin it has a free slot (other than chains that refused us a moment
//     ago). Waiting requests of one model are dispatched in the order of planner/dispatch/waiting_line.h: first those that can
//     still meet timeToFirstToken, then the others. A refused request returns to its old place
//   - a model's policy is that of the table, unless RouterOptions override it. When a table changes the policy or its
//     parameters, requests in flight stay where they are and count for the new policy, which places all waiting ones. What the
//     old policy has learned about lengths is lost
//   - a policy that places requests by their lengths (RequestTracker) receives each placement, the first token, the tokens and,
//     once, the end. Requests that it holds back are offered again about every kPlacementRetryS. For this policy a request of
//     two steps ends with the prefill chain's slot, and the length of its answer is not learned
//   - under a policy that sends requests to full chains, requests wait here, in one queue per chain, each in the order of
//     waiting_line.h. None waits for a chain that has a free slot. When a chain stops taking requests, the policy places its
//     waiting requests again
//   - no request is refused because later ones went first: the queue timeout applies only to requests that would still be
//     waiting in order of arrival; others wait until the request timeout
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "gateway/attainment.h"
#include "gateway/contact.h"
#include "planner/dispatch/policies.h"
#include "planner/dispatch/routing_table.h"
#include "planner/dispatch/waiting_line.h"

namespace windlass::gateway {

using RequestId = std::uint64_t;

// What a worker does with a request: all of it, or one of the two steps.
enum class Step { kWhole, kPrefill, kDecode };

// Send the request to this worker.
struct Dispatch {
  RequestId id = 0;
  std::string chain;
  std::string address;  // "host:port" of the first hop
  Step step = Step::kWhole;
  bool mixed_pool = false;      // the chain's role is the other one: its workers are in Splitwise's mixed pool
  std::string prefill_address;  // the worker of its first step; kDecode only
  std::string next_hops;        // workers after the first in a chain of several, "host:port,host:port"; empty for one worker
  std::string token;            // bearer token for these workers; empty: none
};

// Answer the request with an error. Nothing has been sent to the client yet, and no worker holds the request (a Cancel came
// first if one did).
struct Reject {
  RequestId id = 0;
  int status = 0;
  std::string code;  // of the OpenAI error body
  std::string message;
  int retry_after_s = 0;  // 0: no header
};

// Stop the exchanges with its workers. If nothing was sent to the client yet, a Reject follows; otherwise end the stream with
// an error.
struct Cancel {
  RequestId id = 0;
  int status = 0;  // the status that the answer would have had
  bool nothing_sent = false;
  std::string message;
};

// Stop the exchange with the worker, which is out of reach. Nothing was sent to the client, and the request waits again.
// to_beginning: it waited for a decode chain that will not come; stop the exchange with the prefill worker.
struct Recall {
  RequestId id = 0;
  bool to_beginning = false;
};

// The request is over. The last action for this id; used for metrics.
struct Finished {
  RequestId id = 0;
  RequestRecord record;
  Verdict verdict = Verdict::kNotCounted;
  bool known_model = false;  // the table listed the model when the request arrived: safe as a metric label
};

using Action = std::variant<Dispatch, Reject, Cancel, Recall, Finished>;
using Actions = std::vector<Action>;

struct RouterOptions {
  int max_queued = 10000;  // per model; the table's max_queued may be lower
  double queue_timeout_s = 60;
  double request_timeout_s = 600;
  std::optional<dispatch::PolicyKind> policy = std::nullopt;  // for all models, whatever the table says; none: the table's
  std::uint64_t seed = 1;                                     // for policies that draw random numbers
  // Wait limit of a request for a model that has no worker yet, if longer than queue_timeout_s.
  double start_timeout_s = 300;
  dispatch::QueueOrder queue_order = dispatch::QueueOrder::kObjective;
};

// Why a worker did not take a request. The worker has done no work, so another one may take the request.
enum class Refusal { kConnect, kFull, kDraining, kRole };

class Router {
 public:
  explicit Router(RouterOptions options);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // ---- events ----

  // Applies the table if it is newer than the one in use; `accepted` says whether it was.
  struct TableOutcome {
    bool accepted = false;
    Actions actions;
  };
  [[nodiscard]] TableOutcome table_changed(double now_s, dispatch::RoutingTable table);

  // `body_bytes` is the size of the request, from which policies that place by lengths guess its prompt; 0: unknown. REQUIRES:
  // an id never used before.
  [[nodiscard]] Actions arrived(double now_s, RequestId id, const std::string& model, bool streamed,
                                std::size_t body_bytes = 0);

  // Events about an id that is already over are ignored: the shell may report them in any order.

  // Events of the request's current step:

  // The worker refused the request before doing any work, so it may go elsewhere.
  [[nodiscard]] Actions refused(double now_s, RequestId id, Refusal why);
  // The worker answers (a response head arrived, whatever its status). If the worker had refused others, it gets requests
  // again, unless it drains.
  [[nodiscard]] Actions accepted(double now_s, RequestId id);
  // The prefill worker took the request and sent the location of its keys and values: the second step may begin.
  [[nodiscard]] Actions prefilled(double now_s, RequestId id);
  // After that, at any time: the body of that worker ended or broke off.
  [[nodiscard]] Actions prefill_ended(double now_s, RequestId id);
  // The first bytes are about to go to the client: from now on the request cannot start over.
  void response_started(RequestId id);
  // `count` tokens go to the client of a streamed request.
  void tokens_sent(double now_s, RequestId id, int count);
  // The client has the complete answer. Counts of -1 are unknown; generation tokens are then those of tokens_sent.
  struct Completion {
    int code = 200;
    int prompt_tokens = -1;
    int generation_tokens = -1;
  };
  [[nodiscard]] Actions completed(double now_s, RequestId id, const Completion& completion);
  // The worker broke off, or its answer was not HTTP. The request waits again if nothing was sent to the client, may_move is
  // set and this is its first move, so a request that crashes workers crashes at most two. Otherwise Cancel, then Reject with
  // 502 if nothing was sent.
  [[nodiscard]] Actions failed(double now_s, RequestId id, const std::string& message, bool may_move = false);
  // The contact of the worker at this address changed; contact.h lists the consequences.
  [[nodiscard]] Actions contact_changed(double now_s, const std::string& address, Contact contact);
  [[nodiscard]] Actions client_gone(double now_s, RequestId id);
  // Handles timeouts, and chains whose refusal period has passed. Call at next_deadline_s() or a little later.
  [[nodiscard]] Actions tick(double now_s);
  // The gateway stops: rejects every waiting request and cancels every request in flight.
  [[nodiscard]] Actions shut_down(double now_s);

  // ---- state ----

  [[nodiscard]] std::optional<double> next_deadline_s() const;
  [[nodiscard]] bool has_table() const { return has_table_; }
  [[nodiscard]] const dispatch::RoutingTable& table() const { return table_; }
  [[nodiscard]] std::size_t open_requests() const { return requests_.size(); }

  // Addresses that requests go to or are at: the first hops of all chains in the table, and of chains that still hold requests.
  [[nodiscard]] std::set<std::string> addresses() const;
  // Number of chains by model that are in the table and take requests, but whose worker does not answer.
  [[nodiscard]] std::map<std::string, int> silent_chains() const;
  // The request is at a worker that drains or has left the table.
  [[nodiscard]] bool at_leaving_worker(RequestId id) const;
  // Requests that were at a lost worker: taken back, and ended, in total.
  struct ContactCounts {
    std::map<std::string, std::int64_t> recalled, lost;  // by model
  };
  [[nodiscard]] const ContactCounts& contact_counts() const { return contact_counts_; }

  struct ChainLoad {
    std::string model;
    std::string chain;
    int in_flight = 0;
    int capacity = 0;
    bool draining = false;  // or vanished from the table
  };
  [[nodiscard]] std::vector<ChainLoad> chain_loads() const;  // ordered by (model, chain)
  // Requests that the policy sent to another worker than its first choice (RequestTracker::rebalanced), in total, by model in
  // the table.
  [[nodiscard]] std::map<std::string, std::int64_t> rebalanced() const;
  // The policy in use, by model in the table.
  [[nodiscard]] std::map<std::string, dispatch::PolicyKind> policies() const;
  // Requests that no worker has, by model in the table.
  [[nodiscard]] std::map<std::string, int> queue_lengths() const;
  // Chains in Splitwise's mixed pool, by model in the table with that policy: they have requests of the other role.
  [[nodiscard]] std::map<std::string, int> mixed_pools() const;
  // Requests that have finished their first step and wait for the second, by model in the table with a decode chain.
  [[nodiscard]] std::map<std::string, int> decode_queue_lengths() const;

 private:
  struct ChainSlot;
  struct Model;
  struct Request;

  using SlotPtr = std::shared_ptr<ChainSlot>;

  // router_table.cc: changes from tables and probes.
  void obey(Model& model, const dispatch::ModelRoute& route);
  [[nodiscard]] bool choose_policy(Model& model);
  void roles_changed(Model& model);
  void lose_prefill_worker(double now_s, const std::string& address, Actions& actions);
  [[nodiscard]] Contact contact_of(const std::string& address) const;

  // router_slots.cc: taking and releasing slots.
  void wait(Model& model, RequestId id);
  [[nodiscard]] dispatch::RequestLengths lengths_of(const Model& model, RequestId id) const;
  void expect_prompt_through(Model& model, const ChainSlot& slot, RequestId id, double begun_s);
  void place_again(Model& model);
  void place_both_steps_again(Model& model);
  void pump(double now_s, Model& model, Actions& actions);
  void serve_decode_line(double now_s, Model& model, Actions& actions);
  void serve_queue_of(double now_s, Model& model, const SlotPtr& slot, Actions& actions);
  void send(double now_s, Model& model, const SlotPtr& slot, RequestId id, Actions& actions);
  void set_deadline(RequestId id, Request& request, double deadline_s);
  void empty_queue_of(Model& model, ChainSlot& slot);
  void block(double now_s, const SlotPtr& slot, const std::string& model, Refusal why, bool other_role);
  void wait_again(double now_s, RequestId id, double deadline_s, Actions& actions);
  void restart(double now_s, Model& model, RequestId id, Actions& actions);
  void release(Request& request, SlotPtr& held);
  void release_prefill(RequestId id, Request& request);
  void release_all(RequestId id, Request& request, int output_tokens);
  void slots_freed(double now_s, const std::string& model, const std::vector<SlotPtr>& slots, Actions& actions);

  // router.cc: how long requests wait, and how they end.
  [[nodiscard]] double wait_limit_s(double now_s, bool from_nothing, const Request& request) const;
  [[nodiscard]] int retry_after_s(double now_s, const Model& model) const;
  void time_out(double now_s, RequestId id, Actions& actions);
  void reject(double now_s, RequestId id, Reject rejection, Actions& actions);
  void reject_unserved(double now_s, RequestId id, Actions& actions);
  void finish(double now_s, RequestId id, int code, Actions& actions);

  RouterOptions options_;
  bool has_table_ = false;
  bool shutting_down_ = false;
  dispatch::RoutingTable table_;
  std::map<std::string, std::unique_ptr<Model>> models_;
  std::map<RequestId, Request> requests_;
  std::multimap<double, RequestId> deadlines_;
  std::map<std::string, Contact> contacts_;  // of addresses that do not answer
  ContactCounts contact_counts_;
  double table_received_s_ = 0;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t last_key_ = 0;  // last key given to a chain's slot
};

}  // namespace windlass::gateway
