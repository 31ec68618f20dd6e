// A worker as its own process, for tests that stop or kill one: gateway_test_worker --name=NAME [--listen=HOST:PORT]. It prints
// its port, then serves. It ignores unknown flags of the real worker, so that the real controller can start it.
//
// A streamed request gets 100 tokens, 20 ms apart, each with the worker's name. Any other request gets the name after 30 ms. If
// the prompt is "hang at NAME", neither answer begins. GET /most returns the highest number of requests that it held at once.
//
// It acts as both kinds of worker of docs/decisions/2026-11-22-kv-is-pulled.md, with names instead of keys and values. As a
// prefill worker it calls them NAME-1, NAME-2 and so on, and ends its body when they have been fetched. As a decode worker it
// fetches them and answers "NAME after NAME-1" instead of its name, or "NAME alone" if it could not fetch them.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tests/process/gateway/harness.h"

using namespace windlass::gateway::testing;

namespace {

constexpr const char* kPullPath = "/kv/";

std::string flag(int argc, char** argv, const std::string& name) {
  const std::string start = "--" + name + "=";
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).substr(0, start.size()) == start) return argv[i] + start.size();
  }
  return "";
}

int port_of(const std::string& address) { return std::atoi(address.c_str() + address.rfind(':') + 1); }

class Worker {
 public:
  explicit Worker(std::string name) : name_(std::move(name)) {}

  void answer(Connection& connection, const Message& request) {
    if (request.target() == "/metrics") {
      connection.write(json_response(200, metrics_page()));
    } else if (request.target().rfind(kPullPath, 0) == 0) {
      connection.write(pulled(request.target()));
    } else if (request.start_line.rfind("GET ", 0) == 0) {
      connection.write(json_response(200, std::to_string(most_)));
    } else {
      const int now = ++held_;
      for (int seen = most_; now > seen && !most_.compare_exchange_weak(seen, now);) continue;
      serve(connection, request);
    }
  }

 private:
  std::string metrics_page() const {
    return fmt::format(
        "windlass_worker_requests_running{{model=\"{0}\"}} {1}\nwindlass_worker_requests_waiting{{model=\"{0}\"}} 0\n", name_,
        held_.load());
  }

  // Release before the end of the answer: after that, the gateway may send the next request immediately.
  void serve(Connection& connection, const Message& request) {
    if (request.body.find("hang at " + name_ + "\"") != std::string::npos) {
      connection.peer_closes();
      --held_;
    } else if (request.header("x-windlass-phase") == "prefill") {
      prefill(connection);
    } else if (nlohmann::json::parse(request.body, nullptr, false).value("stream", false)) {
      const std::string said = what_to_say(request);
      bool written = connection.write(stream_head());
      for (int i = 0; i < 100 && written; ++i) {
        written = connection.write(chunk(token_event(said)));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      --held_;
      connection.write(chunk(usage_event(1, 100)) + chunk(kDoneEvent) + kLastChunk);
    } else {
      const std::string said = what_to_say(request);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      --held_;
      connection.write(json_response(200, completion(said)));
    }
  }

  void prefill(Connection& connection) {
    const std::string session = fmt::format("{}-{}", name_, ++sessions_);
    bool written = connection.write(prefill_head(session));
    while (written && !taken(session)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      written = connection.write(chunk(" "));
    }
    --held_;
    connection.write(kLastChunk);
  }

  bool taken(const std::string& session) {
    const std::lock_guard lock(mutex_);
    return taken_.contains(session);
  }

  std::string pulled(const std::string& target) {
    const std::size_t begin = std::string_view(kPullPath).size();
    const std::string session = target.substr(begin, target.find('?') - begin);
    const std::lock_guard lock(mutex_);
    taken_.insert(session);
    return json_response(200, session);
  }

  std::string what_to_say(const Message& request) const {
    const std::string session = request.header("x-windlass-prefilled");
    if (session.empty()) return name_;
    const auto values = ask(port_of(request.header("x-windlass-prefill-address")), get(kPullPath + session + "?piece=0"));
    return values && values->status() == 200 ? name_ + " after " + values->body : name_ + " alone";
  }

  std::string name_;
  std::atomic<int> held_ = 0, most_ = 0, sessions_ = 0;
  std::mutex mutex_;
  std::set<std::string> taken_;
};

}  // namespace

int main(int argc, char** argv) {
  Worker worker(flag(argc, argv, "name"));
  const std::string listen = flag(argc, argv, "listen");
  FakeServer server([&](Connection& connection, const Message& request) { worker.answer(connection, request); },
                    listen.empty() ? 0 : port_of(listen));
  std::printf("%d\n", server.port());
  std::fflush(stdout);
  while (true) ::pause();
}
