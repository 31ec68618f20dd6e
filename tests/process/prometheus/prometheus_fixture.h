// PrometheusTest: the real Prometheus over real programs, brought up once for all cases of the program.
//
// The controller in its local form has four services: "tiny" (one worker, twenty requests answered), "broken" (its worker
// refuses its arguments), "hopeless" (no worker is fast enough for its objective) and "zealous" (wants more workers than there
// are accelerators, and is asked all the while). Prometheus scrapes controller, gateway and tiny's worker, and evaluates the
// chart's rules.
#pragma once

#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/harness/http.h"
#include "tests/cluster/harness/local_system.h"
#include "tests/paths.h"

namespace windlass::testing {

inline constexpr int kRequests = 20;
inline constexpr int kTokens = 8;
inline const std::string kRulesFile = source_path("/charts/windlass/files/rules.yaml");

class PrometheusTest : public ::testing::Test {
 protected:
  void SetUp() override;

  // The answer of Prometheus' HTTP API: `path` as "/api/v1/rules".
  static nlohmann::json api(const std::string& path);
  // All samples of an instant query; an error's text instead where it has none.
  static nlohmann::json result_of(const std::string& query);
  // The first value of an instant query; nothing where the answer is empty.
  static Sample ask(const std::string& query);
  // Waits until a query answers `wanted`: what was counted before is there with the next scrape.
  static bool becomes(const std::string& query, double wanted);

  [[nodiscard]] static const LocalSystem& system();
  [[nodiscard]] static const std::string& worker();  // host:port of tiny's
};

}  // namespace windlass::testing
