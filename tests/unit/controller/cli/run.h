// Runs a command line of `windlass` in the test's process and keeps its output and exit code.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/cli/console/commands.h"

namespace windlass::cli {

struct Outcome {
  int code;
  std::string out;
  std::string err;

  // A discarded value if the output is not JSON.
  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, false); }
};

struct RunAs {
  bool err_terminal = false;
  std::string program = "windlass";
};

inline Outcome run(const std::vector<std::string>& arguments, const RunAs& as = {}) {
  std::ostringstream out, err;
  Console console{out, err, false, as.err_terminal};
  const int code = run_cli(arguments, console, as.program);
  return {code, out.str(), err.str()};
}

// Empty if it cannot be read.
inline std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Writes the text to a temporary file and returns its path.
inline std::string written(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

// A copy of `file` named `name`, with the first `from` replaced by `to`.
inline std::string file_with(const std::string& file, const std::string& name, const std::string& from, const std::string& to) {
  std::string text = text_of(file);
  text.replace(text.find(from), from.size(), to);
  return written(name, text);
}

}  // namespace windlass::cli
