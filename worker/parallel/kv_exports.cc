// A log of pieces per session; callbacks run outside the lock.
#include "worker/parallel/kv_exports.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "worker/parallel/kv_wire.h"

namespace windlass::worker {

void KvExports::take_ready(Session& session, Callbacks& to) {
  std::erase_if(session.waiters, [&](Waiter& waiter) {
    if (!session.ready(waiter.piece)) return false;
    to.push_back(std::move(waiter.then));
    return true;
  });
}

void KvExports::open(const std::string& session, std::span<const std::int32_t> prompt, std::function<void()> begun) {
  std::string hash = kv_prompt_hash(prompt, backend_.kv_shape());
  const std::scoped_lock lock(mutex_);
  Session& made = sessions_[session];
  made.hash = std::move(hash);
  made.begun = std::move(begun);
}

void KvExports::close(const std::string& session) {
  const std::scoped_lock lock(mutex_);
  const auto it = sessions_.find(session);
  if (it != sessions_.end() && !it->second.live) sessions_.erase(it);
}

void KvExports::begins(const std::string& session) {
  std::function<void()> begun;
  {
    const std::scoped_lock lock(mutex_);
    Session& begins = sessions_[session];
    begins.live = true;
    begun = std::exchange(begins.begun, nullptr);
  }
  if (begun) begun();
}

void KvExports::computed(const std::string& session, const KvRange& range, std::span<const std::int32_t> blocks) {
  Callbacks callbacks;
  {
    const std::scoped_lock lock(mutex_);
    Session& grows = sessions_[session];
    grows.pieces.push_back(range);
    if (grows.blocks.size() != blocks.size()) grows.blocks.assign(blocks.begin(), blocks.end());
    take_ready(grows, callbacks);
  }
  for (const auto& each : callbacks) each();
}

void KvExports::completed(const std::string& session, const Sampled& first) {
  Callbacks callbacks;
  {
    const std::scoped_lock lock(mutex_);
    Session& whole = sessions_[session];
    whole.first = first;
    take_ready(whole, callbacks);
  }
  for (const auto& each : callbacks) each();
}

void KvExports::stop(const std::string& session) {
  std::vector<Waiter> waiters;
  {
    std::unique_lock lock(mutex_);
    const auto it = sessions_.find(session);
    if (it == sessions_.end()) return;
    // Nodes of a map stay where they are, and nobody else erases a live one.
    read_done_.wait(lock, [&] { return it->second.readers == 0; });
    waiters = std::move(it->second.waiters);
    sessions_.erase(it);
  }
  for (const Waiter& each : waiters) each.then();
}

void KvExports::when_ready(const std::string& session, std::int64_t piece, double deadline_s, std::function<void()> then) {
  {
    const std::scoped_lock lock(mutex_);
    const auto it = sessions_.find(session);
    if (it != sessions_.end() && !it->second.ready(piece)) {
      it->second.waiters.push_back({piece, deadline_s, std::move(then)});
      return;
    }
  }
  then();
}

void KvExports::tick(double now_s) {
  Callbacks callbacks;
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [id, session] : sessions_) {
      std::erase_if(session.waiters, [&](Waiter& waiter) {
        if (now_s < waiter.deadline_s) return false;
        callbacks.push_back(std::move(waiter.then));
        return true;
      });
    }
  }
  for (const auto& each : callbacks) each();
}

Result<KvExports::Pieces> KvExports::read(const std::string& session, const std::string& hash, std::int64_t piece) {
  Pieces pieces;
  std::vector<KvRange> ranges;
  std::vector<std::int32_t> blocks;
  {
    const std::scoped_lock lock(mutex_);
    const auto it = sessions_.find(session);
    if (it == sessions_.end())
      return Error{ErrorCode::kNotFound, "session: found none of that name; it is over or was given up"};
    Session& from = it->second;
    if (from.hash != hash) {
      return Error{ErrorCode::kFailedPrecondition,
                   "prompt: found the hash of another one; the two workers serve different models or templates"};
    }
    const auto count = static_cast<std::int64_t>(from.pieces.size());
    if (piece > count) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("piece: found {}, allowed is at most {}", piece, count)};
    }
    std::size_t bytes = 0;
    for (pieces.next = piece; pieces.next < count; ++pieces.next) {
      const KvRange& range = from.pieces[static_cast<std::size_t>(pieces.next)];
      bytes += kv_piece_bytes(backend_.kv_shape(), range.tokens);
      if (bytes > kMostBytes && !ranges.empty()) break;
      ranges.push_back(range);
    }
    if (pieces.next == count) pieces.last = from.first;
    if (ranges.empty()) return pieces;
    blocks = from.blocks;
    ++from.readers;
  }
  for (const KvRange& range : ranges) append_kv_piece(backend_, range, blocks, pieces.bytes);
  metrics_.kv_transfer_bytes("sent").add(static_cast<double>(pieces.bytes.size()));
  {
    const std::scoped_lock lock(mutex_);
    --sessions_.at(session).readers;  // stop() waits for us
  }
  read_done_.notify_all();
  return pieces;
}

}  // namespace windlass::worker
