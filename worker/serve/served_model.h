// ServedModel: everything that exists once a model is loaded: tokenizer, chat template and the running engine.
//
// Made by load_served_model() on any thread; afterwards immutable but for the engine loop, which is thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "metrics/bundles.h"
#include "worker/engine/engine_loop.h"
#include "worker/model/chat_template.h"
#include "worker/model/config.h"
#include "worker/model/tokenizer.h"
#include "worker/parallel/kv_exports.h"
#include "worker/parallel/kv_imports.h"
#include "worker/serve/flags.h"

namespace windlass::worker {

struct ServedModel {
  ServedModel(std::string name, ModelConfig model_config, Tokenizer model_tokenizer)
      : served_name(std::move(name)), config(std::move(model_config)), tokenizer(std::move(model_tokenizer)) {}

  const std::string served_name;
  const ModelConfig config;
  const Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;  // always there once loaded, like the following
  std::unique_ptr<KvExports> exports;
  std::unique_ptr<KvImports> imports;
  std::unique_ptr<EngineLoop> engine;  // last: ends first
};

// Sizes that follow from the flags and the model. Error: kInvalidArgument naming the flag.
struct EngineSizes {
  std::int64_t max_context_tokens = 0;
  std::int64_t kv_blocks = 0;
};
[[nodiscard]] Result<EngineSizes> engine_sizes(const ServeFlags& flags, const ModelConfig& config);

// How this worker reaches others, and whom it tells when that failed.
struct OtherWorkers {
  KvImports::Ask ask;
  std::function<void(const KvQuestion& last, const Error& why)> failed;
};

// REQUIRES: clock and metrics outlive the model. Errors name the file or flag, the field, found and allowed.
[[nodiscard]] Result<std::unique_ptr<ServedModel>> load_served_model(const ServeFlags& flags, const Clock& clock,
                                                                     const metrics::WorkerMetrics& metrics,
                                                                     OtherWorkers others);

}  // namespace windlass::worker
