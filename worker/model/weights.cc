// Maps tensor names of a Hugging Face checkpoint to ModelWeights, and loads them.
#include "worker/model/weights.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

#include "worker/model/ggml_blocks.h"
#include "worker/model/large_memory.h"

namespace windlass::worker {
namespace {

enum class Reading { kNumbers, kShapesAlone };

constexpr std::int64_t kCopiedAtOnce = 16LL << 20U;  // numbers copied between two progress updates

// Bytes of this many numbers in the file.
std::int64_t file_bytes_of(const TensorView& tensor, std::int64_t count) {
  return count * tensor.numbers->block_bytes / tensor.numbers->block_numbers;
}

// Copies valid tensors, or only counts their size, and collects errors about the others.
class TensorCopier {
 public:
  TensorCopier(const TensorStore& store, TensorSlice slice, Reading reading, LoadProgress* progress)
      : store_(store), slice_(slice), reading_(reading), progress_(progress) {}

  // Append the whole tensor to `to`, or the slice's rows or columns of it. On a mismatch, append nothing or only a part, and
  // record the error.
  void append(std::vector<float>& to, const std::string& name, const std::vector<std::int64_t>& expected) {
    if (const TensorView* tensor = checked(name, expected)) append_floats(*tensor, 0, tensor->elements(), to);
  }
  void append_rows(std::vector<float>& to, const std::string& name, const std::vector<std::int64_t>& expected) {
    const TensorView* tensor = checked(name, expected);
    if (tensor == nullptr) return;
    const std::int64_t columns = expected.size() == 2 ? expected[1] : 1;
    append_floats(*tensor, slice_.first(expected[0]) * columns, slice_.size(expected[0]) * columns, to);
  }
  // The coding that can hold all these tensors; zero bits if one is not in blocks or is missing.
  [[nodiscard]] GgmlCoding coding_of_all(const std::vector<std::string>& names) const {
    GgmlCoding common;
    for (const std::string& name : names) {
      const TensorView* tensor = store_.find(name);
      const GgmlCoding coding =
          tensor == nullptr || tensor->numbers == nullptr ? GgmlCoding() : coding_of(tensor->numbers->type);
      if (coding.bits == 0) return {};
      common = common.bits == 0 ? coding : common_coding(common, coding);
    }
    return common;
  }

  // The same for matrices (rows, columns), which may be quantised.
  void append_rows(WeightMatrix& to, const std::string& name, std::int64_t rows, std::int64_t columns) {
    append_part(to, name, {rows, columns}, slice_.first(rows), slice_.end(rows), 0, columns);
  }
  void append_columns(WeightMatrix& to, const std::string& name, std::int64_t rows, std::int64_t columns) {
    append_part(to, name, {rows, columns}, 0, rows, slice_.first(columns), slice_.end(columns));
  }

  [[nodiscard]] Result<void> outcome() const {
    if (complaints_.empty()) return {};
    const std::size_t shown = std::min<std::size_t>(complaints_.size(), 8);
    std::string text = fmt::format("{}", fmt::join(complaints_.begin(), complaints_.begin() + static_cast<long>(shown), "; "));
    if (complaints_.size() > shown) text += fmt::format("; and {} more", complaints_.size() - shown);
    return Error{ErrorCode::kInvalidArgument, text};
  }

  // What would be copied, if only shapes are read.
  [[nodiscard]] const WeightSizes& sizes() const { return sizes_; }
  void count(const WeightSizes& sizes) { sizes_ += sizes; }

 private:
  void complain(std::string text) { complaints_.push_back(std::move(text)); }

  // Null if it is not as expected; records the error.
  [[nodiscard]] const TensorView* checked(const std::string& name, const std::vector<std::int64_t>& expected) {
    const TensorView* tensor = store_.find(name);
    if (tensor == nullptr) {
      complain(
          fmt::format("{}: tensor '{}': must have shape {} (got no such tensor)", store_.file(), name, shape_text(expected)));
    } else if (tensor->shape != expected) {
      complain(fmt::format("{}: tensor '{}': must have shape {} (got {})", tensor->file, name, shape_text(expected),
                           shape_text(tensor->shape)));
    } else if (tensor->numbers == nullptr) {
      complain(fmt::format("{}: tensor '{}': must have type {} (got {})", tensor->file, name,
                           tensor->file.ends_with(".gguf") ? known_ggml_types() : "F32, F16 or BF16", tensor->dtype_name));
    } else {
      return tensor;
    }
    return nullptr;
  }

