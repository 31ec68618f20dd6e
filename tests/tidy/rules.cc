// The rules themselves; see rules.h.
#include "tests/tidy/rules.h"

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include <fmt/format.h>

namespace windlass::tidy {
namespace {

struct Layer {
  const char* folder;                   // ends in "*/": each subfolder is a layer, and these do not include each other
  std::vector<const char*> only = {};   // the folders that it may include; empty: all layers above it
  std::vector<const char*> never = {};  // exceptions to the layers above it
};

// A top-level folder. A layer may include itself, the layers above it in this list, and the folders in `outside`.
struct Part {
  const char* root;
  std::vector<const char*> outside;
  std::vector<Layer> layers = {};
};

// The order of all folders. tests/ may include everything.
const std::vector<Part>& parts() {
  static const std::vector<Part> kParts = {
      {"planner/",
       {},
       {{"planner/base/"},
        {"planner/catalog/"},
        {"planner/workload/"},
        {"planner/queueing/"},
        {"planner/mip/"},
        {"planner/perf/"},
        {"planner/dispatch/", {"planner/base/"}},  // linked into the gateway
        {"planner/deployment/"},
        {"planner/sizing/"},
        {"planner/chain/"},
        {"planner/sim/"},
        {"planner/strategies/core/"},
        {"planner/strategies/*/"},
        {"planner/strategies/"},
        {"planner/policy/", {}, {"planner/strategies/", "planner/sim/"}},
        {"planner/whatif/"}}},
      {"metrics/", {"planner/base/"}},
      {"gateway/", {"planner/base/", "planner/dispatch/", "metrics/"}},
      {"worker/",
       {"planner/base/", "metrics/"},
       {{"worker/collective/"},
        {"worker/jinja/"},
        {"worker/model/"},
        {"worker/backend/"},
        {"worker/engine/"},
        {"worker/parallel/"},
        {"worker/serve/"}}},
      {"controller/",
       {"planner/", "metrics/"},
       {{"controller/api/", {"planner/"}},
        {"controller/kube/", {"planner/base/", "metrics/host/", "metrics/net/"}},
        {"controller/store/", {"planner/", "controller/api/", "controller/kube/", "metrics/host/"}},
        {"controller/runtime/", {}, {"controller/store/"}},
        {"controller/reconcile/"},
        {"controller/app/"},
        {"controller/cli/load/generator/", {"planner/base/", "planner/workload/", "metrics/net/"}},
        {"controller/cli/charts/", {"planner/base/"}},
        {"controller/cli/console/"},
        {"controller/cli/live/"},
        {"controller/cli/local/"},
        {"controller/cli/*/"},
        {"controller/cli/"}}},
      {"tests/", {"planner/", "metrics/", "gateway/", "worker/", "controller/"}},
  };
  return kParts;
}

// The folder of this layer that contains the file; empty if none does.
std::string folder_in(const Layer& layer, const std::string& path) {
  const std::string folder = layer.folder;
  if (folder.back() != '/' || folder.size() < 2 || folder[folder.size() - 2] != '*') {
    return starts_with(path, layer.folder) ? folder : std::string();
  }
  const std::string above = folder.substr(0, folder.size() - 2);
  const std::size_t end = starts_with(path, above) ? path.find('/', above.size()) : std::string::npos;
  return end == std::string::npos ? std::string() : path.substr(0, end + 1);
}

struct Sight {
  std::string from;  // the folder of the file; empty: the file is in no layer
  std::vector<std::string> may_see, never;
};

// What a file may include; none: no rule applies to it. A file belongs to the first layer that contains it.
std::optional<Sight> sight_of(const std::string& path) {
  for (const Part& part : parts()) {
    if (!starts_with(path, part.root)) continue;
    Sight sight;
    for (const Layer& layer : part.layers) {
      sight.from = folder_in(layer, path);
      if (sight.from.empty()) {
        if (layer.folder[std::string(layer.folder).size() - 2] != '*') sight.may_see.emplace_back(layer.folder);
        continue;
      }
      if (!layer.only.empty()) sight.may_see = {layer.only.begin(), layer.only.end()};
      if (layer.only.empty()) sight.may_see.insert(sight.may_see.end(), part.outside.begin(), part.outside.end());
      sight.never = {layer.never.begin(), layer.never.end()};
      return sight;
    }
    if (!part.layers.empty()) return Sight{};  // in no layer: it may include nothing
    return Sight{part.root, {part.outside.begin(), part.outside.end()}, {}};
  }
  return std::nullopt;
}

std::string at(const SourceFile& file, std::size_t line, const std::string& what) {
  return fmt::format("{}:{}: {}", file.path, line + 1, what);
}

bool has_one_of(const std::string& text, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

// A finding for every line of `text` that matches the pattern. REQUIRES: every match contains one of the words. Looking for
// them first saves time, because std::regex is slow and most lines have none.
void find_lines(const SourceFile& file, const std::string& text, const std::vector<std::string>& words,
                const std::regex& pattern, const std::string& what, Findings& findings) {
  if (!has_one_of(text, words)) return;
  const auto lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (has_one_of(lines[i], words) && std::regex_search(lines[i], match, pattern))
      findings.push_back(at(file, i, fmt::format("'{}': {}", match.str(), what)));
  }
}

std::size_t indentation(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

// A declaration up to its first "{" or ";".
struct Head {
  std::string text;     // joined to one line
  std::size_t end = 0;  // the line after it

  [[nodiscard]] bool is_function() const {
    static const std::regex kOthers("^(namespace|class|struct|enum|union|extern|template)\\b[^(]*\\{$");
    const auto count = [this](char c) { return std::count(text.begin(), text.end(), c); };
    // Excludes values in braces and the lambdas inside them.
    const bool body = ends_with(text, "{") && !ends_with(text, "= {") && count('{') == count('}') + 1;
    return body && count('(') > 0 && !std::regex_search(text, kOthers);
  }

  [[nodiscard]] std::string name() const {
    static const std::regex kName("([A-Za-z_~][\\w:~]*|operator\\W+) ?\\(");
    std::smatch match;
    return std::regex_search(text, match, kName) ? match.str(1) : text;
  }
};

// The head that begins in this line, or the line alone if none begins there. Continuation lines are indented further.
Head head_at(const std::vector<std::string>& lines, std::size_t begin) {
  Head head{"", begin + 1};
  const std::size_t margin = indentation(lines[begin]);
  const auto add = [&head](const std::string& line) {
    const std::size_t last = line.find_last_not_of(' ');
    if (last != std::string::npos) head.text += (head.text.empty() ? "" : " ") + line.substr(indentation(line), last + 1);
    while (ends_with(head.text, " ")) head.text.pop_back();
  };
  add(lines[begin]);
  const bool label = ends_with(head.text, ":") && head.text.find('(') == std::string::npos;
  if (head.text.empty() || head.text[0] == '#' || head.text[0] == '}' || label) return head;
  while (!ends_with(head.text, "{") && !ends_with(head.text, ";") && head.end < lines.size()) {
    const std::string& next = lines[head.end];
    if (indentation(next) < next.size() && indentation(next) <= margin) break;
    add(next);
    ++head.end;
  }
  return head;
}

}  // namespace

Findings include_directions(const SourceFile& file) {
  Findings findings;
  const std::optional<Sight> sight = sight_of(file.path);
  if (!is_cpp(file.path) || !sight) return findings;
  static const std::regex kInclude("^\\s*#\\s*include\\s*([\"<])([^\">]+)[\">]");
  const auto lines = lines_of(code_only(file.text));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (lines[i].find("include") == std::string::npos || !std::regex_search(lines[i], match, kInclude)) continue;
    const std::string target = match[2];
    const bool is_ours =
        std::any_of(parts().begin(), parts().end(), [&](const Part& part) { return starts_with(target, part.root); });
    if (match[1] == "<" && !is_ours) continue;
    const auto is_in = [&](const std::string& folder) { return starts_with(target, folder); };
    const bool seen = std::any_of(sight->may_see.begin(), sight->may_see.end(), is_in);
    const bool hidden = std::any_of(sight->never.begin(), sight->never.end(), is_in);
    if (sight->from.empty()) {
      findings.push_back(
          at(file, i, fmt::format("includes \"{}\", but the file is in no layer of tests/tidy/rules.cc", target)));
      continue;
    }
    if (is_in(sight->from) || (seen && !hidden)) continue;
    std::string list = sight->from;
    for (const std::string& folder : sight->may_see) {
      if (std::find(sight->never.begin(), sight->never.end(), folder) == sight->never.end()) list += ", " + folder;
    }
    findings.push_back(at(file, i, fmt::format("includes \"{}\"; {} may include from: {}", target, sight->from, list)));
  }
  return findings;
}

Findings beast_parser(const SourceFile& file) {
  Findings findings;
  if (!is_cpp(file.path) || file.path == "metrics/net/beast_parser.h") return findings;
  static const std::regex kHeaders(
      "#\\s*include\\s*<boost/beast(\\.hpp|/http\\.hpp|/http/(basic_)?parser\\.hpp|/http/read\\.hpp)>");
  find_lines(file, code_only(file.text), {"boost/beast"}, kHeaders, "must include metrics/net/beast_parser.h instead",
             findings);
  return findings;
}

Findings planner_purity(const SourceFile& file) {
  Findings findings;
  if (!starts_with(file.path, "planner/") || !is_cpp(file.path)) return findings;
  const std::string code = code_only(file.text);
  static const std::regex kHeaders(
      "#\\s*include\\s*<(chrono|ctime|time\\.h|thread|mutex|shared_mutex|condition_variable|future|stop_token|semaphore|"
      "fstream|"
      "iostream|filesystem|cstdio|stdio\\.h|unistd\\.h|pthread\\.h|spdlog/[^>]*|curl/[^>]*|boost/asio[^>]*|"
      "boost/beast[^>]*|cpprest/[^>]*|prometheus/[^>]*|sys/[^>]*|syslog\\.h)>");
  static const std::regex kCalls(
      "\\b(std::chrono|system_clock|steady_clock|high_resolution_clock|getenv|secure_getenv|setenv|random_device|"
      "std::(thread|jthread|mutex|async|cout|cerr|clog|cin|rand|time|ifstream|ofstream|fstream)|fopen|printf|fprintf|puts|fmt::"
      "print|"
      "gettimeofday|clock_gettime|nanosleep|usleep|sleep_for|popen|LoadFile)\\b");
  find_lines(file, code, {"include"}, kHeaders,
             "planner/ must not use clocks, threads, files, sockets, the environment or loggers", findings);
  static const std::vector<std::string> kWords = {"std::", "clock", "env", "random_device", "open",
                                                  "print", "puts",  "get", "sleep",         "LoadFile"};
  find_lines(file, code, kWords, kCalls, "planner/ must not use clocks, threads, files, sockets, the environment or loggers",
             findings);
  return findings;
}

Findings header_paragraph(const SourceFile& file) {
  if (!is_source(file.path)) return {};
  const auto lines = lines_of(file.text);
  std::size_t i = 0;
  while (i < lines.size() && (lines[i].empty() || starts_with(lines[i], "#!") || starts_with(lines[i], "//go:build"))) ++i;
  std::string words;
  for (; i < lines.size(); ++i) {
    const auto& line = lines[i];
    const auto mark = line.find_first_not_of(" ");
    if (mark == std::string::npos) break;
    const bool slashes = line.compare(mark, 2, "//") == 0;
    const bool hash = !is_cpp(file.path) && line[mark] == '#';
    if (!slashes && !hash) break;
    words += line.substr(mark + (slashes ? 2 : 1));
  }
  // A shorter comment only repeats the file's name. "See spec.h." is enough in spec.cc: that header has the paragraph.
  const std::string own_name = file.path.substr(file.path.rfind('/') + 1);
  const bool refers = is_cpp(file.path) && words.find(own_name.substr(0, own_name.rfind('.')) + ".h") != std::string::npos;
  if (words.size() >= 12 || refers) return {};
  return {at(file, 0, "must open with a comment that says what the file is for")};
}

Findings file_size(const SourceFile& file) {
  if (!is_source(file.path)) return {};
  const auto count = lines_of(file.text).size();
  if (count <= 800) return {};
  return {at(file, count - 1, fmt::format("must have at most 800 lines (got {})", count))};
}

Findings function_size(const SourceFile& file) {
  Findings findings;
  const bool code = ends_with(file.path, ".cc") || ends_with(file.path, ".h");
  if (!code || starts_with(file.path, "worker/backend/cuda/kernels/")) return findings;
  const auto lines = lines_of(code_only(file.text));
  for (std::size_t i = 0; i < lines.size();) {
    const Head head = head_at(lines, i);
    if (!head.is_function()) {
      i = head.end;
      continue;
    }
    const std::string closing = std::string(indentation(lines[i]), ' ') + "}";
    std::size_t end = head.end;
    while (end < lines.size() && !starts_with(lines[end], closing)) ++end;
    const std::size_t count = end + 1 - i;
    const std::string name = head.name();
    if (count > 100 && !starts_with(name, "TEST")) {
      findings.push_back(at(file, i, fmt::format("function {} must have at most 100 lines (got {})", name, count)));
    }
    i = end + 1;
  }
  return findings;
}

Findings registry_hosts(const SourceFile& file) {
  Findings findings;
  // Written in halves, or this file would be the first finding.
  static const std::vector<std::string> kHosts = {std::string("deb.debian") + ".org",
                                                  std::string("security.debian") + ".org",
                                                  std::string("snapshot.debian") + ".org",
                                                  std::string("ftp.debian") + ".org",
                                                  std::string("archive.ubuntu") + ".com",
                                                  std::string("pypi") + ".org",
                                                  std::string("pythonhosted") + ".org",
                                                  std::string("pypi.nvidia") + ".com",
                                                  std::string("proxy.golang") + ".org",
                                                  std::string("sum.golang") + ".org",
                                                  std::string("docker") + ".io",
                                                  std::string("ghcr") + ".io",
                                                  std::string("quay") + ".io",
                                                  std::string("gcr") + ".io",
                                                  std::string("registry.k8s") + ".io",
                                                  std::string("nvcr") + ".io",
                                                  std::string("registry.npmjs") + ".org",
                                                  std::string("crates") + ".io",
                                                  std::string("conda.anaconda") + ".org"};
  if (!has_one_of(file.text, kHosts)) return findings;
  const auto lines = lines_of(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (const auto& host : kHosts) {
      if (lines[i].find(host) != std::string::npos) {
        findings.push_back(
            at(file, i, fmt::format("must not name the registry {}; the machine's configuration names it", host)));
      }
    }
  }
  return findings;
}

Findings pinned_wheels(const SourceFile& file) {
  Findings findings;
  const auto lines = lines_of(file.text);
  if (ends_with(file.path, "requirements.txt")) {
    static const std::regex kPin("#.*|[a-z0-9.-]+==[^ ]+ --hash=sha256:[0-9a-f]{64}");
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!std::regex_match(lines[i], kPin))
        findings.push_back(at(file, i, "must be NAME==VERSION --hash=sha256:... (scripts/pip-lock)"));
    }
  }
  // Written in halves, or this file would be the first finding.
  static const std::regex kInstall(std::string("\\bpip[0-9.]*\"? ins") + "tall\\b");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find(std::string("ins") + "tall") == std::string::npos || !std::regex_search(lines[i], kInstall)) continue;
    if (lines[i].find("--require-hashes") == std::string::npos)
      findings.push_back(at(file, i, "pip must be called with --require-hashes and a requirements file"));
  }
  return findings;
}

