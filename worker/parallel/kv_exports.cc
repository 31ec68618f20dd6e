// Keeps a log of pieces per session; runs callbacks outside the lock.
#include "worker/parallel/kv_exports.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "worker/parallel/kv_wire.h"

namespace windlass::worker {

template <class When>
void KvExports::take(Session& session, const When& when, Callbacks& to) {
  std::erase_if(session.waiters, [&](Waiter& waiter) {
    if (!when(waiter)) return false;
    to.push_back(std::move(waiter.then));
    return true;
  });
}

template <class Change>
void KvExports::grow(const std::string& session, const Change& change) {
  Callbacks callbacks;
  {
    const std::scoped_lock lock(mutex_);
    Session& grows = sessions_[session];
    change(grows);
    take(
        grows, [&](const Waiter& waiter) { return grows.ready(waiter.piece); }, callbacks);
  }
  for (const auto& each : callbacks) each();
}

void KvExports::open(const std::string& session, std::span<const std::int32_t> prompt, std::function<void()> begun) {
  std::string hash = kv_prompt_hash(prompt, model_);
  const std::scoped_lock lock(mutex_);
  Session& made = sessions_[session];
  made.hash = std::move(hash);
  made.begun = std::move(begun);
}

void KvExports::close(const std::string& session) {
  std::map<std::string, Session>::node_type closed;  // destroyed outside of the lock
  {
    const std::scoped_lock lock(mutex_);
    const auto it = sessions_.find(session);
    if (it == sessions_.end() || it->second.live) return;
    closed = sessions_.extract(it);
  }
  for (const Waiter& each : closed.mapped().waiters) each.then();
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
  grow(session, [&](Session& grows) {
    grows.pieces.push_back(range);
    if (grows.blocks.size() != blocks.size()) grows.blocks.assign(blocks.begin(), blocks.end());
  });
}

void KvExports::completed(const std::string& session, const Sampled& first) {
  grow(session, [&](Session& grows) {
    grows.first = first;
    grows.completed_s = clock_.now_s();
  });
}

void KvExports::stop(const std::string& session) {
  std::map<std::string, Session>::node_type stopped;
  {
    std::unique_lock lock(mutex_);
    const auto it = sessions_.find(session);
    if (it == sessions_.end()) return;
    it->second.ends = true;  // no new readers
    // Map nodes do not move, and nobody else erases a live one.
    read_done_.wait(lock, [&] { return it->second.readers == 0; });
    stopped = sessions_.extract(it);
  }
  for (const Waiter& each : stopped.mapped().waiters) each.then();
}

void KvExports::when_ready(const std::string& session, const std::string& hash, std::int64_t piece,
                           std::function<void()> then) {
  {
    const std::scoped_lock lock(mutex_);
    const auto it = sessions_.find(session);
    if (it != sessions_.end() && it->second.hash == hash && !it->second.ready(piece) && !it->second.ends) {
      const double now_s = clock_.now_s();
      it->second.asked_s = now_s;
      it->second.waiters.push_back({piece, now_s + kKvLongestWaitS, std::move(then)});
      return;
    }
  }
  then();
}

void KvExports::drain() {
  const std::scoped_lock lock(mutex_);
  if (!draining_s_) draining_s_ = clock_.now_s();
}

std::vector<KvExports::Abandoned> KvExports::tick() {
  std::vector<Abandoned> abandoned;
  Callbacks callbacks;
  {
    const std::scoped_lock lock(mutex_);
    const double now_s = clock_.now_s();
    for (auto& [id, session] : sessions_) {
      take(
          session, [&](const Waiter& waiter) { return now_s >= waiter.deadline_s; }, callbacks);
      const bool quiet = session.waiters.empty() && session.readers == 0;
      if (!quiet) continue;
      if (session.asked_s) {
        if (now_s - *session.asked_s > kLeaseS) abandoned.push_back({id, kLeaseS});
      } else if (draining_s_ && session.live && session.first &&
                 now_s - std::max(*draining_s_, session.completed_s) > kUnaskedS) {
        abandoned.push_back({id, kUnaskedS});
      }
    }
  }
  for (const auto& each : callbacks) each();
  return abandoned;
}

// A reader, counted as long as this object lives; stop() waits for it.
class KvExports::Reader {
 public:
  Reader(KvExports& exports, Session& session) : exports_(exports), session_(session) { ++session_.readers; }
  ~Reader() {
    {
      const std::scoped_lock lock(exports_.mutex_);
      --session_.readers;
    }
    exports_.read_done_.notify_all();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

 private:
  KvExports& exports_;
  Session& session_;
};

Result<KvExports::Ready> KvExports::ready(const std::string& session, const std::string& hash, std::int64_t piece) {
  const std::scoped_lock lock(mutex_);
  WINDLASS_ASSIGN_OR_RETURN(Session* const from, live(session));
  if (from->hash != hash) {
    return Error{ErrorCode::kFailedPrecondition,
                 "prompt: must have the hash of this session's prompt (got another one); the two workers serve different "
                 "models or templates"};
  }
  const auto count = static_cast<std::int64_t>(from->pieces.size());
  if (piece > count) return Error{ErrorCode::kInvalidArgument, fmt::format("piece: must be at most {} (got {})", count, piece)};
  Ready found;
  std::size_t bytes = 0;
  for (found.next = piece; found.next < count; ++found.next) {
    const KvRange& range = from->pieces[static_cast<std::size_t>(found.next)];
    bytes += kv_piece_bytes(backend_.kv_shape(), range.tokens);
    if (bytes > kKvMaxBytes && !found.pieces.empty()) break;
    found.pieces.push_back(range);
  }
  if (found.next == count) found.last = from->first;
  return found;
}

Result<void> KvExports::copy(const std::string& session, const KvRange& range, float* out) {
  std::vector<std::int32_t> blocks;
  std::optional<Reader> reader;
  {
    const std::scoped_lock lock(mutex_);
    WINDLASS_ASSIGN_OR_RETURN(Session* const from, live(session));
    blocks = from->blocks;
    reader.emplace(*this, *from);
  }
  backend_.read_kv(range, blocks, out);
  return {};
}

Result<KvExports::Session*> KvExports::live(const std::string& session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || it->second.ends)
    return Error{ErrorCode::kNotFound, "session: must be open here (got an unknown one); it is over or was given up"};
  it->second.asked_s = clock_.now_s();
  return &it->second;
}

Result<KvExports::Pieces> KvExports::read(const std::string& session, const std::string& hash, std::int64_t piece) {
  WINDLASS_ASSIGN_OR_RETURN(Ready found, ready(session, hash, piece));
  Pieces pieces{{}, found.next, std::move(found.last)};
  std::vector<float> values;
  for (const KvRange& range : found.pieces) {
    const KvPieceHead head = kv_piece_head(range);
    const std::size_t bytes = kv_piece_bytes(backend_.kv_shape(), range.tokens);
    values.resize((bytes - sizeof(head)) / sizeof(float));
    WINDLASS_RETURN_IF_ERROR(copy(session, range, values.data()));
    pieces.bytes.append(reinterpret_cast<const char*>(&head), sizeof(head));
    pieces.bytes.append(reinterpret_cast<const char*>(values.data()), bytes - sizeof(head));
  }
  return pieces;
}

}  // namespace windlass::worker