  void append_floats(const TensorView& tensor, std::int64_t first, std::int64_t count, std::vector<float>& to) {
    if (reading_ == Reading::kNumbers) return copy(tensor, first, count, to);
    sizes_ += {.other_numbers = count, .block_bytes = count * static_cast<std::int64_t>(sizeof(float))};
    sizes_.file_bytes += file_bytes_of(tensor, count);
  }

  void append_part(WeightMatrix& to, const std::string& name, const std::vector<std::int64_t>& expected, std::int64_t first_row,
                   std::int64_t end_row, std::int64_t first_column, std::int64_t end_column) {
    const TensorView* tensor = checked(name, expected);
    if (tensor == nullptr) return;
    if (reading_ == Reading::kShapesAlone) {
      sizes_.file_bytes += file_bytes_of(*tensor, (end_row - first_row) * (end_column - first_column));
      return;
    }
    if (to.format == WeightFormat::kFp32) {  // straight to its place, and in one go if rows are whole
      const std::int64_t columns = end_column - first_column;
      const std::int64_t at_once = columns == expected[1] ? end_row - first_row : 1;
      for (std::int64_t row = first_row; row < end_row; row += at_once) {
        copy(*tensor, row * expected[1] + first_column, at_once * columns, to.values);
      }
      return;
    }
    if (to.format == WeightFormat::kBlocks) {
      for (std::int64_t row = first_row; row < end_row; ++row) {
        const std::int64_t first = tensor->place_of_row(row) * expected[1] + first_column;
        if (!append_row(to.blocks, *tensor->numbers, tensor->bytes, first)) return complain_of_row(*tensor, row, to.format);
        tell(file_bytes_of(*tensor, end_column - first_column));
      }
      return;
    }
    const bool as_it_is = to.format == WeightFormat::kBf16 && tensor->is(GgmlType::kBf16) && tensor->rotary_pairs == 0;
    const auto append = [&](auto& row, const auto& copy_row, std::int64_t index) {
      row.resize(static_cast<std::size_t>(expected[1]));
      copy_row(*tensor, row, index * expected[1]);
      return append_row(to, row, first_column, end_column);
    };
    for (std::int64_t row = first_row; row < end_row; ++row) {
      if (as_it_is ? append(halves_, copy_bf16, row) : append(floats_, copy_as_float, row)) {
        tell(file_bytes_of(*tensor, end_column - first_column));
        continue;
      }
      return complain_of_row(*tensor, row, to.format);
    }
  }

  void complain_of_row(const TensorView& tensor, std::int64_t row, WeightFormat format) {
    complain(fmt::format("{}: tensor '{}': must have only numbers that are finite as {} (got another one in row {})",
                         tensor.file, tensor.name, to_string(format), row));
  }

  void copy(const TensorView& tensor, std::int64_t first, std::int64_t count, std::vector<float>& to) const {
    reserve_large(to, to.size() + static_cast<std::size_t>(count));
    for (std::int64_t copied = 0; copied < count; copied += kCopiedAtOnce) {
      const std::int64_t piece = std::min(kCopiedAtOnce, count - copied);
      const std::size_t before = to.size();
      to.resize(before + static_cast<std::size_t>(piece));
      copy_as_float(tensor, std::span<float>(to).subspan(before), first + copied);
      tell(file_bytes_of(tensor, piece));
    }
  }

  void tell(std::int64_t file_bytes) const {
    if (progress_ != nullptr) progress_->read(file_bytes);
  }

