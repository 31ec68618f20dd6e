// Parses a GGUF header with a cursor that never passes the end of the bytes.
#include "planner/base/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "planner/base/foreign_text.h"

namespace windlass {
namespace {

static_assert(std::endian::native == std::endian::little, "the format and our reads are little-endian");

constexpr GgmlTypeInfo kTypes[] = {
    {GgmlType::kF32, "F32", 1, 4},      {GgmlType::kF16, "F16", 1, 2},      {GgmlType::kBf16, "BF16", 1, 2},
    {GgmlType::kQ4_0, "Q4_0", 32, 18},  {GgmlType::kQ4_1, "Q4_1", 32, 20},  {GgmlType::kQ5_0, "Q5_0", 32, 22},
    {GgmlType::kQ5_1, "Q5_1", 32, 24},  {GgmlType::kQ8_0, "Q8_0", 32, 34},  {GgmlType::kQ4K, "Q4_K", 256, 144},
    {GgmlType::kQ5K, "Q5_K", 256, 176}, {GgmlType::kQ6K, "Q6_K", 256, 210},
};

enum ValueType : std::uint32_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

constexpr std::uint64_t kMaxKeyBytes = 65535;  // limit of the format
constexpr std::uint64_t kMaxNameBytes = 1024;
constexpr std::uint32_t kMaxDimensions = 4;  // limit of ggml
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = 1U << 20U;

// The smallest number of bytes that a value of this type takes.
std::uint64_t least_bytes(std::uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool: return 1;
    case kUint16:
    case kInt16: return 2;
    case kUint32:
    case kInt32:
    case kFloat32: return 4;
    default: return 8;  // the length field of a string
  }
}

// After an error every further read returns nothing, so the caller checks once at the end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  [[nodiscard]] std::uint64_t at() const { return at_; }
  [[nodiscard]] std::uint64_t left() const { return bytes_.size() - at_; }
  [[nodiscard]] bool ok() const { return error_.empty(); }
  [[nodiscard]] Error error() const { return {ErrorCode::kInvalidArgument, error_}; }

  template <class T>
  T read(std::string_view what) {
    T value{};
    if (!take(sizeof(T), what)) return value;
    std::memcpy(&value, bytes_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }

  std::string_view text(std::string_view what, std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    const std::uint64_t began = at_;
    const auto length = read<std::uint64_t>(what);
    if (!ok()) return {};
    if (length > most || length > left()) {
      fail(began, what, fmt::format("a length of {}", length),
           fmt::format("at most {} bytes (is the file cut off?)", std::min(most, left())));
      return {};
    }
    at_ += length;
    return {reinterpret_cast<const char*>(bytes_.data()) + at_ - length, length};
  }

  void fail(std::uint64_t offset, std::string_view what, std::string_view found, std::string_view allowed) {
    if (error_.empty()) {
      error_ = fmt::format("{}: offset {}: {}: must be {} (got {})", file_, offset, what, allowed, found);
    }
  }

 private:
  bool take(std::uint64_t count, std::string_view what) {
    if (!ok()) return false;
    if (count > left()) {
      fail(at_, what, fmt::format("the end of the file after {} bytes", left()), fmt::format("{} bytes", count));
      return false;
    }
    at_ += count;
    return true;
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::uint64_t at_ = 0;
  std::string error_;
};

std::int64_t clamped(std::uint64_t value) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::int64_t>::max()));
}

bool is_whole(std::uint32_t type) { return type <= kInt32 || type == kUint64 || type == kInt64; }

std::int64_t read_whole(Cursor& cursor, std::uint32_t type, std::string_view what) {
  switch (type) {
    case kUint8: return cursor.read<std::uint8_t>(what);
    case kInt8: return cursor.read<std::int8_t>(what);
    case kUint16: return cursor.read<std::uint16_t>(what);
    case kInt16: return cursor.read<std::int16_t>(what);
    case kUint32: return cursor.read<std::uint32_t>(what);
    case kInt32: return cursor.read<std::int32_t>(what);
    case kUint64: return clamped(cursor.read<std::uint64_t>(what));
    default: return cursor.read<std::int64_t>(what);
  }
}

