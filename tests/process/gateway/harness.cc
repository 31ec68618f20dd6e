// Sockets, threads and child processes with POSIX calls.
#include "tests/process/gateway/harness.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/worker_id.h"
#include "metrics/latency_bins.h"
#include "tests/loopback.h"
#include "tests/paths.h"

extern char** environ;

namespace windlass::gateway::testing {
namespace {

const std::string kProgram = build_path("/windlass-gateway");
const std::string kWorkerProgram = build_path("/gateway_test_worker");

int spawn(const std::string& program, const std::vector<std::string>& flags, int out_fd, int err_fd) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const auto& flag : flags) argv.push_back(const_cast<char*>(flag.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (out_fd >= 0) posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
  if (err_fd >= 0) posix_spawn_file_actions_adddup2(&actions, err_fd, 2);
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed != 0 ? -1 : pid;
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> bytes;
  for (auto n = ::read(fd, bytes.data(), bytes.size()); n > 0; n = ::read(fd, bytes.data(), bytes.size())) {
    text.append(bytes.data(), static_cast<std::size_t>(n));
  }
  ::close(fd);
  return text;
}

}  // namespace

std::string id_of(const std::string& chain) { return worker_id(chain); }

std::string chat(const std::string& model, const std::string& prompt, bool stream) {
  return nlohmann::json{{"model", model}, {"messages", {{{"role", "user"}, {"content", prompt}}}}, {"stream", stream}}.dump();
}

bool is_probe(const Message& request) { return request.start_line.rfind("GET /v1/models ", 0) == 0; }

FakeServer::FakeServer(Handler handler, int port) : handler_(std::move(handler)) {
  listen_fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(listen_fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto address = loopback(port);
  socklen_t size = sizeof address;
  if (::bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listen_fd_, 128) != 0) {
    throw std::runtime_error(fmt::format("cannot listen on port {}: {}", port, std::strerror(errno)));
  }
  ::getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_loop(); });
}

FakeServer::~FakeServer() { stop(); }

void FakeServer::accept_loop() {
  while (true) {
    const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    const std::lock_guard lock(mutex_);
    if (stopping_ || fd < 0) {
      if (fd >= 0) ::close(fd);
      return;
    }
    connections_.emplace_back(fd);
    Connection& connection = connections_.back();
    threads_.emplace_back([this, &connection] {
      while (const auto request = read_message(connection)) {
        if (!is_probe(*request) || handles_probes_) {
          handler_(connection, *request);
        } else if (answers_probes_) {
          ++probes_;
          connection.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
      }
      connection.shut_down();
    });
  }
}

void FakeServer::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    ::shutdown(listen_fd_, SHUT_RDWR);
    for (auto& connection : connections_) connection.shut_down();
  }
  acceptor_.join();
  for (auto& thread : threads_) thread.join();
  ::close(listen_fd_);
  connections_.clear();
}

FakeController::FakeController(int port) {
  server_ = std::make_unique<FakeServer>(
      [this](Connection& connection, const Message& request) { answer(connection, request); }, port);
}

FakeController::~FakeController() { stop(); }

void FakeController::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  server_->stop();
}

void FakeController::set_table(dispatch::RoutingTable table) {
  const std::lock_guard lock(mutex_);
  table_ = std::move(table);
  changed_.notify_all();
}

void FakeController::answer_with(int status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
  changed_.notify_all();
}

std::vector<std::string> FakeController::targets() const {
  const std::lock_guard lock(mutex_);
  return targets_;
}

dispatch::TableVersion FakeController::acknowledged() const {
  const std::lock_guard lock(mutex_);
  return acknowledged_;
}

void FakeController::answer(Connection& connection, const Message& request) {
  const std::string target = request.target();
  const auto at = target.find("after=") + 6;
  const auto after = dispatch::table_version_from_string(target.substr(at, target.find('&', at) - at)).value();
  std::unique_lock lock(mutex_);
  targets_.push_back(target);
  acknowledged_ = std::max(acknowledged_, after);
  changed_.wait_for(lock, std::chrono::seconds(20),
                    [&] { return stopping_ || status_ != 0 || (table_.has_value() && table_->version != after); });
  if (stopping_) {
    connection.shut_down();
    return;
  }
  std::string response = "HTTP/1.1 304 Not Modified\r\n\r\n";
  if (status_ != 0) {
    response = json_response(status_, "{}");
  } else if (table_.has_value() && table_->version != after) {
    response = json_response(200, dispatch::to_json(*table_));
  }
  lock.unlock();
  connection.write(response);
}

void Gate::open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  opened_.notify_all();
}

bool Gate::wait(double deadline_s) {
  std::unique_lock lock(mutex_);
  return opened_.wait_for(lock, std::chrono::duration<double>(deadline_s), [this] { return open_; });
}

GatewayProcess::GatewayProcess(const std::vector<std::string>& controllers, std::vector<std::string> flags) {
  if (std::find(flags.begin(), flags.end(), "--id") == flags.end()) flags.insert(flags.end(), {"--id", "gw"});
  flags.insert(flags.begin(), {"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"});
  for (const auto& url : controllers) flags.insert(flags.end(), {"--controller", url});
  std::array<int, 2> pipe_fds{};
  if (::pipe2(pipe_fds.data(), O_CLOEXEC) != 0) return;
  pid_ = spawn(kProgram, flags, -1, pipe_fds[1]);
  ::close(pipe_fds[1]);
  reader_ = std::thread([this, fd = pipe_fds[0]] { read_log(fd); });
  const bool listens = wait_until([this] { return log().find("admin on 127.0.0.1:") != std::string::npos; });
  if (!listens) return;
  const std::string text = log();
  const auto port_after = [&text](std::string_view words) { return std::atoi(text.c_str() + text.find(words) + words.size()); };
  admin_port_ = port_after("admin on 127.0.0.1:");
  port_ = port_after("listens on 127.0.0.1:");
}

