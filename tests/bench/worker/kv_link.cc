// Real exports, imports, HTTP and caches of the CPU backend on both sides; nothing but the prompt's computing is left out.
#include "tests/bench/worker/kv_link.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <cpprest/http_listener.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "metrics/bundles.h"
#include "tests/process/worker/worker_process.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/parallel/kv_exports.h"
#include "worker/parallel/kv_imports.h"
#include "worker/parallel/kv_stream.h"
#include "worker/serve/kv_http.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kPrompt = 1024;
constexpr std::size_t kStreamPart = 1U << 20U;
constexpr std::uint64_t kModel = 1;
constexpr const char* kSession = "0123456789abcdef0123456789abcdef";

Error broken(const char* what) { return Error{ErrorCode::kInternal, fmt::format("{}: it broke off", what)}; }

// Keys and values of Llama 3.1 8B; whatever else there is of the model is small.
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

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Sends as many bytes as it is asked for, connection after connection.
[[noreturn]] void be_stream(int listener) {
  const std::vector<char> part(kStreamPart, 'k');
  for (;;) {
    const int connection = ::accept(listener, nullptr, nullptr);
    std::uint64_t left = 0;
    if (::recv(connection, &left, sizeof(left), MSG_WAITALL) != sizeof(left)) left = 0;
    while (left > 0) {
      const ssize_t sent = ::send(connection, part.data(), std::min<std::size_t>(left, part.size()), MSG_NOSIGNAL);
      if (sent <= 0) break;
      left -= static_cast<std::uint64_t>(sent);
    }
    ::close(connection);
  }
}

[[noreturn]] void be_sender(int http_port, int stream_port) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
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
  web::http::experimental::listener::http_listener http(fmt::format("http://127.0.0.1:{}", http_port));
  http.support(web::http::methods::GET, [&](const web::http::http_request& request) {
    answer_kv(request, exports, taken, nullptr, (*streams)->port());
  });
  http.open().wait();
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = loopback(stream_port);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || ::listen(listener, 4) != 0)
    std::_Exit(1);
  be_stream(listener);
}

Result<void> read_stream(int port, std::uint64_t bytes) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = loopback(port);
  std::vector<char> part(kStreamPart);
  bool good = ::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
              ::send(connection, &bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes);
  while (good && bytes > 0) {
    const ssize_t come = ::recv(connection, part.data(), part.size(), 0);
    good = come > 0;
    if (good) bytes -= static_cast<std::uint64_t>(come);
  }
  ::close(connection);
  return good ? Result<void>() : broken("stream");
}

Result<void> import_prompt(KvImports& imports, const Cache& cache, int port, std::promise<Result<Sampled>>& done) {
  done = {};
  auto end = done.get_future();
  imports.receive(1, {kSession, fmt::format("127.0.0.1:{}", port)}, cache.prompt, cache.blocks);
  WINDLASS_RETURN_IF_ERROR(end.get());
  return {};
}

// The median of `repeats` after one.
template <typename Run>
Result<double> median_s(int repeats, const Run& run) {
  std::vector<double> seconds;
  for (int i = -1; i < repeats; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    WINDLASS_RETURN_IF_ERROR(run());
    if (i >= 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[static_cast<std::size_t>(repeats / 2)];
}

}  // namespace

Result<std::unique_ptr<KvLink>> KvLink::start() {
  const int http_port = testing::free_port();
  const int stream_port = testing::free_port();
  const pid_t child = ::fork();
  if (child == 0) be_sender(http_port, stream_port);
  if (child < 0) return Error{ErrorCode::kResourceExhausted, "process: found none"};
  return std::unique_ptr<KvLink>(new KvLink(child, http_port, stream_port));
}

KvLink::~KvLink() {
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

Result<KvLinkRates> KvLink::measure(int repeats) {
  const bool there = testing::eventually([&] { return read_stream(stream_port_, 1).ok(); });
  if (!there) return Error{ErrorCode::kInternal, "sender: found none that answers"};
  Cache cache;
  std::promise<Result<Sampled>> done;
  const auto tell = [&](RequestId /*request*/, const KvQuestion& /*last*/, const Result<Sampled>& first) {
    done.set_value(first);
  };
  KvStreamClient streams;
  KvImports by_stream(*cache.backend, kModel, ask_over_http(), tell, cache.clock, cache.metrics, streams.stream());
  KvImports by_http(*cache.backend, kModel, ask_over_http(), tell, cache.clock, cache.metrics);
  const KvShape kv = cache.backend->kv_shape();
  const auto bytes = static_cast<std::uint64_t>(kPrompt * kv.layers * kv.values) * sizeof(float);
  WINDLASS_ASSIGN_OR_RETURN(const double stream_s, median_s(repeats, [&] { return read_stream(stream_port_, bytes); }));
  WINDLASS_ASSIGN_OR_RETURN(const double seconds,
                            median_s(repeats, [&] { return import_prompt(by_stream, cache, http_port_, done); }));
  WINDLASS_ASSIGN_OR_RETURN(const double http_s,
                            median_s(repeats, [&] { return import_prompt(by_http, cache, http_port_, done); }));
  return KvLinkRates{seconds, http_s, stream_s, static_cast<double>(bytes)};
}

}  // namespace windlass::worker
