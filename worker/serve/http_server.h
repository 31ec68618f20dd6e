// HttpServer: serves the worker's HTTP port: OpenAI endpoints, /health, /ready, /metrics, /role, /blocks, and /kv and /chain
// for other workers. Built on net::HttpService.
//
// It is thin: openai_api.h parses a body, the engine computes, and Exchange writes the events back. Handlers run on the
// service's threads and never wait for the engine or the network. Call the methods of this class on main's thread only.
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

// Environment variable with the duty token.
inline constexpr const char* kDutyTokenVariable = "WINDLASS_DUTY_TOKEN";

struct HttpServerOptions {
  std::string host;
  int port = 0;
  std::string served_name;
  double request_timeout_s = 0;  // 0: none
  Role role = Role::kUnified;    // initial role
  std::string token_file;        // its token allows changes of role and blocks; read at each change; empty: it allows none
  std::string duty_token;        // also allows them; empty: it allows none
  std::string caller_token;      // required from all callers except probes and scrapers; empty: no token required
  bool some_blocks = false;      // starts with only some of the model's blocks, which fixes its role
  std::optional<std::string> fixed_blocks = {};  // why its blocks cannot change; nullopt: they can, with either token
  const LoadProgress* progress = nullptr;        // shown by /ready until serve(); outlives the server; may be null
};

class HttpServer {
 public:
  // REQUIRES: registry, metrics and clock outlive this object.
  HttpServer(HttpServerOptions options, const metrics::Registry& registry, const metrics::WorkerMetrics& metrics,
             const Clock& clock);
  ~HttpServer();

  // Starts to listen. /health answers 200, /ready 503 until serve(). Error: kUnavailable, naming the address.
  [[nodiscard]] Result<void> open();

  // Serves this model from now on; /ready answers 200. REQUIRES: `served` lives until close() returns or the future of
  // withdraw() is ready.
  void serve(const Served& served);

  // The blocks requested by a POST /blocks that is not answered yet; changed() answers it. Until then, further requests for a
  // change are refused.
  [[nodiscard]] std::optional<BlockRange> wanted_blocks() const;
  // Refuses new generation requests with 503 and X-Windlass-Rejected: blocks; /ready answers 503. Running requests continue.
  void begin_change();
  // Stops using the object given to serve() for new requests. The future is ready once no request uses it any more.
  [[nodiscard]] std::future<void> withdraw();
  // Answers the POST /blocks. `failure`: why the blocks could not be changed.
  void changed(const std::optional<Error>& failure);

  // Refuses new generation requests with 503 and X-Windlass-Rejected: draining, and a pending POST /blocks; /ready answers 503.
  void drain();

  // Housekeeping, such as timeouts. Call it several times a second. nullptr: nothing is served now.
  void tick(const Served* served);

  // Number of requests whose answer is not completely sent.
  [[nodiscard]] int open_exchanges() const;

  // Stops listening. Returns false if connections did not end within the limit; the process should then exit without
  // destructors.
  [[nodiscard]] bool close(double limit_s);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
  std::unique_ptr<SideThreads> side_;
  std::unique_ptr<KvStreamServer> streams_;  // like steps_, declared last: ends before the objects it uses
  std::unique_ptr<ChainStepServer> steps_;
};

}  // namespace windlass::worker
