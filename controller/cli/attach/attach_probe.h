// Queries a running inference server for its model, its engine and its limits.
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
  std::string model;                          // its name in /v1/models
  std::optional<metrics::EngineKind> engine;  // nullopt: unknown
  std::optional<int> context_tokens;          // limit of one request
  std::optional<int> slots;                   // concurrent requests
  std::string model_path;                     // the model's files on the server's machine; empty: unknown
};

// HOST:PORT of http://HOST:PORT, with an optional / or /v1 at the end. Error: kInvalidArgument with the rule.
[[nodiscard]] Result<std::string> address_of_server(const std::string& url);

// Reads /v1/models (OpenAI; vLLM adds max_model_len and root, vllm/entrypoints/openai), /metrics, and /props (llama.cpp's
// tools/server) if /metrics shows llama.cpp or nothing. Error: it does not answer, or serves no model or several.
[[nodiscard]] Result<ProbedServer> probe_server(kube::HttpTransport& transport, const std::string& url);

// "http://localhost:8000: vLLM, model smollm2, context 2048 tokens, 16 concurrent requests".
[[nodiscard]] std::string to_text(const ProbedServer& server);

}  // namespace windlass::cli
