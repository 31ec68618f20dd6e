// How much the tests with random or enumerated instances do: WINDLASS_TEST_EFFORT=ci, the default, or full (nightly).
//
// A loop says both sizes where it stands: `for (std::uint64_t seed = 0; seed < effort(200U, 5000U); ++seed)`. The CI size still
// catches the mutants of tests/mutants (scripts/mutants checks that) and is the same under a sanitizer. Which tests exist does
// not depend on the effort. Plain functions, any thread.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

namespace windlass {

enum class Effort { kCi, kFull };

[[nodiscard]] inline std::optional<Effort> effort_named(std::string_view name) {
  if (name.empty() || name == "ci") return Effort::kCi;
  if (name == "full") return Effort::kFull;
  return std::nullopt;
}

// Of this process. Ends it where the variable has another value: a nightly run with a typo must not pass for one.
[[nodiscard]] inline Effort effort_level() {
  static const Effort level = [] {
    const char* const name = std::getenv("WINDLASS_TEST_EFFORT");
    const auto known = effort_named(name == nullptr ? "" : name);
    if (known) return *known;
    std::fprintf(stderr, "WINDLASS_TEST_EFFORT: must be ci or full (got %s)\n", name);
    std::exit(2);
  }();
  return level;
}

template <typename T>
[[nodiscard]] T effort(T ci, T full) {
  return effort_level() == Effort::kFull ? full : ci;
}

// Of enumerated cases, those for the caller's `turn`: in CI every `shares`-th, so that callers with turns 0 to shares - 1 try
// each case once between them; with full effort all of them.
template <typename Case>
[[nodiscard]] std::vector<Case> effort_share(const std::vector<Case>& cases, std::size_t turn, std::size_t shares) {
  if (effort_level() == Effort::kFull) return cases;
  std::vector<Case> own;
  for (std::size_t i = turn % shares; i < cases.size(); i += shares) own.push_back(cases[i]);
  return own;
}

}  // namespace windlass
