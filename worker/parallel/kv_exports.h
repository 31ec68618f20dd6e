// KvExports: the keys and values that other workers pull from this one, by session.
//
// The engine tells it what is computed; readers take pieces in the order in which they came to be, as soon as they are there.
// Reading copies out of the cache without holding the engine up: only stop() waits, for copies of its own session. Thread-safe.
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
  // `model`: its fingerprint. REQUIRES: backend, clock and metrics outlive the engine that tells this of its sessions.
  KvExports(const Backend& backend, std::uint64_t model, const Clock& clock, const metrics::WorkerMetrics& metrics)
      : backend_(backend), model_(model), clock_(clock), metrics_(metrics) {}

  // Before the request is given to the engine; `begun` is called once on the engine's thread when its first iteration begins.
  void open(const std::string& session, std::span<const std::int32_t> prompt, std::function<void()> begun);
  // The request is over; a session that never began is forgotten.
  void close(const std::string& session);

  void begins(const std::string& session) override;
  void computed(const std::string& session, const KvRange& range, std::span<const std::int32_t> blocks) override;
  void completed(const std::string& session, const Sampled& first) override;
  void stop(const std::string& session) override;

  // Calls `then` once: at once when there is something to read() or to refuse; else when that comes, or from tick() when
  // kKvLongestWaitS have passed.
  void when_ready(const std::string& session, const std::string& hash, std::int64_t piece, std::function<void()> then);
  // A session that nobody wants.
  struct Abandoned {
    std::string session;
    double silent_s = 0;  // for how long nobody has asked, at least
    bool operator==(const Abandoned&) const = default;
  };
  // Answers those who have waited long enough; the sessions that somebody began to read and has not asked for in kLeaseS, and
  // after drain() those that were computed and that nobody began to read in kUnaskedS.
  [[nodiscard]] std::vector<Abandoned> tick();
  static constexpr double kLeaseS = 10;
  static constexpr double kUnaskedS = 30;
  // The worker is to end, or its blocks are to change: what nobody begins to read holds it up no longer than kUnaskedS.
  void drain();

  struct Pieces {
    std::string bytes;            // kv_wire.h; none when nothing is ready
    std::int64_t next = 0;        // number of the piece after them
    std::optional<Sampled> last;  // the first token, when no piece follows
  };
  // Pieces from that number on, at most kKvMostBytes of them or a single one. Errors: kNotFound; kFailedPrecondition when the
  // hash is of another prompt; kInvalidArgument for a number beyond the next.
  [[nodiscard]] Result<Pieces> read(const std::string& session, const std::string& hash, std::int64_t piece);

  // The same without what is in them, which copy() gives, part by part. kNotFound where the session is over by then.
  struct Ready {
    std::vector<KvRange> pieces;
    std::int64_t next = 0;
    std::optional<Sampled> last;
  };
  [[nodiscard]] Result<Ready> ready(const std::string& session, const std::string& hash, std::int64_t piece);
  // REQUIRES: the range is within a piece.
  [[nodiscard]] Result<void> copy(const std::string& session, const KvRange& range, float* out);
  // So many bytes of pieces are out.
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
    bool live = false;  // the engine has blocks for it
    std::vector<KvRange> pieces;
    std::vector<std::int32_t> blocks;
    std::optional<Sampled> first;
    double completed_s = 0;         // when `first` came
    std::optional<double> asked_s;  // last
    int readers = 0;
    bool ends = false;  // as soon as its readers are done
    std::vector<Waiter> waiters;

    [[nodiscard]] bool ready(std::int64_t piece) const {
      return first.has_value() || piece < static_cast<std::int64_t>(pieces.size());
    }
  };
  using Callbacks = std::vector<std::function<void()>>;
  class Reader;

  // Takes out the waiters of which `when` is true. REQUIRES: mutex_ held.
  template <class When>
  static void take(Session& session, const When& when, Callbacks& to);
  // Whoever asks is alive, too. Error: kNotFound. REQUIRES: mutex_ held.
  [[nodiscard]] Result<Session*> live(const std::string& session);
  // Changes the session, and tells those whom it lets go on.
  template <class Change>
  void grow(const std::string& session, const Change& change);

  const Backend& backend_;
  const std::uint64_t model_;
  const Clock& clock_;
  const metrics::WorkerMetrics& metrics_;
  std::mutex mutex_;
  std::condition_variable read_done_;
  std::map<std::string, Session> sessions_;
  std::optional<double> draining_s_;  // since
};

}  // namespace windlass::worker
