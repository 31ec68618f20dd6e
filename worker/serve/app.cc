// Life cycle and signals. A signal handler writes a byte to a pipe. Blocking signals and waiting for them would be simpler, but
// OpenBLAS starts threads before main runs, and a signal delivered to a thread without the mask would end the process.
#include "worker/serve/app.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "metrics/bundles.h"
#include "metrics/net/host_port.h"
#include "metrics/security/files.h"
#include "metrics/security/secrets.h"
#include "worker/engine/clock.h"
#include "worker/engine/self_measurement.h"
#include "worker/parallel/chain_steps.h"
#include "worker/parallel/kv_stream.h"
#include "worker/serve/chain_http.h"
#include "worker/serve/http_server.h"
#include "worker/serve/kv_http.h"
#include "worker/serve/rank_processes.h"
#include "worker/serve/served_model.h"

namespace windlass::worker {
namespace {

// An environment variable, so that the token does not show in process lists (docs/security.md).
constexpr const char* kTokenVariable = "WINDLASS_WORKER_TOKEN";
constexpr int kTickMs = 100;
// A request may be on its way when the signal arrives: it should find an open port and be sent elsewhere.
constexpr double kLingerSeconds = 0.3;
// Time for answers other than generations to be sent once the engine is idle.
constexpr double kFlushSeconds = 5;
// Interval of progress lines while loading.
constexpr double kProgressSeconds = 2;
constexpr int kEndedLooks = 25;
constexpr int kEndedLookMs = 20;

int signal_pipe[2] = {-1, -1};

extern "C" void on_stop_signal(int /*signal*/) {
  const int saved = errno;
  const char byte = 0;
  if (::write(signal_pipe[1], &byte, 1) < 0) {
    // The pipe is already full of signals.
  }
  errno = saved;
}

// Waits one tick; returns true if asked to stop.
bool stop_signal_within_tick() {
  pollfd wait{signal_pipe[0], POLLIN, 0};
  if (::poll(&wait, 1, kTickMs) <= 0) return false;
  char byte = 0;
  return ::read(signal_pipe[0], &byte, 1) == 1;
}

// Nothing can be saved: every rank has a part of every layer, and the GPU holds the whole cache. Connections break, so a
// gateway sends requests without any answer yet to another worker. The kernel ends the other ranks.
[[noreturn]] void end_at_once(const std::string& why) {
  static std::mutex once;
  once.lock();  // never unlocked: only one thread reports
  spdlog::error("{}", why);
  spdlog::shutdown();
  std::_Exit(1);
}

[[noreturn]] void end_without_rank(const std::string& why) {
  end_at_once(why + "; a worker with several ranks cannot go on without one of them");
}

// The other ranks of --tensor-parallel; empty if there are none.
struct Ranks {
  std::shared_ptr<RankGroup> group;
  std::unique_ptr<RankProcesses> processes;

  [[nodiscard]] std::optional<std::string> ended() const { return processes == nullptr ? std::nullopt : processes->ended(); }
  void look() const {
    if (const auto why = ended()) end_without_rank(*why);
  }
  // Handles a loss that another thread noticed. The exit status of a process is known a moment after the group notices its end.
  void noticed(const Error& error) const {
    if (group == nullptr) end_at_once(error.message + "; a worker cannot go on without its GPU");
    for (int i = 0; i < kEndedLooks; ++i) {
      look();
      ::poll(nullptr, 0, kEndedLookMs);
    }
    end_without_rank(error.message);
  }
};

Result<Ranks> start_ranks(const ServeFlags& flags, const std::vector<std::string>& arguments) {
  Ranks ranks;
  if (flags.tensor_parallel == 1) return ranks;
  // NCCL's ranks, all on this machine, connect over a socket; bind it to loopback only.
  if (flags.backend == "cuda") ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  WINDLASS_ASSIGN_OR_RETURN(ranks.group, open_rank_group(flags));
  WINDLASS_ASSIGN_OR_RETURN(ranks.processes, RankProcesses::start(arguments, *ranks.group));
  return ranks;
}

// Work to do while main's thread waits for something else: signals, ranks, housekeeping.
class Watch {
 public:
  Watch(HttpServer& server, const Ranks& ranks) : server_(server), ranks_(ranks) {}

  // One tick. Returns false if asked to stop.
  [[nodiscard]] bool goes_on(const Served* served) {
    if (stop_signal_within_tick()) return false;
    ranks_.look();
    server_.tick(served);
    return true;
  }

