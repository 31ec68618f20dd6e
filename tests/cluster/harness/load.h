// Load: sends chat requests to an OpenAI-compatible address of this machine, from a fixed number of threads, until stopped.
//
// Closed loop: every thread sends its next request once the last one is answered (plus `pause_s`, if set). Each response is
// checked: its status, that it is complete, and that nobody else got the same one. Start and stop from one thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace windlass::testing {

struct LoadOptions {
  std::string url;    // "http://127.0.0.1:8080"
  std::string model;  // the served name
  int threads = 4;
  int max_tokens = 16;
  int max_requests = 0;  // in all; 0: until stop()
  double pause_s = 0;
  bool stream = false;
  double timeout_s = 120;
};

struct LoadReport {
  int sent = 0;
  int answered = 0;                      // complete responses of status 200
  std::map<std::string, int> failures;   // every other result -> how often
  std::map<std::string, int> by_worker;  // X-Windlass-Worker of the responses
  int duplicates = 0;                    // responses with a request id that was seen before, or streams that ended twice

  [[nodiscard]] std::string describe() const;
};

class Load {
 public:
  explicit Load(LoadOptions options);
  ~Load();  // stops the load
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // All threads have ended (max_requests reached).
  [[nodiscard]] bool finished() const { return running_ == 0; }
  // The results so far.
  [[nodiscard]] LoadReport report() const;
  // Waits for the requests in flight; returns all results.
  LoadReport stop();
  // Waits for all of max_requests. REQUIRES: max_requests > 0.
  LoadReport finish();

 private:
  void work();
  void one_request(int number);

  LoadOptions options_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> next_{0};
  std::atomic<int> running_{0};
  mutable std::mutex mutex_;
  LoadReport report_;          // guarded by mutex_
  std::set<std::string> ids_;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace windlass::testing
