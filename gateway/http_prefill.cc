// Reads with one coroutine, which outlives its PrefillAnswer until its interrupted read returns.
#include "gateway/http_prefill.h"

#include <array>

#include "gateway/http_exchange.h"

namespace windlass::gateway {

struct PrefillAnswer::Reading {
  Proxy& proxy;
  RequestId id;
  std::string model, address;
  std::shared_ptr<void> in_use;
  std::unique_ptr<UpstreamConnection> upstream;
  std::unique_ptr<AnswerParser> parser;
  bool given_up = false;  // the result no longer matters
  std::array<char, 4096> bytes{};
};

std::string PrefillAnswer::value_in(const AnswerParser& parser) {
  const auto value = parser.get()["X-Windlass-Prefilled"];
  if (parser.get().result_int() != 200 || value.size() > kMaxValueBytes) return {};
  return std::string(value);
}

PrefillAnswer::PrefillAnswer(Proxy& proxy, RequestId id, std::string model, std::string address, std::shared_ptr<void> in_use,
                             std::unique_ptr<UpstreamConnection> upstream, std::unique_ptr<AnswerParser> parser)
    : value_(value_in(*parser)),
      reading_(std::make_shared<Reading>(Reading{proxy, id, std::move(model), std::move(address), std::move(in_use),
                                                 std::move(upstream), std::move(parser)})) {}

PrefillAnswer::~PrefillAnswer() {
  reading_->given_up = true;
  if (reading_->upstream != nullptr) reading_->upstream->close();
}

void PrefillAnswer::read_on() { asio::co_spawn(reading_->upstream->stream.get_executor(), read(reading_), asio::detached); }

asio::awaitable<void> PrefillAnswer::read(std::shared_ptr<Reading> reading) {
  AnswerParser& parser = *reading->parser;
  error_code error;
  for (std::size_t total = 0; !parser.is_done() && !error && total <= kMaxBodyBytes;) {
    const std::size_t n = co_await read_body(*reading->upstream, parser, reading->bytes.data(), reading->bytes.size(), error);
    if (reading->given_up) co_return;
    if (n > 0) reading->proxy.heard(reading->address);
    total += n;
  }
  const bool whole = parser.is_done() && !error;
  if (whole && parser.keep_alive() && reading->upstream->buffer.size() == 0) {
    reading->proxy.pool.release(reading->address, std::move(reading->upstream));
  } else {
    reading->upstream->close();
  }
  reading->in_use.reset();
  if (!whole) reading->proxy.dispatcher.count_upstream_error(reading->model, "prefill_broken");
  reading->proxy.dispatcher.prefill_ended(reading->id);
}

}  // namespace windlass::gateway
