// Mapping, header checks and number formats.
#include "worker/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "planner/base/fnv.h"
#include "worker/model/files.h"
#include "worker/model/json_input.h"
#include "worker/model/shown.h"

namespace windlass::worker {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

Error broken(const std::string& file, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, file + ": " + what};
}

Dtype dtype_of(const std::string& name) {
  if (name == "F32") return Dtype::kF32;
  if (name == "F16") return Dtype::kF16;
  if (name == "BF16") return Dtype::kBf16;
  return Dtype::kOther;
}

std::int64_t dtype_bytes(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }

// Bytes of a tensor of this shape, or nothing when the product leaves 62 bits.
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
  view.dtype = dtype_of(view.dtype_name);
  for (const json& extent : entry.at("shape")) {
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > (1ULL << 40U)) {
      return complain(fmt::format("shape: found {}, allowed are whole numbers from 0", entry.at("shape").dump()));
    }
    view.shape.push_back(extent.get<std::int64_t>());
  }
  const json& offsets = entry.at("data_offsets");
  if (!offsets.at(0).is_number_unsigned() || !offsets.at(1).is_number_unsigned()) {
    return complain(fmt::format("data_offsets: found {}, allowed are whole numbers from 0", offsets.dump()));
  }
  const auto begin = offsets.at(0).get<std::uint64_t>();
  const auto end = offsets.at(1).get<std::uint64_t>();
  if (begin > end || end > data.size()) {
    return complain(
        fmt::format("data_offsets: found [{}, {}], allowed is within the file's {} bytes of data (is it truncated?)", begin,
                    end, data.size()));
  }
  if (view.dtype != Dtype::kOther) {
    const auto expected = byte_count(view.shape, dtype_bytes(view.dtype));
    if (!expected || static_cast<std::uint64_t>(*expected) != end - begin) {
      return complain(fmt::format("data_offsets: found {} bytes, expected {} for shape {} of {}", end - begin,
                                  expected.value_or(-1), shape_text(view.shape), view.dtype_name));
    }
  }
  view.bytes = data.subspan(begin, end - begin);
  return view;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace

std::int64_t TensorView::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// One read-only mapping of a whole file.
class TensorStore::Mapping {
 public:
  static Result<std::unique_ptr<Mapping>> open(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
                   fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(errno))};
    }
    auto mapped = map(fd, path.string());
    ::close(fd);
    return mapped;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(memory_, size_); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(memory_), size_}; }

 private:
  static Result<std::unique_ptr<Mapping>> map(int fd, const std::string& file) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return broken(file, fmt::format("cannot be looked at: {}", std::strerror(errno)));
    if (!S_ISREG(info.st_mode)) return broken(file, S_ISDIR(info.st_mode) ? "is a folder" : "is not a regular file");
    if (info.st_size == 0) return broken(file, "is empty");
    const auto size = static_cast<std::size_t>(info.st_size);
    void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory != MAP_FAILED) return std::unique_ptr<Mapping>(new Mapping(memory, size));
    const int failure = errno;
    return Error{failure == ENOMEM ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidArgument,
                 fmt::format("{}: {} bytes cannot be mapped: {}{}", file, size, std::strerror(failure),
                             failure == ENOMEM ? " (is the address space limited? see ulimit -v)" : "")};
  }

  Mapping(void* memory, std::size_t size) : memory_(memory), size_(size) {}
  void* memory_;
  std::size_t size_;
};

TensorStore::TensorStore() = default;
TensorStore::TensorStore(TensorStore&&) noexcept = default;
TensorStore& TensorStore::operator=(TensorStore&&) noexcept = default;
TensorStore::~TensorStore() = default;

Result<void> TensorStore::add_file(const std::filesystem::path& path) {
  const std::string file = path.string();
  WINDLASS_ASSIGN_OR_RETURN(auto mapping, Mapping::open(path));
  const auto bytes = mapping->bytes();
  if (bytes.size() < 8) return broken(file, fmt::format("found {} bytes, a safetensors file has at least 8", bytes.size()));
  static_assert(std::endian::native == std::endian::little, "the format and our reads are little-endian");
  const auto header_bytes = load<std::uint64_t>(bytes.data());
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8) {
    return broken(file, fmt::format("header length: found {}, allowed is at most the {} bytes that follow (is it truncated?)",
                                    header_bytes, bytes.size() - 8));
  }
  const auto parsed = parse_json({reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes});
  if (!parsed.ok()) return broken(file, "header: " + parsed.error().message);
  const json& header = *parsed;
  if (!header.is_object()) return broken(file, "header is not a JSON object");
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    WINDLASS_ASSIGN_OR_RETURN(TensorView view, read_entry(file, name, entry, bytes.subspan(8 + header_bytes)));
    tensors_.insert_or_assign(name, std::move(view));
  }
  mappings_.push_back(std::move(mapping));
  return {};
}

Result<TensorStore> TensorStore::open(const std::filesystem::path& folder) {
  TensorStore store;
  const auto index_path = folder / "model.safetensors.index.json";
  const auto single_path = folder / "model.safetensors";
  std::error_code failure;
  if (std::filesystem::exists(single_path, failure) || !std::filesystem::exists(index_path, failure)) {
    store.file_ = single_path.string();
    WINDLASS_RETURN_IF_ERROR(store.add_file(single_path));
    return store;
  }
  store.file_ = index_path.string();
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(index_path));
  const auto index = parse_json(text);
  if (!index.ok()) return index.error().within(store.file_);
  std::set<std::string> shards;
  try {
    const json& map = index->at("weight_map");
    if (!map.is_object())
      return broken(store.file_,
                    fmt::format("weight_map: found {}, allowed is an object of tensors and their files", shown(map)));
    for (const auto& [tensor, shard] : map.items()) {
      const auto name = shard.get<std::string>();
      if (name.find('/') != std::string::npos) {
        return broken(store.file_,
                      fmt::format("weight_map['{}']: found '{}', allowed is a file name in the same folder", tensor, name));
      }
      shards.insert(name);
    }
  } catch (const json::exception& e) {
    return broken(store.file_, fmt::format("not an index with a weight_map of strings: {}", e.what()));
  }
  for (const std::string& shard : shards) {
    if (const auto added = store.add_file(folder / shard); !added.ok()) return added.error().within(store.file_);
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
    hash.mix(name.data(), name.size() + 1);  // with its end, so that names do not run into one another
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
  assert(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tensor.elements());
  const std::byte* from = tensor.bytes.data() + first * (tensor.dtype == Dtype::kF32 ? 4 : 2);
  switch (tensor.dtype) {
    case Dtype::kF32: std::memcpy(out.data(), from, out.size() * sizeof(float)); return;
    case Dtype::kF16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = float_from_f16(load<std::uint16_t>(from + 2 * i));
      return;
    case Dtype::kBf16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = float_from_bf16(load<std::uint16_t>(from + 2 * i));
      return;
    case Dtype::kOther: break;
  }
  assert(false && "copy_as_float: dtype must be checked by the caller");
}

void copy_bf16(const TensorView& tensor, std::span<std::uint16_t> out, std::int64_t first) {
  assert(tensor.dtype == Dtype::kBf16 && first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tensor.elements());
  std::memcpy(out.data(), tensor.bytes.data() + 2 * first, 2 * out.size());
}

float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13U));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
  // Subnormal: mantissa * 2^-24, exact in a float.
  const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

float float_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);  // keep a NaN a NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

}  // namespace windlass::worker
