// Finds and reads result files; see fit_benchmarks.h.
#include "controller/cli/profile/fit_benchmarks.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "controller/cli/console/chain_choice.h"
#include "controller/cli/console/text_file.h"

namespace windlass::cli {
namespace {

bool is_benchmark_file(const std::filesystem::path& path) {
  return path.extension() == ".json" || path.filename().string().ends_with("_aiperf.csv");
}

}  // namespace

Result<std::vector<planner::BenchmarkResult>> read_benchmarks(const std::string& file,
                                                              const std::function<void(const std::string&)>& say) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> paths;
  if (fs::is_directory(file, error)) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(file, error)) {
      if (entry.is_regular_file(error) && is_benchmark_file(entry.path())) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    std::erase_if(paths, [&](const fs::path& path) {
      return path.extension() == ".csv" && fs::exists(fs::path(path).replace_extension(".json"), error);
    });
  } else {
    paths.emplace_back(file);
  }
  std::vector<planner::BenchmarkResult> results;
  for (const fs::path& path : paths) {
    say("reading " + path.string());
    WINDLASS_ASSIGN_OR_RETURN(std::string packed, read_text_file(path.string(), kBenchmarkFiles));
    WINDLASS_ASSIGN_OR_RETURN(const std::string text, unpacked(std::move(packed), path.string()));
    const auto parsed = planner::parse_benchmark_results(text);
    if (!parsed.ok()) return parsed.error().within(path.string());
    if (*parsed) results.insert(results.end(), (*parsed)->begin(), (*parsed)->end());
  }
  if (!results.empty()) return results;
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be {} (got neither)", file, kBenchmarkFiles)};
}

}  // namespace windlass::cli
