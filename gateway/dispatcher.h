// Dispatcher: gives the router a clock, a timer and metrics, and delivers the router's actions to the exchanges.
//
// One per gateway, on the shell's single thread. An exchange (http_exchange.h) holds a Ticket for its request and waits on it;
// each decision of the router is stored in the ticket and wakes it. REQUIRES: the dispatcher outlives the exchanges of all
// tickets.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "gateway/net.h"
#include "gateway/router.h"
#include "metrics/bundles.h"
#include "metrics/latency_bins.h"

namespace windlass::gateway {

struct Ticket {
  Ticket(asio::io_context& io, RequestId request) : id(request), wake(io) {}

  RequestId id;
  double arrived_s = 0;
  std::optional<Dispatch> dispatch;  // cleared by the exchange when it acts on it
  std::optional<Reject> reject;
  std::optional<Cancel> cancel;
  bool recalled = false;     // cleared by the exchange, which then waits for another dispatch
  bool starts_over = false;  // start over with the next dispatch; cleared by the exchange, which drops the first step's answer
  bool client_gone = false;
  bool token_seen = false;
  int final_code = 0;               // set when the request is over
  std::int64_t final_tokens = 0;    // prompt and generated tokens, as far as known
  std::function<void()> interrupt;  // stops what the exchange is waiting for; set by the exchange
  asio::steady_timer wake;

  [[nodiscard]] bool over() const { return client_gone || reject.has_value() || cancel.has_value(); }
};

class Dispatcher {
 public:
  Dispatcher(asio::io_context& io, RouterOptions options, metrics::GatewayMetrics& metrics);

  [[nodiscard]] std::shared_ptr<Ticket> arrived(const std::string& model, bool streamed, std::size_t body_bytes);
  // Returns when the ticket holds a dispatch or the request is over.
  [[nodiscard]] asio::awaitable<void> decision(std::shared_ptr<Ticket> ticket);

  // Reports from the exchange; see router.h.
  void refused(Ticket& ticket, const std::string& model, Refusal why);
  void accepted(Ticket& ticket);
  void prefilled(Ticket& ticket);
  void prefill_ended(RequestId id);
  void response_started(Ticket& ticket) { router_.response_started(ticket.id); }
  void tokens_sent(Ticket& ticket, const std::string& model, int count);
  void completed(Ticket& ticket, const Router::Completion& completion);
  // Ends the request, unless may_move lets it wait again (router.h); see Ticket::over().
  void failed(Ticket& ticket, const std::string& model, const char* reason, const std::string& message, bool may_move);
  void client_gone(Ticket& ticket);

  void contact_changed(const std::string& address, Contact contact);

  // Returns true when the table was newer than the one in use.
  bool table_changed(dispatch::RoutingTable table);
  void shut_down();
  void count_upstream_error(const std::string& model, const char* reason);
  // Counts a finished request of this key (empty: no key, or an unknown one).
  void count_key(const std::string& key, int code, std::int64_t tokens);

  [[nodiscard]] const Router& router() const { return router_; }
  // Updates the gauges; call before answering a scrape.
  void refresh_gauges();
  // The fine bins of TTFT and TPOT of every model, in the format of latency_bins.h.
  [[nodiscard]] std::string latencies_page() const;

  [[nodiscard]] static double now_s();

 private:
  struct ModelMetrics {
    ModelMetrics(const metrics::GatewayMetrics& metrics, const std::string& model);
    metrics::Counter started, attained, judged, prompt_tokens, generation_tokens, measured, rebalanced;
    std::int64_t rebalanced_seen = 0;  // of the router's count, already in the counter
    metrics::Histogram queue_wait, time_to_first_token, time_per_output_token;
    metrics::LatencyBins ttft_bins, tpot_bins;
    std::map<int, metrics::Counter> finished;  // by status
  };

  void apply(const Actions& actions);
  void count(const Finished& finished);
  void count_contacts();
  void arm_timer();
  ModelMetrics& of(const std::string& model);

  asio::io_context& io_;
  metrics::GatewayMetrics& metrics_;
  Router router_;
  asio::steady_timer timer_;
  std::optional<double> armed_s_;
  RequestId next_id_ = 1;
  std::unordered_map<RequestId, std::shared_ptr<Ticket>> tickets_;
  std::unordered_map<std::string, ModelMetrics> models_;
  std::set<std::pair<std::string, std::string>> shown_chains_;  // (model, chain) with an in-flight series
  std::map<std::string, dispatch::PolicyKind> shown_policies_;  // by model
  std::set<std::string> shown_queues_, shown_decode_queues_, shown_silent_, shown_mixed_pools_;  // models with such a series
  Router::ContactCounts counted_contacts_;  // values already added to the metrics
};

}  // namespace windlass::gateway
