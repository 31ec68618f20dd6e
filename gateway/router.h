// The router: every decision of the gateway about a request, and no I/O, thread or clock.
//
// Events go in (a request arrived, the table changed, a worker answered, the client left, time passed) with the time of one
// monotonic clock; actions come out, to be carried out in their order. The shell (http_exchange.h, dispatcher.h) owns sockets
// and carries them out; it reports what came of them as further events, never from within the call that returned them.
// Single-threaded.
//
// A model with prefill and decode chains serves a request in two steps (docs/decisions/2026-11-22-kv-is-pulled.md). It waits
// for a chain that can begin it; if that is a prefill chain, it waits from the head of that worker's answer on for a decode
// chain, whose answer is the client's. It has the prefill chain's slot until that worker's body ends, and so also while it
// waits for the decode chain: what decode chains have no room for fills the prefill chains, and then requests wait at the
// gateway. Which chains can begin a request, by the table and by whose workers answer:
//   - unified chains, always
//   - prefill chains, while some decode chain takes requests: without one they could not be finished
//   - decode chains, while no prefill chain takes requests: they then serve it whole, and compute the prompt themselves
// The policy chooses among these. The second step is the same under every policy, and comes before requests that would begin
// there: the table may give a prefill chain weights of decode chains, and its requests then go on to those of them that have a
// free slot, in turns by weight (planner/dispatch/weighted_turns.h); else, and where none of these has one, JFFC among all
// decode chains. Under JFFC prefill chains that are equally fast and equally full take turns too, by the sums of their weights,
// those before the others whose decode chains have a free slot.
//
// What holds after every event, and what the tests check over random event sequences:
//   - every request that arrived gets exactly one Finished action, and after it nothing more
//   - a chain holds at most its capacity of our requests, except where the table lowered it under what was in flight
//   - a prefill chain's slot is held until its worker's body ends or its worker is lost, and given up when the request ends or
//     goes elsewhere; that of any other chain until the request ends or goes elsewhere
//   - while no decode chain is full or closed, each takes its part of a prefill chain's second steps, by the weights, to within
//     two requests
//   - while a request waits for a decode chain, none has a free slot (other than chains that refused us a moment ago); the line
//     for them has the order of the first one. The table lists a decode chain that is not draining: when the last one goes,
//     those who wait for it go back to their beginning, at their old place
//   - what becomes of a prefill worker after its head costs its request nothing but time: the decode worker computes the prompt
//   - a draining or vanished chain gets no new request; what it holds goes on
//   - a worker that does not answer (contact.h) gets no new request. A request whose worker was lost or broke, and may have
//     worked on it, goes to another one at most once in its life, and never after a byte of an answer has gone to the client
//   - under JFFC: while a request waits, no chain that can begin it has a free slot (other than chains that refused us a moment
//     ago), and those of one model that wait are dispatched in the order of planner/dispatch/waiting_line.h: those who can
//     still meet timeToFirstToken, then those who cannot; one that was refused returns to its old place
//   - under a policy that places requests by their lengths (RequestTracker) it is told of each that is placed, of its first
//     token, of its tokens and, once, of its end; what it keeps back it is asked again about every kPlacementRetryS. A request
//     of two steps is over for it with the prefill chain's slot, and nothing is learned from the length of its answer
//   - under a policy that sends requests to full chains they wait here, in one queue per chain, each in that order, and none
//     waits for a chain that has a free slot; when a chain stops taking requests, those that wait for it are given to the
//     policy anew
//   - nobody is refused because others went first: the queue timeout ends only the wait of those whose turn would not have come
//     by arrival either; others wait until the request timeout
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

// What a worker is to do with a request: all of it, or one of the two steps.
enum class Step { kWhole, kPrefill, kDecode };

// Send the request to this worker.
struct Dispatch {
  RequestId id = 0;
  std::string chain;
  std::string address;  // "host:port" of the first hop
  Step step = Step::kWhole;
  std::string prefill_address;  // of the worker that was given its first step; kDecode alone
  std::string next_hops;        // of a chain of several workers those after the first, "host:port,host:port"; else empty
  std::string token;            // the bearer token that these workers want; empty: none
};

// Answer the request with an error: nothing has been sent to the client yet, and no worker holds it any more (a Cancel went
// before, if one did).
struct Reject {
  RequestId id = 0;
  int status = 0;
  std::string code;  // of the OpenAI error body
  std::string message;
  int retry_after_s = 0;  // 0: no header
};

// Break off the exchanges with its workers; if nothing was sent to the client yet a Reject follows, else end the stream with an
// error.
struct Cancel {
  RequestId id = 0;
  int status = 0;  // what it would have been answered with
  bool nothing_sent = false;
  std::string message;
};

// Break off the exchange with the worker, which is out of reach; nothing was sent to the client, and the request waits again.
// to_beginning: for a decode chain that will not come; the exchange with the prefill worker is the one to break off.
struct Recall {
  RequestId id = 0;
  bool to_beginning = false;
};

// The request is over; the last action that names it. For metrics.
struct Finished {
  RequestId id = 0;
  RequestRecord record;
  Verdict verdict = Verdict::kNotCounted;
  bool known_model = false;  // the table listed the model when the request arrived: safe to use as a metric's label
};

using Action = std::variant<Dispatch, Reject, Cancel, Recall, Finished>;
using Actions = std::vector<Action>;

struct RouterOptions {
  int max_queued = 10000;  // per model; the table's max_queued may be lower
  double queue_timeout_s = 60;
  double request_timeout_s = 600;
  dispatch::PolicyKind policy = dispatch::PolicyKind::kJffc;  // every model has an instance of its own
  std::uint64_t seed = 1;                                     // of the policies that draw
  // A request for a model that has no worker yet may wait this long, if that is longer than queue_timeout_s.
  double start_timeout_s = 300;
  dispatch::QueueOrder queue_order = dispatch::QueueOrder::kObjective;
};

