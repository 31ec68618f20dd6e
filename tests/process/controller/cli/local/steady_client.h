// SteadyClient: sends requests to a LocalRun in batches until it is stopped, and keeps what was answered.
#pragma once

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/process/controller/cli/local/local_run.h"

namespace windlass::cli {

class SteadyClient {
 public:
  static constexpr int kAtOnce = 8;
  static constexpr int kDifferent = 7;  // prompts

  explicit SteadyClient(const LocalRun& run);
  ~SteadyClient() { stop(); }
  SteadyClient(const SteadyClient&) = delete;
  SteadyClient& operator=(const SteadyClient&) = delete;

  [[nodiscard]] int finished() const { return finished_; }
  // After this, `wrong` and `answers` can be read.
  void stop();

  std::vector<std::string> wrong;                // every answer that was not 200
  std::map<int, std::set<std::string>> answers;  // texts, by prompt

 private:
  void send();

  const LocalRun& run_;
  std::atomic<bool> done_{false};
  std::atomic<int> finished_{0};
  std::thread thread_;
};

// Every request was answered, each prompt always with the same text.
inline void expect_no_failure(const SteadyClient& client, const LocalRun& run) {
  EXPECT_TRUE(client.wrong.empty()) << client.wrong.size() << " of " << client.finished()
                                    << ", the first: " << (client.wrong.empty() ? "" : client.wrong[0]) << run.logs();
  for (const auto& [prompt, texts] : client.answers) {
    EXPECT_EQ(texts.size(), 1U) << "prompt " << prompt << " was answered differently";
  }
}

}  // namespace windlass::cli
