// Holds an import's mutex while pieces are written and while its end is reported, so that nothing happens after stop() returns.
#include "worker/parallel/kv_imports.h"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/core.h>

#include "worker/parallel/kv_wire.h"

namespace windlass::worker {

struct KvImports::Import {
  RequestId request = 0;
  KvQuestion question;  // the next one
  std::vector<std::int32_t> blocks;
  std::int64_t prompt_tokens = 0;
  std::vector<std::int64_t> filled;  // positions present, by layer
  double began_s = 0, asked_s = 0;
  double grew_s = 0;  // when the last piece arrived
  std::mutex mutex;
  bool stopped = false;
};

KvImports::KvImports(Backend& backend, std::uint64_t model, Ask ask, Done done, const Clock& clock,
                     const metrics::WorkerMetrics& metrics, Stream stream)
    : shared_(new Shared{backend, model, std::move(ask), std::move(done), clock, metrics, std::move(stream), {}, {}}) {}

void KvImports::receive(RequestId request, const KvSession& session, std::span<const std::int32_t> prompt,
                        std::span<const std::int32_t> blocks) {
  const KvShape shape = shared_->backend.kv_shape();
  auto import = std::make_shared<Import>();
  import->request = request;
  // The other worker may send longer pieces than the usual limit, but none longer than the prompt.
  const std::size_t max_bytes = std::max(kKvMaxBytes, kv_piece_bytes(shape, static_cast<std::int64_t>(prompt.size())));
  import->question = {session.address,
                      session.id,
                      kv_prompt_hash(prompt, shared_->model),
                      0,
                      max_bytes,
                      shared_->stream != nullptr,
                      kv_piece_bytes(shape, 1) - kKvPieceHeadBytes};
  import->blocks.assign(blocks.begin(), blocks.end());
  import->prompt_tokens = static_cast<std::int64_t>(prompt.size());
  import->filled.assign(static_cast<std::size_t>(shape.layers), 0);
  import->began_s = import->grew_s = shared_->clock.now_s();
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->imports[request] = import;
  }
  ask_next(shared_, import);
}

void KvImports::stop(RequestId request) {
  std::shared_ptr<Import> import;
  {
    const std::scoped_lock lock(shared_->mutex);
    const auto it = shared_->imports.find(request);
    if (it == shared_->imports.end()) return;
    import = std::move(it->second);
    shared_->imports.erase(it);
  }
  const std::scoped_lock lock(import->mutex);
  if (!std::exchange(import->stopped, true)) shared_->metrics.kv_transfers("stopped").add(1);
}

void KvImports::ask_next(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Import>& import) {
  import->asked_s = shared->clock.now_s();
  shared->ask(import->question, [shared, import](Result<KvAnswer> answer) { answered(shared, import, std::move(answer)); });
}

Result<std::optional<Sampled>> KvImports::take(Shared& shared, Import& import, const Result<KvAnswer>& answer) {
  if (!answer.ok()) return answer.error();
  WINDLASS_ASSIGN_OR_RETURN(const std::int64_t pieces,
                            store_kv_pieces(answer->bytes, import.prompt_tokens, import.blocks, import.filled, shared.backend));
  shared.metrics.kv_transfer_bytes("received").add(static_cast<double>(answer->bytes.size()));
  import.question.piece += pieces;
  if (answer->next != import.question.piece) {
    return Error{ErrorCode::kInternal, fmt::format("next piece: must be {} (got {})", import.question.piece, answer->next)};
  }
  if (!answer->first) {
    WINDLASS_RETURN_IF_ERROR(progress(shared, import, pieces > 0));
    // Wait before asking again, so that empty answers do not cause a busy loop.
    if (pieces == 0 && shared.clock.now_s() - import.asked_s < kKvLongestWaitS / 2) {
      return Error{ErrorCode::kUnavailable, "an answer without pieces came without waiting for them"};
    }
    return std::optional<Sampled>();
  }
  WINDLASS_ASSIGN_OR_RETURN(Sampled first, whole(shared, import, *answer->first));
  return std::optional<Sampled>(std::move(first));
}

