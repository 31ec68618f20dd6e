// Implements load.h.
#include "tests/cluster/harness/load.h"

#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/harness/http.h"

namespace windlass::testing {
namespace {

using nlohmann::json;

std::size_t count_of(const std::string& text, const std::string& piece) {
  std::size_t count = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + piece.size())) ++count;
  return count;
}

}  // namespace

std::string LoadReport::describe() const {
  std::string text = fmt::format("sent {}, answered {}, duplicates {}", sent, answered, duplicates);
  for (const auto& [what, count] : failures) text += fmt::format("; {} times: {}", count, what);
  for (const auto& [worker, count] : by_worker) text += fmt::format("; {} by {}", count, worker);
  return text;
}

Load::Load(LoadOptions options) : options_(std::move(options)) {
  running_ = options_.threads;
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
}

Load::~Load() { (void)stop(); }

LoadReport Load::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

LoadReport Load::stop() {
  stopping_ = true;
  return finish();
}

LoadReport Load::finish() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return report();
}

void Load::work() {
  while (!stopping_) {
    const int number = next_++;
    if (options_.max_requests > 0 && number >= options_.max_requests) break;
    one_request(number);
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.pause_s);
    while (!stopping_ && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  --running_;
}

void Load::one_request(int number) {
  json body = {{"model", options_.model},
               {"messages", json::array({{{"role", "user"}, {"content", fmt::format("request {} of the test", number)}}})},
               {"max_tokens", options_.max_tokens}};
  if (options_.stream) body["stream"] = true;
  const HttpAnswer answer = http_post_json(options_.url + "/v1/chat/completions", body, options_.timeout_s);
  std::string failure;
  bool twice = false;
  if (answer.status != 200) {
    failure = answer.describe();
  } else if (options_.stream) {
    const std::size_t ends = count_of(answer.body, "data: [DONE]");
    twice = ends > 1;
    if (ends == 0) failure = "incomplete stream: " + answer.body.substr(0, 200);
    if (answer.body.find("\"error\"") != std::string::npos) failure = "an error in the stream: " + answer.body.substr(0, 400);
  } else {
    const json parsed = answer.json();
    if (!parsed.is_object() || !parsed.contains("choices") || parsed["choices"].size() != 1) {
      failure = "body without a choice: " + answer.body.substr(0, 200);
    }
  }
  const auto id = answer.headers.find("x-request-id");
  const auto worker = answer.headers.find("x-windlass-worker");
  const std::lock_guard lock(mutex_);
  ++report_.sent;
  if (id != answer.headers.end() && !ids_.insert(id->second).second) twice = true;
  if (twice) ++report_.duplicates;
  if (!failure.empty()) {
    ++report_.failures[failure];
    return;
  }
  ++report_.answered;
  if (worker != answer.headers.end()) ++report_.by_worker[worker->second];
}

}  // namespace windlass::testing
