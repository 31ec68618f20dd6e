// Exchange: the answer to one generation request with all its choices, streamed or whole. Also the answer to a prefill for
// another worker; its body stays open while keys and values are held.
//
// Threads: on_event() runs on the engine's delivery thread, tick() on main's, the end of the answer on the server's; a mutex
// protects the state. tick() writes filler to a quiet connection (an SSE comment in a stream, JSON white space before a body),
// which tells the client that the worker is alive. Owned by shared_ptr, held by its callers.
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

// Headers between gateways and workers (docs/decisions/2026-11-22-kv-is-pulled.md).
inline constexpr const char* kPhaseHeader = "X-Windlass-Phase";
// From a gateway that sends a phase of the other role on purpose: Splitwise's mixed pool. Any value.
inline constexpr const char* kMixedPoolHeader = "X-Windlass-Mixed-Pool";
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
    // The caller can use another chain while nothing of the answer has been sent. If this chain is lost before that, the
    // connection is closed instead of reporting an error.
    bool may_move = false;
    // For a prefill for another worker: the answer's header. Such an answer is not streamed and contains nothing else.
    // Otherwise empty.
    std::string prefilled;
    double started_s = 0;
    double timeout_s = 0;         // from there to the end of the answer; 0: no limit
    std::shared_ptr<void> token;  // held until the answer is sent
    std::size_t max_answer_bytes =
        net::kMaxAnswerBytes;  // limit of an answer that is not streamed, which is buffered until complete
  };
  explicit Exchange(Parts parts)
      : parts_(std::move(parts)), last_write_s_(parts_.started_s), answers_(static_cast<std::size_t>(parts_.choices)) {}

  // The engine accepted the request. `cancel` ends all its choices; it is dropped once the answer is complete. Sends status and
  // headers of a stream.
  void accepted(std::function<void()> cancel);

  // The first iteration of a choice is about to start. For a prefill, the first call sends status and headers.
  void begun();

  // Handles an event of the choice with this index. If a choice fails or the answer grows too long, the whole answer ends and
  // the remaining choices are cancelled; a prefill choice ends alone, because the other worker can do without it. REQUIRES:
  // called in order; never after the choice's event with `finish`.
  void on_event(int index, const TokenEvent& event);

  // Writes filler to a connection that was quiet for a second, and ends requests that exceed their time limit.
  void tick(double now_s);

  [[nodiscard]] bool finished() const;

 private:
  struct Answer {
    Choice choice;            // so far; for a stream only what its usage needs
    std::int64_t offset = 0;  // characters in the tokens whose logprobs a stream has sent
    bool ended = false;
  };
  void start_body(const char* content_type);  // REQUIRES: mutex_ held, also for the next three
  void write(const std::string& bytes);
  [[nodiscard]] bool take(int index, const TokenEvent& event);  // returns whether the choice failed; REQUIRES: mutex_ held
  [[nodiscard]] std::vector<Choice> choices();                  // moves all answers out
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
  bool asker_left_ = false;             // the client of a prefill has left
  std::optional<double> left_since_s_;  // when tick() noticed it
  bool finished_ = false;
  bool timed_out_ = false;
  std::size_t held_bytes_ = 0;  // size of answers that are not streamed, roughly as JSON
  bool failed_ = false;         // a choice failed; the others are being ended
  bool told_ = false;           // part of the answer has been sent
  double last_write_s_;
  bool wrote_ = false;
  std::vector<Answer> answers_;
  bool begun_ = false;  // the status line has been sent
};

// Sends a complete response; `token` is held until it is written.
void send_response(const net::ServerCall& call, int status, const std::string& body, const std::string& content_type,
                   const std::vector<std::pair<std::string, std::string>>& headers, std::shared_ptr<void> token);

// The HTTP status and OpenAI error type of a failed generation.
[[nodiscard]] ApiError failure_of(const TokenEvent& event);

}  // namespace windlass::worker
