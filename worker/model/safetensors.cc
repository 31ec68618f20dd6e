// Checks every offset against the file.
#include "worker/model/safetensors.h"

#include <bit>
#include <cstring>
#include <optional>

#include <fmt/core.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/shown_json.h"
#include "worker/model/files.h"
#include "worker/model/ggml_blocks.h"
#include "worker/model/json_input.h"

namespace windlass::worker {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

Error broken(const std::string& file, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, file + ": " + what};
}

// Null for a type that is not supported.
const GgmlTypeInfo* numbers_of(const std::string& dtype) {
  if (dtype == "F32") return &info_of(GgmlType::kF32);
  if (dtype == "F16") return &info_of(GgmlType::kF16);
  if (dtype == "BF16") return &info_of(GgmlType::kBf16);
  return nullptr;
}

// Bytes of a tensor of this shape, or nothing if the product exceeds 62 bits.
std::optional<std::int64_t> byte_count(const std::vector<std::int64_t>& shape, std::int64_t element_bytes) {
  std::int64_t count = element_bytes;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(count, extent, &count) || count > (1LL << 62)) return std::nullopt;
  }
  return count;
}

Result<TensorView> read_entry(const std::string& file, const std::string& name, const json& entry,
                              std::span<const std::byte> data) {
  const auto complain = [&](const std::string& what) { return broken(file, fmt::format("tensor '{}': {}", name, what)); };
  if (!entry.is_object() || !entry.contains("dtype") || !entry.at("dtype").is_string() || !entry.contains("shape") ||
      !entry.at("shape").is_array() || !entry.contains("data_offsets") || !entry.at("data_offsets").is_array() ||
      entry.at("data_offsets").size() != 2) {
    return complain("header entry must have dtype, shape and data_offsets [begin, end]");
  }
  TensorView view;
  view.name = name;
  view.file = file;
  view.dtype_name = entry.at("dtype").get<std::string>();
  view.numbers = numbers_of(view.dtype_name);
  for (const json& extent : entry.at("shape")) {
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > (1ULL << 40U)) {
      return complain(fmt::format("shape: must be whole numbers from 0 (got {})", entry.at("shape").dump()));
    }
    view.shape.push_back(extent.get<std::int64_t>());
  }
  const json& offsets = entry.at("data_offsets");
  if (!offsets.at(0).is_number_unsigned() || !offsets.at(1).is_number_unsigned()) {
    return complain(fmt::format("data_offsets: must be whole numbers from 0 (got {})", offsets.dump()));
  }
  const auto begin = offsets.at(0).get<std::uint64_t>();
  const auto end = offsets.at(1).get<std::uint64_t>();
  if (begin > end || end > data.size()) {
    return complain(
        fmt::format("data_offsets: must be within the file's {} bytes of data (got [{}, {}]); is the file truncated?",
                    data.size(), begin, end));
  }
  if (view.numbers != nullptr) {
    const auto expected = byte_count(view.shape, view.numbers->block_bytes);
    if (!expected || static_cast<std::uint64_t>(*expected) != end - begin) {
      return complain(fmt::format("data_offsets: must span {} bytes, for shape {} of {} (got {})", expected.value_or(-1),
                                  shape_text(view.shape), view.dtype_name, end - begin));
    }
  }
  view.bytes = data.subspan(begin, end - begin);
  return view;
}

std::uint64_t length_at(std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little, "the format and our reads are little-endian");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length;
}

}  // namespace

Result<std::vector<TensorView>> read_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < 8) return broken(file, fmt::format("size: must be at least 8 bytes (got {})", bytes.size()));
  const auto header_bytes = length_at(bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8) {
    return broken(file, fmt::format("header length: must be at most {}, the bytes that follow (got {}); is the file truncated?",
                                    bytes.size() - 8, header_bytes));
  }
  const auto parsed = parse_json({reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes});
  if (!parsed.ok()) return broken(file, "header: " + parsed.error().message);
  const json& header = *parsed;
  if (!header.is_object()) return broken(file, "header: must be a JSON object");
  std::vector<TensorView> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    WINDLASS_ASSIGN_OR_RETURN(TensorView view, read_entry(file, name, entry, bytes.subspan(8 + header_bytes)));
    tensors.push_back(std::move(view));
  }
  return tensors;
}

Result<std::set<std::string>> shards_of(const std::filesystem::path& index) {
  const std::string file = index.string();
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(index));
  const auto parsed = parse_json(text);
  if (!parsed.ok()) return parsed.error().within(file);
  std::set<std::string> shards;
  try {
    const json& map = parsed->at("weight_map");
    if (!map.is_object())
      return broken(file, fmt::format("weight_map: must be an object of tensors and their files (got {})", shown(map)));
    for (const auto& [tensor, shard] : map.items()) {
      const auto name = shard.get<std::string>();
      if (name.find('/') != std::string::npos) {
        return broken(file, fmt::format("weight_map['{}']: must be a file name in the same folder (got '{}')", tensor, name));
      }
      shards.insert(name);
    }
  } catch (const json::exception& e) {
    return broken(file, fmt::format("must be an index with a weight_map of strings: {}", e.what()));
  }
  return shards;
}

}  // namespace windlass::worker