double read_number(Cursor& cursor, std::uint32_t type, std::string_view what) {
  return type == kFloat32 ? static_cast<double>(cursor.read<float>(what)) : cursor.read<double>(what);
}

bool read_flag(Cursor& cursor, std::string_view what) {
  const std::uint64_t began = cursor.at();
  const auto byte = cursor.read<std::uint8_t>(what);
  if (byte > 1) cursor.fail(began, what, fmt::format("{}", byte), "0 or 1");
  return byte == 1;
}

template <class T, class Read>
std::vector<T> read_list(std::uint64_t count, const Cursor& cursor, Read read) {
  std::vector<T> list;
  list.reserve(count);
  for (std::uint64_t i = 0; i < count && cursor.ok(); ++i) list.push_back(read());
  return list;
}

GgufValue read_array(Cursor& cursor, std::string_view what) {
  const std::uint64_t began = cursor.at();
  const auto type = cursor.read<std::uint32_t>(what);
  const auto count = cursor.read<std::uint64_t>(what);
  if (!cursor.ok()) return {};
  if (type == kArray || type > kFloat64) {
    cursor.fail(began, what, fmt::format("elements of type {}", type), "numbers, flags or strings");
    return {};
  }
  if (count > cursor.left() / least_bytes(type)) {
    cursor.fail(began, what, fmt::format("{} elements", count),
                fmt::format("at most {}, the number that fits into the rest", cursor.left() / least_bytes(type)));
    return {};
  }
  if (type == kString) return read_list<std::string_view>(count, cursor, [&] { return cursor.text(what); });
  if (type == kBool) return read_list<bool>(count, cursor, [&] { return read_flag(cursor, what); });
  if (is_whole(type)) return read_list<std::int64_t>(count, cursor, [&] { return read_whole(cursor, type, what); });
  return read_list<double>(count, cursor, [&] { return read_number(cursor, type, what); });
}

GgufValue read_value(Cursor& cursor, std::string_view what) {
  const std::uint64_t began = cursor.at();
  const auto type = cursor.read<std::uint32_t>(what);
  if (!cursor.ok()) return {};
  if (type > kFloat64) {
    cursor.fail(began, what, fmt::format("type {}", type), "0 to 12");
    return {};
  }
  if (type == kString) return cursor.text(what);
  if (type == kArray) return read_array(cursor, what);
  if (type == kBool) return read_flag(cursor, what);
  if (is_whole(type)) return read_whole(cursor, type, what);
  return read_number(cursor, type, what);
}

// A tensor description. Its bytes are located later, when the start of the data is known.
struct Described {
  GgufTensor tensor;
  std::uint64_t data_offset = 0;
};

Described read_tensor(Cursor& cursor) {
  Described described;
  GgufTensor& tensor = described.tensor;
  tensor.offset = cursor.at();
  tensor.name = cursor.text("a tensor's name", kMaxNameBytes);
  const std::string what = fmt::format("tensor '{}'", shown_text(tensor.name));
  const std::uint64_t began = cursor.at();
  const auto dimensions = cursor.read<std::uint32_t>(what);
  if (!cursor.ok()) return described;
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    cursor.fail(began, what, fmt::format("{} dimensions", dimensions), fmt::format("1 to {}", kMaxDimensions));
    return described;
  }
  std::int64_t numbers = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const std::uint64_t extent_at = cursor.at();
    const auto extent = cursor.read<std::uint64_t>(what);
    if (extent < 1 || extent > (1ULL << 40U) || __builtin_mul_overflow(numbers, static_cast<std::int64_t>(extent), &numbers) ||
        numbers > (1LL << 56U)) {
      cursor.fail(extent_at, what, fmt::format("an extent of {}", extent), "1 to 2^40, and 2^56 numbers in all");
      return described;
    }
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  tensor.type = cursor.read<std::uint32_t>(what);
  described.data_offset = cursor.read<std::uint64_t>(what);
  return described;
}

