// See steady_client.h.
#include "tests/process/controller/cli/local/steady_client.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace windlass::cli {
SteadyClient::SteadyClient(const LocalRun& run) : run_(run), thread_([this] { send(); }) {}

void SteadyClient::stop() {
  done_ = true;
  if (thread_.joinable()) thread_.join();
}

void SteadyClient::send() {
  kube::CurlTransport transport(kube::CurlOptions{.max_parallel = kAtOnce});
  while (!done_) {
    std::vector<kube::HttpRequest> batch;
    const auto prompt_of = [this](std::size_t i) { return (finished_ + static_cast<int>(i)) % kDifferent; };
    for (std::size_t i = 0; i < kAtOnce; ++i) {
      const std::string longer(static_cast<std::size_t>(9 * prompt_of(i)), 'x');
      batch.push_back(run_.chat(fmt::format("Haul chain {} {}", prompt_of(i), longer), 12, false));
    }
    const auto responses = transport.send_all(batch);
    for (std::size_t i = 0; i < responses.size(); ++i) {
      if (!responses[i].ok() || responses[i]->status != 200) {
        wrong.push_back(responses[i].ok() ? fmt::format("status {}: {}", responses[i]->status, responses[i]->body)
                                          : responses[i].error().message);
        continue;
      }
      answers[prompt_of(i)].insert(nlohmann::json::parse(responses[i]->body)["choices"][0]["message"]["content"]);
    }
    finished_ += kAtOnce;
  }
}

}  // namespace windlass::cli
