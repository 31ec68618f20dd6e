// The preStop hook of engines that cannot wait, as a pod's shell runs it: with curl or wget, over IPv4 and IPv6.
#include "controller/runtime/engine_drain.h"

#include <atomic>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "metrics/host/spawn.h"
#include "metrics/net/http_service.h"
#include "tests/loopback.h"
#include "tests/unit/controller/kube/temp_dir.h"

namespace windlass::controller {
namespace {

namespace fs = std::filesystem;

// Fills a folder for PATH: awk, this program, and a sleep that does not.
void add_tools(const kube::TempDir& folder, const std::string& program) {
  for (const std::string& tool : {std::string("awk"), program}) fs::create_symlink("/usr/bin/" + tool, folder.path() / tool);
  (void)folder.write("sleep", "#!/bin/sh\n", true);
}

// Given an engine that has a request when it is asked the first two times and none then, expects four questions, whichever
// program asks and whatever family the pod's IP is of.
TEST(DrainScript, WaitsUntilTwoAnswersShowNoRequest) {
  for (const std::string program : {"curl", "wget"}) {
    if (!fs::exists("/usr/bin/" + program)) GTEST_SKIP() << "this machine has no /usr/bin/" << program;
    const kube::TempDir tools;
    add_tools(tools, program);
    for (const std::string ip : {"127.0.0.1", "::1"}) {
      if (ip == "::1" && !has_ipv6_loopback()) GTEST_SKIP() << "this machine has no ::1";
      SCOPED_TRACE(program + " " + ip);
      std::atomic<int> asked = 0;
      net::HttpService engine(
          {},
          [&](const net::ServerCall& call) {
            call.answer({200, fmt::format("llamacpp:requests_deferred {}\n", asked++ < 2 ? 1 : 0), "text/plain", {}});
          },
          1);
      ASSERT_TRUE(engine.open({ip, "0"}).ok());
      const std::string script = drain_script("LlamaCpp", std::stoi(engine.bound().port), 600);
      const auto shell = spawn({.program = "/bin/sh",
                                .argv = {"sh", "-c", script},
                                .environment = std::vector<std::string>{"PATH=" + tools.path().string(), "POD_IP=" + ip}});
      ASSERT_TRUE(shell.ok()) << shell.error().message;
      EXPECT_EQ(wait_for(*shell), 0);
      EXPECT_EQ(asked, 4);
    }
  }
}

// Given an engine that is never without a request, and three seconds; expects the hook to end after three questions, so that
// the engine gets SIGTERM and time to exit within the pod's grace period.
TEST(DrainScript, LeavesTimeToExit) {
  if (!fs::exists("/usr/bin/curl")) GTEST_SKIP() << "this machine has no /usr/bin/curl";
  const kube::TempDir tools;
  add_tools(tools, "curl");
  std::atomic<int> asked = 0;
  net::HttpService engine(
      {},
      [&](const net::ServerCall& call) {
        ++asked;
        call.answer({200, "llamacpp:requests_processing 1\n", "text/plain", {}});
      },
      1);
  ASSERT_TRUE(engine.open({"127.0.0.1", "0"}).ok());
  const std::string script = drain_script("LlamaCpp", std::stoi(engine.bound().port), 2.5);
  const auto shell = spawn({.program = "/bin/sh",
                            .argv = {"sh", "-c", script},
                            .environment = std::vector<std::string>{"PATH=" + tools.path().string(), "POD_IP=127.0.0.1"}});
  ASSERT_TRUE(shell.ok()) << shell.error().message;
  EXPECT_EQ(wait_for(*shell), 0);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace windlass::controller