Result<void> KvImports::progress(const Shared& shared, Import& import, bool grew) {
  const double now_s = shared.clock.now_s();
  if (grew) import.grew_s = now_s;
  if (now_s - import.grew_s <= kNoProgressS) return {};
  return Error{ErrorCode::kDeadlineExceeded, fmt::format("nothing new has arrived for {:g} s", kNoProgressS)};
}

Result<Sampled> KvImports::whole(const Shared& shared, const Import& import, const std::string& first) {
  for (const std::int64_t filled : import.filled) {
    if (filled < import.prompt_tokens) {
      return Error{ErrorCode::kInternal,
                   fmt::format("the data ended with {} of {} positions in a layer", filled, import.prompt_tokens)};
    }
  }
  return first_token_from(first, shared.backend.vocab_size());
}

KvStreamSink KvImports::sink_of(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Import>& import) {
  const Error stopped{ErrorCode::kFailedPrecondition, "it is no longer needed"};
  KvStreamSink sink;
  sink.piece = [=](const KvRange& range, std::span<const float> values, std::size_t wire_bytes) -> Result<void> {
    const std::scoped_lock lock(import->mutex);
    if (import->stopped) return stopped;
    WINDLASS_RETURN_IF_ERROR(check_kv_piece(range, static_cast<std::int64_t>(values.size()), shared->backend.kv_shape(),
                                            import->prompt_tokens, import->filled));
    shared->backend.write_kv(range, import->blocks, values.data());
    import->filled[static_cast<std::size_t>(range.layer)] += range.tokens;
    shared->metrics.kv_transfer_bytes("received").add(static_cast<double>(wire_bytes));
    return progress(*shared, *import, true);
  };
  sink.waited = [=]() -> Result<void> {
    const std::scoped_lock lock(import->mutex);
    if (import->stopped) return stopped;
    return progress(*shared, *import, false);
  };
  sink.end = [=](const Result<std::string>& first) {
    {
      const std::scoped_lock lock(import->mutex);
      if (import->stopped) return;
      const bool began = std::any_of(import->filled.begin(), import->filled.end(), [](std::int64_t each) { return each > 0; });
      if (first.ok() || began) {
        end(*shared, *import, first.ok() ? whole(*shared, *import, *first) : Result<Sampled>(first.error()));
        return;
      }
    }
    ask_next(shared, import);  // a worker without a reachable stream port may still answer over HTTP
  };
  return sink;
}

void KvImports::answered(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Import>& import,
                         Result<KvAnswer> answer) {
  int stream_port = 0;
  {
    const std::scoped_lock lock(import->mutex);
    if (import->stopped) return;
    if (std::exchange(import->question.stream, false) && answer.ok()) stream_port = answer->stream_port;
    Result<std::optional<Sampled>> taken = std::optional<Sampled>();
    try {
      if (stream_port == 0) taken = take(*shared, *import, answer);
    } catch (const std::bad_alloc&) {
      taken = Error{ErrorCode::kResourceExhausted, "no memory for an answer"};
    }
    if (!taken.ok() || *taken) {
      end(*shared, *import, taken.ok() ? Result<Sampled>(std::move(**taken)) : Result<Sampled>(taken.error()));
      return;
    }
  }
  if (stream_port > 0) {
    shared->stream(import->question, stream_port, sink_of(shared, import));
  } else {
    ask_next(shared, import);
  }
}

void KvImports::end(Shared& shared, Import& import, const Result<Sampled>& first) {
  import.stopped = true;
  shared.metrics.kv_transfers(first.ok() ? "received" : "failed").add(1);
  if (first.ok()) shared.metrics.kv_transfer.observe(shared.clock.now_s() - import.began_s);
  shared.done(import.request, import.question, first);
  const std::scoped_lock lock(shared.mutex);
  shared.imports.erase(import.request);
}

}  // namespace windlass::worker
