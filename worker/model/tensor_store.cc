// Maps files to tensor views, and converts views to floats.
#include "worker/model/tensor_store.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <fmt/format.h>

#include "planner/base/fnv.h"
#include "worker/model/ggml_blocks.h"
#include "worker/model/gguf_model.h"
#include "worker/model/safetensors.h"

namespace windlass::worker {

std::int64_t TensorView::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::int64_t TensorView::columns() const { return shape.size() < 2 ? 1 : elements() / shape.front(); }

std::int64_t TensorView::place_of_row(std::int64_t row) const {
  if (rotary_pairs == 0) return row;
  const std::int64_t half = rotary_pairs / 2, of_head = row % rotary_pairs;
  return row - of_head + 2 * (of_head % half) + of_head / half;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

TensorStore::TensorStore() = default;
TensorStore::TensorStore(TensorStore&&) noexcept = default;
TensorStore& TensorStore::operator=(TensorStore&&) noexcept = default;
TensorStore::~TensorStore() = default;

Result<void> TensorStore::add_safetensors(const std::filesystem::path& path) {
  WINDLASS_ASSIGN_OR_RETURN(auto mapped, MappedFile::open(path));
  WINDLASS_ASSIGN_OR_RETURN(std::vector<TensorView> tensors, read_safetensors(mapped->bytes(), path.string()));
  add(std::move(tensors));
  files_.push_back(std::move(mapped));
  return {};
}

void TensorStore::add(std::vector<TensorView> tensors) {
  for (TensorView& tensor : tensors) {
    std::string name = tensor.name;
    tensors_.insert_or_assign(std::move(name), std::move(tensor));
  }
}

Result<TensorStore> TensorStore::open(const std::filesystem::path& model) {
  TensorStore store;
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<std::filesystem::path> parts, gguf_files_of(model));
  if (!parts.empty()) {
    store.file_ = parts.front().string();
    WINDLASS_ASSIGN_OR_RETURN(GgufModel gguf, GgufModel::open(parts));
    WINDLASS_ASSIGN_OR_RETURN(std::vector<TensorView> tensors, tensors_of(gguf.gguf));
    store.add(std::move(tensors));
    store.files_ = std::move(gguf.files);
    return store;
  }
  const auto index = model / "model.safetensors.index.json";
  const auto single = model / "model.safetensors";
  std::error_code failure;
  if (std::filesystem::exists(single, failure) || !std::filesystem::exists(index, failure)) {
    store.file_ = single.string();
    WINDLASS_RETURN_IF_ERROR(store.add_safetensors(single));
    return store;
  }
  store.file_ = index.string();
  WINDLASS_ASSIGN_OR_RETURN(const std::set<std::string> shards, shards_of(index));
  for (const std::string& shard : shards) {
    if (const auto added = store.add_safetensors(model / shard); !added.ok()) return added.error().within(store.file_);
  }
  return store;
}

const TensorView* TensorStore::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::uint64_t TensorStore::fingerprint() const {
  constexpr std::size_t kPieces = 16;
  constexpr std::size_t kPieceBytes = 64;
  Fnv1a hash;
  for (const auto& [name, tensor] : tensors_) {
    hash.mix(name.data(), name.size() + 1);  // including the terminator, so that adjacent names do not merge
    hash.mix(tensor.dtype_name.data(), tensor.dtype_name.size() + 1);
    hash.mix(tensor.shape.data(), tensor.shape.size() * sizeof(std::int64_t));
    for (std::size_t piece = 0; piece < kPieces; ++piece) {
      const std::size_t at = tensor.bytes.size() / kPieces * piece;
      hash.mix(tensor.bytes.data() + at, std::min(kPieceBytes, tensor.bytes.size() - at));
    }
  }
  return hash.value();
}

void copy_as_float(const TensorView& tensor, std::span<float> out, std::int64_t first) {
  assert(tensor.numbers != nullptr && first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tensor.elements());
  const std::int64_t columns = tensor.columns();
  while (!out.empty()) {
    const std::int64_t row = first / columns, column = first % columns;
    // Rows in the right order are converted all together.
    const std::int64_t count = tensor.rotary_pairs == 0 ? static_cast<std::int64_t>(out.size())
                                                        : std::min<std::int64_t>(columns - column, std::ssize(out));
    floats_of_blocks(*tensor.numbers, tensor.bytes, tensor.place_of_row(row) * columns + column,
                     out.first(static_cast<std::size_t>(count)));
    out = out.subspan(static_cast<std::size_t>(count));
    first += count;
  }
}

void copy_bf16(const TensorView& tensor, std::span<std::uint16_t> out, std::int64_t first) {
  assert(tensor.is(GgmlType::kBf16) && tensor.rotary_pairs == 0);
  assert(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tensor.elements());
  std::memcpy(out.data(), tensor.bytes.data() + 2 * first, 2 * out.size());
}

}  // namespace windlass::worker
