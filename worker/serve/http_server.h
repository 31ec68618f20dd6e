// HttpServer: the worker's one port: OpenAI endpoints, /health, /ready, /metrics, /role, and /kv and /chain for other
// workers, on cpprestsdk's listener.
//
// It is thin: it reads a bounded body, asks openai_api.h what it means, gives it to the engine and writes events back. Handlers
// run on cpprestsdk's threads and never wait there for the engine or a network. Methods of this class belong to main's thread.
#pragma once

#include <memory>
#include <string>

#include "metrics/bundles.h"
#include "planner/base/result.h"
#include "worker/engine/clock.h"
#include "worker/serve/role.h"
#include "worker/serve/served_model.h"

namespace windlass::worker {

struct HttpServerOptions {
  std::string host;
  int port = 0;
  std::string served_name;
  double request_timeout_s = 0;  // 0: none
  Role role = Role::kUnified;    // at the start
  std::string token_file;        // read at each change of role; empty: it cannot be changed
  bool some_blocks = false;      // it has some of the model's blocks alone, and so no other role
};

class HttpServer {
 public:
  // REQUIRES: registry, metrics and clock outlive this.
  HttpServer(HttpServerOptions options, const metrics::Registry& registry, const metrics::WorkerMetrics& metrics,
             const Clock& clock);
  ~HttpServer();

  // Starts to listen: /health answers, /ready says 503 until serve(). Error: kUnavailable, naming the address.
  [[nodiscard]] Result<void> open();

  // Ready from now on. REQUIRES: the model outlives close().
  void serve(const ServedModel& model);
  void serve(const ServedBlocks& blocks);

  // Not ready any more; generation requests get 503 with X-Windlass-Rejected: draining.
  void drain();

  // Housekeeping; to be called several times a second.
  void tick();

  // Requests whose answer is not out yet.
  [[nodiscard]] int open_exchanges() const;

  // Stops listening. False when connections did not end within the limit; then the process should exit without destructors.
  [[nodiscard]] bool close(double limit_s);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace windlass::worker
