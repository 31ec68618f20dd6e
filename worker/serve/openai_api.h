// The OpenAI API as pure functions: request bodies to GenerationRequests, events to response bodies. No sockets, no clock.
//
// Supports chat completions and completions with max_tokens, temperature, top_p, frequency_penalty, presence_penalty,
// logit_bias, seed, stop, n, logprobs, stream and stream_options; vLLM's top_k, min_p, repetition_penalty and ignore_eos; and
// chat_template_kwargs, variables for the chat template. Unsupported fields that would change the answer are rejected by name;
// others are ignored, as on OpenAI's servers. /tokenize and /detokenize follow vLLM. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/model/chat_template.h"
#include "worker/model/config.h"
#include "worker/model/tokenizer.h"

namespace windlass::worker {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param = {};  // empty: null
  std::string code = {};   // empty: null
};
// {"error":{"message","type","param","code"}}
[[nodiscard]] std::string error_body(const ApiError& error);

enum class Endpoint { kChatCompletions, kCompletions };

struct ApiRequest {
  // A prompt after the first, if there are several.
  struct Further {
    std::vector<std::int32_t> prompt;
    std::int64_t max_tokens = 0;
  };
  GenerationRequest generation;  // the first choice
  std::vector<Further> further = {};
  int choices_each = 1;  // per prompt
  int choices = 1;       // of all prompts
  bool stream = false;
  bool include_usage = false;
};

// Returns the requests of all choices, prompt by prompt. Choices of a prompt differ only in their seed; the first has the
// request's seed.
[[nodiscard]] std::vector<GenerationRequest> choices_of(const ApiRequest& request);

// The model and limits that a request is validated against. REQUIRES: all outlive the call.
struct ApiModel {
  const std::string& served_name;
  const Tokenizer& tokenizer;
  const ChatTemplate& chat;
  const EngineOptions& engine;
  const ModelConfig& config;
  std::int64_t unix_s = 0;  // current time, for chat templates that contain the date
};

// `seed`: for requests without one.
[[nodiscard]] std::variant<ApiRequest, ApiError> parse_request(Endpoint endpoint, std::string_view body, const ApiModel& model,
                                                               std::uint64_t seed);

// Returns the response to POST /tokenize, with {"prompt"} or {"messages"}, or POST /detokenize, with {"tokens"}.
[[nodiscard]] std::variant<std::string, ApiError> tokenize_body(std::string_view body, const ApiModel& model);
[[nodiscard]] std::variant<std::string, ApiError> detokenize_body(std::string_view body, const ApiModel& model);

// One complete choice of a response.
struct Choice {
  std::string text;
  std::vector<TokenLogprobs> logprobs;  // of its tokens, if requested
  TokenEvent last;                      // event with its finish: kStop or kLength
};

// Builds the bodies of one response.
class ResponseFormat {
 public:
  // `usage_follows`: whether usage_chunk() will be called. `choices_each`: choices per prompt. `special_text`: the text of
  // special tokens in log probabilities.
  ResponseFormat(Endpoint endpoint, std::string id, std::string model, std::int64_t created_unix_s, bool usage_follows = false,
                 std::function<std::string_view(std::int32_t)> special_text = nullptr, int choices_each = 1)
      : endpoint_(endpoint),
        id_(std::move(id)),
        model_(std::move(model)),
        created_(created_unix_s),
        usage_follows_(usage_follows),
        special_text_(std::move(special_text)),
        choices_each_(static_cast<std::size_t>(choices_each)) {}

  // The complete body of a response that is not streamed. REQUIRES: at least one choice.
  [[nodiscard]] std::string whole(std::span<const Choice> choices) const;

  // One server-sent event for one token of the choice with this index. Every token has its event, even if its text is held
  // back, so that clients can count and time tokens. The first event of a chat names the role. `offset`: characters in the
  // earlier tokens, used for text_offset in completions.
  [[nodiscard]] std::string chunk(int index, const TokenEvent& event, std::int64_t offset = 0) const;
  // The event before [DONE] if the client asked for usage. `choices`: with their final events.
  [[nodiscard]] std::string usage_chunk(std::span<const Choice> choices) const;

 private:
  Endpoint endpoint_;
  std::string id_;
  std::string model_;
  std::int64_t created_;
  bool usage_follows_;
  std::function<std::string_view(std::int32_t)> special_text_;
  std::size_t choices_each_;
};

// Number of characters (code points) of a token's text in logprobs.
[[nodiscard]] std::int64_t characters_of(const LikelyToken& token);

inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";
// An error after the stream began: "data: {"error":...}\n\n".
[[nodiscard]] std::string error_chunk(const ApiError& error);

}  // namespace windlass::worker
