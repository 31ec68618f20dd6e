// PrefillAnswer: what a prefill worker answers to the first of a request's two steps, from its head on: a body that stays open
// until the keys and values have been taken or given up (docs/decisions/2026-11-22-kv-is-pulled.md).
//
// The body is read in the background and thrown away, so that its end is noticed, which the router is told. The exchange owns
// it, and with it the connection: destroying it breaks off what is still open, by which the worker learns that nobody will
// come.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "gateway/http_upstream.h"
#include "gateway/router.h"

namespace windlass::gateway {

struct Proxy;

class PrefillAnswer {
 public:
  // Of the contract: a longer value is none.
  static constexpr std::size_t kMaxValueBytes = 8192;
  // A worker sends white space every second; one that sends more than this is cut off.
  static constexpr std::size_t kMaxBodyBytes = 1U << 20U;

  // Where the keys and values are, opaque; empty: the head does not say so as the contract asks for.
  [[nodiscard]] static std::string value_in(const AnswerParser& parser);

  // `in_use`: tells the prober that something is at that worker.
  PrefillAnswer(Proxy& proxy, RequestId id, std::string model, std::string address, std::shared_ptr<void> in_use,
                std::unique_ptr<UpstreamConnection> upstream, std::unique_ptr<AnswerParser> parser);
  ~PrefillAnswer();
  PrefillAnswer(const PrefillAnswer&) = delete;
  PrefillAnswer& operator=(const PrefillAnswer&) = delete;

  // Begins to read. REQUIRES: the router knows that the request is prefilled, or it would take no notice of the end.
  void read_on();

  [[nodiscard]] const std::string& value() const { return value_; }

 private:
  struct Reading;
  static asio::awaitable<void> read(std::shared_ptr<Reading> reading);

  std::string value_;
  std::shared_ptr<Reading> reading_;  // the coroutine has it, too
};

}  // namespace windlass::gateway