// Why a worker did not take a request. It has done no work for it, so another worker may.
enum class Refusal { kConnect, kFull, kDraining };

class Router {
 public:
  explicit Router(RouterOptions options);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // ---- events ----

  // Obeys it unless it is not newer than the one in use; `accepted` says which.
  struct TableOutcome {
    bool accepted = false;
    Actions actions;
  };
  [[nodiscard]] TableOutcome table_changed(double now_s, dispatch::RoutingTable table);

  // `body_bytes`: of the request, from which policies that place by lengths guess its prompt; 0: not known.
  // REQUIRES: an id never used before.
  [[nodiscard]] Actions arrived(double now_s, RequestId id, const std::string& model, bool streamed,
                                std::size_t body_bytes = 0);

  // What follows about an id that is already over is ignored: the shell may learn of things in any order.

  // Of the step that it is at:

  // The worker refused it before doing any work: it may go elsewhere.
  [[nodiscard]] Actions refused(double now_s, RequestId id, Refusal why);
  // The worker answers it (the head of a response came, whatever its status): where it had refused others it is sent requests
  // again, unless it drains.
  [[nodiscard]] Actions accepted(double now_s, RequestId id);
  // The prefill worker took it, and said where its keys and values will be: the second step may begin.
  [[nodiscard]] Actions prefilled(double now_s, RequestId id);
  // After that, at any time: that worker's body has come to its end, or broke off.
  [[nodiscard]] Actions prefill_ended(double now_s, RequestId id);
  // First bytes are about to go to the client: from here on the request cannot be answered anew.
  void response_started(RequestId id);
  // A token (or `count` of them at once) goes to the client of a streamed request.
  void tokens_sent(double now_s, RequestId id, int count);
  // The answer is complete at the client. Counts of -1: not known; generation tokens then are those of tokens_sent.
  struct Completion {
    int code = 200;
    int prompt_tokens = -1;
    int generation_tokens = -1;
  };
  [[nodiscard]] Actions completed(double now_s, RequestId id, const Completion& completion);
  // The worker broke off, or answered what is no HTTP. If nothing was sent to the client, may_move is set and it is the first
  // time for this request, it waits again; a request that breaks workers thus breaks two at most. Else Cancel, and Reject 502
  // if nothing was sent.
  [[nodiscard]] Actions failed(double now_s, RequestId id, const std::string& message, bool may_move = false);
  // What is known of the worker at this address has changed; see contact.h for what follows.
  [[nodiscard]] Actions contact_changed(double now_s, const std::string& address, Contact contact);
  [[nodiscard]] Actions client_gone(double now_s, RequestId id);
  // Time-outs, and chains whose refusal has been waited out. Call at next_deadline_s() or somewhat later.
  [[nodiscard]] Actions tick(double now_s);
  // Every request that waits is rejected, and every one in flight cancelled, as the gateway ends.
  [[nodiscard]] Actions shut_down(double now_s);

  // ---- what it knows ----

  [[nodiscard]] std::optional<double> next_deadline_s() const;
  [[nodiscard]] bool has_table() const { return has_table_; }
  [[nodiscard]] const dispatch::RoutingTable& table() const { return table_; }
  [[nodiscard]] std::size_t open_requests() const { return requests_.size(); }

  // Where requests go or are: the first hops of all chains in the table, and of those that still hold requests.
  [[nodiscard]] std::set<std::string> addresses() const;
  // Chains by model that are in the table, take requests and whose worker does not answer.
  [[nodiscard]] std::map<std::string, int> silent_chains() const;
  // The request is at a worker that drains or has left the table.
  [[nodiscard]] bool at_leaving_worker(RequestId id) const;
  // Requests that a gone worker was to answer: those taken back and those ended, in all.
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
  // By model, those in the table: requests that no worker has.
  [[nodiscard]] std::map<std::string, int> queue_lengths() const;
  // By model, those in the table with a decode chain: requests that are past their first step and wait for the second.
  [[nodiscard]] std::map<std::string, int> decode_queue_lengths() const;

 private:
  struct ChainSlot;
  struct Model;
  struct Request;

  using SlotPtr = std::shared_ptr<ChainSlot>;

  // router_table.cc: what tables and probes say.
  void obey(Model& model, const dispatch::ModelRoute& route);
  void roles_changed(Model& model);
  void lose_prefill_worker(double now_s, const std::string& address, Actions& actions);
  [[nodiscard]] Contact contact_of(const std::string& address) const;

  // router_slots.cc: who gets a slot, and who gives one back.
  void wait(Model& model, RequestId id);
  [[nodiscard]] dispatch::RequestLengths lengths_of(const Model& model, RequestId id) const;
  void place_again(double now_s, Model& model);
  void pump(double now_s, Model& model, Actions& actions);
  void serve_decode_line(double now_s, Model& model, Actions& actions);
  void serve_queue_of(double now_s, Model& model, const SlotPtr& slot, Actions& actions);
  void send(double now_s, Model& model, const SlotPtr& slot, RequestId id, Actions& actions);
  void set_deadline(RequestId id, Request& request, double deadline_s);
  void empty_queue_of(Model& model, ChainSlot& slot);
  void block(double now_s, const SlotPtr& slot, const std::string& model, Refusal why);
  void wait_again(double now_s, RequestId id, double deadline_s, Actions& actions);
  void begin_anew(double now_s, Model& model, RequestId id, Actions& actions);
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
  std::uint64_t last_key_ = 0;  // of the chains' slots
};

}  // namespace windlass::gateway
