// Exchange: one proxied request, from the parsed request to the last byte of its answer.
//
// It waits for the router's decision, sends the request to the chain it was given, and passes the answer on: an event stream
// event by event, with at most one event in hand (a slow client slows the reading from its worker and nothing else); any other
// answer whole. Where nothing was sent to the client and the worker refused, broke off, said that it failed or fell silent, it
// goes back to the router, which may send it elsewhere. It answers once.
//
// In two steps (router.h) it sends the request to a prefill worker, keeps that exchange open (http_prefill.h), and sends the
// same request to the decode worker that the router names; what that one answers is the client's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gateway/api_keys.h"
#include "gateway/cors.h"
#include "gateway/dispatcher.h"
#include "gateway/http_prefill.h"
#include "gateway/http_upstream.h"
#include "gateway/net.h"
#include "gateway/openai.h"
#include "gateway/sse_filter.h"

namespace windlass::gateway {

// What the gateway's public side is made of; lives as long as the program.
struct Proxy {
  Dispatcher& dispatcher;
  UpstreamPool& pool;
  std::function<void(const std::string& address)> heard = [](const std::string&) {};  // a byte came from that worker
  // A request is at that worker for as long as what is returned lives.
  std::function<std::shared_ptr<void>(const std::string& address)> use = [](const std::string&) { return nullptr; };
  bool leaving = false;                                            // each answer is its connection's last
  bool draining = false;                                           // no new requests
  std::function<std::shared_ptr<const KeyFile>()> keys = nullptr;  // null: the API is open
  KeyLimits limits = {};
  Cors cors = {};
  // Of what is held for clients: the bodies of their requests, and answers that leave whole. Set before the first request.
  std::shared_ptr<net::MemoryBudget> memory = nullptr;
};

class Exchange {
 public:
  struct Request {
    std::string target;   // path and query
    std::string headers;  // end-to-end header lines
    std::string request_id;
    RequestHead head;
    bool http10 = false;  // the client knows no chunks: the end of the connection ends a stream
    bool keep_alive = true;
    std::string cors;  // header lines of whatever answers it
  };

  Exchange(Proxy& proxy, Stream& client, Request request) : proxy_(proxy), client_(client), request_(std::move(request)) {}

  // True when the connection may carry another request.
  [[nodiscard]] asio::awaitable<bool> run();
  // What it came to; after run().
  [[nodiscard]] const Ticket& ticket() const { return *ticket_; }

 private:
  enum class Outcome { kOver, kAgain };

  asio::awaitable<Outcome> attempt(Dispatch to_chain);
  asio::awaitable<error_code> connect(bool may_reuse);
  asio::awaitable<error_code> ask(const std::string& head, AnswerParser& parser);
  [[nodiscard]] bool is_stale(const AnswerParser& parser) const;
  asio::awaitable<Outcome> pass_on(AnswerParser& parser);
  [[nodiscard]] std::string step_headers(const Dispatch& to_chain) const;
  [[nodiscard]] Outcome prefilled(std::unique_ptr<AnswerParser> answer, std::shared_ptr<void> in_use);
  asio::awaitable<void> pass_stream(AnswerParser& parser);
  asio::awaitable<void> stream_failed(AnswerParser& parser, const StreamFailure& failure, SseFilter::Output output);
  asio::awaitable<void> forward(AnswerParser& parser, SseFilter::Output output);
  asio::awaitable<bool> pass_whole(AnswerParser& parser);
  asio::awaitable<void> answer_error();
  asio::awaitable<bool> send(std::string head, std::string_view body, bool chunk);
  asio::awaitable<void> end_broken_stream();
  // The exchange with the worker is broken off: by the end of the request, or because it goes elsewhere.
  [[nodiscard]] bool interrupted() const { return ticket_->over() || ticket_->recalled; }
  // What an attempt came to that was interrupted, or that the worker broke off.
  [[nodiscard]] Outcome after_break();
  void failed(const char* reason, const std::string& message, bool may_move = true);
  [[nodiscard]] std::string response_head(const AnswerParser& parser, const std::string& framing);
  [[nodiscard]] std::string own_headers() const;
  // Whether the answer whose head is written now leaves the connection open.
  bool stays_open() { return keep_alive_ = request_.keep_alive && !proxy_.leaving; }

  Proxy& proxy_;
  Stream& client_;
  Request request_;
  std::shared_ptr<Ticket> ticket_;
  std::unique_ptr<UpstreamConnection> upstream_;
  std::unique_ptr<PrefillAnswer> prefill_;  // of the first step, until the request ends or begins anew
  std::string chain_, address_;
  bool head_sent_ = false;
  bool writing_to_client_ = false;
  bool client_broken_ = false;
  bool keep_alive_ = false;  // so its head said
  bool again_ = false;       // it broke off, and the request waits again
  bool refused_ = false;     // the same, but it had not begun
  std::string last_event_;   // the worker's own error, for the end of a broken stream; empty: it has none
  std::string broke_at_;     // the address of the worker that may have worked on it once already, in vain; empty: none
};

}  // namespace windlass::gateway