  const TensorStore& store_;
  const TensorSlice slice_;
  const Reading reading_;
  LoadProgress* const progress_;
  WeightSizes sizes_;
  std::vector<std::string> complaints_;
  std::vector<float> floats_;  // of a row, like the following
  std::vector<std::uint16_t> halves_;
};

// Names of an MLP's tensors, after the layer's name.
struct MlpNames {
  std::vector<std::string> in;  // concatenated by rows
  std::string out;
};

// Names of a model's parts in its checkpoint.
struct TensorNames {
  std::string model;  // prefix of everything except lm_head
  const char* final_norm;
  // After "layers.N.".
  const char* attention_norm;
  const char* attention_out;
  const char* mlp_norm;
  MlpNames mlp;
  // With experts: "ROUTER.weight"; expert E has the tensors "EXPERTS.E.NAME.weight".
  std::string router, experts;
  MlpNames expert;
};

TensorNames names_of(const ModelConfig& config, const TensorStore& store) {
  if (config.architecture != Architecture::kOpt) {
    TensorNames names{"model.",
                      "norm",
                      "input_layernorm",
                      "self_attn.o_proj",
                      "post_attention_layernorm",
                      {{"mlp.gate_proj", "mlp.up_proj"}, "mlp.down_proj"},
                      "mlp.gate",
                      "mlp.experts",
                      {{"gate_proj", "up_proj"}, "down_proj"}};
    if (config.architecture == Architecture::kMixtral) {
      names.router = "block_sparse_moe.gate";
      names.experts = "block_sparse_moe.experts";
      names.expert = {{"w1", "w3"}, "w2"};
    }
    return names;
  }
  // Some OPT files were saved without the text generation class around the decoder.
  const bool bare = store.find("decoder.embed_tokens.weight") != nullptr;
  return {bare ? "decoder." : "model.decoder.",
          "final_layer_norm",
          "self_attn_layer_norm",
          "self_attn.out_proj",
          "final_layer_norm",
          {{"fc1"}, "fc2"},
          {},
          {},
          {}};
}

// Loads the parts of a model, each with the shape given by the config.
class ModelLoader {
 public:
  ModelLoader(const ModelConfig& config, const TensorStore& store, TensorSlice slice, WeightFormat format, Reading reading,
              LoadProgress* progress)
      : config_(config),
        names_(names_of(config, store)),
        slice_(slice),
        format_(format),
        reading_(reading),
        tensors_(store, slice, reading, progress) {}

  // Without what `have` contains, and without the layers of `held`.
  [[nodiscard]] Result<ModelWeights> load(BlockRange blocks, const ModelWeights& have = {}, BlockRange held = {}) {
    ModelWeights weights;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t width = config_.embedding_width();
    const WeightEnds ends = ends_of(config_, blocks);
    if (ends.embedding && have.embedding.empty())
      weights.embedding = table(names_.model + "embed_tokens.weight", config_.vocab_size, width);
    if (ends.project_in && have.project_in.empty())
      tensors_.append(weights.project_in, names_.model + "project_in.weight", {hidden, width});
    if (ends.positions && have.positions.empty()) {
      tensors_.append(weights.positions, names_.model + "embed_positions.weight",
                      {config_.max_context_tokens + kLearnedPositionsOffset, hidden});
    }
    for (std::int64_t i = blocks.first; i < blocks.end; ++i) {
      if (i >= held.first && i < held.end) continue;
      weights.layers.push_back(layer(fmt::format("{}layers.{}.", names_.model, i), config_.has_experts(i)));
    }
    if (ends.final_norm && have.final_norm.weight.empty()) weights.final_norm = norm(names_.model + names_.final_norm);
    if (ends.project_out && have.project_out.empty())
      tensors_.append(weights.project_out, names_.model + "project_out.weight", {width, hidden});
    if (ends.lm_head && have.lm_head.empty()) weights.lm_head = table("lm_head.weight", config_.vocab_size, width);
    WINDLASS_RETURN_IF_ERROR(tensors_.outcome());
    return weights;
  }
  [[nodiscard]] const WeightSizes& sizes() const { return tensors_.sizes(); }

 private:
  // An empty matrix with capacity for `rows` x `columns` numbers of this rank; its columns start at `first_column` of these
  // tensors.
  [[nodiscard]] WeightMatrix matrix(const std::vector<std::string>& names, std::int64_t rows, std::int64_t columns,
                                    std::int64_t first_column, WeightFormat format) {
    const auto count = static_cast<std::size_t>(rows * columns);
    const bool whole_tiles = first_column % BlockMatrix::kTileColumns == 0 && columns % BlockMatrix::kTileColumns == 0;
    const GgmlCoding coding = whole_tiles ? tensors_.coding_of_all(names) : GgmlCoding();
    if (reading_ == Reading::kShapesAlone) {
      tensors_.count({.block_bytes = coding.bits > 0 ? BlockMatrix::bytes(coding, rows, columns)
                                                     : rows * columns * static_cast<std::int64_t>(sizeof(float))});
      return {};
    }
    if (format == WeightFormat::kBlocks && coding.bits == 0) format = WeightFormat::kFp32;
    WeightMatrix matrix{format};
    switch (format) {
      case WeightFormat::kFp32: reserve_large(matrix.values, count); break;
      case WeightFormat::kBf16: reserve_large(matrix.halves, count); break;
      case WeightFormat::kInt8:
      case WeightFormat::kFp8:
        reserve_large(matrix.codes, count);
        matrix.scales.reserve(static_cast<std::size_t>(rows));
        break;
      case WeightFormat::kBlocks: matrix.blocks = BlockMatrix::with_room(coding, rows, columns); break;
    }
    return matrix;
  }

