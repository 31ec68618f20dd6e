// Safetensors: reads a file's header, and the file names in an index.
//
// Format: 8 bytes of little-endian header length N, N bytes of JSON {name: {dtype, shape, data_offsets}}, then the data. The
// whole header is checked against the file before any data is read. Pure except for reading the index; any thread.
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

// The tensors in a file's bytes. `file`: name for messages and views. Error: kInvalidArgument.
[[nodiscard]] Result<std::vector<TensorView>> read_safetensors(std::span<const std::byte> bytes, const std::string& file);

// The names of the files in a model.safetensors.index.json.
[[nodiscard]] Result<std::set<std::string>> shards_of(const std::filesystem::path& index);

}  // namespace windlass::worker
