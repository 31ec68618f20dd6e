// See latency_probe.h.
#include "controller/reconcile/latency_probe.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace windlass::controller {
namespace {

using nlohmann::json;

constexpr int kShortWords = 48, kLongWords = 1000;  // prompt lengths
constexpr double kLongPromptS = 1;                  // a long prompt is shortened until it should take at most this long
constexpr int kProbedBatch = 4;
constexpr int kFewTokens = 9, kManyTokens = 17;  // answer lengths
constexpr int kRounds = 2;                       // the fastest counts
constexpr std::size_t kMaxAnswerBytes = std::size_t{1} << 20U;
constexpr std::size_t kShownBytes = 200;  // of an error response's body
constexpr std::array<std::string_view, 16> kWords = {"river",   "stone", "cloud",  "paper", "garden", "winter",
                                                     "letter",  "music", "window", "table", "forest", "silver",
                                                     "morning", "road",  "story",  "water"};

struct Answer {
  double seconds = 0;
  int prompt_tokens = 0;  // per request
  int answer_tokens = 0;
};

class Probe {
 public:
  Probe(kube::HttpTransport& transport, const std::function<double()>& clock, const ProbeQuestion& question,
        std::uint64_t nonce, const std::function<bool()>& stop)
      : transport_(transport), clock_(clock), question_(question), stop_(stop), nonce_(nonce) {}

  // Sends `requests` concurrently, `rounds` times; returns the fastest.
  Result<Answer> ask(int requests, int words, int tokens, int rounds = kRounds, double timeout_s = kProbeTimeoutS) {
    Answer fastest;
    for (int round = 0; round < rounds; ++round) {
      auto answer = asked(requests, words, tokens, timeout_s);
      if (!answer.ok() && ignore_eos_ && answer.error().code == ErrorCode::kInvalidArgument) {
        ignore_eos_ = false;  // for an endpoint that accepts only OpenAI's fields
        answer = asked(requests, words, tokens, timeout_s);
      }
      if (!answer.ok()) return answer;
      if (round == 0 || answer->seconds < fastest.seconds) fastest = *answer;
    }
    return fastest;
  }

  // Time of an iteration that decodes `batch` requests.
  Result<planner::MeasuredIteration> decode(int batch, int words) {
    WINDLASS_ASSIGN_OR_RETURN(const Answer few, ask(batch, words, kFewTokens));
    WINDLASS_ASSIGN_OR_RETURN(const Answer many, ask(batch, words, kManyTokens));
    const int tokens = many.answer_tokens - few.answer_tokens;
    if (tokens < (kManyTokens - kFewTokens) / 2) {
      return Error{ErrorCode::kUnavailable, fmt::format("an answer ended after {} tokens", many.answer_tokens)};
    }
    const double seconds = (many.seconds - few.seconds) / tokens;
    if (!(seconds > 0)) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{} tokens took no longer than {}", many.answer_tokens, few.answer_tokens)};
    }
    return planner::MeasuredIteration{0, batch, many.prompt_tokens + (few.answer_tokens + many.answer_tokens) / 2, seconds};
  }

 private:
  std::string prompt(int words) {
    std::string text = fmt::format("{:x}", nonce_());
    for (int i = 1; i < words; ++i) text.append(" ").append(kWords.at(nonce_() % kWords.size()));
    return text;
  }

  kube::HttpRequest request(int words, int tokens, double timeout_s) {
    json body = {{"model", question_.model}, {"prompt", prompt(words)}, {"max_tokens", tokens}, {"temperature", 0}};
    if (ignore_eos_) body["ignore_eos"] = true;
    kube::HttpRequest request{"POST", fmt::format("http://{}/v1/completions", question_.address)};
    request.headers["content-type"] = "application/json";
    if (!question_.token.empty()) request.headers["authorization"] = "Bearer " + question_.token;
    request.body = body.dump();
    request.timeout_s = timeout_s;
    request.max_bytes = kMaxAnswerBytes;
    return request;
  }

