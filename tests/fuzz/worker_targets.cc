// Fuzz targets for input of a worker.
#include <algorithm>
#include <span>
#include <vector>

#include "planner/base/gguf_config.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/gguf_model.h"
#include "worker/model/gguf_tokenizer.h"
#include "worker/parallel/chain_wire.h"
#include "worker/parallel/kv_wire.h"
#include "worker/serve/openai_api.h"

namespace windlass::fuzz {
namespace {

using namespace windlass::worker;

constexpr std::int64_t kVocab = 300;
constexpr std::int64_t kPrompt = 48;

ModelConfig small_config() {
  ModelConfig config;
  config.hidden_size = 8;
  config.layers = 2;
  config.heads = config.kv_heads = 2;
  config.head_dim = 4;
  config.intermediate_size = 8;
  config.vocab_size = kVocab;
  config.max_context_tokens = kPrompt;
  return config;
}

struct Served {
  Tokenizer tokenizer = Tokenizer::parse(make_tokenizer_json(worker::testing::tiny_shape()), "tokenizer.json").value();
  ChatTemplate chat = ChatTemplate::of_tokens(tokenizer);
  EngineOptions options;
  ModelConfig config = small_config();
  std::string name = "m";
};

}  // namespace

void chat_request(std::string_view bytes) {
  static const Served served;
  for (const Endpoint endpoint : {Endpoint::kChatCompletions, Endpoint::kCompletions}) {
    const auto parsed =
        parse_request(endpoint, bytes, {served.name, served.tokenizer, served.chat, served.options, served.config}, 1);
    if (const auto* error = std::get_if<ApiError>(&parsed)) {
      require(error->status >= 400 && !error->message.empty());
      static_cast<void>(error_body(*error));
    }
  }
}

void gguf_file(std::string_view bytes) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  const auto gguf = Gguf::parse(file, "m.gguf");
  if (!gguf.ok()) {
    require(gguf.error().message.starts_with("m.gguf: "));
    return;
  }
  static_cast<void>(bits_of(*gguf));
  static_cast<void>(model_config_of(*gguf));
  if (const auto tensors = tensors_of(*gguf); tensors.ok()) {
    for (const TensorView& tensor : *tensors) {
      if (tensor.numbers == nullptr || tensor.bytes.empty()) continue;
      std::vector<float> first(static_cast<std::size_t>(std::min<std::int64_t>(tensor.elements(), 300)));
      copy_as_float(tensor, first);
      copy_as_float(tensor, first, tensor.elements() - std::ssize(first));
    }
  }
  if (const auto tokenizer = tokenizer_json_of(*gguf); tokenizer.ok()) {
    static_cast<void>(Tokenizer::parse(tokenizer->dump(), "m.gguf"));
  }
  static_cast<void>(tokenizer_config_of(*gguf));
}

void chain_frames(std::string_view bytes) {
  if (const auto reservation = reservation_from_json(bytes); reservation.ok()) {
    const auto again = reservation_from_json(to_json(*reservation));
    require(again.ok() && again->sessions == reservation->sessions && again->next_hops == reservation->next_hops);
  }
  if (const auto step = step_from(bytes, 8); step.ok()) {
    require(step->tokens >= 0 && step->head_bytes <= bytes.size());
    require(bytes.substr(0, step->head_bytes) == step_head(step->chunks));
  }
  static_cast<void>(summary_from(bytes, {}, kVocab));
  static_cast<void>(hops_from(bytes));
  static_cast<void>(sessions_from(bytes));
}

void kv_frames(std::string_view bytes) {
  static const auto backend = [] {
    CpuBackendOptions options;
    options.kv_blocks = blocks_for(kPrompt);
    options.max_batch_tokens = 1;
    options.max_context_tokens = kPrompt;
    return make_cpu_backend(small_config(), worker::testing::random_weights(small_config(), 1), options).value();
  }();
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(blocks_for(kPrompt)));
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(i);
  std::vector<std::int64_t> filled(2, 0);
  static_cast<void>(store_kv_pieces(bytes, kPrompt, blocks, filled, *backend));
  for (const std::int64_t each : filled) require(each >= 0 && each <= kPrompt);
  if (const auto first = first_token_from(bytes, kVocab); first.ok())
    require(first_token_from(first_token_text(*first), kVocab).ok());
}

}  // namespace windlass::fuzz
