// SseFilter: reads the event stream of an answer as it passes, and removes what the client did not ask for. Pure.
//
// It counts events with generated text, finds the usage figures, the closing [DONE] and an engine's error, and drops the
// extra usage chunk when the gateway, not the client, asked for it. Events are forwarded byte for byte as soon as they are
// complete, except openings, which name a role but have no text yet. Openings are held until the next event, so that a
// request whose engine fails before its first token can still go to another engine. Nothing else is parsed: a token costs a
// few scans over its bytes.
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

// The "usage" member of a JSON object (an answer's body, or the data of one event); fields that it lacks are -1.
[[nodiscard]] std::optional<Usage> usage_of(std::string_view json);

// An engine's error in the middle of a stream with status 200; tests/golden/engine_streams has examples of each engine. vLLM
// sends [DONE] after it, llama.cpp does not.
struct StreamFailure {
  int code = 0;         // from the event, 100 to 599; 0: not given
  std::string message;  // for a person; may be empty
  std::string event;    // the whole event, for the client

  // No capacity or no time for the request: no engine sends these after it has begun.
  [[nodiscard]] bool is_refusal() const { return code == 429 || code == 503; }
};

class SseFilter {
 public:
  // drop_usage_chunk: remove the chunk that has usage and no choices.
  explicit SseFilter(bool drop_usage_chunk) : drop_usage_chunk_(drop_usage_chunk) {}

  struct Output {
    // Whole events for the client; may be empty. Comments before the first event are left out: they are a worker's keep-alive,
    // not an answer, and a request without an answer may still go to another worker.
    std::string forward;
    int content_events = 0;  // events in `forward` that carry generated text
  };

  // Takes the next bytes of the body, split anywhere.
  [[nodiscard]] Output feed(std::string_view bytes);

  // Returns the rest when the body ends: held openings, and an event without its empty line.
  [[nodiscard]] Output finish();

  [[nodiscard]] bool done() const { return done_; }  // [DONE] has passed
  // Once set, the failing event and everything after it appear in no output.
  [[nodiscard]] const std::optional<StreamFailure>& failure() const { return failure_; }
  [[nodiscard]] const std::optional<Usage>& usage() const { return usage_; }

 private:
  void event(std::string_view event, Output& output);
  // Returns false when the event must not go to the client.
  [[nodiscard]] bool read_data(std::string_view data, Output& output);

  bool drop_usage_chunk_;
  bool done_ = false;
  bool begun_ = false;  // an event that is neither a comment nor an opening has passed
  std::string held_;    // openings, and comments between them
  std::optional<Usage> usage_;
  std::optional<StreamFailure> failure_;
  std::string partial_;
  std::size_t scanned_ = 0;  // no event ends before this offset of partial_
};

}  // namespace windlass::gateway
