// Implements chain_link.h with real sessions, stages and servers on both sides; only the computing is replaced.
#include "tests/bench/worker/chain_link.h"

#include <algorithm>
#include <functional>
#include <future>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "metrics/bundles.h"
#include "tests/bench/median.h"
#include "tests/bench/worker/instant_backend.h"
#include "tests/process/worker/serve/worker_process.h"
#include "worker/parallel/chain_backend.h"
#include "worker/parallel/chain_steps.h"
#include "worker/parallel/tcp.h"
#include "worker/serve/chain_http.h"
#include "worker/serve/http_server.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kVocabulary = 32000, kMaxRows = 64, kPositions = 4096;
constexpr std::size_t kGreedyBytes = 24;  // per token in the answer
constexpr double kPlainS = 10;

ChainModel model() { return {1, 2, ChainLink::kHiddenSize, kVocabulary}; }
RowNeed greedy_need() { return {1, 1.0F}; }

Error missing(const std::string& what) { return Error{ErrorCode::kInternal, what}; }

// The model's first block, which takes no time.
class InstantBlocks final : public Backend {
 public:
  InstantBlocks() : hidden_(static_cast<std::size_t>(kChainMaxTokens * ChainLink::kHiddenSize), 0.5F) {}

  [[nodiscard]] std::int64_t vocab_size() const override { return kVocabulary; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return 1; }
  [[nodiscard]] KvShape kv_shape() const override { return {1, 1}; }
  void read_kv(const KvRange& /*range*/, std::span<const std::int32_t> /*blocks*/, float* /*out*/) const override {}
  void write_kv(const KvRange& /*range*/, std::span<const std::int32_t> /*blocks*/, const float* /*in*/) override {}

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& /*layer_done*/,
                                                   std::int64_t /*skip*/) override {
    std::size_t tokens = 0;
    for (const SequenceChunk& chunk : chunks) tokens += chunk.tokens.size();
    return std::span<const float>(hidden_).first(tokens * static_cast<std::size_t>(ChainLink::kHiddenSize));
  }

  const std::vector<float> hidden_;
};

// Header of the plain exchange: this many bytes follow, this many are expected back.
struct PlainCall {
  std::uint64_t bytes = 0, answer_bytes = 0;
};

void answer_plainly(int socket) {
  set_limits(socket, kPlainS, kPlainS);
  std::vector<char> call, answer;
  for (PlainCall head; receive_all(socket, &head, sizeof(head));) {
    call.resize(head.bytes);
    answer.resize(head.answer_bytes);
    if (!receive_all(socket, call.data(), call.size())) return;
    iovec parts[] = {{answer.data(), answer.size()}};
    if (!send_all(socket, parts)) return;
  }
}

[[noreturn]] void be_later_worker(int http_port, const std::function<void(int)>& tell) {
  const SteadyClock clock;
  metrics::Registry registry;
  const metrics::WorkerMetrics metrics(registry, "link");
  const auto plain = TcpServer::open("127.0.0.1", "plain exchanges", answer_plainly);
  HttpServerOptions at;
  at.host = "127.0.0.1";
  at.port = http_port;
  HttpServer server(at, registry, metrics, clock);
  if (!plain.ok() || !server.open().ok()) std::_Exit(1);
  Served served;
  served.blocks = std::make_unique<ServedBlocks>();
  served.blocks->config.hidden_size = ChainLink::kHiddenSize;
  served.blocks->config.layers = model().layers;
  served.blocks->stage = std::make_unique<ChainStage>(
      ChainStageOptions{model(), {1, 2}, kPositions, kChainMaxTokens, kMaxRows},
      std::make_unique<InstantBackend>(kVocabulary, kMaxRows, greedy_need()), [](auto /*call*/, auto /*answered*/) {}, clock,
      metrics);
  server.serve(served);
  tell((*plain)->port());
  for (;;) ::pause();
}

// One sequence's prompt, in steps of as many tokens as one may have; or one token for each of several sequences.
std::vector<std::vector<SequenceChunk>> steps_of(const std::vector<std::string>& sessions,
                                                 std::span<const std::int32_t> tokens) {
  std::vector<std::vector<SequenceChunk>> steps;
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t most = kChainMaxTokens / static_cast<std::int64_t>(sessions.size());
  for (std::int64_t start = 0; start < count; start += most) {
    auto& step = steps.emplace_back();
    for (const std::string& session : sessions) {
      SequenceChunk chunk;
      chunk.start = start;
      chunk.tokens = tokens.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(std::min(most, count - start)));
      chunk.wants_logits = start + most >= count;
      chunk.need = greedy_need();
      chunk.chain_session = session;
      step.push_back(chunk);
    }
  }
  return steps;
}

