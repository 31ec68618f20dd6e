// Gguf reads the header of a GGUF file: metadata by key and, for each tensor, its type, shape and the location of its bytes.
//
// Format (ggml's docs/gguf.md, versions 2 and 3, little-endian): magic, version, counts, key-value pairs, tensor descriptions,
// padding, data. Everything is checked against the bytes present. Errors name the file, the offset, the field, what was found
// and what is allowed. Memory use grows with the file, not with the sizes that it claims. Views point into the bytes, which
// must outlive them. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "planner/base/result.h"

namespace windlass {

// How a tensor stores its numbers: one by one, or in blocks that have their own scales. Values are ggml's ids.
enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kBf16 = 30,
};

struct GgmlTypeInfo {
  GgmlType type;
  const char* name;  // ggml's name: "Q4_K"
  int block_numbers;
  int block_bytes;
};
// Null for an unknown id.
[[nodiscard]] const GgmlTypeInfo* ggml_type_info(std::uint32_t id);
// "F32, F16, ..."
[[nodiscard]] std::string known_ggml_types();

using GgufStrings = std::vector<std::string_view>;
using GgufWholes = std::vector<std::int64_t>;  // elements above INT64_MAX become INT64_MAX
using GgufNumbers = std::vector<double>;
using GgufFlags = std::vector<bool>;
using GgufValue = std::variant<std::int64_t, double, bool, std::string_view, GgufStrings, GgufWholes, GgufNumbers, GgufFlags>;

struct GgufTensor {
  std::string_view name;
  std::uint32_t type = 0;            // a GgmlType, or an unknown id
  std::vector<std::int64_t> shape;   // rows first, as Hugging Face orders them; the file has the reverse order
  std::span<const std::byte> bytes;  // empty if the type is unknown
  std::uint64_t offset = 0;          // of the description, for error messages
};

class Gguf {
 public:
  // `file` is used only in messages.
  [[nodiscard]] static Result<Gguf> parse(std::span<const std::byte> bytes, std::string file);

  // Adds the tensors of another file of the same model. Error: a tensor of that name exists already.
  [[nodiscard]] Result<void> add_part(const Gguf& part);

  [[nodiscard]] const std::string& file() const { return file_; }  // the first file
  [[nodiscard]] const std::map<std::string_view, GgufValue>& metadata() const { return metadata_; }
  [[nodiscard]] const std::vector<GgufTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const GgufTensor* tensor(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view key) const { return metadata_.contains(key); }

  // Reads a field as one type; errors name the field, what was found and what is allowed.
  [[nodiscard]] Result<std::int64_t> whole(std::string_view key, std::int64_t low, std::int64_t high) const;
  [[nodiscard]] Result<double> number(std::string_view key) const;
  [[nodiscard]] Result<bool> flag(std::string_view key) const;
  [[nodiscard]] Result<std::string_view> text(std::string_view key) const;
  [[nodiscard]] Result<const GgufStrings*> texts(std::string_view key) const;
  [[nodiscard]] Result<const GgufWholes*> wholes(std::string_view key) const;
  [[nodiscard]] Result<const GgufNumbers*> numbers(std::string_view key) const;

  // "FILE: field 'KEY': must be ALLOWED (got FOUND)".
  [[nodiscard]] Error bad(std::string_view key, std::string_view found, std::string_view allowed) const;

 private:
  template <class T>
  [[nodiscard]] Result<const T*> value(std::string_view key, std::string_view allowed) const;

  std::string file_;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, std::size_t> by_name_;
};

// Describes a value for messages.
[[nodiscard]] std::string shown(const GgufValue& value);

}  // namespace windlass