  Result<Answer> asked(int requests, int words, int tokens, double timeout_s) {
    if (stop_()) return Error{ErrorCode::kCancelled, "stopped"};
    std::vector<kube::HttpRequest> sent;
    for (int i = 0; i < requests; ++i) sent.push_back(request(words, tokens, timeout_s));
    const double began_s = clock_();
    const auto answers = transport_.send_all(sent);
    Answer out{clock_() - began_s, 0, tokens};
    for (const auto& answer : answers) {
      if (!answer.ok()) return answer.error();
      if (answer->status != 200) {
        const bool refused = answer->status == 400 || answer->status == 422;
        return Error{refused ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable,
                     fmt::format("HTTP status {} for a completion: {}", answer->status, answer->body.substr(0, kShownBytes))};
      }
      const json read = json::parse(answer->body, nullptr, false);
      const auto count = [&](const char* name) {
        if (!read.is_object() || !read.contains("usage") || !read["usage"].is_object()) return 0;
        const json& usage = read["usage"];
        return usage.contains(name) && usage[name].is_number_integer() ? std::clamp(usage[name].get<int>(), 0, 1'000'000) : 0;
      };
      out.prompt_tokens += count("prompt_tokens");
      out.answer_tokens = std::min(out.answer_tokens, count("completion_tokens"));
    }
    out.prompt_tokens /= requests;
    if (out.prompt_tokens < 1 || out.answer_tokens < 1) {
      return Error{ErrorCode::kUnavailable, "a completion does not say how many tokens it has"};
    }
    return out;
  }

  kube::HttpTransport& transport_;
  const std::function<double()>& clock_;
  const ProbeQuestion& question_;
  const std::function<bool()>& stop_;
  std::mt19937_64 nonce_;
  bool ignore_eos_ = true;
};

}  // namespace

Result<std::vector<planner::MeasuredIteration>> probe_worker(kube::HttpTransport& transport,
                                                             const std::function<double()>& clock,
                                                             const ProbeQuestion& question, std::uint64_t nonce,
                                                             const std::function<bool()>& stop) {
  Probe probe(transport, clock, question, nonce, stop);
  const int batch = std::clamp(question.max_concurrency, 1, kProbedBatch);
  // A word has at most four tokens.
  const int max_words = static_cast<int>(std::clamp(question.max_context_tokens / 5, 2.0, double{kLongWords}));
  const int few_words = std::min(kShortWords, std::max(1, max_words / 2));
  // The first request pays for warm-up and for opening connections, so discard it.
  WINDLASS_RETURN_IF_ERROR(probe.ask(1, few_words, 2, 1, kWarmUpTimeoutS));
  WINDLASS_RETURN_IF_ERROR(probe.ask(batch, few_words, 2, 1, kWarmUpTimeoutS));

  WINDLASS_ASSIGN_OR_RETURN(const Answer few, probe.ask(1, few_words, 1));
  std::vector<planner::MeasuredIteration> measured = {{few.prompt_tokens, 0, 0, few.seconds}};
  const auto stopped_at = [&](const Error& error) -> Result<std::vector<planner::MeasuredIteration>> {
    if (error.code == ErrorCode::kCancelled) return error;
    return measured;
  };
  const int words_in_time = static_cast<int>(std::min<double>(max_words, kLongPromptS * few_words / few.seconds));
  if (words_in_time >= 2 * few_words) {
    const auto many = probe.ask(1, words_in_time, 1);
    if (!many.ok()) return stopped_at(many.error());
    measured.push_back({many->prompt_tokens, 0, 0, many->seconds});
  }
  for (const int size : std::set{1, batch}) {
    const auto decode = probe.decode(size, few_words);
    if (!decode.ok()) return stopped_at(decode.error());
    measured.push_back(*decode);
  }
  return measured;
}

}  // namespace windlass::controller
