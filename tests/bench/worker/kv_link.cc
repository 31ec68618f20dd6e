// Implements kv_link.h with real exports, imports, HTTP and caches of the CPU backend on both sides; only the prompt's
// computing is left out.
#include "tests/bench/worker/kv_link.h"

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "metrics/bundles.h"
#include "metrics/net/http_service.h"
#include "tests/bench/median.h"
#include "tests/process/worker/serve/worker_process.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/parallel/kv_exports.h"
#include "worker/parallel/kv_imports.h"
#include "worker/parallel/kv_stream.h"
#include "worker/parallel/tcp.h"
#include "worker/serve/kv_http.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kPrompt = 1024;
constexpr std::size_t kStreamPart = 1U << 20U;
constexpr double kPlainS = 10;
constexpr std::uint64_t kModel = 1;
constexpr const char* kSession = "0123456789abcdef0123456789abcdef";

Error broken(const char* what) { return Error{ErrorCode::kInternal, fmt::format("{}: the connection broke", what)}; }

// Keys and values of Llama 3.1 8B; the rest of the model is small.
ModelConfig shape() {
  ModelConfig config;
  config.hidden_size = 64;
  config.layers = 32;
  config.heads = config.kv_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 16;
  config.vocab_size = 64;
  config.max_context_tokens = kPrompt;
  return config;
}

// A worker's cache, and a prompt's blocks in it.
struct Cache {
  Cache() : prompt(kPrompt, 7), blocks(static_cast<std::size_t>(blocks_for(kPrompt))) {
    const ModelConfig config = shape();
    CpuBackendOptions options;
    options.kv_blocks = static_cast<std::int64_t>(blocks.size());
    options.max_batch_tokens = 1;
    options.max_context_tokens = kPrompt;
    backend = make_cpu_backend(config, testing::random_weights(config, 1), options).value();
    std::iota(blocks.begin(), blocks.end(), 0);
  }
  SteadyClock clock;
  metrics::Registry registry;
  metrics::WorkerMetrics metrics{registry, "link"};
  std::vector<std::int32_t> prompt, blocks;
  std::unique_ptr<Backend> backend;
};

// Sends as many bytes as requested.
void be_stream(int socket) {
  set_limits(socket, kPlainS, kPlainS);
  std::vector<char> part(kStreamPart, 'k');
  std::uint64_t left = 0;
  if (!receive_all(socket, &left, sizeof(left))) return;
  while (left > 0) {
    iovec parts[] = {{part.data(), std::min<std::uint64_t>(left, part.size())}};
    left -= parts[0].iov_len;
    if (!send_all(socket, parts)) return;
  }
}

[[noreturn]] void be_sender(int http_port, const std::function<void(int)>& tell) {
  Cache cache;
  const auto exports = std::make_shared<KvExports>(*cache.backend, kModel, cache.clock, cache.metrics);
  exports->open(kSession, cache.prompt, nullptr);
  exports->begins(kSession);
  for (std::int64_t layer = 0; layer < cache.backend->kv_shape().layers; ++layer)
    exports->computed(kSession, {layer, 0, kPrompt}, cache.blocks);
  exports->completed(kSession, {});
  const auto taken = [](const std::string& /*session*/) {};
  const auto streams = KvStreamServer::open("127.0.0.1", [&] { return KvSource{exports, taken}; });
  if (!streams.ok()) std::_Exit(1);
  net::HttpServer::Options options;
  options.refusal_body = [](const net::Refusal& refused) { return refused.message; };
  net::HttpService http(
      std::move(options), [&](const net::ServerCall& call) { answer_kv(call, exports, taken, nullptr, (*streams)->port()); },
      8);
  if (!http.open({"127.0.0.1", std::to_string(http_port)}).ok()) std::_Exit(1);
  const auto plain = TcpServer::open("127.0.0.1", "plain streams", be_stream);
  if (!plain.ok()) std::_Exit(1);
  tell((*plain)->port());
  for (;;) ::pause();
}

Result<void> read_stream(int port, std::uint64_t bytes) {
  WINDLASS_ASSIGN_OR_RETURN(const int socket, connect_to("127.0.0.1:0", port));
  const std::unique_ptr<const int, void (*)(const int*)> close(&socket, [](const int* open) { ::close(*open); });
  set_limits(socket, kPlainS, kPlainS);
  std::vector<char> part(kStreamPart);
  iovec parts[] = {{&bytes, sizeof(bytes)}};
  bool good = send_all(socket, parts);
  for (std::uint64_t left = bytes; good && left > 0;) {
    const auto next = std::min<std::uint64_t>(left, part.size());
    good = receive_all(socket, part.data(), next);
    left -= next;
  }
  return good ? Result<void>() : broken("stream");
}

Result<void> import_prompt(KvImports& imports, const Cache& cache, int port, std::promise<Result<Sampled>>& done) {
  done = {};
  auto end = done.get_future();
  imports.receive(1, {kSession, fmt::format("127.0.0.1:{}", port)}, cache.prompt, cache.blocks);
  WINDLASS_RETURN_IF_ERROR(end.get());
  return {};
}

}  // namespace

Result<std::unique_ptr<KvLink>> KvLink::start() {
  const int http_port = testing::free_port();
  WINDLASS_ASSIGN_OR_RETURN(StartedChild started, start_child([&](const auto& tell) { be_sender(http_port, tell); }));
  return std::unique_ptr<KvLink>(new KvLink(std::move(started), http_port));
}

Result<KvLinkRates> KvLink::measure(int repeats) {
  Cache cache;
  std::promise<Result<Sampled>> done;
  const auto tell = [&](RequestId /*request*/, const KvQuestion& /*last*/, const Result<Sampled>& first) {
    done.set_value(first);
  };
  KvStreamClient streams;
  KvImports by_stream(*cache.backend, kModel, ask_over_http(std::make_shared<HttpClient>()), tell, cache.clock, cache.metrics,
                      streams.stream());
  KvImports by_http(*cache.backend, kModel, ask_over_http(std::make_shared<HttpClient>()), tell, cache.clock, cache.metrics);
  const KvShape kv = cache.backend->kv_shape();
  const auto bytes = static_cast<std::uint64_t>(kPrompt * kv.layers * kv.values) * sizeof(float);
  WINDLASS_ASSIGN_OR_RETURN(const double stream_s,
                            bench::median_s(repeats, 1, [&] { return read_stream(sender_.port, bytes); }));
  WINDLASS_ASSIGN_OR_RETURN(const double seconds,
                            bench::median_s(repeats, 1, [&] { return import_prompt(by_stream, cache, http_port_, done); }));
  WINDLASS_ASSIGN_OR_RETURN(const double http_s,
                            bench::median_s(repeats, 1, [&] { return import_prompt(by_http, cache, http_port_, done); }));
  return KvLinkRates{seconds, http_s, stream_s, static_cast<double>(bytes)};
}

}  // namespace windlass::worker
