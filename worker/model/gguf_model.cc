// Translates GGUF's tensor names to Hugging Face's.
#include "worker/model/gguf_model.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <regex>
#include <string_view>

#include <fmt/core.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/foreign_text.h"
#include "planner/base/gguf_config.h"
#include "worker/model/files.h"

namespace windlass::worker {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxParts = 99999;

// "NAME-00001-of-00003.gguf"
struct PartName {
  std::string name;
  int count = 0;
};
std::optional<PartName> part_name_of(const std::string& file) {
  static const std::regex pattern("(.*)-([0-9]{5})-of-([0-9]{5})\\.gguf");
  std::smatch match;
  if (!std::regex_match(file, match, pattern)) return std::nullopt;
  return PartName{match[1], std::stoi(match[3])};
}

bool is_gguf(const fs::path& path) { return path.extension() == ".gguf"; }

Result<std::vector<fs::path>> with_parts(const fs::path& path) {
  const auto part = part_name_of(path.filename().string());
  if (!part) return std::vector<fs::path>{path};
  std::vector<fs::path> parts;
  for (int i = 1; i <= std::min(part->count, kMaxParts); ++i) {
    fs::path one = path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", part->name, i, part->count);
    std::error_code failure;
    if (!fs::exists(one, failure)) {
      return Error{ErrorCode::kNotFound, fmt::format("{}: must be next to {}, as one of {} parts (got nothing)", one.string(),
                                                     path.filename().string(), part->count)};
    }
    parts.push_back(std::move(one));
  }
  if (parts.empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: parts in the name: must be at least 1 (got 0)", path.string())};
  }
  return parts;
}

const std::map<std::string_view, std::string_view>& names_outside() {
  static const std::map<std::string_view, std::string_view> names = {{"token_embd.weight", "model.embed_tokens.weight"},
                                                                     {"output_norm.weight", "model.norm.weight"},
                                                                     {"output.weight", "lm_head.weight"}};
  return names;
}

// Maps the part between "blk.N." and ".weight" or ".bias" in GGUF to the part after "model.layers.N." at Hugging Face.
const std::map<std::string_view, std::string_view>& names_in_blocks() {
  static const std::map<std::string_view, std::string_view> names = {
      {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
      {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"}};
  return names;
}

// Names of experts in Qwen's and in Mixtral's files.
struct ExpertNames {
  std::string_view router, experts, gate, up, down;
};
constexpr ExpertNames kQwenExperts{"mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj"};
constexpr ExpertNames kMixtralExperts{"block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2"};

class TensorReader {
 public:
  TensorReader(const Gguf& gguf, const ExpertNames& experts) : gguf_(gguf), experts_(experts) {}

  void read(const GgufTensor& tensor) {
    const auto outside = names_outside().find(tensor.name);
    if (outside != names_outside().end()) return add(tensor, std::string(outside->second));
    static const std::string_view kBlock = "blk.";
    const std::size_t dot = tensor.name.find('.', kBlock.size());
    const std::size_t end = tensor.name.rfind('.');
    if (!tensor.name.starts_with(kBlock) || dot == std::string_view::npos || end <= dot)
      return add(tensor, std::string(tensor.name));
    const std::string layer = fmt::format("model.layers.{}.", tensor.name.substr(kBlock.size(), dot - kBlock.size()));
    const std::string_view part = tensor.name.substr(dot + 1, end - dot - 1), kind = tensor.name.substr(end);
    if (const auto known = names_in_blocks().find(part); known != names_in_blocks().end()) {
      add(tensor, fmt::format("{}{}{}", layer, known->second, kind));
      if (part == "attn_q" || part == "attn_k") tensors_.back().rotary_pairs = head_;
      return;
    }
    if (part == "ffn_gate_inp") return add(tensor, fmt::format("{}{}{}", layer, experts_.router, kind));
    for (const auto& [name, there] :
         {std::pair(std::string_view("ffn_gate_exps"), experts_.gate), std::pair(std::string_view("ffn_up_exps"), experts_.up),
          std::pair(std::string_view("ffn_down_exps"), experts_.down)}) {
      if (part == name && tensor.shape.size() == 3) return add_experts(tensor, layer, there, kind);
    }
    add(tensor, std::string(tensor.name));
  }

  void rows_in_pairs(std::int64_t head) { head_ = head; }

  [[nodiscard]] std::vector<TensorView> take() { return std::move(tensors_); }

 private:
  void add(const GgufTensor& tensor, std::string name) {
    TensorView view;
    view.name = std::move(name);
    view.file = gguf_.file();
    view.numbers = ggml_type_info(tensor.type);
    view.dtype_name = view.numbers == nullptr ? fmt::format("{}", tensor.type) : view.numbers->name;
    view.shape = tensor.shape;
    view.bytes = tensor.bytes;
    tensors_.push_back(std::move(view));
  }

  void add_experts(const GgufTensor& tensor, const std::string& layer, std::string_view matrix, std::string_view kind) {
    const auto experts = static_cast<std::size_t>(std::min<std::int64_t>(tensor.shape.front(), 1 << 14));
    const std::size_t each = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape.front());
    for (std::size_t expert = 0; expert < experts; ++expert) {
      add(tensor, fmt::format("{}{}.{}.{}{}", layer, experts_.experts, expert, matrix, kind));
      tensors_.back().shape.erase(tensors_.back().shape.begin());
      tensors_.back().bytes = tensor.bytes.subspan(expert * each, each);
    }
  }

  const Gguf& gguf_;
  const ExpertNames& experts_;
  std::int64_t head_ = 0;  // 0: rows are in Hugging Face's order
  std::vector<TensorView> tensors_;
};

}  // namespace

Result<std::vector<fs::path>> gguf_files_of(const fs::path& model) {
  std::error_code failure;
  if (fs::is_regular_file(model, failure)) {
    if (is_gguf(model)) return with_parts(model);
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must be a file whose name ends in .gguf, or a model folder", model.string())};
  }
  std::vector<fs::path> files;
  if (!fs::is_directory(model, failure) || fs::exists(model / "config.json", failure)) return files;
  for (const auto& entry : fs::directory_iterator(model, failure)) {
    if (is_gguf(entry.path())) files.push_back(entry.path());
  }
  if (files.empty()) return files;
  std::sort(files.begin(), files.end());
  WINDLASS_ASSIGN_OR_RETURN(std::vector<fs::path> parts, with_parts(files.front()));
  if (parts != files) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must have the GGUF files of one model (got {} files of several); name the file",
                             model.string(), files.size())};
  }
  return parts;
}

