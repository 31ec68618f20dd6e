// ClusterTest: the base of all cluster tests: one real control plane and one node per test program, one namespace per test.
//
// The control plane and the node start with the first test that needs them and end with the program. A failing test prints the
// last lines of every log. Tests run one after the other on the main thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/harness/control_plane.h"
#include "tests/cluster/harness/process.h"
#include "tests/cluster/harness/wait.h"

namespace windlass::testing {

// The node's resource, named by the tests' AcceleratorClass.
inline constexpr const char* kGpuResource = "windlass.dev/cpu";
inline constexpr int kGpusOfNode = 8;
inline constexpr const char* kNode = "node-1";
inline constexpr const char* kWorkerImage = "windlass-worker:test";
inline constexpr const char* kNextWorkerImage = "windlass-worker:next";  // the same program under another name
// An image whose program is a shell; the script is in the pod's args.
inline constexpr const char* kShellImage = "shell:test";

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // REQUIRES: SetUp has neither failed nor skipped.
  [[nodiscard]] static ControlPlane& plane();
  [[nodiscard]] const std::string& name_space() const { return name_space_; }
  [[nodiscard]] std::string pods_path() const { return "/api/v1/namespaces/" + name_space_ + "/pods"; }

  // kubectl apply into the test's namespace; a failure fails the test.
  void apply(const std::string& yaml);
  // The pod, or null.
  [[nodiscard]] nlohmann::json pod(const std::string& name) const;

  // Starts one of our programs and logs it to <folder>/<log_name>.log; prints the end of the log if the test fails.
  [[nodiscard]] std::unique_ptr<Process> start_program(const std::string& log_name, std::vector<std::string> argv,
                                                       const std::map<std::string, std::string>& env = {});
  [[nodiscard]] std::string log_of(const std::string& log_name) const;

  // Installs the CRDs and the chart's RBAC as a user does, into windlass-system; once per program.
  static void install_charts();

 private:
  std::string name_space_;
  std::vector<std::string> logs_;
};

// The status of a condition ("True", "False", "Unknown"); "" if the object has none of that type.
[[nodiscard]] std::string condition_of(const nlohmann::json& object, const std::string& type);
[[nodiscard]] nlohmann::json condition_object(const nlohmann::json& object, const std::string& type);

// A folder for output that people may want to read: WINDLASS_TEST_OUTPUT, or test-output in the build folder.
[[nodiscard]] std::string output_folder();

}  // namespace windlass::testing