// Size of a tensor in bytes; 0 if the type is unknown. Error: its shape does not fit the type's blocks.
Result<std::uint64_t> bytes_of(const GgufTensor& tensor, const std::string& file) {
  const GgmlTypeInfo* info = ggml_type_info(tensor.type);
  if (info == nullptr) return std::uint64_t{0};
  std::int64_t numbers = 1;
  for (const std::int64_t extent : tensor.shape) numbers *= extent;
  if (tensor.shape.back() % info->block_numbers != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: offset {}: tensor '{}': numbers per row must be a multiple of {} for {} (got {})", file,
                             tensor.offset, shown_text(tensor.name), info->block_numbers, info->name, tensor.shape.back())};
  }
  return static_cast<std::uint64_t>(numbers / info->block_numbers) * static_cast<std::uint64_t>(info->block_bytes);
}

}  // namespace

const GgmlTypeInfo* ggml_type_info(std::uint32_t id) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const GgmlTypeInfo& each) { return static_cast<std::uint32_t>(each.type) == id; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string known_ggml_types() {
  std::string names;
  for (const GgmlTypeInfo& each : kTypes) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
  return names;
}

Result<Gguf> Gguf::parse(std::span<const std::byte> bytes, std::string file) {
  Gguf gguf;
  gguf.file_ = std::move(file);
  Cursor cursor(bytes, gguf.file_);
  const auto magic = cursor.read<std::uint32_t>("magic");
  constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
  if (cursor.ok() && magic != kMagic) cursor.fail(0, "magic", fmt::format("0x{:08x}", magic), "\"GGUF\"");
  const auto version = cursor.read<std::uint32_t>("version");
  if (cursor.ok() && version != 2 && version != 3) {
    const bool swapped = version != 0 && (version & 0xFFFFU) == 0;
    cursor.fail(4, "version", swapped ? std::string("a file of big-endian numbers") : fmt::format("{}", version), "2 or 3");
  }
  const auto tensor_count = cursor.read<std::uint64_t>("number of tensors");
  const auto field_count = cursor.read<std::uint64_t>("number of fields");
  for (std::uint64_t i = 0; i < field_count && cursor.ok(); ++i) {
    const std::uint64_t began = cursor.at();
    const std::string_view key = cursor.text("a field's key", kMaxKeyBytes);
    const std::string what = fmt::format("field '{}'", shown_text(key));
    GgufValue value = read_value(cursor, what);
    if (cursor.ok() && !gguf.metadata_.emplace(key, std::move(value)).second) {
      cursor.fail(began, what, "a second one", "unique");
    }
  }
  std::vector<Described> described;
  for (std::uint64_t i = 0; i < tensor_count && cursor.ok(); ++i) described.push_back(read_tensor(cursor));
  if (!cursor.ok()) return cursor.error();

  std::uint64_t alignment = kDefaultAlignment;
  if (gguf.has("general.alignment")) {
    WINDLASS_ASSIGN_OR_RETURN(const std::int64_t given, gguf.whole("general.alignment", 1, kMaxAlignment));
    alignment = static_cast<std::uint64_t>(given);
  }
  const std::uint64_t data_at = std::min<std::uint64_t>((cursor.at() + alignment - 1) / alignment * alignment, bytes.size());
  const auto data = bytes.subspan(data_at);
  gguf.tensors_.reserve(described.size());
  for (auto& [tensor, offset] : described) {
    WINDLASS_ASSIGN_OR_RETURN(const std::uint64_t size, bytes_of(tensor, gguf.file_));
    const auto complain = [&, &of = tensor](std::string_view found, std::string_view allowed) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}: offset {}: tensor '{}': must be {} (got {})", gguf.file_,
                                                            of.offset, shown_text(of.name), allowed, found)};
    };
    if (offset % alignment != 0) {
      return complain(fmt::format("data at {}", offset), fmt::format("a multiple of {}", alignment));
    }
    if (offset > data.size() || size > data.size() - offset) {
      return complain(fmt::format("{} bytes of data at {}", size, offset),
                      fmt::format("within the {} bytes of data (is the file cut off?)", data.size()));
    }
    tensor.bytes = data.subspan(offset, size);
    if (!gguf.by_name_.emplace(tensor.name, gguf.tensors_.size()).second) return complain("a second one", "unique");
    gguf.tensors_.push_back(std::move(tensor));
  }
  return gguf;
}

