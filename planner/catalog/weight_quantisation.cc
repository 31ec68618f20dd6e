// Reads quantization_config. Each method states its group size and its exceptions differently; see the readers below.
#include "planner/catalog/weight_quantisation.h"

#include <array>
#include <initializer_list>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/json_reader.h"

namespace windlass::planner {
namespace {

using nlohmann::json;

constexpr int kWholeRow = 0;
constexpr int kLargestGroup = 1'000'000;

int one_of(JsonReader& reader, const char* key, std::initializer_list<int> allowed, std::string_view allowed_text) {
  const json& value = reader.require(key);
  for (int each : allowed) {
    if (value == each) return each;
  }
  reader.fail(key, value, allowed_text);
  return *allowed.begin();
}

// -1 means the whole row.
int group_columns(JsonReader& reader, const char* key) {
  const int size = reader.int32(key, -1, kLargestGroup);
  if (size == 0) reader.fail(key, 0, "-1 or at least 1");
  return size == -1 ? kWholeRow : size;
}

void read_block(JsonReader& reader, const char* key, WeightQuantisation& q) {
  const json& block = reader.require(key);
  const auto side = [&](std::size_t i) { return block[i].is_number_integer() && block[i] >= 1 && block[i] <= kLargestGroup; };
  if (!block.is_array() || block.size() != 2 || !side(0) || !side(1)) {
    reader.fail(key, block, "a list of two integers from 1");
    return;
  }
  q.group_rows = block[0].get<int>();
  q.group_columns = block[1].get<int>();
}

// Names that select only matrices that are never quantised anyway.
bool outside_blocks(const std::string& name) {
  const auto holds = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (holds("gate_proj") || holds("gate_up")) return false;
  for (std::string_view part : {"lm_head", "embed", "norm", "gate", "router"}) {
    if (holds(part)) return true;
  }
  return false;
}

void refuse_exceptions(JsonReader& reader, const char* key) {
  if (!reader.given(key)) return;
  reader.list(key, [&](const json& name, const std::string& path) {
    if (name.is_string() && outside_blocks(name.get_ref<const std::string&>())) return;
    reader.take(
        Error{ErrorCode::kInvalidArgument,
              fmt::format("{}: must name an lm_head, embedding, norm or router (got {}): the size of the weights is unknown if "
                          "matrices inside the blocks are excluded",
                          path, name.dump())});
  });
}

void read_fp8(JsonReader& reader, WeightQuantisation& q) {
  q.compute = DType::kFloat8;
  q.scale_bits = 32;
  q.group_rows = q.group_columns = 0;  // one scale per matrix
  if (reader.given("weight_block_size")) read_block(reader, "weight_block_size", q);
  refuse_exceptions(reader, "modules_to_not_convert");
  refuse_exceptions(reader, "ignored_layers");
}

void read_gptq(JsonReader& reader, WeightQuantisation& q) {
  q.weight_bits = one_of(reader, "bits", {4, 2, 3, 8}, "2, 3, 4 or 8");
  q.group_columns = group_columns(reader, "group_size");
  q.scale_bits = 16 + q.weight_bits;  // plus a packed zero point
  if (reader.boolean_or("lm_head", false)) reader.fail("lm_head", true, "false");
  refuse_exceptions(reader, "modules_to_not_convert");
}

void read_awq(JsonReader& reader, WeightQuantisation& q) {
  q.weight_bits = one_of(reader, reader.given("w_bit") ? "w_bit" : "bits", {4}, "4");
  q.group_columns = group_columns(reader, reader.given("q_group_size") ? "q_group_size" : "group_size");
  q.scale_bits = 16 + q.weight_bits;
  refuse_exceptions(reader, "modules_to_not_convert");
}

void read_bitsandbytes(JsonReader& reader, WeightQuantisation& q) {
  const bool eight = reader.boolean_or("load_in_8bit", false);
  const bool four = reader.boolean_or("load_in_4bit", false);
  if (eight == four) reader.fail("load_in_4bit", four, eight ? "false where load_in_8bit is true" : "true, or load_in_8bit");
  if (four) {
    constexpr int kBlock = 64;
    q.weight_bits = 4;
    q.group_columns = kBlock;
    // A float32 maximum per block. With "double quantisation" it takes 8 bits, plus a float32 for each 256 of them (QLoRA,
    // Section 3).
    q.scale_bits = reader.boolean_or("bnb_4bit_use_double_quant", false) ? 8 + 32.0 / 256 : 32;
  } else {
    q.group_columns = kWholeRow;
    q.scale_bits = 32;
    q.compute = DType::kInt8;
  }
  refuse_exceptions(reader, "llm_int8_skip_modules");
}

// One entry of config_groups.
WeightQuantisation read_compressed_group(JsonReader& parent, const json& value, const std::string& path) {
  WeightQuantisation q;
  q.method = "compressed-tensors";
  JsonReader group(value, path);
  if (group.require("targets") != json::array({"Linear"})) group.fail("targets", group.require("targets"), "[\"Linear\"]");
  JsonReader weights(group.require("weights"), group.path_of("weights"));
  const std::string type = weights.string("type");
  if (type == "float") {
    q.weight_bits = one_of(weights, "num_bits", {8}, "8 where type is \"float\"");
  } else if (type == "int") {
    q.weight_bits = one_of(weights, "num_bits", {4, 8}, "4 or 8");
  } else {
    weights.fail("type", type, "\"float\" or \"int\"");
  }
  q.scale_bits = 16 + (type == "int" && !weights.boolean_or("symmetric", true) ? q.weight_bits : 0);
  const std::string strategy = weights.string("strategy");
  if (strategy == "tensor") {
    q.group_rows = q.group_columns = 0;
  } else if (strategy == "group") {
    q.group_columns = group_columns(weights, "group_size");
  } else if (strategy == "block") {
    read_block(weights, "block_structure", q);
  } else if (strategy != "channel") {
    weights.fail("strategy", strategy, "\"tensor\", \"channel\", \"group\" or \"block\"");
  }
  // Without input_activations only the weights are quantised.
  if (group.given("input_activations") && q.weight_bits == 8) q.compute = type == "float" ? DType::kFloat8 : DType::kInt8;
  parent.take(group.first_mistake());
  parent.take(weights.first_mistake());
  return q;
}

void read_compressed_tensors(JsonReader& reader, WeightQuantisation& q) {
  const json& groups = reader.require("config_groups");
  if (!groups.is_object() || groups.size() != 1) {
    reader.fail("config_groups", groups, "an object with one group");
    return;
  }
  q = read_compressed_group(reader, groups.front(),
                            fmt::format("{}.{}", reader.path_of("config_groups"), groups.begin().key()));
  refuse_exceptions(reader, "ignore");
}

// What `windlass model describe` reports for a GGUF file: average bits per number, including the scales of its block.
void read_gguf(JsonReader& reader, WeightQuantisation& q) {
  const auto bits = [&](const char* key) {
    const double found = reader.number(key);
    if (!(found >= 1 && found <= 32)) reader.fail(key, found, "from 1 to 32");
    return found;
  };
  constexpr int kBlock = 32;
  const double block_bits = bits("bits");
  q.weight_bits = static_cast<int>(block_bits);
  q.group_columns = kBlock;
  q.scale_bits = (block_bits - q.weight_bits) * kBlock;
  q.embedding_bits = bits("embedding_bits");
}

struct Method {
  const char* name;
  void (*read)(JsonReader& reader, WeightQuantisation& q);
};

constexpr std::array<Method, 6> kMethods = {{{"fp8", read_fp8},
                                             {"gptq", read_gptq},
                                             {"awq", read_awq},
                                             {"bitsandbytes", read_bitsandbytes},
                                             {"compressed-tensors", read_compressed_tensors},
                                             {"gguf", read_gguf}}};

}  // namespace

Result<WeightQuantisation> weight_quantisation_from_json(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  WeightQuantisation q;
  q.method = reader.string("quant_method");
  bool known = false;
  for (const Method& method : kMethods) {
    if (q.method != method.name) continue;
    known = true;
    method.read(reader, q);
  }
  if (!known) {
    reader.fail("quant_method", q.method, "\"fp8\", \"gptq\", \"awq\", \"bitsandbytes\", \"compressed-tensors\" or \"gguf\"");
  }
  WINDLASS_RETURN_IF_ERROR(reader.first_mistake());
  return q;
}

Result<void> validate(const WeightQuantisation& q) {
  const auto wrong = [](const char* field, double found, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be {} (got {})", field, allowed, found)};
  };
  if (q.weight_bits < 1 || q.weight_bits > 32) return wrong("weight bits", q.weight_bits, "from 1 to 32");
  if (q.group_rows < 0) return wrong("rows of a scale's group", q.group_rows, "at least 0");
  if (q.group_columns < 0) return wrong("columns of a scale's group", q.group_columns, "at least 0");
  if (!(q.scale_bits >= 0 && q.scale_bits <= 64)) return wrong("bits of a scale", q.scale_bits, "from 0 to 64");
  if (!(q.embedding_bits >= 0 && q.embedding_bits <= 32))
    return wrong("bits of the embedding", q.embedding_bits, "from 0 to 32");
  return {};
}

double quantised_bytes(const WeightQuantisation& q, std::int64_t rows, std::int64_t columns) {
  const auto groups = [](std::int64_t length, int size) { return size == 0 ? 1 : (length + size - 1) / size; };
  const double scales = static_cast<double>(groups(rows, q.group_rows)) * static_cast<double>(groups(columns, q.group_columns));
  return (static_cast<double>(rows) * static_cast<double>(columns) * q.weight_bits + scales * q.scale_bits) / 8;
}

}  // namespace windlass::planner
