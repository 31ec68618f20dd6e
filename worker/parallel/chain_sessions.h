// ChainSessions: what the first worker of chains knows of its sessions at the later ones: it reserves them before a request
// begins, tells of them while it lasts, and releases them at its end.
//
// A session stands for one sequence. Nothing is ever half held: what one worker refuses, those before it give back; what does
// not come through runs out there after kChainLeaseS. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/bundles.h"
#include "planner/base/result.h"
#include "worker/engine/clock.h"
#include "worker/parallel/chain_wire.h"

namespace windlass::worker {

// The later workers of a chain, in order. One for all sessions that take the same way.
struct Chain {
  std::vector<std::string> hops;  // never empty

  [[nodiscard]] const std::string& next() const { return hops.front(); }
};
using ChainPtr = std::shared_ptr<const Chain>;

class ChainSessions {
 public:
  // A chain whose workers have left what they were told of sessions unanswered for so long is lost.
  static constexpr double kSilentS = 3 * kChainKeepS;

  // `block`: the first one that this worker does not have. `most`: sessions, those included that are being reserved. REQUIRES:
  // clock and metrics outlive this.
  ChainSessions(const ChainModel& model, std::int64_t block, std::int64_t most, ChainPost post, const Clock& clock,
                const metrics::WorkerMetrics& metrics);
  ~ChainSessions();
  ChainSessions(const ChainSessions&) = delete;
  ChainSessions& operator=(const ChainSessions&) = delete;

  // Room for so many positions of each of these sessions at all of these workers, or at none. Calls `reserved` once, on any
  // thread, perhaps before it returns. Errors: kResourceExhausted (a worker, or this one, has no room, or drains; where it is
  // this one, no other has been asked), kFailedPrecondition (they
  // are no chain for this model from that block on), kUnavailable (one did not answer). REQUIRES: hops and sessions are not
  // empty.
  void reserve(std::vector<std::string> sessions, std::vector<std::string> hops, std::int64_t tokens,
               std::function<void(Result<void>)> reserved);
  void release(const std::string& session);

  // nullptr: not reserved.
  [[nodiscard]] ChainPtr chain_of(std::string_view session) const;
  // A later worker of its chain has it no more: it has begun anew, or has not heard of it in time.
  [[nodiscard]] bool over(std::string_view session) const;
  // Such a worker says so of these sessions; who names those of another chain is not heard.
  void end(const ChainPtr& chain, std::span<const std::string> sessions);
  [[nodiscard]] bool silent(const ChainPtr& chain) const;
  // A step of sessions of one chain.
  void step(const ChainPtr& chain, std::string body, std::size_t most_bytes, ChainAnswered answered) const;
  // The row of logits that the last step's summary of one was made of.
  void row(const ChainPtr& chain, const std::string& session, ChainAnswered answered) const;

  // Tells the other workers that sessions last; to be called several times a second.
  void tick();
  [[nodiscard]] std::int64_t sessions() const;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // also held by what waits for answers
};

}  // namespace windlass::worker