  // A layer's matrix: this rank's rows of these tensors, concatenated.
  [[nodiscard]] WeightMatrix rows_of(const std::vector<std::pair<std::string, std::int64_t>>& tensors, std::int64_t columns) {
    std::vector<std::string> names;
    std::int64_t rows = 0;
    for (const auto& [name, of_tensor] : tensors) {
      names.push_back(name);
      rows += slice_.size(of_tensor);
    }
    tensors_.count({.matrix_numbers = rows * columns, .matrix_rows = rows});
    WeightMatrix made = matrix(names, rows, columns, 0, format_);
    for (const auto& [name, of_tensor] : tensors) tensors_.append_rows(made, name, of_tensor, columns);
    return made;
  }
  // This rank's columns.
  [[nodiscard]] WeightMatrix columns_of(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const std::int64_t of_rank = slice_.size(columns);
    tensors_.count({.matrix_numbers = rows * of_rank, .matrix_rows = rows});
    WeightMatrix made = matrix({name}, rows, of_rank, slice_.first(columns), format_);
    tensors_.append_columns(made, name, rows, columns);
    return made;
  }
  // This rank's rows of the embedding or the output matrix.
  [[nodiscard]] WeightMatrix table(const std::string& name, std::int64_t rows, std::int64_t columns) {
    tensors_.count({.other_numbers = slice_.size(rows) * columns});
    const WeightFormat format = format_ == WeightFormat::kBlocks ? format_ : WeightFormat::kFp32;
    WeightMatrix made = matrix({name}, slice_.size(rows), columns, 0, format);
    tensors_.append_rows(made, name, rows, columns);
    return made;
  }

  [[nodiscard]] NormWeights norm(const std::string& name) {
    NormWeights norm;
    tensors_.append(norm.weight, name + ".weight", {config_.hidden_size});
    if (config_.norm == Norm::kLayer) tensors_.append(norm.bias, name + ".bias", {config_.hidden_size});
    return norm;
  }

  [[nodiscard]] LayerWeights layer(const std::string& prefix, bool has_experts) {
    const std::int64_t hidden = config_.hidden_size;
    const std::pair<const char*, std::int64_t> projections[] = {
        {"q_proj", config_.q_size()}, {"k_proj", config_.kv_size()}, {"v_proj", config_.kv_size()}};
    LayerWeights layer;
    layer.attention_norm = norm(prefix + names_.attention_norm);
    std::vector<std::pair<std::string, std::int64_t>> qkv;
    for (const auto& [name, size] : projections) {
      qkv.emplace_back(fmt::format("{}self_attn.{}.weight", prefix, name), size);
      if (config_.qkv_bias) tensors_.append_rows(layer.qkv_bias, fmt::format("{}self_attn.{}.bias", prefix, name), {size});
    }
    layer.qkv = rows_of(qkv, hidden);
    if (config_.qk_norm) {
      tensors_.append(layer.q_norm, prefix + "self_attn.q_norm.weight", {config_.head_dim});
      tensors_.append(layer.k_norm, prefix + "self_attn.k_norm.weight", {config_.head_dim});
    }
    const std::string out = prefix + names_.attention_out;
    layer.attention_out = columns_of(out + ".weight", hidden, config_.q_size());
    if (config_.attention_out_bias) tensors_.append(layer.out_bias, out + ".bias", {hidden});
    layer.mlp_norm = norm(prefix + names_.mlp_norm);
    if (!has_experts) {
      layer.mlp = mlp(prefix, names_.mlp, config_.intermediate_size, config_.mlp_bias);
      return layer;
    }
    tensors_.append(layer.router, prefix + names_.router + ".weight", {config_.experts, hidden});
    for (std::int64_t expert = 0; expert < config_.experts; ++expert) {
      layer.experts.push_back(
          mlp(fmt::format("{}{}.{}.", prefix, names_.experts, expert), names_.expert, config_.expert_intermediate_size, false));
    }
    return layer;
  }

  [[nodiscard]] MlpWeights mlp(const std::string& prefix, const MlpNames& names, std::int64_t width, bool biases) {
    const std::int64_t hidden = config_.hidden_size;
    MlpWeights mlp;
    std::vector<std::pair<std::string, std::int64_t>> in;
    for (const std::string& name : names.in) {
      in.emplace_back(prefix + name + ".weight", width);
      if (biases) tensors_.append_rows(mlp.in_bias, prefix + name + ".bias", {width});
    }
    mlp.in = rows_of(in, hidden);
    mlp.out = columns_of(prefix + names.out + ".weight", hidden, width);
    if (biases) tensors_.append(mlp.out_bias, prefix + names.out + ".bias", {hidden});
    return mlp;
  }

