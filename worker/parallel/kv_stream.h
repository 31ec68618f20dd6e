// Streams of keys and values between workers, one TCP connection per prompt. The sender writes pieces as soon as they are in
// its cache, the receiver reads as fast as it can store them; TCP provides the flow control. Several times as fast as questions
// over HTTP, which remain for workers that cannot connect (docs/decisions/2026-11-22-kv-is-pulled.md).
//
// The receiver sends KvHello. The sender answers with frames (KvFrame), each followed by its bytes: pieces (kv_wire.h's head,
// then numbers), a keep-alive every second without new data, and finally the first token or an error. Little-endian. One thread
// per prompt on each side (tcp.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "planner/base/result.h"
#include "worker/parallel/kv_exports.h"
#include "worker/parallel/kv_imports.h"
#include "worker/parallel/tcp.h"

namespace windlass::worker {

// What a worker sends from while it serves a model; `taken` as in answer_kv(). Null exports: nothing is served now.
struct KvSource {
  std::shared_ptr<KvExports> exports;
  std::function<void(const std::string& session)> taken;
};

class KvStreamServer {
 public:
  // Listens on a free port. `source` is called on the threads of connections, once per connection. Error: kUnavailable, naming
  // the address.
  [[nodiscard]] static Result<std::unique_ptr<KvStreamServer>> open(const std::string& host, std::function<KvSource()> source);
  // Breaks off all streams.
  ~KvStreamServer();
  KvStreamServer(const KvStreamServer&) = delete;
  KvStreamServer& operator=(const KvStreamServer&) = delete;

  [[nodiscard]] int port() const { return server_->port(); }

  class Waits;

 private:
  KvStreamServer();

  const std::unique_ptr<Waits> waits_;
  std::unique_ptr<TcpServer> server_;
};

class KvStreamClient {
 public:
  KvStreamClient();
  // Breaks off all streams; no new ones start.
  ~KvStreamClient();
  KvStreamClient(const KvStreamClient&) = delete;
  KvStreamClient& operator=(const KvStreamClient&) = delete;

  // Streams from this port of the worker that the question names.
  [[nodiscard]] KvImports::Stream stream();

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace windlass::worker
