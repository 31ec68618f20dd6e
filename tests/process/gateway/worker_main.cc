// A worker as a process of its own, for tests that stop or kill one: gateway_test_worker --name=NAME [--listen=HOST:PORT]. It
// prints its port, then serves. Flags of the real worker that it does not know are passed over, so that the real controller can
// start it.
//
// A streamed request gets 100 tokens, 20 ms apart. Another one is answered with the worker's name, after 30 ms; if its prompt
// says "hang at NAME", never. GET /most: the most requests that it held at once.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tests/process/gateway/harness.h"

using namespace windlass::gateway::testing;

namespace {

std::string flag(int argc, char** argv, const std::string& name) {
  const std::string start = "--" + name + "=";
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).substr(0, start.size()) == start) return argv[i] + start.size();
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = flag(argc, argv, "name");
  const std::string listen = flag(argc, argv, "listen");
  const int port = listen.empty() ? 0 : std::atoi(listen.c_str() + listen.rfind(':') + 1);
  std::atomic<int> held = 0, most = 0;
  FakeServer server(
      [&](Connection& connection, const Message& request) {
        if (request.target() == "/metrics") {
          const std::string page = fmt::format(
              "windlass_worker_requests_running{{model=\"{0}\"}} {1}\nwindlass_worker_requests_waiting{{model=\"{0}\"}} 0\n",
              name, held.load());
          connection.write(json_response(200, page));
          return;
        }
        if (request.start_line.rfind("GET ", 0) == 0) {
          connection.write(json_response(200, std::to_string(most)));
          return;
        }
        const int now = ++held;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) continue;
        const auto body = nlohmann::json::parse(request.body, nullptr, false);
        if (body.value("stream", false)) {
          bool written = connection.write(stream_head());
          for (int i = 0; i < 100 && written; ++i) {
            written = connection.write(chunk(token_event(name)));
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
          --held;
          connection.write(chunk(usage_event(1, 100)) + chunk(kDoneEvent) + kLastChunk);
        } else if (request.body.find("hang at " + name) != std::string::npos) {
          connection.peer_closes();
          --held;
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          --held;  // before the answer: after it, the gateway may send the next at once
          connection.write(json_response(200, completion(name)));
        }
      },
      port);
  std::printf("%d\n", server.port());
  std::fflush(stdout);
  while (true) ::pause();
}
