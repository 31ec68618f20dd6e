// ChainSessions: the first worker's record of its sessions at the later workers of its chains. It reserves them before a
// request begins, keeps them alive, and releases them at the end.
//
// A session stands for one sequence. It is held by all workers of the chain or by none: if one refuses, those before it
// release the session. If a release gets lost, the session ends when its lease (kChainLeaseS) expires. Thread-safe.
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

// The later workers of a chain, in order. Sessions with the same route share one object.
struct Chain {
  std::vector<std::string> hops;  // never empty

  [[nodiscard]] const std::string& next() const { return hops.front(); }
};
using ChainPtr = std::shared_ptr<const Chain>;

class ChainSessions {
 public:
  // A chain that leaves keep calls unanswered for this long counts as lost.
  static constexpr double kSilentS = 3 * kChainKeepS;

  // `block`: the first block that this worker does not have. `most`: limit of sessions, including those being reserved.
  // REQUIRES: clock and metrics outlive this.
  ChainSessions(const ChainModel& model, std::int64_t block, std::int64_t most, ChainPost post, const Clock& clock,
                const metrics::WorkerMetrics& metrics);
  ~ChainSessions();
  ChainSessions(const ChainSessions&) = delete;
  ChainSessions& operator=(const ChainSessions&) = delete;

  // Reserves this many positions for each session at all of the workers, or at none. Calls `reserved` once, on any thread,
  // perhaps before it returns. Errors: kResourceExhausted (this or another worker has no room or is draining; if it is this
  // one, no other was asked), kFailedPrecondition (the workers do not form a chain for this model from that block on),
  // kUnavailable (a worker did not answer). REQUIRES: hops and sessions are not empty.
  void reserve(std::vector<std::string> sessions, std::vector<std::string> hops, std::int64_t tokens,
               std::function<void(Result<void>)> reserved);
  void release(const std::string& session);

  // nullptr: not reserved.
  [[nodiscard]] ChainPtr chain_of(std::string_view session) const;
  // A later worker of the chain no longer has the session: it restarted, or its lease expired.
  [[nodiscard]] bool over(std::string_view session) const;
  // Marks sessions that a worker reported as gone; ignores those that belong to another chain.
  void end(const ChainPtr& chain, std::span<const std::string> sessions);
  [[nodiscard]] bool silent(const ChainPtr& chain) const;
  // Sends a step of sessions of one chain.
  void step(const ChainPtr& chain, std::string body, std::size_t max_bytes, ChainAnswered answered) const;
  // Fetches the row of logits behind the summary of the session's last step.
  void row(const ChainPtr& chain, const std::string& session, ChainAnswered answered) const;

  // Renews leases at the other workers; call it several times a second.
  void tick();
  [[nodiscard]] std::int64_t sessions() const;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // also held by calls that wait for answers
};

}  // namespace windlass::worker
