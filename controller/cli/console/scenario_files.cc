// Reads and decompresses the files of a scenario; see scenario_files.h.
#include "controller/cli/console/scenario_files.h"

#include <filesystem>

#include <fmt/format.h>

#include "controller/cli/console/text_file.h"

namespace windlass::cli {

Result<std::map<std::string, std::string>> read_scenario_files(const std::string& path, const sim::Scenario& scenario) {
  std::map<std::string, std::string> texts;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const sim::ScenarioFile& file : sim::files_of(scenario)) {
    const std::filesystem::path named(file.path);
    auto text = read_text_file((named.is_absolute() ? named : folder / named).string(), file.what);
    if (!text.ok()) return text.error().within(fmt::format("{}:{}: {}", path, file.line, file.field));
    WINDLASS_ASSIGN_OR_RETURN(texts[file.path], unpacked(std::move(text).value(), file.path));
  }
  return texts;
}

}  // namespace windlass::cli
