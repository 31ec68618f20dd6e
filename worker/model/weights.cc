// Names of the tensors in a Hugging Face checkpoint of the Llama family and where each one goes.
#include "worker/model/weights.h"

#include <new>
#include <string>

#include <fmt/core.h>
#include <fmt/format.h>

namespace windlass::worker {
namespace {

class Loader {
 public:
  Loader(const TensorStore& store, TensorSlice slice) : store_(store), slice_(slice) {}

  // Append the whole tensor to `to`, the slice's rows of it, or the slice's columns; on a mismatch they append nothing and
  // remember why.
  void append(std::vector<float>& to, const std::string& name, const std::vector<std::int64_t>& expected) {
    if (const TensorView* tensor = checked(name, expected)) copy(*tensor, 0, tensor->elements(), to);
  }
  void append_rows(std::vector<float>& to, const std::string& name, const std::vector<std::int64_t>& expected) {
    const TensorView* tensor = checked(name, expected);
    if (tensor == nullptr) return;
    const std::int64_t columns = expected.size() == 2 ? expected[1] : 1;
    copy(*tensor, slice_.first(expected[0]) * columns, slice_.size(expected[0]) * columns, to);
  }
  void append_columns(std::vector<float>& to, const std::string& name, const std::vector<std::int64_t>& expected) {
    const TensorView* tensor = checked(name, expected);
    if (tensor == nullptr) return;
    to.reserve(to.size() + static_cast<std::size_t>(expected[0] * slice_.size(expected[1])));
    for (std::int64_t row = 0; row < expected[0]; ++row) {
      copy(*tensor, row * expected[1] + slice_.first(expected[1]), slice_.size(expected[1]), to);
    }
  }

  [[nodiscard]] Result<void> outcome() const {
    if (complaints_.empty()) return {};
    const std::size_t shown = std::min<std::size_t>(complaints_.size(), 8);
    std::string text = fmt::format("{}", fmt::join(complaints_.begin(), complaints_.begin() + static_cast<long>(shown), "; "));
    if (complaints_.size() > shown) text += fmt::format("; and {} more", complaints_.size() - shown);
    return Error{ErrorCode::kInvalidArgument, text};
  }

 private:
  void complain(std::string text) { complaints_.push_back(std::move(text)); }

  // Null, and a complaint, where it is not what is expected.
  [[nodiscard]] const TensorView* checked(const std::string& name, const std::vector<std::int64_t>& expected) {
    const TensorView* tensor = store_.find(name);
    if (tensor == nullptr) {
      complain(fmt::format("{}: tensor '{}': found none, expected shape {}", store_.file(), name, shape_text(expected)));
    } else if (tensor->shape != expected) {
      complain(fmt::format("{}: tensor '{}': found shape {}, expected {}", tensor->file, name, shape_text(tensor->shape),
                           shape_text(expected)));
    } else if (tensor->dtype == Dtype::kOther) {
      complain(fmt::format("{}: tensor '{}': found dtype {}, allowed are F32, F16 and BF16", tensor->file, name,
                           tensor->dtype_name));
    } else {
      return tensor;
    }
    return nullptr;
  }

  static void copy(const TensorView& tensor, std::int64_t first, std::int64_t count, std::vector<float>& to) {
    const std::size_t before = to.size();
    to.resize(before + static_cast<std::size_t>(count));
    copy_as_float(tensor, std::span<float>(to).subspan(before), first);
  }

  const TensorStore& store_;
  const TensorSlice slice_;
  std::vector<std::string> complaints_;
};

}  // namespace

Result<ModelWeights> load_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks, TensorSlice slice) {
  try {
    Loader loader(store, slice);
    ModelWeights weights;
    const std::int64_t hidden = config.hidden_size;
    const bool begins = blocks.first == 0;
    const bool ends = blocks.end == config.layers;
    if (begins || (ends && config.tie_word_embeddings))
      loader.append_rows(weights.embedding, "model.embed_tokens.weight", {config.vocab_size, hidden});
    for (std::int64_t i = blocks.first; i < blocks.end; ++i) {
      const std::string prefix = fmt::format("model.layers.{}.", i);
      LayerWeights layer;
      layer.qkv.reserve(static_cast<std::size_t>((slice.size(config.q_size()) + 2 * slice.size(config.kv_size())) * hidden));
      layer.gate_up.reserve(static_cast<std::size_t>(2 * slice.size(config.intermediate_size) * hidden));
      loader.append(layer.attention_norm, prefix + "input_layernorm.weight", {hidden});
      loader.append_rows(layer.qkv, prefix + "self_attn.q_proj.weight", {config.q_size(), hidden});
      loader.append_rows(layer.qkv, prefix + "self_attn.k_proj.weight", {config.kv_size(), hidden});
      loader.append_rows(layer.qkv, prefix + "self_attn.v_proj.weight", {config.kv_size(), hidden});
      if (config.qkv_bias) {
        loader.append_rows(layer.qkv_bias, prefix + "self_attn.q_proj.bias", {config.q_size()});
        loader.append_rows(layer.qkv_bias, prefix + "self_attn.k_proj.bias", {config.kv_size()});
        loader.append_rows(layer.qkv_bias, prefix + "self_attn.v_proj.bias", {config.kv_size()});
      }
      if (config.qk_norm) {
        loader.append(layer.q_norm, prefix + "self_attn.q_norm.weight", {config.head_dim});
        loader.append(layer.k_norm, prefix + "self_attn.k_norm.weight", {config.head_dim});
      }
      loader.append_columns(layer.attention_out, prefix + "self_attn.o_proj.weight", {hidden, config.q_size()});
      if (config.attention_out_bias) loader.append(layer.out_bias, prefix + "self_attn.o_proj.bias", {hidden});
      loader.append(layer.mlp_norm, prefix + "post_attention_layernorm.weight", {hidden});
      loader.append_rows(layer.gate_up, prefix + "mlp.gate_proj.weight", {config.intermediate_size, hidden});
      loader.append_rows(layer.gate_up, prefix + "mlp.up_proj.weight", {config.intermediate_size, hidden});
      loader.append_columns(layer.down, prefix + "mlp.down_proj.weight", {hidden, config.intermediate_size});
      weights.layers.push_back(std::move(layer));
    }
    if (ends) loader.append(weights.final_norm, "model.norm.weight", {hidden});
    if (ends && !config.tie_word_embeddings) loader.append_rows(weights.lm_head, "lm_head.weight", {config.vocab_size, hidden});
    WINDLASS_RETURN_IF_ERROR(loader.outcome());
    return weights;
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{}: the weights do not fit into this machine's memory as FP32", store.file())};
  }
}

}  // namespace windlass::worker
