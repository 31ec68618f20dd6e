// SseFilter: reads the event stream of one answer as it passes, and takes out what the client did not ask for. Pure.
//
// It counts the events that carry generated text, finds the usage figures, the closing [DONE] and an engine's error, and drops
// the extra usage chunk when the gateway, not the client, had asked for it. Events leave as they came, byte for byte, and as
// soon as they are complete, but for openings (a role, no text yet): they leave with what follows, so that a request whose
// engine fails before its first token may still go to another one. Nothing else is parsed: a token costs a few scans over its
// bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace windlass::gateway {

struct Usage {
  int prompt_tokens = -1;
  int generation_tokens = -1;

  bool operator==(const Usage&) const = default;
};

// The "usage" member of a JSON object (an answer's body, or one event's data); -1 for what it does not say.
[[nodiscard]] std::optional<Usage> usage_of(std::string_view json);

// An engine's word that it failed, in the middle of a stream with status 200; what engines say: tests/golden/engine_streams.
// vLLM sends [DONE] after it, llama.cpp does not.
struct StreamFailure {
  int code = 0;         // as the event says it, 100 to 599; 0: it does not
  std::string message;  // for a person; may be empty
  std::string event;    // the whole event, for the client

  // No room or no time for it: no engine sends these where it has begun.
  [[nodiscard]] bool is_refusal() const { return code == 429 || code == 503; }
};

class SseFilter {
 public:
  // drop_usage_chunk: take out the chunk with usage and no choices.
  explicit SseFilter(bool drop_usage_chunk) : drop_usage_chunk_(drop_usage_chunk) {}

  struct Output {
    std::string forward;  // whole events for the client; may be empty. Comments before the first event are left out: a worker's
                          // signs of life are no answer yet, and a request without one may still be given to another worker
    int content_events = 0;  // how many of them carry generated text
  };

  // Takes the next bytes of the body, cut anywhere.
  [[nodiscard]] Output feed(std::string_view bytes);

  // What is left when the body ends: openings, and an event without its empty line.
  [[nodiscard]] Output finish();

  [[nodiscard]] bool done() const { return done_; }  // [DONE] has passed
  // Set: its event and all that came after it are in no output.
  [[nodiscard]] const std::optional<StreamFailure>& failure() const { return failure_; }
  [[nodiscard]] const std::optional<Usage>& usage() const { return usage_; }

 private:
  void event(std::string_view event, Output& output);
  // False: it does not go to the client.
  [[nodiscard]] bool read_data(std::string_view data, Output& output);

  bool drop_usage_chunk_;
  bool done_ = false;
  bool begun_ = false;  // an event that is neither comment nor opening has passed
  std::string held_;    // openings, and comments between them
  std::optional<Usage> usage_;
  std::optional<StreamFailure> failure_;
  std::string partial_;
  std::size_t scanned_ = 0;  // of partial_: holds no end of an event before here
};

}  // namespace windlass::gateway
