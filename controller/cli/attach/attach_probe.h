// What a server that already runs says of itself: its model, its engine and its limits.
#pragma once

#include <optional>
#include <string>

#include "controller/kube/http_transport.h"
#include "metrics/engine_metrics.h"
#include "planner/base/result.h"

namespace windlass::cli {

struct ProbedServer {
  std::string url;                            // http://HOST:PORT
  std::string address;                        // HOST:PORT
  std::string model;                          // as its /v1/models calls it
  std::optional<metrics::EngineKind> engine;  // none: it is not known
  std::optional<int> context_tokens;          // of one request
  std::optional<int> slots;                   // requests that it takes at once
  std::string model_path;                     // of its model's files as it says, on its machine; empty: it does not
};

// HOST:PORT of http://HOST:PORT, with an optional / or /v1 at its end. Error: kInvalidArgument, says what is allowed.
[[nodiscard]] Result<std::string> address_of_server(const std::string& url);

// Asks it. Reads from /v1/models (OpenAI; vLLM adds max_model_len and root, vllm/entrypoints/openai), /metrics, and where that
// says llama.cpp or nothing, /props (llama.cpp's tools/server). Error: it does not answer, or serves no model or several.
[[nodiscard]] Result<ProbedServer> probe_server(kube::HttpTransport& transport, const std::string& url);

// "http://localhost:8000: vLLM, model smollm2, context 2048 tokens, 16 requests at once".
[[nodiscard]] std::string to_text(const ProbedServer& server);

}  // namespace windlass::cli
