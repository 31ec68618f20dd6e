// The runtime of `windlass up` with the real worker: what a service's spec.engine.args change of its command line.
#include "controller/runtime/local_runtime.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/clock.h"
#include "tests/paths.h"
#include "tests/process/cli/local_run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// A runtime with a model, and a spec of a worker on it.
class ProcessesOfARuntime : public testing::Test {
 protected:
  void SetUp() override {
    const std::string binaries = build_path();
    const auto made =
        run_program({binaries + "/windlass", "model", "init", "--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads",
                     "2", "--intermediate", "128", "--max-context", "512", (folder_.path() / "model").string()});
    ASSERT_TRUE(made.ok() && *made == 0) << "windlass model init failed";
    controller::LocalRuntimeOptions options;
    options.worker_binary = binaries + "/windlass-worker";
    options.log_directory = folder_.path().string();
    options.restart_backoff_max_s = 1;
    runtime_ = std::make_unique<controller::LocalRuntime>(options, transport_);

    spec_.name = "tiny-0";
    spec_.name_space = "default";
    spec_.role = "unified";
    spec_.resource_name = "nvidia.com/gpu";
    spec_.max_concurrency = 37;
    spec_.engine = "Windlass";
    spec_.served_name = "tiny";
    spec_.model_uri = "file://" + (folder_.path() / "model").string();
    spec_.max_context_tokens = 512;
    spec_.drain_timeout_s = 0.25;
  }

  [[nodiscard]] bool becomes_ready() {
    return eventually(60, [&] {
      runtime_->step({monotonic_s(), monotonic_s()});
      return runtime_->workers().at(0).ready;
    });
  }
  [[nodiscard]] double metric_of_worker(const std::string& name) {
    kube::HttpRequest request;
    request.url = "http://" + runtime_->workers().at(0).address + "/metrics";
    const auto response = transport_.send(request);
    if (!response.ok()) return -1;
    const auto page = metrics::parse_exposition(response->body);
    return page.ok() ? page->sum(name, {}).value_or(-1) : -1;
  }

  TempFolder folder_;
  kube::CurlTransport transport_{kube::CurlOptions{}};
  std::unique_ptr<controller::LocalRuntime> runtime_;
  controller::WorkerSpec spec_;
};

// Given a service's arguments for what we say too, in two words and in one, expect a worker that serves with the user's
// values: a KV cache of 4 contexts of 64 tokens, in blocks of 16. That its class counts GPUs is no reason to look for one.
TEST_F(ProcessesOfARuntime, TakeTheUsersArgumentsInPlaceOfOurs) {
  spec_.extra_args = {"--max-concurrent", "4", "--max-context-tokens=64", "--no-prefix-caching"};
  const auto created = runtime_->create(spec_);
  ASSERT_TRUE(created.ok()) << created.error().message;
  ASSERT_TRUE(becomes_ready()) << runtime_->workers().at(0).message;
  EXPECT_EQ(metric_of_worker("windlass_worker_kv_cache_blocks"), 4 * 64 / 16);
}

// Given no arguments of the user's, expect a worker that serves with those of the plan.
TEST_F(ProcessesOfARuntime, HaveThePlansArguments) {
  const auto created = runtime_->create(spec_);
  ASSERT_TRUE(created.ok()) << created.error().message;
  ASSERT_TRUE(becomes_ready()) << runtime_->workers().at(0).message;
  EXPECT_EQ(metric_of_worker("windlass_worker_kv_cache_blocks"), 37 * 512 / 16);
}

// Given an argument that would move the worker away from where it is looked for, expect that none is started, and why.
TEST_F(ProcessesOfARuntime, AreNotStartedElsewhere) {
  spec_.extra_args = {"--listen=127.0.0.1:1"};
  const auto created = runtime_->create(spec_);
  ASSERT_FALSE(created.ok());
  EXPECT_THAT(created.error().message, HasSubstr("spec.engine.args: found '--listen=127.0.0.1:1'"));
  EXPECT_TRUE(runtime_->workers().empty());
}

}  // namespace
}  // namespace windlass::cli
