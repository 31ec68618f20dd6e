// What the engine tells those who move keys and values between workers (docs/decisions/2026-11-22-kv-is-pulled.md): a sender
// hears of prompts that are computed here for another worker, a receiver of those that are wanted from one.
//
// Both are called on the engine's thread and answer later, through Engine::taken() and Engine::received(). Calls never wait for
// a network; the two that end something wait until a copy that is under way is done.
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

  // The first iteration with the prompt is about to begin.
  virtual void begins(const std::string& session) = 0;
  // A range is in the cache; `blocks` are those of the sequence from its first position on. They stay until stop().
  virtual void computed(const std::string& session, const KvRange& range, std::span<const std::int32_t> blocks) = 0;
  // All of the prompt is in the cache and the first token is drawn; Engine::taken() is to follow.
  virtual void completed(const std::string& session, const Sampled& first) = 0;
  // The blocks go to somebody else when this returns.
  virtual void stop(const std::string& session) = 0;
};

class KvReceiver {
 public:
  virtual ~KvReceiver() = default;

  // The prompt's keys and values are to be written into these blocks; Engine::received() is to follow.
  virtual void receive(RequestId request, const KvSession& session, std::span<const std::int32_t> prompt,
                       std::span<const std::int32_t> blocks) = 0;
  // Nothing is written any more when this returns, and received() need not follow.
  virtual void stop(RequestId request) = 0;
};

// Null where requests never name a session of that kind.
struct KvTransfer {
  KvSender* sender = nullptr;
  KvReceiver* receiver = nullptr;
};

}  // namespace windlass::worker
