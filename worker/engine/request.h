// Input and output of the engine: requests and token events, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/engine/sampler.h"

namespace windlass::worker {

using RequestId = std::uint64_t;

// Identifies the keys and values of one prompt during a transfer.
struct KvSession {
  std::string id;       // unique; empty: this worker serves the request alone
  std::string address;  // "host:port" of the worker that computes the prompt; empty: this worker computes it for another

  [[nodiscard]] bool sends() const { return !id.empty() && address.empty(); }
  [[nodiscard]] bool receives() const { return !id.empty() && !address.empty(); }
};

struct GenerationRequest {
  std::vector<std::int32_t> prompt;  // at least one token
  SamplingParams sampling;
  std::int64_t max_tokens = 16;           // at least 1; cut to the context limit
  std::vector<std::string> stop;          // none empty
  std::vector<std::int32_t> stop_tokens;  // in addition to the model's end-of-sequence tokens
  bool ignore_eos = false;                // generate until max_tokens; end-of-sequence and stop tokens do not stop it
  KvSession kv;                           // set if one worker computes the prompt and another answers
  std::string chain;                      // session at the later workers of the chain; empty: this worker has all blocks
};

enum class FinishReason {
  kStop,       // end-of-sequence token or stop string; for a prompt computed for another worker: fetched
  kLength,     // max_tokens or the context limit
  kCancelled,  // client left, drain timed out, or keys and values for another worker were dropped
  kError,
};

// "stop", "length", "abort" or "error".
[[nodiscard]] const char* to_string(FinishReason reason);

// Milestones of a request, on the engine's clock.
struct RequestTimes {
  double arrived_s = 0;
  double started_s = 0;  // start of the first iteration with it; 0 until then
  double first_token_s = 0;
  double last_token_s = 0;
};

// A token's text and the natural log of its probability under the model (sampler.h). The text may be part of a character, and
// is empty for special tokens.
struct LikelyToken {
  std::string bytes;
  double logprob = 0;
  std::int32_t id = 0;
};

struct TokenLogprobs {
  LikelyToken token;             // the sampled token
  std::vector<LikelyToken> top;  // as many as requested, most likely first
};

// One token of a request, or its end. Each request ends with exactly one event that has `finish`.
struct TokenEvent {
  RequestId request = 0;
  std::string text;                       // valid UTF-8; empty while text is held back (text_stream.h)
  bool has_token = false;                 // false: marks only the end of the request
  std::optional<TokenLogprobs> logprobs;  // of this token, if the request asks for them
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;     // prompt tokens found in the cache
  std::int64_t generated_tokens = 0;  // including this one
  bool prompt_received = false;       // another worker computed the prompt
  bool for_another = false;           // prompt computed for another worker, which sends this token to the client
  std::optional<FinishReason> finish;
  std::string error;        // reason, for kError and kCancelled
  bool chain_lost = false;  // for kError: a later worker of its chain is lost; another chain may serve the request
  RequestTimes times;
};

struct EngineLoad {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t held = 0;  // prompts computed for other workers and not yet fetched
  std::int64_t kv_blocks_used = 0;
  std::int64_t kv_blocks = 0;
};

}  // namespace windlass::worker
