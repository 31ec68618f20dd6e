// Implements through_http.h. The model itself reads the clocks: between two of its calls lies all of the worker's own work for
// an iteration.
#include "tests/bench/worker/through_http.h"

#include <atomic>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "metrics/bundles.h"
#include "tests/bench/worker/child.h"
#include "tests/bench/worker/instant_backend.h"
#include "tests/process/worker/serve/worker_process.h"
#include "worker/model/model_init.h"
#include "worker/serve/http_server.h"
#include "worker/serve/served_model.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kTokens = 500;
constexpr int kForwardMs = 5;
constexpr const char* kName = "instant";

// In memory shared by parent and child; only the child writes.
struct Measured {
  std::atomic<std::int64_t> iterations{0};
  std::atomic<std::int64_t> engine_ns{0}, all_ns{0};
};

std::int64_t cpu_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Adds up the time between calls that cover all sequences.
class Watched final : public InstantBackend {
 public:
  Watched(std::int64_t vocab, std::int64_t sequences, Measured& measured)
      : InstantBackend(vocab, sequences), sequences_(sequences), measured_(measured) {}

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    const std::int64_t engine = cpu_ns(CLOCK_THREAD_CPUTIME_ID), all = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    const bool full = static_cast<std::int64_t>(chunks.size()) == sequences_;
    if (full && was_full_) {
      measured_.engine_ns += engine - engine_;
      measured_.all_ns += all - all_;
      ++measured_.iterations;
    }
    was_full_ = full;
    engine_ = engine;
    all_ = all;
    ::poll(nullptr, 0, kForwardMs);
    return InstantBackend::run(chunks, layer_done, skip);
  }

  const std::int64_t sequences_;
  Measured& measured_;
  std::int64_t engine_ = 0, all_ = 0;
  bool was_full_ = false;
};

[[noreturn]] void be_worker(const std::filesystem::path& folder, int port, std::int64_t sequences, Measured& measured) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const SteadyClock clock;
  metrics::Registry registry;
  const metrics::WorkerMetrics metrics(registry, kName);
  HttpServerOptions at;
  at.host = "127.0.0.1";
  at.port = port;
  at.served_name = kName;
  HttpServer server(at, registry, metrics, clock);
  const auto config = load_model_config(folder);
  if (!server.open().ok() || !config.ok()) std::_Exit(1);
  ServeFlags flags;
  flags.model_folder = folder;
  flags.served_name = kName;
  flags.max_concurrent = sequences;
  ModelHost host(flags, clock, metrics,
                 {[](const auto& /*question*/, auto /*answered*/) {}, [](const auto& /*last*/, const auto& /*why*/) {},
                  [](auto /*call*/, auto /*answered*/) {}});
  const auto served = host.load_with(std::make_unique<Watched>(config->vocab_size, sequences, measured));
  if (!served.ok()) std::_Exit(1);
  server.serve(*served);
  for (;;) {
    server.tick(&*served);
    ::poll(nullptr, 0, 100);
  }
}

// Starts all streams together; each must get all of its tokens.
Result<void> ask_for_streams(int port, std::int64_t sequences) {
  const std::string body = nlohmann::json{
      {"model", kName},    {"prompt", "the anchor chain is out"}, {"max_tokens", kTokens}, {"temperature", 0}, {"stream", true},
      {"ignore_eos", true}}.dump();
  std::vector<std::unique_ptr<testing::Connection>> streams;
  for (std::int64_t i = 0; i < sequences; ++i) {
    streams.push_back(std::make_unique<testing::Connection>(port));
    streams.back()->send("POST", "/v1/completions", body);
  }
  for (const auto& each : streams) {
    const auto stream = testing::parse_stream(testing::parse_answer(each->read_all()).body);
    if (stream.done != 1 || stream.tokens != kTokens)
      return Error{ErrorCode::kInternal, fmt::format("stream: must have {} tokens (got {})", kTokens, stream.tokens)};
  }
  return {};
}

}  // namespace

Result<WorkerOverhead> overhead_through_http(std::int64_t sequences) {
  std::string folder = (std::filesystem::temp_directory_path() / "windlass-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return Error{ErrorCode::kInternal, "temporary folder: cannot be created"};
  const std::unique_ptr<const std::string, void (*)(const std::string*)> remove(&folder, [](const std::string* made) {
    std::error_code ignored;
    std::filesystem::remove_all(*made, ignored);
  });
  ModelShape shape;
  shape.layers = 1;
  WINDLASS_RETURN_IF_ERROR(init_model(shape, folder));
  void* shared = ::mmap(nullptr, sizeof(Measured), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return Error{ErrorCode::kResourceExhausted, "shared memory: cannot be mapped"};
  auto& measured = *new (shared) Measured;  // lives as long as the process
  const int port = testing::free_port();
  const pid_t id = ::fork();
  if (id == 0) be_worker(folder, port, sequences, measured);
  const Child child(id);
  const bool ready = testing::eventually([&] { return testing::ask(port, "GET", "/ready").status == 200; });
  if (!ready) return Error{ErrorCode::kInternal, "worker: must become ready"};
  WINDLASS_RETURN_IF_ERROR(ask_for_streams(port, sequences));
  const auto iterations = static_cast<double>(measured.iterations);
  if (iterations < static_cast<double>(kTokens) / 2)
    return Error{ErrorCode::kInternal, fmt::format("too few iterations with all sequences: {}", iterations)};
  return WorkerOverhead{static_cast<double>(measured.engine_ns) / iterations * 1e-9,
                        static_cast<double>(measured.all_ns) / iterations * 1e-9};
}

}  // namespace windlass::worker
