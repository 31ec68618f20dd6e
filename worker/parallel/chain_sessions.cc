// Keeps sessions by name and chains by their workers.
#include "worker/parallel/chain_sessions.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "worker/parallel/kv_wire.h"

namespace windlass::worker {
namespace {

constexpr std::size_t kMaxToldBytes = 300;  // limit of another worker's text in an error or log

// Reduces it to one line.
std::string told(std::string_view words) {
  std::string text(words.substr(0, kMaxToldBytes));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return text;
}

Error error_of(const std::string& address, const ChainAnswer& answer) {
  const ErrorCode code = answer.status == 503 && (answer.rejected == "full" || answer.rejected == "draining")
                             ? ErrorCode::kResourceExhausted
                         : answer.status >= 400 && answer.status < 500 ? ErrorCode::kFailedPrecondition
                                                                       : ErrorCode::kUnavailable;
  return Error{code, fmt::format("worker {}: {}", told(address), told(answer.body))};
}

}  // namespace

struct ChainSessions::Shared {
  // State of a chain that has sessions.
  struct Kept {
    std::weak_ptr<const Chain> chain;
    double told_s = 0;      // of the last keep call
    double answered_s = 0;  // of the last answer; the start until then
    bool asking = false;
    bool unanswered = false;  // the last time
  };

  struct Session {
    ChainPtr chain;
    bool over = false;  // gone at a later worker
  };

  Shared(const ChainModel& m, std::int64_t b, std::int64_t n, ChainPost p, const Clock& c, const metrics::WorkerMetrics& w)
      : model(m), block(b), most(n), post(std::move(p)), clock(c), metrics(w) {}

  const ChainModel model;
  const std::int64_t block;
  const std::int64_t most;
  const ChainPost post;
  const Clock& clock;
  const metrics::WorkerMetrics& metrics;

  mutable std::mutex mutex;
  std::map<std::string, Session, std::less<>> sessions;
  std::int64_t reserving = 0;  // sessions whose reservation is not answered yet
  std::map<std::vector<std::string>, Kept> chains;
  bool closed = false;  // clock and metrics may be destroyed

  // REQUIRES: mutex held.
  ChainPtr shared_chain(std::vector<std::string> hops) {
    Kept& kept = chains[hops];
    ChainPtr chain = kept.chain.lock();
    if (chain != nullptr) return chain;
    chain = std::make_shared<const Chain>(Chain{std::move(hops)});
    const double now_s = clock.now_s();
    kept = {chain, now_s, now_s};
    return chain;
  }

