// One loop over the addresses, and one for each of them.
#include "gateway/http_prober.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace windlass::gateway {
namespace {

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
  for (auto& [address, target] : targets_) target->wanted = false;
}

void Prober::heard(const std::string& address) {
  const auto found = targets_.find(address);
  if (found == targets_.end()) return;
  ContactTracker& tracker = found->second->tracker;
  const Contact before = tracker.contact();
  tell(address, before, tracker.heard(Dispatcher::now_s()));
}

// Keeps one watcher for each address that the router knows.
asio::awaitable<void> Prober::run() {
  while (!stopped_) {
    const std::set<std::string> addresses = dispatcher_.router().addresses();
    for (auto it = targets_.begin(); it != targets_.end();) {
      if (addresses.contains(it->first)) {
        ++it;
        continue;
      }
      it->second->wanted = false;
      dispatcher_.contact_changed(it->first, Contact::kAnswers);  // forgotten: should it return, it starts anew
      it = targets_.erase(it);
    }
    for (const std::string& address : addresses) {
      auto& target = targets_[address];
      if (target != nullptr) continue;
      target = std::make_shared<Target>(Dispatcher::now_s());
      asio::co_spawn(io_, watch(address, target), asio::detached);
    }
    error_code ignored;
    timer_.expires_after(micros(ContactTracker::kProbePeriodS / 4));
    co_await timer_.async_wait(to(ignored));
  }
}

asio::awaitable<void> Prober::watch(std::string address, std::shared_ptr<Target> target) {
  asio::steady_timer pause(io_);
  std::unique_ptr<UpstreamConnection> kept;
  while (target->wanted) {
    error_code ignored;
    if (!target->tracker.in_doubt()) {
      pause.expires_after(micros(ContactTracker::kProbePeriodS));
      co_await pause.async_wait(to(ignored));
      if (!target->wanted) co_return;
    }
    if (!target->tracker.probe_due(Dispatcher::now_s())) continue;
    bool counts = true;
    const Probe outcome = co_await probe(address, kept, counts);
    if (!target->wanted) co_return;
    if (!counts && outcome != Probe::kAnswered) {
      pause.expires_after(micros(ContactTracker::kProbePeriodS));
      co_await pause.async_wait(to(ignored));
      continue;
    }
    const Contact before = target->tracker.contact();
    tell(address, before, target->tracker.probed(Dispatcher::now_s(), outcome));
  }
}

// counts is false when the time-out was ours: the timer itself came late.
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
  const std::string request = fmt::format("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", address);
  const double left_s = ContactTracker::kProbeTimeoutS - (Dispatcher::now_s() - begin_s);
  kept->stream.expires_after(micros(std::max(0.01, left_s)));
  co_await asio::async_write(kept->stream, asio::buffer(request), to(error));
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxAnswerBytes);
  if (!error) co_await http::async_read(kept->stream, kept->buffer, parser, to(error));
  if (error) {
    counts = on_time();
    kept.reset();
    // A body that did not come to its end is an answer all the same.
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