 private:
  HttpServer& server_;
  const Ranks& ranks_;
};

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

template <class T>
bool is_ready(const std::future<T>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Waits for the last events, which are in buffers, to reach the clients.
void flush(const HttpServer& server, const Clock& clock) {
  for (const double begun_s = clock.now_s(); server.open_exchanges() > 0 && clock.now_s() - begun_s < kFlushSeconds;) {
    static_cast<void>(stop_signal_within_tick());
  }
}

void say_what_is_served(const ServeFlags& flags, const Served& served) {
  if (served.weights.held != served.weights.as_plain) {
    spdlog::info("weights as {} take {:.1f} MiB{} instead of {:.1f} MiB", to_string(flags.weights),
                 mebibytes(served.weights.held), flags.tensor_parallel == 1 ? "" : " at each rank",
                 mebibytes(served.weights.as_plain));
  }
  if (!served.processors.empty()) {
    spdlog::info("compute threads are pinned to processors {}{}", fmt::join(served.processors, ", "),
                 flags.tensor_parallel == 1 ? "" : ", those of other ranks to others");
  }
  if (served.model) {
    const ServedModel& model = *served.model;
    spdlog::info("serving '{}': blocks {} of {}, hidden {}, vocabulary {}, context {}, {} concurrent", flags.served_name,
                 to_string(model.blocks), model.config.layers, model.config.hidden_size, model.config.vocab_size,
                 model.engine->options().max_context_tokens, flags.max_concurrent);
    return;
  }
  const ChainStageOptions& options = served.blocks->stage->options();
  spdlog::info("serving blocks {} of {} of '{}' to other workers: hidden {}, sessions of up to {} tokens",
               to_string(options.blocks), options.model.layers, flags.served_name, options.model.hidden_size,
               options.max_tokens);
}

void say_what_was_measured(const Result<ModelHost::Measured>& measured) {
  if (!measured.ok())
    return spdlog::warn("--measure-time: measuring prefill and decode failed, so no figures are reported: {}",
                        measured.error().message);
  std::vector<std::string> texts;
  for (const metrics::MeasuredIteration& iteration : *measured) texts.push_back(to_text(iteration));
  if (!texts.empty()) spdlog::info("measured: {}", fmt::join(texts, ", "));
}

// Changes the blocks to those that POST /blocks asked for. The current model is destroyed only when nobody uses it any more,
// and on this thread, so no engine exists between two ranges.
class BlockChange {
 public:
  BlockChange(const ServeFlags& flags, const Clock& clock, Watch& watch, HttpServer& server, ModelHost& host)
      : flags_(flags), clock_(clock), watch_(watch), server_(server), host_(host) {}

  // Returns false if the worker was asked to stop meanwhile; `served` is then unchanged, perhaps drained. REQUIRES: `served` is
  // set; it still is on return.
  [[nodiscard]] bool run(BlockRange to, std::optional<Served>& served) {
    const std::string from = to_string(served->range());
    spdlog::info("blocks: changing to {} (now serving {})", to_string(to), from);
    preparing_ = std::async(std::launch::async, [this, to] { return host_.prepare(to); });
    while (!is_ready(preparing_)) {
      if (!watch_.goes_on(&*served)) return false;
    }
    auto change = preparing_.get();
    if (!change.ok()) {
      fail(change.error(), from);
      return true;
    }
    if (!empty(*served)) return false;
    served.reset();
    take_up(std::move(change).value(), from, served);
    return true;
  }

  // Whether preparation still runs; it cannot be cancelled.
  [[nodiscard]] bool under_way() const { return preparing_.valid() && !is_ready(preparing_); }

 private:
  // Waits until the current model is unused. Returns false if asked to stop.
  [[nodiscard]] bool empty(const Served& served) {
    server_.begin_change();
    served.drain();
    const double begun_s = clock_.now_s();
    bool cut = false;
    while (served.in_flight() > 0 && !(cut && served.blocks)) {
      if (!watch_.goes_on(&served)) return false;
      if (cut || clock_.now_s() - begun_s <= flags_.drain_timeout_s) continue;
      cut = true;
      spdlog::warn("blocks: {} requests in flight are cancelled", served.in_flight());
      if (served.model) served.model->engine->cancel_all("this worker's blocks changed before the answer was complete");
    }
    const std::future<void> given_back = server_.withdraw();
    while (!is_ready(given_back)) {
      if (!watch_.goes_on(&served)) return false;
    }
    return true;
  }

  void take_up(ModelHost::Change change, const std::string& from, std::optional<Served>& served) {
    const double begun_s = clock_.now_s();
    auto changing = std::async(std::launch::async, [&] { return host_.change(std::move(change)); });
    while (!is_ready(changing)) {
      if (watch_.goes_on(nullptr)) continue;
      spdlog::info("asked to stop during a change of blocks");
      server_.drain();  // answers the client that asked for the change
      flush(server_, clock_);
      spdlog::shutdown();
      std::_Exit(0);
    }
    auto changed = changing.get();
    if (!changed.ok()) {
      server_.changed(changed.error());
      flush(server_, clock_);
      end_at_once(fmt::format("{}; this worker has nothing to serve", changed.error().message));
    }
    served.emplace(std::move(changed->served));
    server_.serve(*served);
    if (changed->failure) return fail(*changed->failure, from);
    server_.changed(std::nullopt);
    spdlog::info("blocks: changed from {}; nothing was served for {:.3f} s", from, clock_.now_s() - begun_s);
    say_what_is_served(flags_, *served);
  }

  void fail(const Error& error, const std::string& from) {
    const Error why{error.code, fmt::format("{}; this worker still serves {}", error.message, from)};
    spdlog::error("blocks: {}", why.message);
    server_.changed(why);
  }

  const ServeFlags& flags_;
  const Clock& clock_;
  Watch& watch_;
  HttpServer& server_;
  ModelHost& host_;
  std::future<Result<ModelHost::Change>> preparing_;
};

// Waits until everything in flight is answered. Returns false on timeout or a second signal.
bool drained(HttpServer& server, const Served& served, const Ranks& ranks, const Clock& clock, double limit_s) {
  const double begun_s = clock.now_s();
  double idle_since_s = -1;
  for (;;) {
    const bool again = stop_signal_within_tick();
    const double now_s = clock.now_s();
    ranks.look();
    server.tick(&served);
    if (served.in_flight() == 0) {
      if (idle_since_s < 0) idle_since_s = now_s;
      const bool flushed = server.open_exchanges() == 0 || now_s - idle_since_s > kFlushSeconds;
      if (flushed && now_s - begun_s >= kLingerSeconds) return true;
    } else if (again || now_s - begun_s > limit_s) {
      return false;
    }
  }
}

// The token in this environment variable; empty: none.
Result<std::string> token_in(const char* name) {
  const char* const variable = std::getenv(name);
  if (variable == nullptr) return std::string();
  auto token = security::parse_token(variable);
  if (!token.ok()) return token.error().within(name);
  return token;
}

// The token that this worker sends to others; empty: none.
Result<std::string> read_caller_token(const ServeFlags& flags) {
  // Later the file is read again for every use, because it may be replaced while the worker runs.
  if (const auto file = flags.token_file.empty() ? Result<std::string>("") : security::read_file(flags.token_file);
      !file.ok()) {
    return file.error().within("--token-file");
  }
  return token_in(kTokenVariable);
}

// Creates counters that would otherwise be absent until their first event.
void begin_counters(const metrics::WorkerMetrics& metrics) {
  for (const char* reason : {"stop", "length", "abort", "error", "rejected", "prefilled"})
    metrics.requests_finished(reason).add(0);
  for (const char* outcome : {"received", "failed", "stopped"}) metrics.kv_transfers(outcome).add(0);
  for (const char* direction : {"sent", "received"}) {
    metrics.kv_transfer_bytes(direction).add(0);
    metrics.chain_bytes(direction).add(0);
  }
  for (const char* reason : {"full", "draining", "mismatch", "unreachable"}) metrics.chain_refusals(reason).add(0);
}

OtherWorkers other_workers(const std::shared_ptr<HttpClient>& calls, ChainStepClient& steps, KvStreamClient& streams) {
  const auto computed_here = [](const KvQuestion& last, const Error& why) {
    spdlog::warn("prompt of session {} at {} is computed here: {}", session_in_log(last.session), last.address, why.message);
  };
  return {ask_over_http(calls), computed_here, steps.post(), streams.stream()};
}

// Loads the model and logs progress. Ends the process if loading fails or a signal arrives.
Served load(ModelHost& host, const Ranks& ranks, const LoadProgress& progress, const Clock& clock) {
  auto loading = std::async(std::launch::async, [&] { return host.load(); });
  double reported_s = clock.now_s() - kProgressSeconds;
  while (!is_ready(loading)) {
    // If loading itself failed, its error is more useful than the ranks' exit.
    if (const auto why = ranks.ended(); why && loading.wait_for(std::chrono::seconds(1)) != std::future_status::ready) {
      end_without_rank(*why);
    }
    if (stop_signal_within_tick()) {
      spdlog::info("asked to stop while loading");
      spdlog::shutdown();
      std::_Exit(0);
    }
    if (clock.now_s() - reported_s >= kProgressSeconds && !is_ready(loading)) {
      reported_s = clock.now_s();
      spdlog::info("loading: {}", to_text(progress.now()));
    }
  }
  auto loaded = loading.get();
  if (!loaded.ok()) {
    spdlog::error("{}", loaded.error().message);
    spdlog::shutdown();
    std::_Exit(1);  // clients may be connected, but there is nothing for them to wait for
  }
  return std::move(loaded).value();
}

// Ends requests in flight after a drain that timed out. Returns false if the engine is still working on them.
bool cut_short(HttpServer& server, const Served& served, const Clock& clock) {
  spdlog::warn("drain ended early: {} requests in flight are cancelled", served.in_flight());
  bool settled = true;
  if (served.model) {
    served.model->engine->cancel_all("this worker was stopped before the answer was complete");
    settled = served.model->engine->wait_idle(kFlushSeconds);
  }
  flush(server, clock);
  return settled;
}

struct Stopped {
  int code = 0;       // exit code of the process
  bool held = false;  // the engine or a server thread is still busy
};

Stopped drain_and_close(const ServeFlags& flags, HttpServer& server, Served& served, const Ranks& ranks, const Clock& clock) {
  server.drain();
  served.drain();
  spdlog::info("draining: {} requests in flight, at most {} s", served.in_flight(), flags.drain_timeout_s);
  const bool whole = drained(server, served, ranks, clock, flags.drain_timeout_s);
  const bool settled = whole || cut_short(server, served, clock);
  const bool closed = server.close(kFlushSeconds);
  spdlog::info("stopped");
  return {whole ? 0 : 1, !closed || !settled};
}

}  // namespace

void catch_stop_signals() {
  if (::pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int serve_rank(const ServeFlags& flags) {
  ::prctl(PR_SET_NAME, "windlass-worker");  // instead of "exe", the name it was started with
  const auto group = open_rank_group(flags);
  if (!group.ok()) {
    spdlog::error("{}", group.error().message);
    return 1;
  }
  const std::jthread alive([&](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      (*group)->beat();
      never.wait_for(lock, stop, std::chrono::duration<double>(RankGroup::kBeatS), [] { return false; });
    }
  });
  // Rank 0 reports the loss. The thread that waits for a lost GPU can never finish.
  const auto lost = [&](const Error& error) {
    (*group)->fail(error.message);
    std::_Exit(1);
  };
  const auto served = serve_rank_part(flags, {group->get(), lost});
  if (served.ok()) return 0;
  (*group)->fail(served.error().message);
  return 1;
}

int serve_model(const ServeFlags& flags, const std::vector<std::string>& arguments) {
  const Result<std::string> caller_token = read_caller_token(flags), duty_token = token_in(kDutyTokenVariable);
  for (const auto* token : {&caller_token, &duty_token}) {
    if (token->ok()) continue;
    spdlog::error("{}", token->error().message);
    return 1;
  }
  const auto started = start_ranks(flags, arguments);  // first: they inherit open file descriptors
  if (!started.ok()) {
    spdlog::error("{}", started.error().message);
    return 1;
  }
  const Ranks& ranks = *started;
  const SteadyClock clock;
  metrics::Registry registry;
  const metrics::WorkerMetrics metrics(registry, flags.served_name);
  begin_counters(metrics);
  LoadProgress progress;
  HttpServer server({flags.host, flags.port, flags.served_name, flags.request_timeout_s, flags.role, flags.token_file,
                     *duty_token, *caller_token, flags.blocks.has_value(), fixed_blocks(flags), &progress},
                    registry, metrics, clock);
  if (const auto opened = server.open(); !opened.ok()) {
    if (ranks.processes != nullptr) ranks.processes->kill();  // their work is useless now
    spdlog::error("{}", opened.error().message);
    return 1;
  }
  spdlog::info("listening on {}, loading {}", net::to_string({flags.host, std::to_string(flags.port)}), flags.model_folder);

  KvStreamClient streams;
  const auto calls = std::make_shared<HttpClient>(*caller_token);
  ChainStepClient steps(call_over_http(calls));
  const OtherWorkers others = other_workers(calls, steps, streams);
  const TensorRanks others_of_model{ranks.group.get(), [&ranks](const Error& error) { ranks.noticed(error); }};
  ModelHost host(flags, clock, metrics, others, others_of_model, &progress);
  std::optional<Served> served = load(host, ranks, progress, clock);
  say_what_is_served(flags, *served);
  say_what_was_measured(host.measured());
  if (ranks.group != nullptr) spdlog::info("{} ranks compute every layer together", ranks.group->ranks());
  server.serve(*served);

  Watch watch(server, ranks);
  BlockChange change(flags, clock, watch, server, host);
  while (watch.goes_on(&*served)) {
    if (const auto wanted = server.wanted_blocks(); wanted && !change.run(*wanted, served)) break;
  }

  const Stopped stopped = drain_and_close(flags, server, *served, ranks, clock);
  if (stopped.held || change.under_way() || server.open_exchanges() > 0) {
    // Skip destructors: other threads may still use what they would destroy.
    spdlog::shutdown();
    std::_Exit(stopped.code);
  }
  calls->end();  // drop outstanding calls
  return stopped.code;
}

}  // namespace windlass::worker
