// Interfaces through which the engine drives KV transfers between workers (docs/decisions/2026-11-22-kv-is-pulled.md).
// KvSender: prompts computed here for another worker. KvReceiver: prompts fetched from another worker.
//
// Both are called on the engine's thread and report back later through Engine::taken() and Engine::received(). No call waits
// for the network; both stop() calls wait for a copy in progress.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "worker/backend/backend.h"
#include "worker/engine/request.h"

namespace windlass::worker {

class KvSender {
 public:
  virtual ~KvSender() = default;

  // The first iteration that includes the prompt is about to start.
  virtual void begins(const std::string& session) = 0;
  // A range of the prompt is in the cache. `blocks` are the sequence's blocks from its first position on; they stay valid until
  // stop().
  virtual void computed(const std::string& session, const KvRange& range, std::span<const std::int32_t> blocks) = 0;
  // The whole prompt is in the cache and the first token is sampled. Engine::taken() follows later.
  virtual void completed(const std::string& session, const Sampled& first) = 0;
  // The blocks are reused once this returns.
  virtual void stop(const std::string& session) = 0;
};

class KvReceiver {
 public:
  virtual ~KvReceiver() = default;

  // Write the prompt's keys and values to these blocks, then call Engine::received().
  virtual void receive(RequestId request, const KvSession& session, std::span<const std::int32_t> prompt,
                       std::span<const std::int32_t> blocks) = 0;
  // Nothing is written to the blocks once this returns; received() may be skipped.
  virtual void stop(RequestId request) = 0;
};

// A null member means that requests never name a session of that kind.
struct KvTransfer {
  KvSender* sender = nullptr;
  KvReceiver* receiver = nullptr;
};

}  // namespace windlass::worker
