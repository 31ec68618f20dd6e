// Safetensors: weights in memory-mapped files, found by name.
//
// Format: 8 bytes of little-endian header length N, N bytes of JSON {name: {dtype, shape, data_offsets}}, then the data. All
// that the header says is checked against the file before anything is read. A folder holds model.safetensors, or shards listed
// in model.safetensors.index.json. A TensorView points into the mapping and lives as long as its TensorStore. Any thread once
// open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

enum class Dtype { kF32, kF16, kBf16, kOther };

struct TensorView {
  std::string name;
  std::string file;
  Dtype dtype = Dtype::kOther;
  std::string dtype_name;  // as the file says: "BF16"
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // little-endian, row-major

  [[nodiscard]] std::int64_t elements() const;
};

// "[256, 688]"
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

class TensorStore {
 public:
  // Errors: kNotFound (no weights in the folder, or a shard is missing), kInvalidArgument (a file breaks the format).
  [[nodiscard]] static Result<TensorStore> open(const std::filesystem::path& folder);

  TensorStore(TensorStore&&) noexcept;
  TensorStore& operator=(TensorStore&&) noexcept;
  ~TensorStore();

  // nullptr when there is no such tensor.
  [[nodiscard]] const TensorView* find(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  // Of the tensors' names, types, shapes and sixteen pieces of the bytes of each: the same for the same weights, and hardly for
  // others.
  [[nodiscard]] std::uint64_t fingerprint() const;
  // The file where weights are looked for first: named when a tensor is missing.
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  class Mapping;
  TensorStore();
  [[nodiscard]] Result<void> add_file(const std::filesystem::path& path);

  std::string file_;
  std::vector<std::unique_ptr<Mapping>> mappings_;
  std::map<std::string, TensorView> tensors_;
};

// Converts the elements from `first` on to float, as many as `out` holds. REQUIRES: the tensor has them, dtype is not kOther.
void copy_as_float(const TensorView& tensor, std::span<float> out, std::int64_t first = 0);

// The same of a tensor in BF16, as it is. REQUIRES: dtype is kBf16.
void copy_bf16(const TensorView& tensor, std::span<std::uint16_t> out, std::int64_t first);

[[nodiscard]] float float_from_f16(std::uint16_t bits);
[[nodiscard]] float float_from_bf16(std::uint16_t bits);
// Round to nearest, ties to even.
[[nodiscard]] std::uint16_t bf16_from_float(float value);

}  // namespace windlass::worker
