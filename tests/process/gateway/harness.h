// Tools of the gateway's process tests: the gateway as a child process, and servers in the test that act as its controller and
// workers over real sockets.
//
// Sockets block, each with a deadline; every server has one thread per connection. Nothing here depends on sleeping: tests wait
// for conditions (wait_until) or for each other (Gate).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "metrics/exposition_parser.h"
#include "planner/dispatch/routing_table.h"
#include "tests/http_connection.h"

namespace windlass::gateway::testing {

using windlass::test_client::ask;
using windlass::test_client::Connection;
using windlass::test_client::get;
using windlass::test_client::kDeadlineS;
using windlass::test_client::Message;
using windlass::test_client::post;
using windlass::test_client::read_chunk;
using windlass::test_client::read_head;
using windlass::test_client::read_message;
using windlass::test_client::wait_until;

// The id of a chain in X-Windlass-Worker.
[[nodiscard]] std::string id_of(const std::string& chain);
// The body of a chat request.
[[nodiscard]] std::string chat(const std::string& model, const std::string& prompt, bool stream);

// Whether this is a probe of a gateway: GET /v1/models.
[[nodiscard]] bool is_probe(const Message& request);

// An HTTP server for tests: calls the handler for each request, with one thread per connection. Answers a gateway's probes
// itself, until told to fall silent.
class FakeServer {
 public:
  using Handler = std::function<void(Connection&, const Message&)>;

  explicit FakeServer(Handler handler, int port = 0);
  ~FakeServer();

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // From now on probes get no answer, but connections are accepted.
  void ignore_probes() { answers_probes_ = false; }
  // From now on the handler gets them, too.
  void handle_probes() { handles_probes_ = true; }
  // Probes that were answered.
  [[nodiscard]] int probes() const { return probes_; }
  // Refuses new connections, breaks the open ones and joins all threads.
  void stop();

 private:
  void accept_loop();

  Handler handler_;
  std::atomic<bool> answers_probes_ = true;
  std::atomic<bool> handles_probes_ = false;
  std::atomic<int> probes_ = 0;
  int listen_fd_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  bool stopping_ = false;
  std::list<Connection> connections_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// Acts as the controller: answers long polls for the routing table.
class FakeController {
 public:
  explicit FakeController(int port = 0);
  ~FakeController();

  void set_table(dispatch::RoutingTable table);
  // Answers every poll with this status instead; 0: normal answers.
  void answer_with(int status);
  void stop();

  [[nodiscard]] std::string url() const { return "http://" + server_->address(); }
  [[nodiscard]] int port() const { return server_->port(); }
  [[nodiscard]] std::vector<std::string> targets() const;
  // The newest version that a gateway reported.
  [[nodiscard]] dispatch::TableVersion acknowledged() const;

 private:
  void answer(Connection& connection, const Message& request);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<dispatch::RoutingTable> table_;
  int status_ = 0;
  bool stopping_ = false;
  std::vector<std::string> targets_;
  dispatch::TableVersion acknowledged_;
  std::unique_ptr<FakeServer> server_;
};

// Threads wait at the gate until one opens it.
class Gate {
 public:
  void open();
  [[nodiscard]] bool wait(double deadline_s = kDeadlineS);

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// windlass-gateway as a child process. REQUIRES: built in build_path().
class GatewayProcess {
 public:
  explicit GatewayProcess(const std::vector<std::string>& controllers, std::vector<std::string> flags = {});
  ~GatewayProcess();

  [[nodiscard]] bool started() const { return port_ > 0; }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int admin_port() const { return admin_port_; }
  void signal(int number) const;
  // The exit code; nullopt when it does not end in time or a signal ended it.
  [[nodiscard]] std::optional<int> wait_exit(double deadline_s = kDeadlineS);
  [[nodiscard]] std::string log() const;
  // Includes the bins of /latencies among its samples.
  [[nodiscard]] metrics::Exposition metrics() const;
  // The sum over a metric's series; 0 when there is none.
  [[nodiscard]] double metric(const std::string& name, const std::map<std::string, std::string>& match = {}) const;
  [[nodiscard]] bool ready() const;
  // Waits until the gateway uses that version.
  [[nodiscard]] bool obeys(dispatch::TableVersion version) const;

 private:
  void read_log(int fd);

  int pid_ = -1;
  int port_ = 0;
  int admin_port_ = 0;
  mutable std::mutex mutex_;
  std::string log_;
  std::thread reader_;
};

// gateway_test_worker (worker_main.cc) as a child process, to be stopped and killed.
class WorkerProcess {
 public:
  explicit WorkerProcess(const std::string& name);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  void signal(int number) const;
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int pid_ = -1;
  int port_ = 0;
};

// Runs the gateway's program to its end; returns its stderr and exit code.
struct ProgramResult {
  int exit_code = -1;
  std::string out, err;
};
[[nodiscard]] ProgramResult run_program(const std::vector<std::string>& flags);

[[nodiscard]] dispatch::Chain chain(const std::string& id, const std::string& address, double rate = 1, int capacity = 4,
                                    bool draining = false);
[[nodiscard]] dispatch::Chain in_role(dispatch::Role role, dispatch::Chain chain);
[[nodiscard]] dispatch::RoutingTable table(std::int64_t counter, std::vector<dispatch::Chain> chains, int max_queued = 100,
                                           std::int64_t term = 1);

// Answers from a worker.
[[nodiscard]] std::string json_response(int status, const std::string& body, const std::string& extra_headers = {});
[[nodiscard]] std::string completion(const std::string& text, int tokens = 2);
[[nodiscard]] std::string stream_head();
// The head of a first step's answer; its body follows in chunks.
[[nodiscard]] std::string prefill_head(const std::string& value);
[[nodiscard]] std::string chunk(const std::string& bytes);
[[nodiscard]] std::string token_event(const std::string& text);
[[nodiscard]] std::string usage_event(int prompt_tokens, int tokens);
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";
inline constexpr const char* kLastChunk = "0\r\n\r\n";

}  // namespace windlass::gateway::testing
