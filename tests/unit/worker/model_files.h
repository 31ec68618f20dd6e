// Small models for the worker's tests: a temporary folder, a tiny seeded model, and safetensors files written by hand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "worker/model/model_init.h"

namespace windlass::worker::testing {

// A temporary folder for one test, removed afterwards.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "windlass-worker-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "mkdtemp failed";
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline constexpr Architecture kEveryArchitecture[] = {Architecture::kLlama, Architecture::kMistral, Architecture::kQwen2,
                                                      Architecture::kQwen3, Architecture::kMixtral, Architecture::kQwen3Moe,
                                                      Architecture::kOpt};

inline ModelShape tiny_shape(Architecture architecture = Architecture::kLlama) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.layers = 2;
  shape.hidden = 32;
  shape.heads = 4;
  shape.kv_heads = architecture == Architecture::kOpt ? 4 : 2;
  shape.intermediate = 48;
  shape.experts = 4;
  shape.vocab = 300;
  shape.max_context = 160;
  shape.seed = 7;
  return shape;
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A safetensors file with this header text and data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string out;
  const std::uint64_t size = header.size();
  for (unsigned shift = 0; shift < 64; shift += 8) out += static_cast<char>((size >> shift) & 0xFFU);
  return out + header + data;
}

// 64-bit FNV-1a, to compare whole files in a test.
inline std::uint64_t hash_of(const std::string& bytes) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

}  // namespace windlass::worker::testing
