// Runs one request. Each await may be interrupted, when the client leaves or the router cancels: both close the upstream
// connection through Ticket::interrupt. The code after an await therefore checks the ticket first.
#include "gateway/http_exchange.h"

#include <array>
#include <limits>
#include <utility>

#include <boost/beast/http/chunk_encode.hpp>
#include <fmt/format.h>

#include "gateway/http_text.h"
#include "gateway/worker_id.h"
#include "metrics/net/peer_watch.h"
#include "planner/base/foreign_text.h"

namespace windlass::gateway {
namespace {

constexpr std::uint32_t kMaxResponseHeadBytes = 64U << 10U;
constexpr std::string_view kLastChunk = "0\r\n\r\n";
constexpr auto kFinalWriteTimeout = std::chrono::seconds(60);

bool is_event_stream(const http::fields& fields) {
  return fields[http::field::content_type].substr(0, 17) == "text/event-stream";
}

// Sent by our own worker, and by any engine whose queue is full or whose model is still loading.
bool is_refusal(const http::response_header<>& head) { return head.result_int() == 503 || head.result_int() == 429; }

// Why a worker refused, by its X-Windlass-Rejected. Other engines send none.
Refusal refusal_of(const http::response_header<>& head) {
  const auto why = head["X-Windlass-Rejected"];
  return why == "draining" ? Refusal::kDraining : why == "role" ? Refusal::kRole : Refusal::kFull;
}

}  // namespace

asio::awaitable<bool> Exchange::run() {
  ticket_ = proxy_.dispatcher.arrived(request_.head.model, request_.head.stream, request_.head.upstream_body.size());
  ticket_->interrupt = [this] {
    if (upstream_ != nullptr) upstream_->close();
    if (ticket_->over() || std::exchange(ticket_->starts_over, false)) prefill_.reset();
    if (!writing_to_client_) return;
    error_code ignored;
    client_.socket().close(ignored);  // a client that reads nothing must not keep the exchange open
  };
  std::optional<net::PeerWatch> watch;
  if (!ticket_->over()) watch.emplace(client_, [this] { proxy_.dispatcher.client_gone(*ticket_); });
  while (true) {
    co_await proxy_.dispatcher.decision(ticket_);
    if (ticket_->over()) break;
    Dispatch next = std::move(*ticket_->dispatch);
    ticket_->dispatch.reset();
    ticket_->recalled = false;  // any recall so far concerned an earlier attempt
    const Outcome outcome = co_await attempt(std::move(next));
    if (outcome == Outcome::kOver) break;
  }
  ticket_->interrupt = nullptr;
  prefill_.reset();
  watch.reset();
  if (ticket_->client_gone || client_broken_) co_return false;
  if (head_sent_) {
    if (ticket_->cancel.has_value()) {
      co_await end_broken_stream();
      co_return false;
    }
  } else if (ticket_->reject.has_value()) {
    co_await answer_error();
  }
  co_return keep_alive_ && !client_broken_ && !(request_.http10 && head_sent_);
}

asio::awaitable<Exchange::Outcome> Exchange::attempt(Dispatch to_chain) {
  Dispatcher& dispatcher = proxy_.dispatcher;
  const std::string& model = request_.head.model;
  chain_ = to_chain.chain;
  address_ = to_chain.address;
  last_event_.clear();
  std::shared_ptr<void> in_use = proxy_.use(to_chain.address);
  const std::string head = fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\n{}{}X-Request-Id: {}\r\nContent-Length: {}\r\n\r\n",
                                       request_.target, to_chain.address, request_.headers, step_headers(to_chain),
                                       request_.request_id, request_.head.upstream_body.size());
  bool may_reuse = broke_at_.empty();
  while (true) {
    error_code error = co_await connect(may_reuse);
    if (interrupted()) co_return after_break();
    if (error) {
      dispatcher.refused(*ticket_, model, Refusal::kConnect);
      co_return Outcome::kAgain;
    }
    auto answer = std::make_unique<AnswerParser>();
    error = co_await ask(head, *answer);
    if (interrupted()) co_return after_break();
    if (error && is_stale(*answer)) {
      upstream_->close();
      broke_at_ = address_;
      may_reuse = false;
      dispatcher.count_upstream_error(model, "stale");
      continue;
    }
    if (error) {
      failed("broken", fmt::format("The worker {} broke off before its answer.", worker_id(chain_)));
      co_return after_break();
    }
    proxy_.heard(address_);
    if (is_refusal(answer->get())) {
      const Refusal why = refusal_of(answer->get());
      upstream_->close();
      dispatcher.refused(*ticket_, model, why);
      co_return Outcome::kAgain;
    }
    if (to_chain.step == Step::kPrefill && answer->get().result_int() < 400) {
      co_return prefilled(std::move(answer), std::move(in_use));
    }
    dispatcher.accepted(*ticket_);
    co_return co_await pass_on(*answer);
  }
}

