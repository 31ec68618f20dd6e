// Writes GGUF files by hand: fields and tensors in the given order, with any error that a test needs.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/base/gguf.h"

namespace windlass::worker::testing {

// Little-endian, like this machine.
template <class T>
void append_raw(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline void append_text(std::string& to, std::string_view text) {
  append_raw<std::uint64_t>(to, text.size());
  to += text;
}

class GgufWriter {
 public:
  GgufWriter& text(std::string_view key, std::string_view value) {
    begin(key, 8);
    append_text(fields_, value);
    return *this;
  }
  GgufWriter& whole(std::string_view key, std::uint32_t value) {
    begin(key, 4);
    append_raw(fields_, value);
    return *this;
  }
  GgufWriter& number(std::string_view key, float value) {
    begin(key, 6);
    append_raw(fields_, value);
    return *this;
  }
  GgufWriter& flag(std::string_view key, bool value) {
    begin(key, 7);
    append_raw<std::uint8_t>(fields_, value ? 1 : 0);
    return *this;
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& values) {
    begin_list(key, 8, values.size());
    for (const std::string& value : values) append_text(fields_, value);
    return *this;
  }
  template <class T>
  GgufWriter& list(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    begin_list(key, type, values.size());
    for (const T value : values) append_raw(fields_, value);
    return *this;
  }
  GgufWriter& wholes(std::string_view key, const std::vector<std::int32_t>& values) { return list(key, 5, values); }
  GgufWriter& numbers(std::string_view key, const std::vector<float>& values) { return list(key, 6, values); }
  // A field of any type and bytes.
  GgufWriter& raw(std::string_view key, std::uint32_t type, std::string_view bytes) {
    begin(key, type);
    fields_ += bytes;
    return *this;
  }

  // `shape`: rows first, as in Hugging Face's format.
  GgufWriter& tensor(std::string_view name, std::uint32_t type, const std::vector<std::int64_t>& shape,
                     std::string_view bytes) {
    append_text(tensors_, name);
    append_raw(tensors_, static_cast<std::uint32_t>(shape.size()));
    for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent)
      append_raw(tensors_, static_cast<std::uint64_t>(*extent));
    append_raw(tensors_, type);
    append_raw<std::uint64_t>(tensors_, data_.size());
    data_ += bytes;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensor_count_;
    return *this;
  }
  GgufWriter& tensor(std::string_view name, GgmlType type, const std::vector<std::int64_t>& shape, std::string_view bytes) {
    return tensor(name, static_cast<std::uint32_t>(type), shape, bytes);
  }
  GgufWriter& floats(std::string_view name, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    return tensor(name, GgmlType::kF32, shape, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  [[nodiscard]] std::string bytes(std::uint32_t version = 3) const {
    std::string out = "GGUF";
    append_raw(out, version);
    append_raw<std::uint64_t>(out, tensor_count_);
    append_raw<std::uint64_t>(out, field_count_);
    out += fields_ + tensors_;
    out.resize((out.size() + 31) / 32 * 32);
    return out + data_;
  }

 private:
  void begin(std::string_view key, std::uint32_t type) {
    append_text(fields_, key);
    append_raw(fields_, type);
    ++field_count_;
  }
  void begin_list(std::string_view key, std::uint32_t type, std::size_t count) {
    begin(key, 9);
    append_raw(fields_, type);
    append_raw<std::uint64_t>(fields_, count);
  }

  std::string fields_, tensors_, data_;
  std::uint64_t field_count_ = 0, tensor_count_ = 0;
};

inline std::span<const std::byte> as_span(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace windlass::worker::testing