constexpr int kBefore = 3;  // warm-up runs

Result<double> median_of_chain(ChainPost post, int http_port, std::int64_t sequences, std::int64_t tokens, int repeats) {
  const SteadyClock clock;
  metrics::Registry registry;
  const metrics::WorkerMetrics metrics(registry, "link");
  ChainSessions sessions(model(), 1, sequences, std::move(post), clock, metrics);
  ChainBackend backend(std::make_unique<InstantBlocks>(), model(), sessions, clock, metrics);
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < sequences; ++i) names.push_back(new_session_id());
  std::promise<Result<void>> reserved;
  sessions.reserve(names, {fmt::format("127.0.0.1:{}", http_port)}, tokens,
                   [&](Result<void> outcome) { reserved.set_value(std::move(outcome)); });
  WINDLASS_RETURN_IF_ERROR(reserved.get_future().get());
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 7);
  const auto steps = steps_of(names, ids);
  auto median = bench::median_s(repeats, kBefore, [&]() -> Result<void> {
    for (const auto& step : steps) {
      WINDLASS_RETURN_IF_ERROR(backend.forward(step));
      for (std::size_t i = 0; i < step.size(); ++i) {
        if (backend.failure(i) != nullptr) return *backend.failure(i);
      }
    }
    return {};
  });
  for (const std::string& each : names) sessions.release(each);
  return median;
}

Result<double> median_of_plain(int port, std::int64_t sequences, std::int64_t tokens, int repeats) {
  WINDLASS_ASSIGN_OR_RETURN(const int socket, connect_to("127.0.0.1:0", port));
  const std::unique_ptr<const int, void (*)(const int*)> close(&socket, [](const int* open) { ::close(*open); });
  set_limits(socket, kPlainS, kPlainS);
  const auto all = static_cast<std::size_t>(sequences * tokens);
  const std::size_t most = static_cast<std::size_t>(kChainMaxTokens);
  constexpr std::size_t kTokenBytes = static_cast<std::size_t>(ChainLink::kHiddenSize) * sizeof(float);
  std::vector<char> bytes(std::min(all, most) * kTokenBytes, 'h');
  std::vector<char> answer(static_cast<std::size_t>(sequences) * kGreedyBytes);
  return bench::median_s(repeats, kBefore, [&]() -> Result<void> {
    for (std::size_t done = 0; done < all; done += most) {
      PlainCall head{std::min(most, all - done) * kTokenBytes, answer.size()};
      iovec parts[] = {{&head, sizeof(head)}, {bytes.data(), head.bytes}};
      if (!send_all(socket, parts) || !receive_all(socket, answer.data(), answer.size()))
        return missing("plain exchange: the connection broke");
    }
    return {};
  });
}

}  // namespace

Result<std::unique_ptr<ChainLink>> ChainLink::start() {
  const int http_port = testing::free_port();
  WINDLASS_ASSIGN_OR_RETURN(StartedChild started, start_child([&](const auto& tell) { be_later_worker(http_port, tell); }));
  return std::unique_ptr<ChainLink>(new ChainLink(std::move(started), http_port));
}

Result<ChainLinkTimes> ChainLink::measure(std::int64_t sequences, std::int64_t tokens, int repeats) {
  ChainLinkTimes times;
  times.bytes = static_cast<double>(sequences * tokens * kHiddenSize) * sizeof(float);
  WINDLASS_ASSIGN_OR_RETURN(times.plain_seconds, median_of_plain(later_.port, sequences, tokens, repeats));
  WINDLASS_ASSIGN_OR_RETURN(times.http_seconds, median_of_chain(call_over_http(std::make_shared<HttpClient>()), http_port_,
                                                                sequences, tokens, repeats));
  ChainStepClient steps(call_over_http(std::make_shared<HttpClient>()));
  WINDLASS_ASSIGN_OR_RETURN(times.seconds, median_of_chain(steps.post(), http_port_, sequences, tokens, repeats));
  return times;
}

}  // namespace windlass::worker
