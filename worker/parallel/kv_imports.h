// KvImports: pulls keys and values of prompts that other workers compute, piece by piece, into this worker's cache.
//
// First asks for a stream (kv_stream.h). Without one, it asks one question at a time per prompt, and the next one when the
// answer is in the cache; this is the only flow control. Any failure ends the session with an error, and the engine then
// computes the prompt itself. Thread-safe.
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

// Asks the worker at `address` for pieces of a session, starting with number `piece`.
struct KvQuestion {
  std::string address, session, hash;
  std::int64_t piece = 0;
  std::size_t max_bytes = 0;    // size limit of the answer
  bool stream = false;          // prefer the port of a stream over pieces
  std::size_t token_bytes = 0;  // per position and layer
};

struct KvAnswer {
  std::string bytes;                 // kv_wire.h
  std::int64_t next = 0;             // number of the piece after these
  std::optional<std::string> first;  // the first token (kv_wire.h), if no piece follows
  int stream_port = 0;               // if set, the answer contains nothing else
};

// Receives a stream's pieces in order, on the stream's thread.
struct KvStreamSink {
  // `wire_bytes`: size on the wire. An error ends the stream.
  std::function<Result<void>(const KvRange& range, std::span<const float> values, std::size_t wire_bytes)> piece;
  // Called when nothing new has arrived for a while; an error ends the stream.
  std::function<Result<void>()> waited;
  // Called once, last: with the first token (kv_wire.h) or the error.
  std::function<void(const Result<std::string>& first)> end;
};

class KvImports final : public KvReceiver {
 public:
  // Sends a question and calls back once, on any thread, never from inside the call.
  using Ask = std::function<void(const KvQuestion&, std::function<void(Result<KvAnswer>)> answered)>;
  // Starts a stream from this port of the worker that the question names. Calls back from inside the call only to refuse.
  using Stream = std::function<void(const KvQuestion&, int port, const KvStreamSink& sink)>;
  // Called when an import ends. `first`: the first token, or the error. `last`: the last question, answered or failed.
  using Done = std::function<void(RequestId request, const KvQuestion& last, const Result<Sampled>& first)>;

  // REQUIRES: backend, clock and metrics outlive the engine; all sessions are stopped before this object is destroyed. `done`
  // is called on the threads that deliver answers, never after stop() has returned. `model`: its fingerprint. Without `stream`,
  // only questions are used.
  KvImports(Backend& backend, std::uint64_t model, Ask ask, Done done, const Clock& clock,
            const metrics::WorkerMetrics& metrics, Stream stream = nullptr);
  // A prompt without new data for this long is given up.
  static constexpr double kNoProgressS = 30;

  void receive(RequestId request, const KvSession& session, std::span<const std::int32_t> prompt,
               std::span<const std::int32_t> blocks) override;
  void stop(RequestId request) override;

 private:
  struct Import;
  // What late answers still need.
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
  // Returns the first token once all data is here; nothing while more is to come. REQUIRES: import.mutex held.
  static Result<std::optional<Sampled>> take(Shared& shared, Import& import, const Result<KvAnswer>& answer);
  // Parses the first token, if all data is here. REQUIRES: import.mutex held.
  static Result<Sampled> whole(const Shared& shared, const Import& import, const std::string& first);
  // Error: no new data for too long. REQUIRES: import.mutex held.
  static Result<void> progress(const Shared& shared, Import& import, bool grew);
  static KvStreamSink sink_of(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Import>& import);

  std::shared_ptr<Shared> shared_;
};

}  // namespace windlass::worker
