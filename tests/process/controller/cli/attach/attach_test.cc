// `windlass attach` in front of real workers that the test runs itself: requests through it, what it reports of them, and that
// it does not stop them.
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "controller/kube/subprocess.h"
#include "tests/free_port.h"
#include "tests/paths.h"
#include "tests/process/controller/cli/local/local_run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

class Attach : public testing::Test {
 protected:
  void SetUp() override {
    const auto made = run_program({build_path() + "/windlass", "model", "init", "--layers", "2", "--hidden", "64", "--heads",
                                   "4", "--kv-heads", "2", "--intermediate", "128", "--max-context", "512", model_});
    ASSERT_TRUE(made.ok() && *made == 0) << "windlass model init failed";
  }

  ChildProcess start_worker(int port) {
    return ChildProcess::start(
               "windlass-worker",
               {build_path() + "/windlass-worker", "--model", model_, "--name", "tiny", "--port", std::to_string(port)},
               (folder_.path() / ("worker-" + std::to_string(port) + ".log")).string())
        .value();
  }
  [[nodiscard]] bool serves(int port) {
    kube::HttpRequest request;
    request.url = fmt::format("http://127.0.0.1:{}/ready", port);
    const auto response = transport_.send(request);
    return response.ok() && response->status == 200;
  }
  [[nodiscard]] static bool shows(LocalRun& run, int ready) {
    const auto row = run.row();
    return row && row->ready == ready;
  }

  TempFolder folder_;
  const std::string model_ = (folder_.path() / "model").string();
  kube::CurlTransport transport_{kube::CurlOptions{.max_parallel = 8}};
};

// Given two workers; expects attach to report what they are and can do, requests to reach both and to be counted as the client
// counts them, a worker that ends and returns to be noticed, and both to keep serving once attach has ended.
TEST_F(Attach, ServesThroughForeignServersAndLeavesThemRunning) {
  const int ports[] = {windlass::free_port(), windlass::free_port()};
  std::optional<ChildProcess> first = start_worker(ports[0]);
  const ChildProcess second = start_worker(ports[1]);
  ASSERT_TRUE(eventually(60, [&] { return serves(ports[0]) && serves(ports[1]); }));

  LocalRun run({fmt::format("http://127.0.0.1:{}", ports[0]), fmt::format("http://localhost:{}/v1", ports[1]), "--model",
                model_, "--slots", "2", "--ttft", "60s", "--tpot", "10s"});
  ASSERT_TRUE(eventually(60, [&] { return shows(run, 2); })) << run.logs();
  EXPECT_THAT(run.up_log(), HasSubstr(fmt::format("http://127.0.0.1:{}: Windlass, model tiny, context 512 tokens", ports[0])));
  EXPECT_THAT(run.up_log(), HasSubstr("tiny: 2 servers can serve about "));

  std::vector<kube::HttpRequest> requests;
  for (int i = 0; i < 24; ++i) requests.push_back(run.chat("Hello " + std::to_string(i), 16, true));
  std::set<std::string> workers;
  for (const auto& response : transport_.send_all(requests)) {
    ASSERT_TRUE(response.ok() && response->status == 200) << run.logs();
    EXPECT_EQ(count_of(response->body, "data: [DONE]"), 1);
    workers.insert(response->headers.at("x-windlass-worker"));
  }
  EXPECT_EQ(workers.size(), 2U);
  EXPECT_EQ(run.gateway_metrics().sum("windlass_gateway_requests_finished_total", {{"code", "200"}}).value_or(0), 24);

  first.reset();
  EXPECT_TRUE(eventually(60, [&] { return shows(run, 1); })) << run.logs();
  first.emplace(start_worker(ports[0]));
  EXPECT_TRUE(eventually(60, [&] { return shows(run, 2); })) << run.logs();

  run.up().signal(SIGINT);
  ASSERT_TRUE(eventually(60, [&] { return run.up().ended().has_value(); })) << run.logs();
  EXPECT_TRUE(run.up().ended_well()) << run.logs();
  EXPECT_TRUE(serves(ports[0]) && serves(ports[1]));
}

// Given servers that cannot be attached to; expects an error with the reason, and exit code 1.
TEST_F(Attach, RejectsServersThatItCannotReach) {
  const int port = windlass::free_port();  // nobody listens here
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"ftp://a:1"}, "URL: must be http://HOST:PORT (got 'ftp://a:1')"},
      {{fmt::format("http://127.0.0.1:{}", port)}, fmt::format("GET http://127.0.0.1:{}/v1/models: ", port)},
  };
  for (const auto& [arguments, expected] : cases) {
    std::vector<std::string> words = {"attach", "--dir", (folder_.path() / "run").string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const auto ran = kube::run_program(build_path() + "/windlass", words, {}, false, 180);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(ran->exit_code, 1);
    EXPECT_THAT(ran->err, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace windlass::cli