// Connects to the worker, over a kept connection if there is one and it may be used.
asio::awaitable<error_code> Exchange::connect(bool may_reuse) {
  upstream_ = may_reuse ? proxy_.pool.take_idle(address_) : nullptr;
  if (upstream_ != nullptr) co_return error_code();
  upstream_ = proxy_.pool.make();
  co_return co_await proxy_.pool.connect(*upstream_, address_);
}

// Sends the request and reads the head of its answer.
asio::awaitable<error_code> Exchange::ask(const std::string& head, AnswerParser& parser) {
  error_code error;
  const std::array<asio::const_buffer, 2> message{asio::buffer(head), asio::buffer(request_.head.upstream_body)};
  co_await asio::async_write(upstream_->stream, message, to(error));
  if (interrupted()) co_return error;
  // A worker may refuse, and close, before it has read the whole body: look for its answer even when the write failed.
  parser.header_limit(kMaxResponseHeadBytes);
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // Beast 1.74 treats 0 as "none"
  co_await http::async_read_header(upstream_->stream, upstream_->buffer, parser, to(error));
  co_return error;
}

// A kept connection that breaks before the first byte of an answer was usually closed by the worker while idle. But the request
// may also be one that crashes workers, so a request gets only one such second try. (If that one breaks too, both came from the
// end of the same worker, and the request may still move to another.)
bool Exchange::is_stale(const AnswerParser& parser) const {
  return upstream_->reused && !parser.got_some() && broke_at_.empty();
}

// Passes the worker's answer to the client, in pieces or whole.
asio::awaitable<Exchange::Outcome> Exchange::pass_on(AnswerParser& parser) {
  bool complete = true;
  if (is_event_stream(parser.get()) && parser.get().result_int() == 200) {
    co_await pass_stream(parser);
  } else {
    complete = co_await pass_whole(parser);
  }
  if (std::exchange(refused_, false)) {
    upstream_->close();
    co_return Outcome::kAgain;
  }
  if (interrupted() || again_) co_return after_break();
  // Bytes after the answer would be read as the start of the next one.
  if (complete && parser.is_done() && parser.keep_alive() && upstream_->buffer.size() == 0) {
    proxy_.pool.release(address_, std::move(upstream_));
  }
  co_return Outcome::kOver;
}

// Headers that say which step this is, and that it comes from us; the body is the same.
std::string Exchange::step_headers(const Dispatch& to_chain) const {
  std::string headers;
  if (!to_chain.token.empty()) headers = fmt::format("Authorization: Bearer {}\r\n", to_chain.token);
  if (to_chain.mixed_pool) headers += "X-Windlass-Mixed-Pool: 1\r\n";
  switch (to_chain.step) {
    case Step::kWhole:
      if (!to_chain.next_hops.empty()) headers += fmt::format("X-Windlass-Chain: {}\r\n", to_chain.next_hops);
      break;
    case Step::kPrefill: headers += "X-Windlass-Phase: prefill\r\n"; break;
    case Step::kDecode:
      headers += fmt::format("X-Windlass-Prefilled: {}\r\nX-Windlass-Prefill-Address: {}\r\n", prefill_->value(),
                             to_chain.prefill_address);
      break;
  }
  return headers;
}

// The head of a first step's answer arrived: keep its connection, and wait for the second step.
Exchange::Outcome Exchange::prefilled(std::unique_ptr<AnswerParser> answer, std::shared_ptr<void> in_use) {
  if (PrefillAnswer::value_in(*answer).empty()) {
    failed("broken", fmt::format("The worker {} answered a prefill step without the location of its keys and values.",
                                 worker_id(chain_)));
    return after_break();
  }
  prefill_ = std::make_unique<PrefillAnswer>(proxy_, ticket_->id, request_.head.model, address_, std::move(in_use),
                                             std::move(upstream_), std::move(answer));
  proxy_.dispatcher.prefilled(*ticket_);
  if (prefill_ != nullptr) prefill_->read_on();
  return ticket_->over() ? Outcome::kOver : Outcome::kAgain;
}

