// One loop that finds the workers to probe, and one coroutine per probe.
#include "gateway/http_prober.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace windlass::gateway {
namespace {

// Every OpenAI server has it and answers it from memory. SGLang's /health generates a token and takes at least a second.
constexpr std::string_view kProbePath = "/v1/models";
constexpr double kOwnDelayS = 0.2;
constexpr std::uint64_t kMaxAnswerBytes = 1U << 20U;

std::chrono::microseconds micros(double seconds) { return std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6)); }

}  // namespace

Prober::Prober(asio::io_context& io, Dispatcher& dispatcher, UpstreamPool& pool)
    : io_(io), dispatcher_(dispatcher), pool_(pool), timer_(io) {}

void Prober::start() { asio::co_spawn(io_, run(), asio::detached); }

void Prober::stop() {
  stopped_ = true;
  timer_.cancel();
}

void Prober::heard(const std::string& address) {
  const auto target = schedule_.find(address);
  if (target == nullptr) return;
  const Contact before = target->tracker.contact();
  tell(address, before, target->tracker.heard(Dispatcher::now_s()));
}

std::shared_ptr<void> Prober::use(const std::string& address) {
  // A table that adds a worker sends it requests immediately, before the next look.
  if (schedule_.find(address) == nullptr) look_for_addresses();
  return schedule_.use(address);
}

asio::awaitable<void> Prober::run() {
  while (!stopped_) {
    look_for_addresses();
    for (const auto& target : schedule_.due(Dispatcher::now_s())) asio::co_spawn(io_, ask(target), asio::detached);
    error_code ignored;
    timer_.expires_after(micros(ProbeSchedule::kLookEveryS));
    co_await timer_.async_wait(to(ignored));
  }
}

// Gives the schedule the addresses that the router knows: immediately for a new table, otherwise from time to time.
void Prober::look_for_addresses() {
  const double now_s = Dispatcher::now_s();
  const dispatch::TableVersion version = dispatcher_.router().table().version;
  if (version == seen_ && now_s < next_addresses_s_) return;
  seen_ = version;
  next_addresses_s_ = now_s + kAddressesEveryS;
  schedule_.set_addresses(dispatcher_.router().addresses(), now_s, [this](const ProbeSchedule::Target& target) {
    kept_.erase(target.address);
    dispatcher_.contact_changed(target.address, Contact::kAnswers);  // forgotten: if it returns, it starts over
  });
}

asio::awaitable<void> Prober::ask(ProbeSchedule::TargetPtr target) {
  std::unique_ptr<UpstreamConnection> connection;
  if (auto kept = kept_.extract(target->address); !kept.empty()) connection = std::move(kept.mapped());
  while (target->asking) {
    bool counts = true;
    const Probe outcome = co_await probe(target->address, connection, counts);
    if (stopped_ || !target->wanted) co_return;
    const Contact before = target->tracker.contact();
    const bool ours = !counts && outcome != Probe::kAnswered;
    schedule_.done(target, Dispatcher::now_s(), ours ? std::nullopt : std::optional(outcome));
    tell(target->address, before, target->tracker.contact());
  }
  if (connection != nullptr && kept_.size() < kMaxKept) kept_[target->address] = std::move(connection);
}

// counts is false when the timeout was our own fault: the timer itself fired late.
asio::awaitable<Probe> Prober::probe(const std::string& address, std::unique_ptr<UpstreamConnection>& kept, bool& counts) {
  const double begin_s = Dispatcher::now_s();
  const auto on_time = [&] { return Dispatcher::now_s() - begin_s <= ContactTracker::kProbeTimeoutS + kOwnDelayS; };
  error_code error;
  if (kept == nullptr || closed_or_readable(kept->stream.socket())) {
    kept = pool_.make();
    error = co_await pool_.connect(*kept, address, micros(ContactTracker::kProbeTimeoutS));
    if (error) {
      counts = on_time();
      kept.reset();
      co_return Probe::kNoConnection;
    }
  }
  const std::string request = fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", kProbePath, address);
  const double left_s = ContactTracker::kProbeTimeoutS - (Dispatcher::now_s() - begin_s);
  kept->stream.expires_after(micros(std::max(0.01, left_s)));
  co_await asio::async_write(kept->stream, asio::buffer(request), to(error));
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxAnswerBytes);
  if (!error) co_await http::async_read(kept->stream, kept->buffer, parser, to(error));
  if (error) {
    counts = on_time();
    kept.reset();
    // An answer with an incomplete body is still an answer.
    co_return parser.is_header_done() ? Probe::kAnswered : Probe::kNoAnswer;
  }
  kept->stream.expires_never();
  if (!parser.keep_alive()) kept.reset();
  co_return Probe::kAnswered;
}

void Prober::tell(const std::string& address, Contact before, Contact now) {
  if (before == now) return;
  if (now == Contact::kAnswers) {
    spdlog::info("worker at {} answers again", address);
  } else {
    spdlog::warn("worker at {} is {}", address, to_string(now));
    pool_.forget(address);
  }
  dispatcher_.contact_changed(address, now);
}

}  // namespace windlass::gateway
