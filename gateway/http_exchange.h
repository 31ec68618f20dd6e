// Exchange: one proxied request, from the parsed request to the last byte of its answer.
//
// It waits for the router's decision, sends the request to the chain it was given, and passes the answer on: an event stream
// event by event, with at most one event in hand (a slow client slows the reading from its worker and nothing else); any other
// answer whole. Where nothing was sent to the client and the worker refused, it goes back to the router. It answers once.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gateway/dispatcher.h"
#include "gateway/http_upstream.h"
#include "gateway/net.h"
#include "gateway/openai.h"
#include "gateway/sse_filter.h"

namespace windlass::gateway {

// What the gateway's public side is made of; lives as long as the program.
struct Proxy {
  Dispatcher& dispatcher;
  UpstreamPool& pool;
  bool draining = false;
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
  };

  Exchange(Proxy& proxy, beast::tcp_stream& client, Request request)
      : proxy_(proxy), client_(client), request_(std::move(request)) {}

  // True when the connection may carry another request.
  [[nodiscard]] asio::awaitable<bool> run();

 private:
  enum class Outcome { kOver, kAgain };

  asio::awaitable<Outcome> attempt(Dispatch to_chain);
  asio::awaitable<void> pass_stream(http::response_parser<http::buffer_body>& parser);
  asio::awaitable<void> forward(http::response_parser<http::buffer_body>& parser, SseFilter::Output output);
  asio::awaitable<bool> pass_whole(http::response_parser<http::buffer_body>& parser);
  asio::awaitable<void> answer_error();
  asio::awaitable<bool> send(std::string head, std::string_view body, bool chunk);
  asio::awaitable<void> end_broken_stream();
  void watch_client();
  [[nodiscard]] std::string response_head(const http::response_parser<http::buffer_body>& parser,
                                          const std::string& framing) const;
  [[nodiscard]] std::string own_headers() const;

  Proxy& proxy_;
  beast::tcp_stream& client_;
  Request request_;
  std::shared_ptr<Ticket> ticket_;
  std::unique_ptr<UpstreamConnection> upstream_;
  std::string chain_;
  bool head_sent_ = false;
  bool writing_to_client_ = false;
  bool client_broken_ = false;
  bool ambiguous_retry_used_ = false;
};

}  // namespace windlass::gateway
