// Keys and values from worker to worker over a TCP connection for each prompt: the sender writes pieces as soon as they are in
// its cache, the receiver takes them as fast as it writes them into its own, and TCP's flow control is all that holds the
// sender back. Several times as fast as questions over HTTP, which remain for whoever cannot connect
// (docs/decisions/2026-11-22-kv-is-pulled.md).
//
// The receiver says hello (KvHello); the sender answers with frames (KvFrame), each followed by so many bytes: pieces
// (kv_wire.h's head, then numbers), word every second that nothing new is there, and an end: the first token, or why there is
// none. Little-endian. Each side has a thread for each prompt (tcp.h).
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

// What a worker sends from, as long as it is served; `taken` as answer_kv()'s. No exports: there are none now.
struct KvSource {
  std::shared_ptr<KvExports> exports;
  std::function<void(const std::string& session)> taken;
};

class KvStreamServer {
 public:
  // Listens on a port of its own that is free. `source` is called on the threads of connections, for each of them.
  // Error: kUnavailable, naming the address.
  [[nodiscard]] static Result<std::unique_ptr<KvStreamServer>> open(const std::string& host, std::function<KvSource()> source);
  // Breaks all streams off.
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
  // Breaks all streams off; from now on none begins.
  ~KvStreamClient();
  KvStreamClient(const KvStreamClient&) = delete;
  KvStreamClient& operator=(const KvStreamClient&) = delete;

  // Streams from that port of the worker that the question names.
  [[nodiscard]] KvImports::Stream stream();

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace windlass::worker
