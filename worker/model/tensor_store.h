// TensorStore: a checkpoint's tensors in memory-mapped files, by Hugging Face name.
//
// A model is a folder with model.safetensors, or with shards listed in model.safetensors.index.json; or a GGUF file, whole or
// split. A TensorView points into the mapping and must not outlive its TensorStore. Any thread once open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "planner/base/gguf.h"
#include "planner/base/result.h"
#include "worker/model/mapped_file.h"

namespace windlass::worker {

struct TensorView {
  std::string name;
  std::string file;
  const GgmlTypeInfo* numbers = nullptr;  // null: a type that is not supported
  std::string dtype_name;                 // as in the file: "BF16"
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // little-endian, row-major
  // Rows per head in GGUF's Llama models, whose queries and keys store rotary pairs side by side, (0, 1) before (2, 3); Hugging
  // Face stores the first rows of all pairs before the second ones. 0: rows are in Hugging Face's order.
  std::int64_t rotary_pairs = 0;

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t columns() const;  // of a matrix; 1 for a vector, which has as many rows as elements
  // The position of row `row` in the file.
  [[nodiscard]] std::int64_t place_of_row(std::int64_t row) const;
  [[nodiscard]] bool is(GgmlType type) const { return numbers != nullptr && numbers->type == type; }
};

// "[256, 688]"
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

class TensorStore {
 public:
  // Errors: kNotFound (no weights in the folder, or a part is missing), kInvalidArgument (a file breaks the format).
  [[nodiscard]] static Result<TensorStore> open(const std::filesystem::path& model);

  TensorStore(TensorStore&&) noexcept;
  TensorStore& operator=(TensorStore&&) noexcept;
  ~TensorStore();

  // nullptr if there is no such tensor.
  [[nodiscard]] const TensorView* find(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  // Hash of the tensors' names, types and shapes and of sixteen samples of each tensor's bytes. Equal for equal weights, and
  // very likely different for others.
  [[nodiscard]] std::uint64_t fingerprint() const;
  // The file where weights are searched first; used in messages about missing tensors.
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  TensorStore();
  [[nodiscard]] Result<void> add_safetensors(const std::filesystem::path& path);
  void add(std::vector<TensorView> tensors);

  std::string file_;
  std::vector<std::unique_ptr<const MappedFile>> files_;
  std::map<std::string, TensorView> tensors_;
};

// Converts elements from `first` on to float, as many as `out` holds. REQUIRES: the tensor has them, in a supported type.
void copy_as_float(const TensorView& tensor, std::span<float> out, std::int64_t first = 0);

// Copies elements of a BF16 tensor bit for bit. REQUIRES: is(kBf16), and rotary_pairs is 0.
void copy_bf16(const TensorView& tensor, std::span<std::uint16_t> out, std::int64_t first);

}  // namespace windlass::worker
