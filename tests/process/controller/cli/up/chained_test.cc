// Runs a service on chains of servers under load: real controller, gateway and workers.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process/controller/cli/local/steady_client.h"

namespace windlass::cli {
namespace {

// Of a run's processes, those that serve these blocks of the model.
std::vector<int> servers_of(const LocalRun& run, const std::string& blocks) {
  std::vector<int> found;
  for (const int pid : run.processes()) {
    std::ifstream in(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
    const std::string words{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (words.find("--blocks=" + blocks) != std::string::npos) found.push_back(pid);
  }
  return found;
}

// Given a whole worker, then a chain of two servers, then two chains of which one server is killed, one chain again, and a
// whole worker again, all under load; expects every request to be answered, with the same text for the same prompt throughout.
TEST(Chained, ThereAndBackUnderLoad) {
  LocalRun run(1);
  ASSERT_TRUE(eventually(90, [&] { return run.at_rest(1); })) << run.logs();
  SteadyClient client(run);

  std::string trouble;
  const auto reach = [&](const std::string& what, const std::function<bool()>& reached) {
    if (trouble.empty() && !eventually(90, reached)) trouble = "not reached: " + what;
  };
  const auto go_on = [&] { reach("more requests", [&, at = client.finished()] { return client.finished() >= at + 40; }); };
  const auto chains = [&](std::size_t count) {
    return run.at_rest(static_cast<int>(count)) && servers_of(run, "0:1").size() == count &&
           servers_of(run, "1:2").size() == count;
  };
  go_on();
  run.scale_to(1, "Chained");
  reach("a chain", [&] { return chains(1); });
  go_on();
  run.scale_to(2, "Chained");
  reach("two chains", [&] { return chains(2); });
  go_on();
  if (trouble.empty()) kill(servers_of(run, "1:2").front(), SIGKILL);
  go_on();
  reach("two chains after a server was killed", [&] { return chains(2); });
  go_on();
  run.scale_to(1, "Chained");
  reach("one chain", [&] { return chains(1); });
  go_on();
  run.scale_to(1, "Replicated");
  reach("a whole worker", [&] { return run.at_rest(1) && servers_of(run, "").empty(); });
  go_on();
  client.stop();

  ASSERT_EQ(trouble, "") << run.logs();
  expect_no_failure(client, run);
}

}  // namespace
}  // namespace windlass::cli