GatewayProcess::~GatewayProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (reader_.joinable()) reader_.join();
}

void GatewayProcess::read_log(int fd) {
  std::array<char, 4096> bytes;
  for (auto n = ::read(fd, bytes.data(), bytes.size()); n > 0; n = ::read(fd, bytes.data(), bytes.size())) {
    const std::lock_guard lock(mutex_);
    log_.append(bytes.data(), static_cast<std::size_t>(n));
  }
  ::close(fd);
}

void GatewayProcess::signal(int number) const { ::kill(pid_, number); }

std::optional<int> GatewayProcess::wait_exit(double deadline_s) {
  int status = 0;
  const bool ended = wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, deadline_s);
  if (!ended) return std::nullopt;
  pid_ = -1;
  return WIFEXITED(status) ? std::optional<int>(WEXITSTATUS(status)) : std::nullopt;
}

std::string GatewayProcess::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

metrics::Exposition GatewayProcess::metrics() const {
  const auto page = ask(admin_port_, get("/metrics")), latencies = ask(admin_port_, get("/latencies"));
  if (!page || !latencies) return {};
  auto all = windlass::metrics::parse_exposition(page->body).value_or({});
  windlass::metrics::add_latency_bins(all, windlass::metrics::parse_exposition(latencies->body).value_or({}));
  return all;
}

double GatewayProcess::metric(const std::string& name, const std::map<std::string, std::string>& match) const {
  return metrics().sum(name, match).value_or(0);
}

bool GatewayProcess::ready() const {
  const auto answer = ask(admin_port_, get("/ready"));
  return answer && answer->status() == 200;
}

bool GatewayProcess::obeys(dispatch::TableVersion version) const {
  return wait_until([&] {
    const auto page = metrics();
    return page.sum("windlass_gateway_routing_table_term").value_or(-1) == static_cast<double>(version.term) &&
           page.sum("windlass_gateway_routing_table_revision").value_or(-1) == static_cast<double>(version.counter);
  });
}

WorkerProcess::WorkerProcess(const std::string& name) {
  std::array<int, 2> out{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return;
  pid_ = spawn(kWorkerProgram, {"--name=" + name}, out[1], -1);
  ::close(out[1]);
  std::string line;
  char c = 0;
  while (::read(out[0], &c, 1) == 1 && c != '\n') line += c;
  ::close(out[0]);
  port_ = std::atoi(line.c_str());
}

WorkerProcess::~WorkerProcess() {
  signal(SIGKILL);
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

void WorkerProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

ProgramResult run_program(const std::vector<std::string>& flags) {
  std::array<int, 2> out{}, err{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) return {};
  const int pid = spawn(kProgram, flags, out[1], err[1]);
  ::close(out[1]);
  ::close(err[1]);
  ProgramResult result;
  result.out = read_all(out[0]);
  result.err = read_all(err[0]);
  int status = 0;
  if (pid > 0 && ::waitpid(pid, &status, 0) == pid && WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

dispatch::Chain chain(const std::string& id, const std::string& address, double rate, int capacity, bool draining) {
  return {id, {address}, dispatch::Role::kUnified, rate, capacity, draining};
}

dispatch::Chain in_role(dispatch::Role role, dispatch::Chain chain) {
  chain.role = role;
  return chain;
}

dispatch::RoutingTable table(std::int64_t counter, std::vector<dispatch::Chain> chains, int max_queued, std::int64_t term) {
  dispatch::ModelRoute route;
  route.served_name = "tiny";
  route.name_space = "default";
  route.service = "tiny";
  route.ttft_slo_s = 5;
  route.tpot_slo_s = 1;
  route.max_queued = max_queued;
  route.max_context_tokens = 2048;
  route.chains = std::move(chains);
  return {{term, counter}, {route}};
}

std::string json_response(int status, const std::string& body, const std::string& extra_headers) {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", status, extra_headers,
                     body.size(), body);
}

std::string completion(const std::string& text, int tokens) {
  return nlohmann::json{{"choices", {{{"index", 0}, {"message", {{"role", "assistant"}, {"content", text}}}}}},
                        {"usage", {{"prompt_tokens", 5}, {"completion_tokens", tokens}}}}
      .dump();
}

std::string stream_head() { return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"; }

std::string prefill_head(const std::string& value) {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Windlass-Prefilled: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
      value);
}

std::string chunk(const std::string& bytes) { return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes); }

std::string token_event(const std::string& text) {
  return "data: " + nlohmann::json{{"choices", {{{"index", 0}, {"delta", {{"content", text}}}}}}}.dump() + "\n\n";
}

std::string usage_event(int prompt_tokens, int tokens) {
  return "data: " +
         nlohmann::json{{"choices", nlohmann::json::array()},
                        {"usage", {{"prompt_tokens", prompt_tokens}, {"completion_tokens", tokens}}}}
             .dump() +
         "\n\n";
}

}  // namespace windlass::gateway::testing