Findings unfinished(const SourceFile& file) {
  Findings findings;
  if (!is_source(file.path)) return findings;
  // Written in halves, or this file would be the first finding.
  static const std::vector<std::string> kWords = {std::string("TO") + "DO",
                                                  std::string("FIX") + "ME",
                                                  std::string("XX") + "X",
                                                  std::string("HA") + "CK",
                                                  "not imple",
                                                  "for n"};
  static const std::regex kMarks(std::string("\\b(TO") + "DO|FIX" + "ME|XX" + "X|HA" + "CK|not imple" + "mented|for n" +
                                 "ow)\\b");
  find_lines(file, file.text, kWords, kMarks, "finish this, or open an issue for it", findings);
  return findings;
}

Findings test_manners(const SourceFile& file) {
  Findings findings;
  if (!starts_with(file.path, "tests/") || !is_cpp(file.path)) return findings;
  const std::string code = code_only(file.text);
  static const std::regex kSleeps("\\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\\s*\\(");
  static const std::regex kOff("\\bDISABLED_\\w+");
  static const std::regex kSilentSkip("GTEST_SKIP\\(\\)\\s*;");
  find_lines(file, code, {"DISABLED_"}, kOff, "must not switch a test off", findings);
  find_lines(file, code, {"GTEST_SKIP"}, kSilentSkip, "must say why it skips", findings);

  static const std::regex kTest("^\\s*(TEST|TEST_F|TEST_P|TYPED_TEST)\\s*\\(");
  static const std::vector<std::string> kAsserts = {"EXPECT_", "ASSERT_", "ADD_FAILURE", "FAIL(", "SUCCEED("};
  const auto code_lines = lines_of(code);
  const auto lines = lines_of(file.text);
  bool tests = false;
  for (std::size_t i = 0; i < code_lines.size(); ++i) {
    if (code_lines[i].find("TEST") == std::string::npos || !std::regex_search(code_lines[i], kTest)) continue;
    tests = true;
    // A parametrised test may have its fixture between the comment and itself.
    bool told = false;
    for (std::size_t back = 1; back <= 3 && back <= i && !told; ++back) {
      if (lines[i - back] == "}") break;  // the lines above belong to another test
      told = lines[i - back].find("//") != std::string::npos;
    }
    if (!told) {
      findings.push_back(at(file, i, "must have a comment above the test that says what is given and what is expected"));
    }
  }
  // A helper without tests may sleep while it polls a condition.
  if (tests) find_lines(file, code, {"sleep"}, kSleeps, "must wait for a condition, not sleep", findings);
  if (tests && !has_one_of(code, kAsserts)) findings.push_back(at(file, 0, "must assert something"));
  return findings;
}