  // REQUIRES: mutex held.
  void end(const ChainPtr& chain, std::span<const std::string> names) {
    for (const std::string& name : names) {
      const auto it = sessions.find(name);
      if (it != sessions.end() && it->second.chain == chain) it->second.over = true;
    }
  }
};

ChainSessions::ChainSessions(const ChainModel& model, std::int64_t block, std::int64_t most, ChainPost post, const Clock& clock,
                             const metrics::WorkerMetrics& metrics)
    : shared_(std::make_shared<Shared>(model, block, most, std::move(post), clock, metrics)) {}

ChainSessions::~ChainSessions() {
  const std::scoped_lock lock(shared_->mutex);
  shared_->closed = true;
}

void ChainSessions::reserve(std::vector<std::string> sessions, std::vector<std::string> hops, std::int64_t tokens,
                            std::function<void(Result<void>)> reserved) {
  assert(!sessions.empty() && !hops.empty());
  const auto count = static_cast<std::int64_t>(sessions.size());
  std::optional<Error> full;
  {
    const std::scoped_lock lock(shared_->mutex);
    const std::int64_t taken = static_cast<std::int64_t>(shared_->sessions.size()) + shared_->reserving;
    if (taken + count > shared_->most) {
      full = Error{ErrorCode::kResourceExhausted,
                   fmt::format("this worker is full: {} requests and {} more (at most {})", taken, count, shared_->most)};
    } else {
      shared_->reserving += count;
    }
  }
  if (full) return reserved(*full);
  const std::string next = hops.front();
  const double timeout_s = patience_s(ChainVerb::kReserve, hops.size() - 1);
  ChainReservation reservation{shared_->model, shared_->block, tokens, sessions, {hops.begin() + 1, hops.end()}};
  shared_->post({next, ChainVerb::kReserve, to_json(reservation), timeout_s, kChainMaxErrorBytes},
                [shared = shared_, next, hops = std::move(hops), sessions = std::move(sessions),
                 reserved = std::move(reserved)](const ChainAnswer& answer) {
                  bool closed = false;
                  {
                    const std::scoped_lock lock(shared->mutex);
                    closed = shared->closed;
                    shared->reserving -= static_cast<std::int64_t>(sessions.size());
                    if (answer.ok() && !closed) {
                      const ChainPtr chain = shared->shared_chain(hops);
                      for (const std::string& each : sessions) shared->sessions[each] = {chain};
                    } else if (answer.status == 0 && !closed) {
                      shared->metrics.chain_refusals("unreachable").add(1);
                    }
                  }
                  if (answer.ok() && !closed) return reserved({});
                  // Without an answer the reservation may exist there, and at other workers the lease would hold it for a
                  // while: release it.
                  if (answer.ok() || answer.status == 0) {
                    shared->post({next, ChainVerb::kRelease, sessions_text(sessions), kChainKeepAnswerS, kChainMaxErrorBytes},
                                 [](const ChainAnswer&) {});
                  }
                  reserved(answer.ok() ? Error{ErrorCode::kUnavailable, "this worker is stopping"} : error_of(next, answer));
                });
}

void ChainSessions::release(const std::string& session) {
  ChainPtr chain;
  {
    const std::scoped_lock lock(shared_->mutex);
    const auto it = shared_->sessions.find(session);
    if (it == shared_->sessions.end()) return;
    chain = std::move(it->second.chain);
    shared_->sessions.erase(it);
  }
  shared_->post({chain->next(), ChainVerb::kRelease, session, kChainKeepAnswerS, kChainMaxErrorBytes},
                [](const ChainAnswer&) {});
}

ChainPtr ChainSessions::chain_of(std::string_view session) const {
  const std::scoped_lock lock(shared_->mutex);
  const auto it = shared_->sessions.find(session);
  return it == shared_->sessions.end() ? nullptr : it->second.chain;
}

bool ChainSessions::over(std::string_view session) const {
  const std::scoped_lock lock(shared_->mutex);
  const auto it = shared_->sessions.find(session);
  return it != shared_->sessions.end() && it->second.over;
}

void ChainSessions::end(const ChainPtr& chain, std::span<const std::string> sessions) {
  const std::scoped_lock lock(shared_->mutex);
  shared_->end(chain, sessions);
}

bool ChainSessions::silent(const ChainPtr& chain) const {
  const std::scoped_lock lock(shared_->mutex);
  const auto it = shared_->chains.find(chain->hops);
  if (it == shared_->chains.end()) return false;
  const auto& kept = it->second;
  return (kept.asking || kept.unanswered) && shared_->clock.now_s() - kept.answered_s > kSilentS;
}

void ChainSessions::step(const ChainPtr& chain, std::string body, std::size_t max_bytes, ChainAnswered answered) const {
  shared_->metrics.chain_bytes("sent").add(static_cast<double>(body.size()));
  shared_->post(
      {chain->next(), ChainVerb::kStep, std::move(body), patience_s(ChainVerb::kStep, chain->hops.size() - 1), max_bytes},
      std::move(answered));
}

void ChainSessions::row(const ChainPtr& chain, const std::string& session, ChainAnswered answered) const {
  const std::size_t max_bytes = static_cast<std::size_t>(shared_->model.vocab_size) * sizeof(float) + max_refusal_bytes(1);
  shared_->post({chain->next(), ChainVerb::kRow, session, patience_s(ChainVerb::kRow, chain->hops.size() - 1), max_bytes},
                std::move(answered));
}

void ChainSessions::tick() {
  std::map<std::vector<std::string>, std::vector<std::string>> due;  // sessions by chain
  {
    const std::scoped_lock lock(shared_->mutex);
    const double now_s = shared_->clock.now_s();
    std::erase_if(shared_->chains, [](const auto& each) { return each.second.chain.expired() && !each.second.asking; });
    for (auto& [hops, kept] : shared_->chains) {
      if (kept.asking || now_s - kept.told_s < kChainKeepS) continue;
      kept.told_s = now_s;
      kept.asking = true;
      due[hops];
    }
    for (const auto& [name, session] : shared_->sessions) {
      if (const auto it = due.find(session.chain->hops); it != due.end()) it->second.push_back(name);
    }
    // Skip a chain whose last session was just released.
    std::erase_if(due, [&](const auto& each) {
      if (each.second.empty()) shared_->chains[each.first].asking = false;
      return each.second.empty();
    });
  }
  for (const auto& [hops, sessions] : due) {
    shared_->post({hops.front(), ChainVerb::kKeep, sessions_text(sessions), patience_s(ChainVerb::kKeep, hops.size() - 1),
                   max_refusal_bytes(sessions.size())},
                  [shared = shared_, hops = hops](const ChainAnswer& answer) {
                    const std::scoped_lock lock(shared->mutex);
                    const auto it = shared->chains.find(hops);
                    if (it == shared->chains.end() || shared->closed) return;
                    it->second.asking = false;
                    // Sessions can be gone although the workers are fine.
                    const auto over = sessions_over(answer);
                    if (const ChainPtr chain = it->second.chain.lock()) shared->end(chain, over);
                    it->second.unanswered = !answer.ok() && over.empty();
                    if (!it->second.unanswered) it->second.answered_s = shared->clock.now_s();
                  });
  }
}

std::int64_t ChainSessions::sessions() const {
  const std::scoped_lock lock(shared_->mutex);
  return static_cast<std::int64_t>(shared_->sessions.size());
}

}  // namespace windlass::worker
