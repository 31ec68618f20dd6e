// Separates the documents of the -f files, and reads and decompresses the files of a scenario; see scenario_files.h.
#include "controller/cli/console/scenario_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "controller/api/load.h"
#include "controller/cli/console/text_file.h"
#include "controller/reconcile/spec.h"

namespace windlass::cli {
namespace {

// Whether a document is a Kubernetes object. Comments may mention anything.
bool is_object(std::string_view document) {
  std::size_t begin = 0;
  while (begin < document.size()) {
    const std::size_t end = std::min(document.find('\n', begin), document.size());
    const std::string_view line = document.substr(begin, end - begin);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos && line[first] != '#' && line.find("apiVersion") != std::string_view::npos) return true;
    begin = end + 1;
  }
  return false;
}

bool is_empty(std::string_view document) {
  std::size_t begin = 0;
  while (begin < document.size()) {
    const std::size_t end = std::min(document.find('\n', begin), document.size());
    const std::string_view line = document.substr(begin, end - begin);
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string_view::npos && line[first] != '#') return false;
    begin = end + 1;
  }
  return true;
}

// A file's text, once with only its Kubernetes objects and once without them. Each line keeps its number.
struct SplitText {
  std::string path;
  std::string objects, others;
  int other_documents = 0;
};

SplitText split(const std::string& path, std::string_view text) {
  SplitText made{path, "", "", 0};
  bool has_objects = false;
  const auto add = [&](std::string_view separator, std::string_view document) {
    const std::string lines(static_cast<std::size_t>(std::count(document.begin(), document.end(), '\n')), '\n');
    const std::string line = separator.ends_with('\n') ? "\n" : "";
    const bool object = is_object(document);
    const bool other = !object && !is_empty(document);
    made.objects += (object && has_objects ? std::string(separator) : line) + (object ? std::string(document) : lines);
    made.others +=
        (other && made.other_documents > 0 ? std::string(separator) : line) + (other ? std::string(document) : lines);
    has_objects = has_objects || object;
    made.other_documents += other;
  };
  std::string_view separator;  // the line before the document, with its line break
  std::size_t begin = 0, line = 0;
  while (line < text.size()) {
    const std::size_t end = std::min(text.find('\n', line), text.size() - 1) + 1;
    const std::string_view one = text.substr(line, end - line);
    if (one.starts_with("---") && (one.size() == 3 || one.find_first_of(" \t\r\n") == 3)) {
      // Content may follow the marker on its line: "--- {a: 1}".
      const bool alone = is_empty(one.substr(3));
      add(separator, text.substr(begin, line - begin));
      separator = alone ? one : one.substr(0, 3);
      begin = alone ? end : line + 3;
    }
    line = end;
  }
  add(separator, text.substr(begin));
  return made;
}

Result<std::vector<SplitText>> split_files(const std::vector<std::string>& paths, const std::string& wanted) {
  std::vector<SplitText> files;
  for (const std::string& path : paths) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "a YAML file with " + wanted));
    files.push_back(split(path, text));
  }
  return files;
}

}  // namespace

Result<bool> holds_scenario(const std::vector<std::string>& paths, const std::string& wanted) {
  WINDLASS_ASSIGN_OR_RETURN(const auto files, split_files(paths, wanted));
  return std::any_of(files.begin(), files.end(), [](const SplitText& file) { return file.other_documents > 0; });
}

Result<ScenarioInput> read_scenario_input(const std::vector<std::string>& paths, const std::string& wanted) {
  WINDLASS_ASSIGN_OR_RETURN(const auto files, split_files(paths, wanted));
  const SplitText* chosen = nullptr;
  int documents = 0;
  std::vector<std::pair<std::string, std::string>> sources;
  for (const SplitText& file : files) {
    documents += file.other_documents;
    if (chosen == nullptr && file.other_documents > 0) chosen = &file;
    if (!is_empty(file.objects)) sources.emplace_back(file.path, file.objects);
  }
  if (documents != 1) {
    const std::string where = paths.size() == 1 ? paths.front() : "-f";
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must hold {}, next to nothing but AcceleratorClasses (got {} such documents)", where, wanted,
                             documents)};
  }
  WINDLASS_ASSIGN_OR_RETURN(const auto objects, api::load_objects(sources));
  std::vector<planner::AcceleratorSpec> classes;
  for (const api::Object& object : objects) {
    const auto* accelerator = std::get_if<api::AcceleratorClass>(&object.value);
    if (accelerator == nullptr) {
      const bool profile = std::holds_alternative<api::PerformanceProfile>(object.value);
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("{}:{}: must be an AcceleratorClass next to {} (got {}){}", object.source, object.line, chosen->path,
                      object.title(), profile ? "; name the profile in that file: `latency: {source, file}`" : "")};
    }
    classes.push_back(controller::to_planner(*accelerator, {}).spec);
  }
  return ScenarioInput{chosen->path, chosen->others, planner::KnownAccelerators(std::move(classes))};
}

Result<std::map<std::string, std::string>> read_scenario_files(const std::string& path, const sim::Scenario& scenario,
                                                               Executor& executor) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::vector<sim::ScenarioFile> files = sim::files_of(scenario);
  WINDLASS_ASSIGN_OR_RETURN(
      auto contents, parallel_map<Result<std::string>>(executor, files.size(), [&](std::size_t i) -> Result<std::string> {
        const std::filesystem::path named(files[i].path);
        auto text = read_text_file((named.is_absolute() ? named : folder / named).string(), files[i].what);
        if (!text.ok()) return text.error().within(fmt::format("{}:{}: {}", path, files[i].line, files[i].field));
        return unpacked(std::move(text).value(), files[i].path);
      }));
  std::map<std::string, std::string> texts;
  for (std::size_t i = 0; i < files.size(); ++i) {
    WINDLASS_ASSIGN_OR_RETURN(texts[files[i].path], std::move(contents[i]));
  }
  return texts;
}

}  // namespace windlass::cli
