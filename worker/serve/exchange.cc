// Sends each stream event immediately, as one chunk.
#include "worker/serve/exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/core.h>
#include <spdlog/spdlog.h>

namespace windlass::worker {
namespace {

// After this long without a byte, a whole answer starts with white space, which also commits its status.
constexpr double kQuietSeconds = 1;
// Interval of filler after that.
constexpr double kProbeSeconds = 0.2;

std::size_t bytes_of(const LikelyToken& token) { return 50 + 5 * token.bytes.size(); }

std::size_t bytes_of(const TokenLogprobs& token) {
  return std::accumulate(token.top.begin(), token.top.end(), bytes_of(token.token),
                         [](std::size_t sum, const LikelyToken& likely) { return sum + bytes_of(likely); });
}

}  // namespace

void send_response(const net::ServerCall& call, int status, const std::string& body, const std::string& content_type,
                   const std::vector<std::pair<std::string, std::string>>& headers, std::shared_ptr<void> token) {
  call.answer({status, body, content_type, headers}, [token = std::move(token)](bool) {});
}

ApiError failure_of(const TokenEvent& event) {
  ApiError error;
  const bool cancelled = event.finish == FinishReason::kCancelled;
  error.status = cancelled ? 503 : event.chain_lost ? 502 : 500;
  error.message = event.error;
  error.type = "server_error";
  error.code = cancelled ? "aborted" : event.chain_lost ? "chain_lost" : "internal_error";
  return error;
}

void Exchange::add_own(net::HttpResponse& response) const {
  if (!parts_.request_id.empty()) response.headers.emplace_back("X-Request-Id", parts_.request_id);
}

// Keeps this object, and with it the token, until the answer is sent.
net::ServerCall::Done Exchange::when_over() {
  return [self = shared_from_this()](bool sent) {
    if (!sent) self->client_left();
  };
}

void Exchange::answer(net::HttpResponse response) {
  add_own(response);
  parts_.call.answer(std::move(response), when_over());
}

void Exchange::client_left() {
  std::function<void()> cancel;
  {
    const std::scoped_lock lock(mutex_);
    // The client of a prefill leaves as soon as the other worker has answered, perhaps before the engine knows that everything
    // is fetched; tick() gives it a moment.
    if (is_prefill()) {
      asker_left_ = true;
      return;
    }
    left_ = true;
    if (!finished_) cancel = cancel_;
  }
  if (cancel) cancel();
}

void Exchange::start_body(const char* content_type) {
  begun_ = true;
  net::HttpResponse response{200, "", content_type, {{"Cache-Control", "no-cache"}}};
  if (is_prefill()) response.headers.emplace_back(kPrefilledHeader, parts_.prefilled);
  add_own(response);
  parts_.call.begin(std::move(response), when_over());
}

void Exchange::write(const std::string& bytes) {
  parts_.call.write(bytes);
  wrote_ = true;
}

void Exchange::begun() {
  const std::scoped_lock lock(mutex_);
  if (is_prefill() && !begun_ && !finished_) start_body("text/plain");
}

void Exchange::accepted(std::function<void()> cancel) {
  parts_.call.on_left([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->client_left();
  });
  bool unwanted = false;  // the client left, or a choice has failed
  {
    const std::scoped_lock lock(mutex_);
    if (!finished_) cancel_ = cancel;
    if (parts_.stream && !begun_) start_body("text/event-stream");
    unwanted = failed_ || (left_ && !finished_);
  }
  if (unwanted) cancel();
}

bool Exchange::take(int index, const TokenEvent& event) {
  Answer& answer = answers_[static_cast<std::size_t>(index)];
  if (event.has_token && parts_.stream) {
    write(parts_.format.chunk(index, event, answer.offset));
    told_ = true;
    if (event.logprobs) answer.offset += characters_of(event.logprobs->token);
  }
  if (!parts_.stream) {
    held_bytes_ += event.text.size() + (event.logprobs ? bytes_of(*event.logprobs) : 0);
    answer.choice.text += event.text;
    if (event.logprobs) answer.choice.logprobs.push_back(*event.logprobs);
    if (too_long()) return true;
  }
  if (!event.finish) return false;
  answer.choice.last = event;
  answer.ended = true;
  return *event.finish != FinishReason::kStop && *event.finish != FinishReason::kLength;
}

void Exchange::on_event(int index, const TokenEvent& event) {
  std::function<void()> cancel;
  {
    const std::scoped_lock lock(mutex_);
    if (finished_) return;  // another choice failed
    if (parts_.stream && !begun_) start_body("text/event-stream");
    const bool failed = take(index, event) && !is_prefill();
    if (!failed && !std::all_of(answers_.begin(), answers_.end(), [](const Answer& answer) { return answer.ended; })) return;
    finished_ = true;
    failed_ = failed;
    if (event.finish == FinishReason::kError) {
      spdlog::warn("request {} failed: {}", parts_.request_id.empty() ? "(unnamed)" : parts_.request_id, event.error);
    }
    if (is_prefill()) {
      finish_prefill(event);
    } else if (parts_.stream) {
      finish_stream(failed ? &event : nullptr);
    } else {
      finish_whole(failed ? &event : nullptr);
    }
    cancel = std::exchange(cancel_, nullptr);                                 // it keeps the engine alive
    if (!failed || (answers_.size() == 1 && event.finish)) cancel = nullptr;  // the engine has ended them
  }
  if (cancel) cancel();
}

std::vector<Choice> Exchange::choices() {
  std::vector<Choice> choices;
  for (Answer& answer : answers_) choices.push_back(std::move(answer.choice));
  return choices;
}

ApiError Exchange::failure(const TokenEvent& event) const {
  if (too_long()) {
    return {400, fmt::format("the answer is larger than {} bytes; ask for fewer tokens, choices or logprobs, or for a stream",
                             parts_.max_answer_bytes)};
  }
  if (!timed_out_) return failure_of(event);
  return {504, fmt::format("the request took longer than the {:g} s that --request-timeout allows", parts_.timeout_s),
          "server_error", "", "timeout"};
}

void Exchange::finish_stream(const TokenEvent* failed) {
  if (failed == nullptr) {
    if (parts_.include_usage) write(parts_.format.usage_chunk(choices()));
    write(std::string(kStreamEnd));
  } else if (failed->chain_lost && parts_.may_move && !told_) {
    return break_off();
  } else {
    write(error_chunk(failure(*failed)));  // without [DONE]: the answer is incomplete
  }
  parts_.call.finish();
}

void Exchange::finish_whole(const TokenEvent* failed) {
  if (failed == nullptr) {
    // Log probabilities make a long body. Another thread writes it, because other requests wait for this one.
    parts_.call.post([self = shared_from_this(), choices = choices()] {
      try {
        const std::string body = self->parts_.format.whole(choices);
        const std::scoped_lock lock(self->mutex_);
        self->send_whole(200, body);
      } catch (...) {
        self->parts_.call.break_off();
        throw;
      }
    });
    return;
  }
  const ApiError error = failure(*failed);
  const bool moves = failed->chain_lost && parts_.may_move;
  if (!begun_ && !moves) return send_whole(error.status, error_body(error));
  // The status line has already said 200, so break the connection instead of ending it normally.
  if (failed->finish != FinishReason::kError) {  // the error has been sent
    spdlog::warn("request {} was broken off: {}", parts_.request_id.empty() ? "(unnamed)" : parts_.request_id, error.message);
  }
  break_off();
}

void Exchange::break_off() {
  if (!begun_) start_body("application/json");
  parts_.call.break_off();
}

// The keys and values have been fetched or dropped; either way nothing remains to be sent. If nothing had begun, a gateway may
// try another worker.
void Exchange::finish_prefill(const TokenEvent& last) {
  if (begun_) {
    parts_.call.finish();
    return;
  }
  const ApiError error = failure(last);
  net::HttpResponse response{error.status, error_body(error), "application/json", {}};
  if (error.status == 503) response.headers.emplace_back("X-Windlass-Rejected", "full");
  answer(std::move(response));
}

void Exchange::send_whole(int status, const std::string& body) {
  if (!begun_) return answer({status, body, "application/json", {}});
  write(body);
  parts_.call.finish();
}

void Exchange::tick(double now_s) {
  std::function<void()> cancel;
  {
    const std::scoped_lock lock(mutex_);
    if (wrote_) {
      last_write_s_ = now_s;
      wrote_ = false;
    }
    if (finished_ || left_ || !cancel_) return;
    if (asker_left_) {
      if (!left_since_s_) left_since_s_ = now_s;
      if (now_s - *left_since_s_ < kProbeSeconds) return;
      left_ = true;
      cancel = cancel_;
    } else if (parts_.timeout_s > 0 && now_s - parts_.started_s > parts_.timeout_s && !timed_out_) {
      timed_out_ = true;
      cancel = cancel_;
    } else if (now_s - last_write_s_ >= (begun_ ? kProbeSeconds : kQuietSeconds)) {
      if (is_prefill() && !begun_) return;  // the headers are the answer
      if (!begun_) start_body("application/json");
      write(parts_.stream ? ": waiting\n\n" : " ");
    }
  }
  if (cancel) cancel();
}

bool Exchange::finished() const {
  const std::scoped_lock lock(mutex_);
  return finished_;
}

}  // namespace windlass::worker
