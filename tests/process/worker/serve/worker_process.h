// Starts the real windlass-worker for a test and talks HTTP to it over plain sockets, so that a test sees bytes as they arrive.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/free_port.h"
#include "tests/paths.h"

namespace windlass::worker::testing {

using std::chrono::steady_clock;

// Polls until the condition holds or the deadline passes.
inline bool eventually(const std::function<bool()>& condition, std::chrono::seconds limit = std::chrono::seconds(180)) {
  const auto deadline = steady_clock::now() + limit;
  while (!condition()) {
    if (steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

// A child process whose stderr goes to a file.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, std::filesystem::path log) : log_(std::move(log)) {
    std::vector<char*> argv;
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int out = ::open(log_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
      ::dup2(out, 1);
      ::dup2(out, 2);
      ::execv(argv[0], argv.data());
      std::_Exit(127);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (!status_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  [[nodiscard]] pid_t id() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  // The exit code once it has ended; 128 + signal if it was killed; -1 if it does not end in time.
  int wait(std::chrono::seconds limit = std::chrono::seconds(180)) {
    eventually([&] { return ended(); }, limit);
    if (!status_) return -1;
    return WIFEXITED(*status_) ? WEXITSTATUS(*status_) : 128 + WTERMSIG(*status_);
  }
  bool ended() {
    int status = 0;
    if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    return status_.has_value();
  }
  [[nodiscard]] std::string log() const {
    std::ifstream in(log_);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

 private:
  std::filesystem::path log_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

// Slows a process down during this object's lifetime: it is stopped except for short moments, in which it makes some progress
// and renews its sessions. So a request through it takes as long as the test needs, however fast the machine is. REQUIRES: the
// process outlives this.
class Slowed {
 public:
  explicit Slowed(const Process& process)
      : thread_([&process](const std::stop_token& stop) {
          std::mutex mutex;
          std::condition_variable_any never;
          std::unique_lock lock(mutex);
          const auto rest = [&](int ms) { never.wait_for(lock, stop, std::chrono::milliseconds(ms), [] { return false; }); };
          while (!stop.stop_requested()) {
            process.signal(SIGSTOP);
            rest(50);
            process.signal(SIGCONT);
            rest(2);
          }
        }) {}

 private:
  std::jthread thread_;
};

using windlass::free_port;

// One HTTP exchange on a connection of its own.
class Connection {
 public:
  explicit Connection(int port) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    open_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { ::close(fd_); }

  [[nodiscard]] bool open() const { return open_; }

  void send(const std::string& method, const std::string& path, const std::string& body, const std::string& headers = "") {
    const std::string request =
        method + " " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n" + headers +
        (body.empty() && method != "POST" ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body;
    for (std::size_t sent = 0; sent < request.size();) {
      const auto n = ::send(fd_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<std::size_t>(n);
    }
  }

  // Reads until the text has arrived or the peer has closed; returns whether it arrived.
  bool read_until(const std::string& text, std::chrono::seconds limit = std::chrono::seconds(180)) {
    const auto deadline = steady_clock::now() + limit;
    while (received_.find(text) == std::string::npos) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
      pollfd wait{fd_, POLLIN, 0};
      if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) <= 0) return false;
      char bytes[4096];
      const auto n = ::recv(fd_, bytes, sizeof(bytes), 0);
      if (n <= 0) return false;
      received_.append(bytes, static_cast<std::size_t>(n));
    }
    return true;
  }
  // Everything until the peer closes.
  const std::string& read_all() {
    read_until(std::string(1, '\0') + "no server sends this");
    return received_;
  }
  [[nodiscard]] const std::string& received() const { return received_; }

 private:
  int fd_ = -1;
  bool open_ = false;
  std::string received_;
};

struct Answer {
  int status = 0;
  std::string headers;
  std::string body;
};

// Splits a response into status, headers and body, chunked or not.
inline Answer parse_answer(const std::string& raw) {
  Answer answer;
  const auto end = raw.find("\r\n\r\n");
  if (raw.size() < 12 || end == std::string::npos) return answer;
  answer.status = std::atoi(raw.c_str() + 9);
  answer.headers = raw.substr(0, end + 2);
  std::string rest = raw.substr(end + 4);
  if (answer.headers.find("Transfer-Encoding: chunked") == std::string::npos) {
    answer.body = rest;
    return answer;
  }
  while (!rest.empty()) {
    const auto line = rest.find("\r\n");
    const std::size_t size = std::strtoul(rest.c_str(), nullptr, 16);
    if (line == std::string::npos || size == 0) break;
    answer.body += rest.substr(line + 2, size);
    rest.erase(0, std::min(rest.size(), line + 2 + size + 2));
  }
  return answer;
}

inline Answer ask(int port, const std::string& method, const std::string& path, const std::string& body = "",
                  const std::string& headers = "") {
  Connection connection(port);
  if (!connection.open()) return {};
  connection.send(method, path, body, headers);
  return parse_answer(connection.read_all());
}

// The value of an unlabelled or singly labelled series in Prometheus text; -1 if it is missing.
inline double metric(const std::string& text, const std::string& series) {
  const auto at = text.find("\n" + series);
  if (at == std::string::npos) return -1;
  const auto space = text.find(' ', at);
  return std::strtod(text.c_str() + space, nullptr);
}

// The texts of all chunks of a stream, and the number of events of each kind.
struct Stream {
  std::string text;
  int tokens = 0;
  int done = 0;
  std::string finish;
  nlohmann::json usage;
};
inline Stream parse_stream(const std::string& body) {
  Stream stream;
  for (std::size_t at = body.find("data: "); at != std::string::npos; at = body.find("data: ", at + 1)) {
    const std::string data = body.substr(at + 6, body.find("\n\n", at) - at - 6);
    if (data == "[DONE]") {
      ++stream.done;
      continue;
    }
    const nlohmann::json event = nlohmann::json::parse(data);
    if (event.contains("usage")) stream.usage = event["usage"];
    if (!event.contains("choices") || event["choices"].empty()) continue;
    const nlohmann::json& choice = event["choices"][0];
    stream.text += choice.contains("text") ? choice["text"].get<std::string>() : choice["delta"].value("content", "");
    if (choice["finish_reason"].is_string()) stream.finish = choice["finish_reason"];
    ++stream.tokens;
  }
  return stream;
}

// Expects two complete completions of a request to have the same texts, finish reasons and counts.
inline void expect_same_completion(const nlohmann::json& found, const nlohmann::json& expected) {
  ASSERT_EQ(found["choices"].size(), expected["choices"].size());
  for (std::size_t i = 0; i < found["choices"].size(); ++i) {
    EXPECT_EQ(found["choices"][i]["text"], expected["choices"][i]["text"]);
    EXPECT_EQ(found["choices"][i]["finish_reason"], expected["choices"][i]["finish_reason"]);
  }
  EXPECT_EQ(found["usage"]["prompt_tokens"], expected["usage"]["prompt_tokens"]);
  EXPECT_EQ(found["usage"]["total_tokens"], expected["usage"]["total_tokens"]);
}

inline const std::string kProgram = build_path() + "/windlass-worker";

// A folder with a newly generated model, and workers that serve it.
class Worker : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "windlass-process-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // One of several workers.
  struct One {
    int port = 0;
    std::unique_ptr<Process> process;
  };

  // Generates the model and starts a worker on it, which is ready on return.
  std::unique_ptr<Process> start(const std::vector<std::string>& more = {}) {
    make_model();
    port_ = free_port();
    return start_at(port_, more);
  }
  // Starts a worker on the existing model.
  std::unique_ptr<Process> start_at(int port, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {kProgram, "--model", model().string(), "--port", std::to_string(port),
                                          "--name", "tiny"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto says = [&](const char* flag) { return std::find(more.begin(), more.end(), flag) != more.end(); };
    if (!says("--measure-time")) arguments.insert(arguments.end(), {"--measure-time", "0"});  // not used by the test
    if (context_ > kEndless && !says("--kv-cache-tokens")) {
      arguments.insert(arguments.end(),
                       {"--kv-cache-tokens", std::to_string(context_)});  // for one context, not one per concurrent request
    }
    auto worker = std::make_unique<Process>(arguments, folder_ / ("worker-" + std::to_string(port) + ".log"));
    EXPECT_TRUE(eventually([&] { return ask(port, "GET", "/ready").status == 200 || worker->ended(); })) << worker->log();
    return worker;
  }
  // The same on a port of its own.
  One start_one(const std::vector<std::string>& more) {
    const int port = free_port();
    return {port, start_at(port, more)};
  }
  static std::string address(const One& one) { return "127.0.0.1:" + std::to_string(one.port); }
  static double metric_of(const One& one, const std::string& series) {
    return metric(ask(one.port, "GET", "/metrics").body, series);
  }
  void make_model(const std::string& architecture = "llama") {
    Process init({kProgram, "model", "init", "--overwrite", "--architecture", architecture, "--layers", "3", "--hidden", "128",
                  "--heads", "4", "--kv-heads", architecture == "opt" ? "4" : "2", "--intermediate", "344", "--max-context",
                  std::to_string(context_), model().string()},
                 folder_ / "init.log");
    ASSERT_EQ(init.wait(), 0) << init.log();
  }
  // The number of GPUs a worker would find here; `why` receives the text of --version.
  int gpus(std::string& why) const {
    Process version({kProgram, "--version"}, folder_ / "version.log");
    EXPECT_EQ(version.wait(), 0);
    why = version.log();
    std::smatch found;
    return std::regex_search(why, found, std::regex("([0-9]+) usable device")) ? std::stoi(found[1]) : 0;
  }
  std::filesystem::path model() const { return folder_ / "model"; }
  std::string metrics_text() const { return ask(port_, "GET", "/metrics").body; }
  static std::string completion(int max_tokens, bool stream) {
    return nlohmann::json{{"model", "tiny"},  {"prompt", "the anchor"}, {"max_tokens", max_tokens},
                          {"temperature", 0}, {"stream", stream},       {"ignore_eos", true}}
        .dump();
  }
  // A request for this many tokens runs until it is cancelled: no machine finishes it during a test. Allow this context before
  // the model is generated.
  static constexpr int kEndless = 60'000;
  void allow_endless_requests() { context_ = 65'536; }

  std::filesystem::path folder_;
  int port_ = 0;
  int context_ = 4096;  // of the model, in tokens
};

}  // namespace windlass::worker::testing
