// Exchange: the answer to one generation request with all its choices, streamed or whole, or to one whose prompt is computed
// for another worker (its body then lasts as long as keys and values are held).
//
// on_event() runs on the thread that tells of the engine's events, tick() on main's, the end of the answer on the server's; a
// mutex joins them. tick() writes something harmless to a quiet connection, an SSE comment into a stream, JSON white space
// before a body: who waits knows by it that the worker lives. Kept alive by those who still call it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "metrics/net/http_limits.h"
#include "metrics/net/http_service.h"
#include "worker/serve/openai_api.h"

namespace windlass::worker {

// What gateways and workers tell each other besides the request (docs/decisions/2026-11-22-kv-is-pulled.md).
inline constexpr const char* kPhaseHeader = "X-Windlass-Phase";
inline constexpr const char* kPrefilledHeader = "X-Windlass-Prefilled";
inline constexpr const char* kPrefillAddressHeader = "X-Windlass-Prefill-Address";

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  struct Parts {
    net::ServerCall call;
    ResponseFormat format;
    std::string request_id;  // echoed as X-Request-Id; may be empty
    bool stream = false;
    bool include_usage = false;
    int choices = 1;
    // Who asked can ask another chain, as long as nothing of an answer has come: where this one is lost before that, the
    // connection breaks instead of telling of it.
    bool may_move = false;
    // Of a prefill for another worker the header of its answer, which is neither streamed nor tells anything else; else empty.
    std::string prefilled;
    double started_s = 0;
    double timeout_s = 0;                                 // from there until it is ended; 0: never
    std::shared_ptr<void> token;                          // held until the answer is out
    std::size_t max_answer_bytes = net::kMaxAnswerBytes;  // of one that is not streamed, and is held until it is whole
  };
  explicit Exchange(Parts parts)
      : parts_(std::move(parts)), last_write_s_(parts_.started_s), answers_(static_cast<std::size_t>(parts_.choices)) {}

  // The engine took the request: cancel ends all its choices there, and is forgotten once the answer is over. A stream's status
  // and headers leave now.
  void accepted(std::function<void()> cancel);

  // A choice's first iteration is about to begin. Of a prefill for another worker status and headers leave with the first one.
  void begun();

  // Of the choice with this index. A choice that fails, or an answer that grows too long, ends all of it and cancels the rest;
  // of a prefill for another worker, which can do without, it ends alone. REQUIRES: called in order; nothing of a choice after
  // its event with `finish`.
  void on_event(int index, const TokenEvent& event);

  // Writes to a connection that has been quiet for a second, and ends what takes longer than it may.
  void tick(double now_s);

  [[nodiscard]] bool finished() const;

 private:
  struct Answer {
    Choice choice;            // so far; of a stream only what its usage needs
    std::int64_t offset = 0;  // characters in the tokens that a stream has told the logprobs of
    bool ended = false;
  };
  void start_body(const char* content_type);  // REQUIRES: mutex_ held, as for the next three
  void write(const std::string& bytes);
  [[nodiscard]] bool take(int index, const TokenEvent& event);  // whether the choice failed; with mutex_ held, too
  [[nodiscard]] std::vector<Choice> choices();                  // of all answers, given away
  [[nodiscard]] ApiError failure(const TokenEvent& event) const;
  void finish_stream(const TokenEvent* failed);
  void finish_whole(const TokenEvent* failed);
  void finish_prefill(const TokenEvent& last);
  void break_off();
  [[nodiscard]] bool too_long() const { return held_bytes_ > parts_.max_answer_bytes; }
  [[nodiscard]] bool is_prefill() const { return !parts_.prefilled.empty(); }
  void send_whole(int status, const std::string& body);
  void answer(net::HttpResponse response);
  void add_own(net::HttpResponse& response) const;
  [[nodiscard]] net::ServerCall::Done when_over();
  void client_left();

  mutable std::mutex mutex_;
  Parts parts_;
  std::function<void()> cancel_;
  bool left_ = false;
  bool asker_left_ = false;             // of a prefill
  std::optional<double> left_since_s_;  // as tick() saw it
  bool finished_ = false;
  bool timed_out_ = false;
  std::size_t held_bytes_ = 0;  // of the answers that are not streamed, about as JSON has them
  bool failed_ = false;         // a choice did, and the others are to end
  bool told_ = false;           // something of an answer is out
  double last_write_s_;
  bool wrote_ = false;
  std::vector<Answer> answers_;
  bool begun_ = false;  // the status line is out
};

// Sends a complete response; `token` is held until it is written.
void send_response(const net::ServerCall& call, int status, const std::string& body, const std::string& content_type,
                   const std::vector<std::pair<std::string, std::string>>& headers, std::shared_ptr<void> token);

// The HTTP status and OpenAI type of a generation that failed.
[[nodiscard]] ApiError failure_of(const TokenEvent& event);

}  // namespace windlass::worker