Result<void> Gguf::add_part(const Gguf& part) {
  for (const GgufTensor& tensor : part.tensors_) {
    if (!by_name_.emplace(tensor.name, tensors_.size()).second) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{}: tensor '{}': must be in one file only (got it in {} too)",
                                                            part.file_, shown_text(tensor.name), file_)};
    }
    tensors_.push_back(tensor);
  }
  return {};
}

const GgufTensor* Gguf::tensor(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Error Gguf::bad(std::string_view key, std::string_view found, std::string_view allowed) const {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}: field '{}': must be {} (got {})", file_, shown_text(key), allowed, found)};
}

template <class T>
Result<const T*> Gguf::value(std::string_view key, std::string_view allowed) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return bad(key, "nothing", allowed);
  const T* typed = std::get_if<T>(&found->second);
  if (typed == nullptr) return bad(key, shown(found->second), allowed);
  return typed;
}

Result<std::int64_t> Gguf::whole(std::string_view key, std::int64_t low, std::int64_t high) const {
  const std::string allowed = fmt::format("a whole number from {} to {}", low, high);
  WINDLASS_ASSIGN_OR_RETURN(const std::int64_t* const found, value<std::int64_t>(key, allowed));
  if (*found < low || *found > high) return bad(key, fmt::format("{}", *found), allowed);
  return *found;
}

Result<double> Gguf::number(std::string_view key) const {
  WINDLASS_ASSIGN_OR_RETURN(const double* const found, value<double>(key, "a number"));
  if (!std::isfinite(*found)) return bad(key, fmt::format("{}", *found), "a finite number");
  return *found;
}

Result<bool> Gguf::flag(std::string_view key) const {
  WINDLASS_ASSIGN_OR_RETURN(const bool* const found, value<bool>(key, "true or false"));
  return *found;
}

Result<std::string_view> Gguf::text(std::string_view key) const {
  WINDLASS_ASSIGN_OR_RETURN(const std::string_view* const found, value<std::string_view>(key, "a string"));
  return *found;
}

Result<const GgufStrings*> Gguf::texts(std::string_view key) const { return value<GgufStrings>(key, "a list of strings"); }
Result<const GgufWholes*> Gguf::wholes(std::string_view key) const { return value<GgufWholes>(key, "a list of whole numbers"); }
Result<const GgufNumbers*> Gguf::numbers(std::string_view key) const { return value<GgufNumbers>(key, "a list of numbers"); }

std::string shown(const GgufValue& value) {
  struct Visitor {
    std::string operator()(std::int64_t one) const { return fmt::format("{}", one); }
    std::string operator()(double one) const { return fmt::format("{}", one); }
    std::string operator()(bool one) const { return one ? "true" : "false"; }
    std::string operator()(std::string_view one) const { return fmt::format("'{}'", shown_text(one)); }
    std::string operator()(const GgufStrings& list) const { return fmt::format("a list of {} strings", list.size()); }
    std::string operator()(const GgufWholes& list) const { return fmt::format("a list of {} whole numbers", list.size()); }
    std::string operator()(const GgufNumbers& list) const { return fmt::format("a list of {} numbers", list.size()); }
    std::string operator()(const GgufFlags& list) const { return fmt::format("a list of {} flags", list.size()); }
  };
  return std::visit(Visitor{}, value);
}

}  // namespace windlass
