// KvExports: the keys and values that other workers pull from this one, by session.
//
// The engine reports what it has computed; readers get pieces in that order, as soon as they exist. Reading copies out of the
// cache without blocking the engine; only stop() waits, for copies of its own session. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "metrics/bundles.h"
#include "planner/base/result.h"
#include "worker/engine/clock.h"
#include "worker/engine/kv_transfer.h"
#include "worker/parallel/kv_wire.h"

namespace windlass::worker {

class KvExports final : public KvSender {
 public:
  // `model`: its fingerprint. REQUIRES: backend, clock and metrics outlive the engine that reports to this object.
  KvExports(const Backend& backend, std::uint64_t model, const Clock& clock, const metrics::WorkerMetrics& metrics)
      : backend_(backend), model_(model), clock_(clock), metrics_(metrics) {}

  // Opens a session; call it before the engine gets the request. `begun` is called once, on the engine's thread, when the first
  // iteration of the request begins.
  void open(const std::string& session, std::span<const std::int32_t> prompt, std::function<void()> begun);
  // The request is over. Forgets a session that never began.
  void close(const std::string& session);

  void begins(const std::string& session) override;
  void computed(const std::string& session, const KvRange& range, std::span<const std::int32_t> blocks) override;
  void completed(const std::string& session, const Sampled& first) override;
  void stop(const std::string& session) override;

  // Calls `then` once: immediately if read() has data or an error, otherwise when that happens, or from tick() after
  // kKvLongestWaitS.
  void when_ready(const std::string& session, const std::string& hash, std::int64_t piece, std::function<void()> then);
  // A session that nobody fetches any more.
  struct Abandoned {
    std::string session;
    double silent_s = 0;  // lower bound of the time without a question
    bool operator==(const Abandoned&) const = default;
  };
  // Answers readers that have waited long enough. Returns abandoned sessions: sessions whose reader has sent no question for
  // kLeaseS and, after drain(), computed sessions that no reader started to read within kUnaskedS.
  [[nodiscard]] std::vector<Abandoned> tick();
  static constexpr double kLeaseS = 10;
  static constexpr double kUnaskedS = 30;
  // Call when the worker is about to stop or to change its blocks. From now on, a session that nobody reads delays that by
  // at most kUnaskedS.
  void drain();

  struct Pieces {
    std::string bytes;            // kv_wire.h; empty if nothing is ready
    std::int64_t next = 0;        // number of the piece after these
    std::optional<Sampled> last;  // the first token, if no piece follows
  };
  // Pieces from number `from` on: at most kKvMaxBytes, or a single piece. Errors: kNotFound; kFailedPrecondition if the hash
  // is of another prompt; kInvalidArgument for a number beyond the next piece.
  [[nodiscard]] Result<Pieces> read(const std::string& session, const std::string& hash, std::int64_t piece);

  // Like read(), but without the data, which copy() returns part by part. Error: kNotFound if the session has ended meanwhile.
  struct Ready {
    std::vector<KvRange> pieces;
    std::int64_t next = 0;
    std::optional<Sampled> last;
  };
  [[nodiscard]] Result<Ready> ready(const std::string& session, const std::string& hash, std::int64_t piece);
  // REQUIRES: the range is inside a piece.
  [[nodiscard]] Result<void> copy(const std::string& session, const KvRange& range, float* out);
  // Counts bytes of pieces that were sent.
  void sent(std::size_t bytes) const { metrics_.kv_transfer_bytes("sent").add(static_cast<double>(bytes)); }
  [[nodiscard]] KvShape kv_shape() const { return backend_.kv_shape(); }
  [[nodiscard]] bool kv_is_bf16() const { return backend_.kv_is_bf16(); }

 private:
  struct Waiter {
    std::int64_t piece = 0;
    double deadline_s = 0;
    std::function<void()> then;
  };
  struct Session {
    std::string hash;
    std::function<void()> begun;
    bool live = false;  // the engine holds blocks for it
    std::vector<KvRange> pieces;
    std::vector<std::int32_t> blocks;
    std::optional<Sampled> first;
    double completed_s = 0;         // when `first` was set
    std::optional<double> asked_s;  // last question
    int readers = 0;
    bool ends = false;  // remove once its readers are done
    std::vector<Waiter> waiters;

    [[nodiscard]] bool ready(std::int64_t piece) const {
      return first.has_value() || piece < static_cast<std::int64_t>(pieces.size());
    }
  };
  using Callbacks = std::vector<std::function<void()>>;
  class Reader;

  // Removes and returns the waiters for which `when` is true. REQUIRES: mutex_ held.
  template <class When>
  static void take(Session& session, const When& when, Callbacks& to);
  // Also records that somebody asked. Error: kNotFound. REQUIRES: mutex_ held.
  [[nodiscard]] Result<Session*> live(const std::string& session);
  // Changes the session and notifies the waiters that can go on.
  template <class Change>
  void grow(const std::string& session, const Change& change);

  const Backend& backend_;
  const std::uint64_t model_;
  const Clock& clock_;
  const metrics::WorkerMetrics& metrics_;
  std::mutex mutex_;
  std::condition_variable read_done_;
  std::map<std::string, Session> sessions_;
  std::optional<double> draining_s_;  // since then
};

}  // namespace windlass::worker