Exchange::Outcome Exchange::after_break() {
  if (upstream_ != nullptr) upstream_->close();
  if (ticket_->over()) return Outcome::kOver;
  ticket_->recalled = false;
  again_ = false;
  broke_at_ = address_;
  return Outcome::kAgain;
}

void Exchange::failed(const char* reason, const std::string& message, bool may_move) {
  upstream_->close();
  proxy_.dispatcher.failed(*ticket_, request_.head.model, reason, message,
                           may_move && (broke_at_.empty() || broke_at_ == address_));
  again_ = !ticket_->over();
}

asio::awaitable<void> Exchange::pass_stream(AnswerParser& parser) {
  Dispatcher& dispatcher = proxy_.dispatcher;
  SseFilter filter(request_.head.stream && !request_.head.include_usage);
  std::array<char, 16384> bytes;
  while (!parser.is_done()) {
    error_code error;
    const std::size_t n = co_await read_body(*upstream_, parser, bytes.data(), bytes.size(), error);
    if (interrupted()) co_return;
    if (n > 0) proxy_.heard(address_);
    SseFilter::Output output = filter.feed({bytes.data(), n});
    if (filter.failure().has_value()) {
      co_await stream_failed(parser, *filter.failure(), std::move(output));
      co_return;
    }
    co_await forward(parser, std::move(output));
    if (ticket_->over()) co_return;
    if (error) {
      failed("broken", fmt::format("The worker {} broke off in the middle of its answer.", worker_id(chain_)));
      co_return;
    }
  }
  SseFilter::Output rest = filter.finish();
  if (filter.failure().has_value()) {
    co_await stream_failed(parser, *filter.failure(), std::move(rest));
    co_return;
  }
  if (head_sent_ || filter.done()) co_await forward(parser, std::move(rest));
  if (ticket_->over()) co_return;
  if (!filter.done()) {
    failed("truncated", fmt::format("The worker {} ended its answer without [DONE].", worker_id(chain_)));
    co_return;
  }
  if (!head_sent_) {
    head_sent_ = true;
    dispatcher.response_started(*ticket_);
    std::string head = response_head(parser, "Content-Length: 0\r\n");
    co_await send(std::move(head), {}, false);
  } else if (!request_.http10) {
    co_await send({}, kLastChunk, false);
  }
  if (ticket_->over()) co_return;
  Router::Completion completion{200, -1, -1};
  if (filter.usage().has_value()) {
    completion.prompt_tokens = filter.usage()->prompt_tokens;
    completion.generation_tokens = filter.usage()->generation_tokens;
  }
  dispatcher.completed(*ticket_, completion);
}

// The worker reported a failure in its stream. Nothing that follows, not even [DONE], makes it a complete answer.
asio::awaitable<void> Exchange::stream_failed(AnswerParser& parser, const StreamFailure& failure, SseFilter::Output output) {
  if (!head_sent_ && failure.is_refusal() && output.content_events == 0) {
    refused_ = true;
    proxy_.dispatcher.refused(*ticket_, request_.head.model, Refusal::kFull);
    co_return;
  }
  if (head_sent_) co_await forward(parser, std::move(output));
  if (ticket_->over()) co_return;
  last_event_ = failure.event;
  if (!last_event_.ends_with("\n\n") && !last_event_.ends_with("\n\r\n")) last_event_ += "\n\n";  // the body ended inside it
  failed("engine_error", fmt::format("The worker {} failed{}{}", worker_id(chain_), failure.message.empty() ? "." : ": ",
                                     shown_text(failure.message)));
}

// Sends events to the client; the response head goes with the first of them.
asio::awaitable<void> Exchange::forward(AnswerParser& parser, SseFilter::Output output) {
  if (output.forward.empty()) co_return;
  std::string head;
  if (!head_sent_) {
    head = response_head(parser, request_.http10 ? "" : "Transfer-Encoding: chunked\r\n");
    head_sent_ = true;
    proxy_.dispatcher.response_started(*ticket_);
  }
  proxy_.dispatcher.tokens_sent(*ticket_, request_.head.model, output.content_events);
  const bool written = co_await send(std::move(head), output.forward, !request_.http10);
  if (!written && !ticket_->over()) proxy_.dispatcher.client_gone(*ticket_);
}