Result<GgufModel> GgufModel::open(const std::vector<fs::path>& files) {
  GgufModel model;
  for (const fs::path& path : files) {
    WINDLASS_ASSIGN_OR_RETURN(auto mapped, MappedFile::open(path));
    WINDLASS_ASSIGN_OR_RETURN(Gguf part, Gguf::parse(mapped->bytes(), path.string()));
    model.files.push_back(std::move(mapped));
    if (model.files.size() == 1) {
      model.gguf = std::move(part);
    } else {
      WINDLASS_RETURN_IF_ERROR(model.gguf.add_part(part));
    }
  }
  return model;
}

Result<ModelConfig> model_config_of(const Gguf& gguf) {
  WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json json, config_json_of(gguf));
  WINDLASS_ASSIGN_OR_RETURN(ModelConfig config, parse_model_config(json.dump(), gguf.file()));
  const GgufTensor* factors = gguf.tensor("rope_freqs.weight");
  if (factors == nullptr) return config;
  const std::vector<std::int64_t> expected = {config.head_dim / 2};
  if (factors->shape != expected || factors->type != static_cast<std::uint32_t>(GgmlType::kF32)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: tensor 'rope_freqs.weight': must have shape {} in F32 (got shape {})", gguf.file(),
                             shape_text(expected), shape_text(factors->shape))};
  }
  config.rope_scaling.kind = RopeScaling::Kind::kFactors;
  TensorView view;
  view.numbers = ggml_type_info(factors->type);
  view.shape = factors->shape;
  view.bytes = factors->bytes;
  config.rope_scaling.factors.resize(static_cast<std::size_t>(view.elements()));
  copy_as_float(view, config.rope_scaling.factors);
  if (!std::all_of(config.rope_scaling.factors.begin(), config.rope_scaling.factors.end(),
                   [](float f) { return f > 0 && f < 1e9F; })) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: tensor 'rope_freqs.weight': must have only numbers above 0 and below 1e9", gguf.file())};
  }
  return config;
}

Result<std::string> config_text_of(const fs::path& model) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<fs::path> files, gguf_files_of(model));
  if (files.empty()) return read_text_file(model / "config.json");
  WINDLASS_ASSIGN_OR_RETURN(const GgufModel gguf, GgufModel::open(files));
  WINDLASS_ASSIGN_OR_RETURN(nlohmann::json json, config_json_of(gguf.gguf));
  WINDLASS_ASSIGN_OR_RETURN(const GgufBits bits, bits_of(gguf.gguf));
  if (bits.quantised) {
    json["quantization_config"] = {{"quant_method", "gguf"}, {"bits", bits.blocks}, {"embedding_bits", bits.embedding}};
  }
  return json.dump(2);
}

Result<std::vector<TensorView>> tensors_of(const Gguf& gguf) {
  WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json config, config_json_of(gguf));
  TensorReader reader(gguf, config["model_type"] == "mixtral" ? kMixtralExperts : kQwenExperts);
  WINDLASS_ASSIGN_OR_RETURN(const std::string_view architecture, gguf.text("general.architecture"));
  if (architecture == "llama") reader.rows_in_pairs(config["head_dim"].get<std::int64_t>());
  for (const GgufTensor& tensor : gguf.tensors()) reader.read(tensor);
  std::vector<TensorView> tensors = reader.take();
  for (const TensorView& tensor : tensors) {
    if (tensor.rotary_pairs == 0 || (tensor.rotary_pairs % 2 == 0 && tensor.shape.front() % tensor.rotary_pairs == 0)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: tensor '{}': must have whole heads of an even size (got {} rows for heads of {})",
                             gguf.file(), tensor.name, tensor.shape.front(), tensor.rotary_pairs)};
  }
  return tensors;
}

}  // namespace windlass::worker
