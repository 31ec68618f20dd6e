// PrefillAnswer: keeps a prefill worker's answer open after its head has arrived, while the decode worker fetches the keys
// and values. The body stays open until they have been fetched or given up (docs/decisions/2026-11-22-kv-is-pulled.md).
//
// The body is read in the background and discarded; its end is reported to the router. The exchange owns this object, and this
// object owns the connection. Destroying it closes a connection that is still open, which tells the worker that nobody will
// fetch the keys and values.
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
  // Limit from the contract: a longer value is ignored.
  static constexpr std::size_t kMaxValueBytes = 8192;
  // A worker sends white space every second; a body longer than this is cut off.
  static constexpr std::size_t kMaxBodyBytes = 1U << 20U;

  // Opaque location of the keys and values; empty when the head lacks it or breaks the contract.
  [[nodiscard]] static std::string value_in(const AnswerParser& parser);

  // `in_use` tells the prober that a request is at that worker.
  PrefillAnswer(Proxy& proxy, RequestId id, std::string model, std::string address, std::shared_ptr<void> in_use,
                std::unique_ptr<UpstreamConnection> upstream, std::unique_ptr<AnswerParser> parser);
  ~PrefillAnswer();
  PrefillAnswer(const PrefillAnswer&) = delete;
  PrefillAnswer& operator=(const PrefillAnswer&) = delete;

  // Starts reading. REQUIRES: the router already knows that the request is prefilled; otherwise it would ignore the end.
  void read_on();

  [[nodiscard]] const std::string& value() const { return value_; }

 private:
  struct Reading;
  static asio::awaitable<void> read(std::shared_ptr<Reading> reading);

  std::string value_;
  std::shared_ptr<Reading> reading_;  // shared with the coroutine
};

}  // namespace windlass::gateway