// Reads the whole answer before sending its first byte. It is small and carries the usage figures, and if the worker breaks off
// the client still gets a clean error.
asio::awaitable<bool> Exchange::pass_whole(AnswerParser& parser) {
  Dispatcher& dispatcher = proxy_.dispatcher;
  const int status = static_cast<int>(parser.get().result_int());
  std::string answer;
  net::MemoryBudget::Part held(proxy_.memory);
  std::array<char, 16384> bytes;
  while (!parser.is_done()) {
    error_code error;
    const std::size_t n = co_await read_body(*upstream_, parser, bytes.data(), bytes.size(), error);
    if (interrupted()) co_return false;
    if (n > 0) proxy_.heard(address_);
    answer.append(bytes.data(), n);
    if (!held.resize(answer.size())) {
      failed("no_memory", "The gateway has no memory left for the answer (--max-body-memory).", false);
      co_return false;
    }
    if (answer.size() > net::kMaxAnswerBytes) {
      failed("too_large",
             fmt::format("The answer of the worker {} is larger than {} bytes.", worker_id(chain_), net::kMaxAnswerBytes),
             false);
      co_return false;
    }
    if (error) {
      failed("broken", fmt::format("The worker {} broke off in the middle of its answer.", worker_id(chain_)));
      co_return false;
    }
  }
  const std::string framing = fmt::format("Content-Length: {}\r\n", answer.size());
  dispatcher.response_started(*ticket_);
  head_sent_ = true;
  const bool written = co_await send(response_head(parser, framing), answer, false);
  if (ticket_->over()) co_return true;
  if (!written) {
    dispatcher.client_gone(*ticket_);
    co_return true;
  }
  Router::Completion completion{status, -1, -1};
  if (status == 200) {
    if (const auto usage = usage_of(answer)) {
      completion.prompt_tokens = usage->prompt_tokens;
      completion.generation_tokens = usage->generation_tokens;
    }
  }
  dispatcher.completed(*ticket_, completion);
  co_return true;
}

asio::awaitable<void> Exchange::answer_error() {
  const Reject& reject = *ticket_->reject;
  std::string extra = fmt::format("{}X-Request-Id: {}\r\n", request_.cors, request_.request_id);
  if (reject.retry_after_s > 0) extra += fmt::format("Retry-After: {}\r\n", reject.retry_after_s);
  const std::string text = net::simple_response(reject.status, "application/json",
                                                error_body(reject.status, reject.message, reject.code), stays_open(), extra);
  client_.expires_after(kFinalWriteTimeout);
  error_code error;
  co_await asio::async_write(client_, asio::buffer(text), to(error));
  client_.expires_never();
  if (error) client_broken_ = true;
}

// An answer that has begun cannot become an error response. The stream ends with an error event (the worker's own if it sent
// one) and without [DONE].
asio::awaitable<void> Exchange::end_broken_stream() {
  const std::string event = last_event_.empty()
                                ? error_event(ticket_->cancel->status, ticket_->cancel->message, "stream_broken")
                                : std::exchange(last_event_, {});
  client_.expires_after(kFinalWriteTimeout);
  if (!co_await send({}, event, !request_.http10)) co_return;
  if (!request_.http10) co_await send({}, kLastChunk, false);
}

asio::awaitable<bool> Exchange::send(std::string head, std::string_view body, bool chunk) {
  const std::string size = chunk ? fmt::format("{:x}\r\n", body.size()) : std::string();
  const std::string_view end = chunk ? "\r\n" : "";
  const std::array<asio::const_buffer, 4> buffers{asio::buffer(head), asio::buffer(size),
                                                  asio::buffer(body.data(), body.size()), asio::buffer(end.data(), end.size())};
  error_code error;
  writing_to_client_ = true;
  co_await asio::async_write(client_, buffers, to(error));
  writing_to_client_ = false;
  if (error) client_broken_ = true;
  co_return !error;
}

std::string Exchange::own_headers() const {
  return fmt::format("{}X-Request-Id: {}\r\nX-Windlass-Worker: {}\r\n", request_.cors, request_.request_id, worker_id(chain_));
}

std::string Exchange::response_head(const AnswerParser& parser, const std::string& framing) {
  const int status = static_cast<int>(parser.get().result_int());
  const bool close = !stays_open() || request_.http10;
  return fmt::format("HTTP/1.1 {} {}\r\n{}{}{}{}\r\n", status, net::reason_phrase(status), headers_to_client(parser.get()),
                     own_headers(), framing, close ? "Connection: close\r\n" : "");
}

}  // namespace windlass::gateway