Findings docs_rules(const SourceFile& file, const std::vector<SourceFile>& tree, const std::filesystem::path& root) {
  Findings findings;
  if (!ends_with(file.path, ".md")) return findings;
  static const std::set<std::string> kPrograms = {"windlass", "windlass-controller", "windlass-gateway", "windlass-worker"};
  static const std::set<std::string> kPresets = {"release", "debug", "asan", "tsan"};
  static const std::regex kLink("\\]\\(([^)#\\s]+)(#[^)]*)?\\)");
  static const std::regex kScript("(^|[\\s`(])(\\./)?(scripts/[A-Za-z0-9_/-]+)");
  static const std::regex kBuilt("\\bbuild/([a-z]+)/([a-z][a-z_-]*)");
  const auto here = std::filesystem::path(file.path).parent_path();
  const auto lines = lines_of(file.text);
  const auto each = [](const std::string& line, const std::regex& pattern) {
    return std::vector<std::smatch>(std::sregex_iterator(line.begin(), line.end(), pattern), std::sregex_iterator());
  };
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (const auto& match : lines[i].find("](") == std::string::npos ? std::vector<std::smatch>() : each(lines[i], kLink)) {
      const std::string link = match[1];
      if (link.find("://") != std::string::npos || starts_with(link, "mailto:")) continue;
      if (!std::filesystem::exists(root / here / link))
        findings.push_back(at(file, i, "links to " + link + ", which does not exist"));
    }
    if (lines[i].find("scripts/") == std::string::npos && lines[i].find("build/") == std::string::npos) continue;
    for (const auto& match : each(lines[i], kScript)) {
      const std::string script = match[3];
      // A file, a folder, or a file's name up to the dot.
      const bool known = std::any_of(tree.begin(), tree.end(), [&](const SourceFile& f) {
        return starts_with(f.path + "/", script) &&
               (ends_with(script, "/") || (f.path + "/").find_first_of("/.", script.size()) == script.size());
      });
      if (!known) findings.push_back(at(file, i, "names " + script + ", which does not exist"));
    }
    for (const auto& match : each(lines[i], kBuilt)) {
      if (kPresets.count(match[1]) && !kPrograms.count(match[2]) && !ends_with(match[2], "_test")) {
        findings.push_back(
            at(file, i,
               "names " + match.str() + "; the programs are windlass, windlass-controller, windlass-gateway, windlass-worker"));
      }
    }
  }
  return findings;
}

Findings folder_readmes(const std::vector<SourceFile>& tree) {
  std::map<std::string, std::size_t> readmes;  // folder -> lines of its README
  for (const SourceFile& file : tree) {
    const auto slash = file.path.find('/');
    if (slash == std::string::npos || file.path[0] == '.') continue;
    const std::string folder = file.path.substr(0, slash);
    auto& count = readmes[folder];
    if (file.path == folder + "/README.md") count = lines_of(file.text).size();
  }
  Findings findings;
  for (const auto& [folder, count] : readmes) {
    if (count < 3) findings.push_back(folder + "/: must have a README.md that says what belongs there and what does not");
    if (count > 40)
      findings.push_back(
          fmt::format("{}/README.md: must have at most 40 lines (got {}); move the rest to docs/", folder, count));
  }
  return findings;
}

}  // namespace windlass::tidy
