// PrometheusTest: the real Prometheus scraping real programs, started once for all cases of the test program.
//
// The controller runs locally with four services: "tiny" (one worker, twenty requests answered), "broken" (its worker rejects
// its arguments), "hopeless" (no worker is fast enough for its objective) and "zealous" (wants more workers than there are
// accelerators, and gets requests all the time). Prometheus scrapes controller, gateway and tiny's worker, and evaluates the
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

  // A response of Prometheus' HTTP API: `path` such as "/api/v1/rules".
  static nlohmann::json api(const std::string& path);
  // All samples of an instant query, or the error's text.
  static nlohmann::json result_of(const std::string& query);
  // The first value of an instant query; not found if the result is empty.
  static Sample ask(const std::string& query);
  // Waits until a query returns `wanted`, at the latest after the next scrape.
  static bool becomes(const std::string& query, double wanted);

  [[nodiscard]] static const LocalSystem& system();
  [[nodiscard]] static const std::string& worker();  // host:port of tiny's
};

}  // namespace windlass::testing
