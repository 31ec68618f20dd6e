// What goes into the engine and what comes out: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/engine/sampler.h"

namespace windlass::worker {

using RequestId = std::uint64_t;

// Names the keys and values of one prompt.
struct KvSession {
  std::string id;       // unique; empty: this worker serves the request alone
  std::string address;  // "host:port" of the worker that computes the prompt; empty: this one does, for another

  [[nodiscard]] bool sends() const { return !id.empty() && address.empty(); }
  [[nodiscard]] bool receives() const { return !id.empty() && !address.empty(); }
};

struct GenerationRequest {
  std::vector<std::int32_t> prompt;  // at least one token
  SamplingParams sampling;
  std::int64_t max_tokens = 16;           // at least 1; the context limit cuts it
  std::vector<std::string> stop;          // none empty
  std::vector<std::int32_t> stop_tokens;  // beyond the model's end-of-sequence tokens
  bool ignore_eos = false;                // generate until max_tokens: end-of-sequence and stop tokens are ordinary
  KvSession kv;                           // where one worker computes the prompt and another answers
  std::string chain;                      // its session at the later workers of its chain; empty: this one has all blocks
};

enum class FinishReason {
  kStop,       // end-of-sequence token or stop string; of a prompt computed for another worker: it has been taken
  kLength,     // max_tokens or the context limit
  kCancelled,  // the client left, drain ran out of time, or what was computed for another worker had to be given up
  kError,
};

// "stop", "length", "abort", "error".
[[nodiscard]] const char* to_string(FinishReason reason);

// When things happened to a request, on the engine's clock.
struct RequestTimes {
  double arrived_s = 0;
  double started_s = 0;  // the first iteration with it; 0 until then
  double first_token_s = 0;
  double last_token_s = 0;
};

// A token's text, which may be part of a character and is empty for special tokens, and ln of its probability as the model has
// it (sampler.h).
struct LikelyToken {
  std::string bytes;
  double logprob = 0;
  std::int32_t id = 0;
};

struct TokenLogprobs {
  LikelyToken token;             // the one drawn
  std::vector<LikelyToken> top;  // as many as were asked for, the most likely first
};

// One token of one request, or its end. Exactly one event with `finish` ends each request.
struct TokenEvent {
  RequestId request = 0;
  std::string text;                       // valid UTF-8; empty while text is held back (text_stream.h)
  bool has_token = false;                 // false: only the request's end
  std::optional<TokenLogprobs> logprobs;  // of this token, where the request asks for them
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;     // of the prompt that were computed for others
  std::int64_t generated_tokens = 0;  // with this one
  bool prompt_received = false;       // another worker computed the prompt
  bool for_another = false;           // the prompt is computed for another worker, which tells the client of the token
  std::optional<FinishReason> finish;
  std::string error;        // for kError and kCancelled: why
  bool chain_lost = false;  // for kError: a later worker of its chain was; another chain may serve the request
  RequestTimes times;
};

struct EngineLoad {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t held = 0;  // prompts computed for other workers that these have not taken yet
  std::int64_t kv_blocks_used = 0;
  std::int64_t kv_blocks = 0;
};

}  // namespace windlass::worker
