// KvImports: pulls the keys and values of prompts that other workers compute, piece by piece, into blocks of this one's cache.
//
// The first question is for a stream (kv_stream.h). Where none comes, there is one question at a time for each prompt, the next
// one when the answer is in the cache: that is all the flow control there is.
// Whatever goes wrong ends the session with an error, after which the engine computes the prompt itself. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "metrics/bundles.h"
#include "planner/base/result.h"
#include "worker/engine/clock.h"
#include "worker/engine/kv_transfer.h"

namespace windlass::worker {

// What is asked of the worker at that address: pieces of a session from a number on.
struct KvQuestion {
  std::string address, session, hash;
  std::int64_t piece = 0;
  std::size_t most_bytes = 0;   // an answer never has more
  bool stream = false;          // rather the port that streams come from than pieces
  std::size_t token_bytes = 0;  // of one position in one layer
};

struct KvAnswer {
  std::string bytes;                 // kv_wire.h
  std::int64_t next = 0;             // number of the piece after them
  std::optional<std::string> first;  // the first token (kv_wire.h), when no piece follows
  int stream_port = 0;               // then there is nothing else in it
};

// Where a stream's pieces go, one after the other, on its thread.
struct KvStreamSink {
  // `wire_bytes`: that it came as. An error breaks the stream off.
  std::function<Result<void>(const KvRange& range, std::span<const float> values, std::size_t wire_bytes)> piece;
  // Nothing new came in a while; likewise.
  std::function<Result<void>()> waited;
  // Once, after all else: the first token (kv_wire.h), or why there is none.
  std::function<void(const Result<std::string>& first)> end;
};

class KvImports final : public KvReceiver {
 public:
  // Asks, and calls back once, on any thread, never from within.
  using Ask = std::function<void(const KvQuestion&, std::function<void(Result<KvAnswer>)> answered)>;
  // Begins a stream from that port of the worker that the question names; never calls back from within but to refuse.
  using Stream = std::function<void(const KvQuestion&, int port, const KvStreamSink& sink)>;
  // With the question that was answered last, or in vain.
  using Done = std::function<void(RequestId request, const KvQuestion& last, const Result<Sampled>& first)>;

  // REQUIRES: backend, clock and metrics outlive the engine that asks this for sessions; all of these have been stopped when
  // this is destroyed. `done` is called on the threads that answers come on, and never once stop() has returned.
  // `model`: its fingerprint. Without `stream` all is asked for.
  KvImports(Backend& backend, std::uint64_t model, Ask ask, Done done, const Clock& clock,
            const metrics::WorkerMetrics& metrics, Stream stream = nullptr);
  // A prompt of which nothing new has come for so long does not come any more.
  static constexpr double kNoProgressS = 30;

  void receive(RequestId request, const KvSession& session, std::span<const std::int32_t> prompt,
               std::span<const std::int32_t> blocks) override;
  void stop(RequestId request) override;

 private:
  struct Import;
  // What answers that come late still need.
  struct Shared {
    Backend& backend;
    std::uint64_t model = 0;
    Ask ask;
    Done done;
    const Clock& clock;
    const metrics::WorkerMetrics& metrics;
    Stream stream;
    std::mutex mutex;
    std::map<RequestId, std::shared_ptr<Import>> imports;
  };

  static void ask_next(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Import>& import);
  static void answered(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Import>& import, Result<KvAnswer> answer);
  static void end(Shared& shared, Import& import, const Result<Sampled>& first);  // REQUIRES: import.mutex held
  // The first token once all is here; nothing while more is to come. REQUIRES: import.mutex held.
  static Result<std::optional<Sampled>> take(Shared& shared, Import& import, const Result<KvAnswer>& answer);
  // The first token of its text, if all is here. REQUIRES: import.mutex held.
  static Result<Sampled> whole(const Shared& shared, const Import& import, const std::string& first);
  // Error: nothing new has come for too long. REQUIRES: import.mutex held.
  static Result<void> progress(const Shared& shared, Import& import, bool grew);
  static KvStreamSink sink_of(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Import>& import);

  std::shared_ptr<Shared> shared_;
};

}  // namespace windlass::worker
