// `windlass up` from nothing to an answer and back to nothing.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "controller/kube/subprocess.h"
#include "tests/loopback.h"
#include "tests/paths.h"
#include "tests/process/controller/cli/local/local_run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// Runs a windlass command; returns its exit code and output.
std::pair<int, std::string> windlass(std::vector<std::string> arguments) {
  const TempFolder folder;
  const std::string log = (folder.path() / "log").string();
  arguments.insert(arguments.begin(), build_path() + "/windlass");
  auto child = ChildProcess::start("windlass", arguments, log);
  if (!child.ok()) return {-1, child.error().message};
  if (!eventually(180, [&] { return child->ended().has_value(); })) return {-1, "still runs"};
  return {child->ended_well() ? 0 : 1, child->log_tail(200)};
}

// Given one service; expects `up` to start a worker, a chat request through the gateway to be answered, the inspecting commands
// to show the service or to say that it does not exist, and Ctrl-C to end everything with exit code 0 and without leftover
// processes.
TEST(Up, ServesAndStopsCleanly) {
  LocalRun run(1);
  ASSERT_TRUE(eventually(60, [&] { return run.at_rest(1); })) << run.logs();
  EXPECT_GE(run.processes().size(), 4u) << "up, controller, gateway, worker";

  kube::CurlTransport transport(kube::CurlOptions{});
  const auto response = transport.send(run.chat("Hello", 8, false));
  ASSERT_TRUE(response.ok()) << response.error().message << run.logs();
  ASSERT_EQ(response->status, 200) << response->body << run.logs();
  const auto answer = nlohmann::json::parse(response->body);
  EXPECT_EQ(answer.at("usage").at("completion_tokens").get<int>(), 8) << response->body;

  const std::string directory = run.directory();
  EXPECT_THAT(windlass({"top", "--once", "--dir", directory}).second, HasSubstr("default/tiny"));
  const auto explained = windlass({"explain", "ms/tiny", "--dir", directory});
  EXPECT_EQ(explained.first, 0) << explained.second;
  EXPECT_THAT(explained.second, HasSubstr("Conditions"));
  EXPECT_EQ(windlass({"wait", "ms/tiny", "--workers", "1", "--timeout", "10s", "--dir", directory}).first, 0);
  const auto unknown = windlass({"wait", "ms/none", "--timeout", "10m", "--dir", directory});
  EXPECT_EQ(unknown.first, 1);
  EXPECT_THAT(unknown.second, HasSubstr("default/none: must be an existing ModelService; the controller has: default/tiny"));
  const auto refused = windlass({"load", "--url", run.gateway_url(), "--model", "none", "--phases", "20/1s"});
  EXPECT_EQ(refused.first, 1) << refused.second;
  EXPECT_THAT(refused.second, HasSubstr("404"));
  const auto second = windlass({"up", "-f", directory + "/objects/tiny.yaml", "--dir", directory, "--listen", "127.0.0.1:1"});
  EXPECT_THAT(second.second, HasSubstr("--dir: must be a folder that no other `windlass up` uses (got " + directory));

  // The files contain the values of the service's env.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const auto others = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
    EXPECT_EQ(entry.status().permissions() & others, std::filesystem::perms::none) << entry.path();
  }

  run.up().signal(SIGINT);
  ASSERT_TRUE(eventually(60, [&] { return run.up().ended().has_value(); })) << run.logs();
  EXPECT_TRUE(run.up().ended_well()) << run.logs();
  EXPECT_TRUE(eventually(5, [&] { return run.processes().empty(); })) << run.processes().size() << " processes are left";
  EXPECT_THAT(run.logs(), HasSubstr("Stopped."));
}

// Given --listen with an IPv6 address; expects a request that `windlass load` sends there to be answered. Without brackets it
// is rejected.
TEST(Up, ListensOnIpv6) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no ::1";
  LocalRun run(1, "[::1]");
  ASSERT_TRUE(eventually(60, [&] { return run.at_rest(1); })) << run.logs();
  const auto sent =
      windlass({"load", "--url", run.gateway_url(), "--model", "tiny", "--phases", "20/100ms", "--max-tokens", "2"});
  EXPECT_EQ(sent.first, 0) << sent.second << run.logs();
  const auto refused = windlass({"up", "-f", run.directory() + "/objects/tiny.yaml", "--listen", "::1:8080"});
  EXPECT_THAT(refused.second,
              HasSubstr("--listen: must be an IP address and a port such as 127.0.0.1:8080 or [::1]:8080 (got '::1:8080')"));
}

// Given a running `up` that is killed with SIGKILL; expects controller, gateway and worker to end on their own.
TEST(Up, NothingOutlivesAKill) {
  LocalRun run(1);
  ASSERT_TRUE(eventually(60, [&] { return run.at_rest(1); })) << run.logs();
  run.up().signal(SIGKILL);
  EXPECT_TRUE(eventually(45, [&] { return run.processes().empty(); })) << run.processes().size() << " processes are left\n"
                                                                       << run.logs();
}

// Given wrong command lines of the real program; expects exit codes and messages that fit a shell.
TEST(Up, RejectsWrongArguments) {
  EXPECT_EQ(windlass({"plan", "-o", "json"}).first, 1);
  EXPECT_THAT(windlass({"plan", "-o", "json"}).second, HasSubstr("--help"));
  EXPECT_THAT(windlass({"model", "init", "--layers", "0", "/nonexistent"}).second, HasSubstr("layers"));
}

// Given a service on the class `this-machine`, which no file defines; expects `plan` to have the worker measure it and to plan
// with the result.
TEST(Up, PlanMeasuresThisMachine) {
  const std::string words = windlass({"plan", "-f", source_path("/examples/smollm2.yaml")}).second;
  EXPECT_THAT(words, HasSubstr("AcceleratorClass this-machine: not in the files; measured on this machine: "));
  EXPECT_THAT(words, HasSubstr("default/smollm2"));
}

// Given unknown flags of `windlass-worker measure`; expects the valid ones in the error.
TEST(Up, MeasureRefusesWrongFlags) {
  const auto ran = kube::run_program(build_path() + "/windlass-worker", {"measure", "--threads", "0"}, {}, false, 180);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->exit_code, 2);
  EXPECT_THAT(ran->err, HasSubstr("--threads"));
}

}  // namespace
}  // namespace windlass::cli
