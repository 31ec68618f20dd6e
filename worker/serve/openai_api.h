// The OpenAI API as pure functions: request bodies to GenerationRequests, events to response bodies. No sockets, no clock.
//
// Supported: chat completions and completions with max_tokens, temperature, top_p, frequency_penalty, presence_penalty,
// logit_bias, seed, stop, n, logprobs, stream and stream_options; top_k, min_p, repetition_penalty and ignore_eos as vLLM has
// them, and chat_template_kwargs, the chat template's variables. Fields that would change the answer and are not supported are
// refused by name; others are ignored, as OpenAI's own servers do. /tokenize and /detokenize are vLLM's. Any thread.
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
  // What follows the first prompt, where there are several.
  struct Further {
    std::vector<std::int32_t> prompt;
    std::int64_t max_tokens = 0;
  };
  GenerationRequest generation;  // of the first choice
  std::vector<Further> further = {};
  int choices_each = 1;  // of a prompt
  int choices = 1;       // of all prompts
  bool stream = false;
  bool include_usage = false;
};

// The requests of all choices, prompt after prompt: the same, but each of a prompt's with a seed of its own, the first with the
// request's.
[[nodiscard]] std::vector<GenerationRequest> choices_of(const ApiRequest& request);

// What a request is judged against. REQUIRES: all outlive the call.
struct ApiModel {
  const std::string& served_name;
  const Tokenizer& tokenizer;
  const ChatTemplate& chat;
  const EngineOptions& engine;
  const ModelConfig& config;
  std::int64_t unix_s = 0;  // now, for chat templates that name the date
};

// seed: for requests that give none.
[[nodiscard]] std::variant<ApiRequest, ApiError> parse_request(Endpoint endpoint, std::string_view body, const ApiModel& model,
                                                               std::uint64_t seed);

// The body that answers POST /tokenize, of {"prompt"} or {"messages"}, and POST /detokenize, of {"tokens"}.
[[nodiscard]] std::variant<std::string, ApiError> tokenize_body(std::string_view body, const ApiModel& model);
[[nodiscard]] std::variant<std::string, ApiError> detokenize_body(std::string_view body, const ApiModel& model);

// One of a response's answers, whole.
struct Choice {
  std::string text;
  std::vector<TokenLogprobs> logprobs;  // of its tokens, where they were asked for
  TokenEvent last;                      // its finish: kStop or kLength
};

// Builds the bodies of one response.
class ResponseFormat {
 public:
  // `usage_follows`: usage_chunk() will. `choices_each`: of a prompt. `special_text`: what stands for a special token where log
  // probabilities name it.
  ResponseFormat(Endpoint endpoint, std::string id, std::string model, std::int64_t created_unix_s, bool usage_follows = false,
                 std::function<std::string_view(std::int32_t)> special_text = nullptr, int choices_each = 1)
      : endpoint_(endpoint),
        id_(std::move(id)),
        model_(std::move(model)),
        created_(created_unix_s),
        usage_follows_(usage_follows),
        special_text_(std::move(special_text)),
        choices_each_(static_cast<std::size_t>(choices_each)) {}

  // The whole body of a response that is not streamed. REQUIRES: at least one choice.
  [[nodiscard]] std::string whole(std::span<const Choice> choices) const;

  // One server-sent event for one token of the choice with this index. Every token has its event, even where its text is held
  // back, so that a reader can count tokens and time them. The first one of a chat names the role. `offset`: characters in the
  // tokens before, for what completions call text_offset.
  [[nodiscard]] std::string chunk(int index, const TokenEvent& event, std::int64_t offset = 0) const;
  // The event before [DONE] when the client asked for usage; the last events of all choices.
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

// Characters (code points) of a token's text as logprobs show it.
[[nodiscard]] std::int64_t characters_of(const LikelyToken& token);

inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";
// An error after the stream began: "data: {"error":...}\n\n".
[[nodiscard]] std::string error_chunk(const ApiError& error);

}  // namespace windlass::worker
