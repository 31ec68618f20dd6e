// TensorStore: a checkpoint's tensors in memory-mapped files, found by Hugging Face's names.
//
// A model is a folder with model.safetensors, or with shards that model.safetensors.index.json lists; or a GGUF file, or all
// parts of one that is split. A TensorView points into the mapping and lives as long as its TensorStore. Any thread once open.
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
  const GgmlTypeInfo* numbers = nullptr;  // null: of a type that is not read
  std::string dtype_name;                 // as the file says: "BF16"
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // little-endian, row-major
  // GGUF's Llama models have the rows of queries and keys in pairs, (0, 1) before (2, 3), where Hugging Face has the first of
  // all pairs before the second ones: so many rows are one head's. 0: rows stand as here.
  std::int64_t rotary_pairs = 0;

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t columns() const;  // of a matrix; of a vector, which has as many rows as elements, 1
  // Where the file has row `row`.
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

  // nullptr when there is no such tensor.
  [[nodiscard]] const TensorView* find(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  // Of the tensors' names, types, shapes and sixteen pieces of the bytes of each: the same for the same weights, and hardly for
  // others.
  [[nodiscard]] std::uint64_t fingerprint() const;
  // The file where weights are looked for first: named when a tensor is missing.
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  TensorStore();
  [[nodiscard]] Result<void> add_safetensors(const std::filesystem::path& path);
  void add(std::vector<TensorView> tensors);

  std::string file_;
  std::vector<std::unique_ptr<const MappedFile>> files_;
  std::map<std::string, TensorView> tensors_;
};

// Converts the elements from `first` on to float, as many as `out` holds. REQUIRES: the tensor has them, of a type that is
// read.
void copy_as_float(const TensorView& tensor, std::span<float> out, std::int64_t first = 0);

// The same of a tensor in BF16, as it is. REQUIRES: is(kBf16), with rows as they are.
void copy_bf16(const TensorView& tensor, std::span<std::uint16_t> out, std::int64_t first);

}  // namespace windlass::worker
