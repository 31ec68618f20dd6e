// Runs each fuzz target over its corpus: handwritten seeds, and inputs that scripts/fuzz found.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/fuzz/targets.h"
#include "tests/paths.h"

namespace windlass::fuzz {
namespace {

struct Named {
  const char* name;
  Target target;
};

class Corpus : public ::testing::TestWithParam<Named> {};

// Given every file of a corpus, whole and truncated; expects the target's conditions to hold.
TEST_P(Corpus, HoldsNoFaults) {
  const auto folder = std::filesystem::path(source_path("/tests/fuzz/corpus")) / GetParam().name;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    SCOPED_TRACE(entry.path().string());
    // Truncated as well, as networks do it.
    for (std::size_t n = 0; n <= bytes.size(); n += 1 + bytes.size() / 50)
      GetParam().target(std::string_view(bytes).substr(0, n));
    GetParam().target(bytes);
    ++files;
  }
  EXPECT_GT(files, 0) << folder;
}

INSTANTIATE_TEST_SUITE_P(Each, Corpus,
                         ::testing::Values(Named{"http_head", http_head}, Named{"completion_request", completion_request},
                                           Named{"event_stream", event_stream}, Named{"chat_request", chat_request},
                                           Named{"chain_frames", chain_frames}, Named{"kv_frames", kv_frames},
                                           Named{"gguf_file", gguf_file}, Named{"metrics_page", metrics_page},
                                           Named{"routing_table", routing_table}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace windlass::fuzz
