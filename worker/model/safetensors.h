// Safetensors: what the header of a file says, and which files an index names.
//
// Format: 8 bytes of little-endian header length N, N bytes of JSON {name: {dtype, shape, data_offsets}}, then the data. All
// that the header says is checked against the file before anything is read. Pure but for reading the index; any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "worker/model/tensor_store.h"

namespace windlass::worker {

// The tensors of a file's bytes. `file` is only named, in messages and in the views. Error: kInvalidArgument.
[[nodiscard]] Result<std::vector<TensorView>> read_safetensors(std::span<const std::byte> bytes, const std::string& file);

// The names of the files in a model.safetensors.index.json.
[[nodiscard]] Result<std::set<std::string>> shards_of(const std::filesystem::path& index);

}  // namespace windlass::worker
