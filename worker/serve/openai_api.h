// The OpenAI API as pure functions: request bodies to GenerationRequests, events to response bodies. No sockets, no clock.
//
// Supported: chat completions and completions with max_tokens, temperature, top_p, seed, stop, stream, stream_options, and
// ignore_eos as vLLM has it. Fields that would change the answer and are not supported are refused by name; others are ignored,
// as OpenAI's own servers do. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/model/chat_template.h"
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
  GenerationRequest generation;
  bool stream = false;
  bool include_usage = false;
};

// What a request is judged against. REQUIRES: all outlive the call.
struct ApiModel {
  const std::string& served_name;
  const Tokenizer& tokenizer;
  const ChatTemplate& chat;
  const EngineOptions& engine;
  std::int64_t vocab_size;
};

// seed: for requests that give none.
[[nodiscard]] std::variant<ApiRequest, ApiError> parse_request(Endpoint endpoint, std::string_view body, const ApiModel& model,
                                                               std::uint64_t seed);

// Builds the bodies of one response.
class ResponseFormat {
 public:
  ResponseFormat(Endpoint endpoint, std::string id, std::string model, std::int64_t created_unix_s)
      : endpoint_(endpoint), id_(std::move(id)), model_(std::move(model)), created_(created_unix_s) {}

  // The whole body of a response that is not streamed. REQUIRES: last.finish is kStop or kLength.
  [[nodiscard]] std::string whole(const std::string& text, const TokenEvent& last) const;

  // One server-sent event for one token. Every token has its event, even where its text is held back, so that a reader can
  // count tokens and time them. The first one of a chat names the role.
  [[nodiscard]] std::string chunk(const TokenEvent& event) const;
  // The event before [DONE] when the client asked for usage.
  [[nodiscard]] std::string usage_chunk(const TokenEvent& last) const;

 private:
  Endpoint endpoint_;
  std::string id_;
  std::string model_;
  std::int64_t created_;
};

inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";
// An error after the stream began: "data: {"error":...}\n\n".
[[nodiscard]] std::string error_chunk(const ApiError& error);

}  // namespace windlass::worker
