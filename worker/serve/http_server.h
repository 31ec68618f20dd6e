// HttpServer: the worker's one port: OpenAI endpoints, /health, /ready, /metrics, /role, /blocks, and /kv and /chain for other
// workers, on a net::HttpService.
//
// It is thin: it asks openai_api.h what a body means, gives it to the engine and writes events back. Handlers run on the
// service's threads and never wait there for the engine or a network. Methods of this class belong to main's thread.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "metrics/bundles.h"
#include "planner/base/result.h"
#include "worker/engine/clock.h"
#include "worker/serve/role.h"
#include "worker/serve/served_model.h"

namespace windlass::worker {

class ChainStepServer;
class KvStreamServer;
class SideThreads;

struct HttpServerOptions {
  std::string host;
  int port = 0;
  std::string served_name;
  double request_timeout_s = 0;  // 0: none
  Role role = Role::kUnified;    // at the start
  std::string token_file;        // read at each change of role or blocks; empty: there are none
  std::string caller_token;      // what all but probes and scrapers must show; empty: nothing
  bool some_blocks = false;      // it begins with some of the model's blocks alone; a worker that has these has no other role
  std::optional<std::string> fixed_blocks = {};  // why its blocks cannot change, where nothing else forbids it
  const LoadProgress* progress = nullptr;        // for /ready until serve(); outlives the server; null: it does not say
};

class HttpServer {
 public:
  // REQUIRES: registry, metrics and clock outlive this.
  HttpServer(HttpServerOptions options, const metrics::Registry& registry, const metrics::WorkerMetrics& metrics,
             const Clock& clock);
  ~HttpServer();

  // Starts to listen: /health answers, /ready says 503 until serve(). Error: kUnavailable, naming the address.
  [[nodiscard]] Result<void> open();

  // Ready from now on. REQUIRES: it outlives close(), or until withdraw() has come true.
  void serve(const Served& served);

  // The blocks that POST /blocks asks for, until changed(): its answer waits for that. Whoever asks for others meanwhile is
  // refused.
  [[nodiscard]] std::optional<BlockRange> wanted_blocks() const;
  // Not ready any more; generation requests get 503 with X-Windlass-Rejected: blocks. What is there goes on.
  void begin_change();
  // Nobody meets what is served from now on. Comes true once nobody who has met it still holds it.
  [[nodiscard]] std::future<void> withdraw();
  // Answers who asked. `failure`: why they are not what was asked for.
  void changed(const std::optional<Error>& failure);

  // Not ready any more; generation requests get 503 with X-Windlass-Rejected: draining.
  void drain();

  // Housekeeping, also of what is served; to be called several times a second. nullptr: nothing is.
  void tick(const Served* served);

  // Requests whose answer is not out yet.
  [[nodiscard]] int open_exchanges() const;

  // Stops listening. False when connections did not end within the limit; then the process should exit without destructors.
  [[nodiscard]] bool close(double limit_s);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
  std::unique_ptr<SideThreads> side_;
  std::unique_ptr<KvStreamServer> streams_;  // end before what they send from, and what they are for
  std::unique_ptr<ChainStepServer> steps_;
};

}  // namespace windlass::worker
