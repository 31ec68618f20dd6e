// Reads and decompresses files; see text_file.h.
#include "controller/cli/console/text_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <zlib.h>

namespace windlass::cli {
namespace {

constexpr std::size_t kMaxUnpacked = std::size_t{1} << 30;

}  // namespace

Result<std::string> read_text_file(const std::string& path, const std::string& what) {
  const auto refused = [&](const std::string& why) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: must be {} (cannot be read: {})", path, what, why)};
  };
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return refused("it is a folder");
  std::ifstream in(path, std::ios::binary);
  if (!in) return refused(std::strerror(errno));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Result<std::string> unpacked(std::string text, const std::string& path) {
  if (!text.starts_with("\x1f\x8b")) return text;
  const auto broken = [&](const char* why) { return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, why)}; };
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return Error{ErrorCode::kInternal, path + ": zlib failed to start"};
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  std::string out;
  std::array<char, 1 << 16> part{};
  int code = Z_OK;
  while (code == Z_OK && out.size() <= kMaxUnpacked) {
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = static_cast<uInt>(part.size());
    code = inflate(&stream, Z_NO_FLUSH);
    out.append(part.data(), part.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (out.size() > kMaxUnpacked) return broken("must be at most 1 GiB when decompressed");
  if (code != Z_STREAM_END) return broken("must be a complete gzip file (it ends early or is damaged)");
  return out;
}

}  // namespace windlass::cli