  const ModelConfig& config_;
  const TensorNames names_;
  const TensorSlice slice_;
  const WeightFormat format_;
  const Reading reading_;
  TensorCopier tensors_;
};

}  // namespace

WeightBytes bytes_of(const ModelWeights& weights) {
  WeightBytes bytes;
  const auto add = [&](std::initializer_list<const std::vector<float>*> tensors) {
    for (const auto* tensor : tensors) {
      bytes.held += static_cast<std::int64_t>(tensor->size() * sizeof(float));
      bytes.as_plain += static_cast<std::int64_t>(tensor->size() * sizeof(float));
    }
  };
  const auto add_matrix = [&](const WeightMatrix& matrix) {
    bytes.held += matrix.bytes();
    bytes.as_plain += matrix.elements() * static_cast<std::int64_t>(sizeof(float));
  };
  const auto add_mlp = [&](const MlpWeights& mlp) {
    add_matrix(mlp.in);
    add_matrix(mlp.out);
    add({&mlp.in_bias, &mlp.out_bias});
  };
  add({&weights.positions, &weights.project_in, &weights.final_norm.weight, &weights.final_norm.bias, &weights.project_out});
  add_matrix(weights.embedding);
  add_matrix(weights.lm_head);
  for (const LayerWeights& layer : weights.layers) {
    add({&layer.attention_norm.weight, &layer.attention_norm.bias, &layer.qkv_bias, &layer.q_norm, &layer.k_norm,
         &layer.out_bias, &layer.mlp_norm.weight, &layer.mlp_norm.bias, &layer.router});
    add_matrix(layer.qkv);
    add_matrix(layer.attention_out);
    add_mlp(layer.mlp);
    for (const MlpWeights& expert : layer.experts) add_mlp(expert);
  }
  return bytes;
}

WeightEnds ends_of(const ModelConfig& config, BlockRange blocks) {
  const bool begins = blocks.first == 0;
  const bool ends = blocks.end == config.layers;
  const bool projects = config.embedding_size > 0;
  return {begins || (ends && config.tie_word_embeddings),
          begins && config.positions == Positions::kLearned,
          begins && projects,
          ends && !config.norm_after,
          ends && projects,
          ends && !config.tie_word_embeddings};
}

std::int64_t WeightSizes::bytes(WeightFormat format) const {
  const auto plain = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t others = other_numbers * plain;
  switch (format) {
    case WeightFormat::kFp32: return matrix_numbers * plain + others;
    case WeightFormat::kBf16: return matrix_numbers * 2 + others;
    case WeightFormat::kInt8:
    case WeightFormat::kFp8: return matrix_numbers + matrix_rows * plain + others;
    case WeightFormat::kBlocks: return block_bytes;
  }
  return 0;
}

WeightSizes& WeightSizes::operator+=(const WeightSizes& more) {
  matrix_numbers += more.matrix_numbers;
  matrix_rows += more.matrix_rows;
  other_numbers += more.other_numbers;
  block_bytes += more.block_bytes;
  file_bytes += more.file_bytes;
  return *this;
}

Result<ModelWeights> load_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks, TensorSlice slice,
                                  WeightFormat format, LoadProgress* progress) {
  return load_missing_weights(config, store, blocks, {}, {}, slice, format, progress);
}

Result<ModelWeights> load_missing_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                          const ModelWeights& have, BlockRange held, TensorSlice slice, WeightFormat format,
                                          LoadProgress* progress) {
  try {
    return ModelLoader(config, store, slice, format, Reading::kNumbers, progress).load(blocks, have, held);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{}: the weights do not fit in this machine's memory as {}", store.file(), to_string(format))};
  }
}

Result<WeightSizes> check_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks, TensorSlice slice) {
  return check_missing_weights(config, store, blocks, {}, {}, slice);
}

Result<WeightSizes> check_missing_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                          const ModelWeights& have, BlockRange held, TensorSlice slice) {
  ModelLoader loader(config, store, slice, WeightFormat::kFp32, Reading::kShapesAlone, nullptr);
  WINDLASS_RETURN_IF_ERROR(loader.load(blocks, have, held));
  return loader.sizes();
}

}  // namespace windlass::worker
