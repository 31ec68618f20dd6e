// A worker as a process of its own, for tests that stop or kill one: gateway_test_worker NAME. It prints its port, then serves.
//
// A streamed request gets 100 tokens, 20 ms apart. Another one is answered with the worker's name at once, unless its prompt
// says "hang at NAME": then never.
#include <chrono>
#include <cstdio>
#include <thread>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tests/process/gateway/harness.h"

using namespace windlass::gateway::testing;

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "w";
  FakeServer server([&](Connection& connection, const Message& request) {
    const auto body = nlohmann::json::parse(request.body, nullptr, false);
    if (body.value("stream", false)) {
      bool written = connection.write(stream_head());
      for (int i = 0; i < 100 && written; ++i) {
        written = connection.write(chunk(token_event(name)));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      connection.write(chunk(usage_event(1, 100)) + chunk(kDoneEvent) + kLastChunk);
    } else if (request.body.find("hang at " + name) != std::string::npos) {
      connection.peer_closes();
    } else {
      connection.write(json_response(200, completion(name)));
    }
  });
  std::printf("%d\n", server.port());
  std::fflush(stdout);
  while (true) ::pause();
}
