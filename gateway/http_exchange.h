// Exchange: one proxied request, from the parsed request to the last byte of its answer.
//
// It waits for the router's decision, sends the request to the chosen chain, and passes the answer on. Event streams pass event
// by event, with at most one event buffered, so a slow client slows down only the reading from its worker. Other answers pass
// as a whole. If nothing was sent to the client yet and the worker refused, broke off, reported a failure or fell silent, the
// request returns to the router, which may send it elsewhere. The client gets exactly one answer.
//
// A request in two steps (router.h) goes to a prefill worker first. The exchange keeps that answer open (http_prefill.h) and
// sends the same request to the decode worker that the router chose; the decode worker's answer goes to the client.
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

// The parts of the gateway's public side; lives as long as the program.
struct Proxy {
  Dispatcher& dispatcher;
  UpstreamPool& pool;
  std::function<void(const std::string& address)> heard = [](const std::string&) {};  // a byte arrived from that worker
  // Marks a request as being at that worker while the returned handle lives.
  std::function<std::shared_ptr<void>(const std::string& address)> use = [](const std::string&) { return nullptr; };
  bool leaving = false;                                            // each answer closes its connection
  bool draining = false;                                           // refuse new requests
  std::function<std::shared_ptr<const KeyFile>()> keys = nullptr;  // null: no API key needed
  KeyLimits limits = {};
  Cors cors = {};
  // Budget for what is held for clients: request bodies, and answers sent as a whole. Set before the first request.
  std::shared_ptr<net::MemoryBudget> memory = nullptr;
};

class Exchange {
 public:
  struct Request {
    std::string target;   // path and query
    std::string headers;  // end-to-end header lines
    std::string request_id;
    RequestHead head;
    bool http10 = false;  // the client does not support chunked encoding: closing the connection ends a stream
    bool keep_alive = true;
    std::string cors;  // header lines added to every answer
  };

  Exchange(Proxy& proxy, Stream& client, Request request) : proxy_(proxy), client_(client), request_(std::move(request)) {}

  // Returns true when the connection may carry another request.
  [[nodiscard]] asio::awaitable<bool> run();
  // The result; valid after run().
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
  // True when the exchange with the worker must stop because the request is over or moves elsewhere.
  [[nodiscard]] bool interrupted() const { return ticket_->over() || ticket_->recalled; }
  // Outcome of an attempt that was interrupted or that the worker broke off.
  [[nodiscard]] Outcome after_break();
  void failed(const char* reason, const std::string& message, bool may_move = true);
  [[nodiscard]] std::string response_head(const AnswerParser& parser, const std::string& framing);
  [[nodiscard]] std::string own_headers() const;
  // Returns whether the connection stays open after the answer whose head is written now.
  bool stays_open() { return keep_alive_ = request_.keep_alive && !proxy_.leaving; }

  Proxy& proxy_;
  Stream& client_;
  Request request_;
  std::shared_ptr<Ticket> ticket_;
  std::unique_ptr<UpstreamConnection> upstream_;
  std::unique_ptr<PrefillAnswer> prefill_;  // answer to the first step, until the request ends or starts over
  std::string chain_, address_;
  bool head_sent_ = false;
  bool writing_to_client_ = false;
  bool client_broken_ = false;
  bool keep_alive_ = false;  // what the response head announced
  bool again_ = false;       // the worker broke off, and the request waits again
  bool refused_ = false;     // the same, but the worker had not started
  std::string last_event_;   // the worker's own error event, sent to end a broken stream; empty: none
  std::string broke_at_;     // address of the worker that broke off and may already have worked on the request; empty: none
};

}  // namespace windlass::gateway
