// The runtime of `windlass up`: how a service's spec.engine.args change the real worker's command line, and which processes end
// with a worker.
#include "controller/runtime/local_runtime.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "metrics/host/clock.h"
#include "tests/paths.h"
#include "tests/process/controller/cli/local/local_run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// A runtime with a model, and the spec of a worker for it.
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
  controller::Launch spec_;
};

// Given a service's arguments that override ours, as two words and as one; expects a worker that uses the user's values: a KV
// cache of 4 contexts of 64 tokens, in blocks of 16. The class counts GPUs, but none is required here.
TEST_F(ProcessesOfARuntime, PreferTheUsersArguments) {
  spec_.extra_args = {"--max-concurrent", "4", "--max-context-tokens=64", "--no-prefix-caching"};
  const auto created = runtime_->create(spec_);
  ASSERT_TRUE(created.ok()) << created.error().message;
  ASSERT_TRUE(becomes_ready()) << runtime_->workers().at(0).message;
  EXPECT_EQ(metric_of_worker("windlass_worker_kv_cache_blocks"), 4 * 64 / 16);
}

// Given no arguments from the user; expects a worker that uses those of the plan.
TEST_F(ProcessesOfARuntime, UseThePlansArguments) {
  const auto created = runtime_->create(spec_);
  ASSERT_TRUE(created.ok()) << created.error().message;
  ASSERT_TRUE(becomes_ready()) << runtime_->workers().at(0).message;
  EXPECT_EQ(metric_of_worker("windlass_worker_kv_cache_blocks"), 37 * 512 / 16);
}

// Given settings that a strategy chose, and an engine that writes down its arguments; expects them in its own words, and the
// user's value where there is one.
TEST_F(ProcessesOfARuntime, UseChosenSettings) {
  const auto program = folder_.path() / "vllm", said = folder_.path() / "said";
  std::ofstream(program) << "#!/bin/sh\nprintf '%s ' \"$@\" >'" << said.string() << ".part'\nmv '" << said.string()
                         << ".part' '" << said.string() << "'\nexec sleep 1000\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  spec_.engine = "VLLM";
  spec_.program = program.string();
  spec_.extra_args = {"--max-num-seqs=64"};
  spec_.settings.batching = planner::Batching::kVllmV1;
  spec_.settings.max_batch_tokens = 4096;
  const auto created = runtime_->create(spec_);
  ASSERT_TRUE(created.ok()) << created.error().message;
  ASSERT_TRUE(eventually(60, [&] { return std::filesystem::exists(said); }));
  std::ifstream in(said);
  const std::string words{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(words, HasSubstr(" --max-num-batched-tokens 4096 --enable-chunked-prefill "));
  EXPECT_THAT(words, HasSubstr(" --max-num-seqs=64"));
  EXPECT_THAT(words, testing::Not(HasSubstr("--max-num-seqs 37")));
}

// Given an argument that would move the worker to another address; expects that none is started, and the reason.
TEST_F(ProcessesOfARuntime, AreNotStartedElsewhere) {
  spec_.extra_args = {"--listen=127.0.0.1:1"};
  const auto created = runtime_->create(spec_);
  ASSERT_FALSE(created.ok());
  EXPECT_THAT(created.error().message,
              HasSubstr("spec.engine.args: must not set what the gateway and the probes rely on (got '--listen=127.0.0.1:1')"));
  EXPECT_TRUE(runtime_->workers().empty());
}

// Given a missing folder for records; expects that no worker is started, because nobody could find it again, and the reason.
// Given the folder again; expects a worker.
TEST_F(ProcessesOfARuntime, AreNotStartedWithoutARecord) {
  const auto records = folder_.path() / "workers";
  controller::LocalRuntimeOptions options;
  options.worker_binary = build_path() + "/windlass-worker";
  options.log_directory = folder_.path().string();
  runtime_ = std::make_unique<controller::LocalRuntime>(options, transport_, controller::WorkerRecords::open(records).value());
  std::filesystem::remove(records);
  const auto created = runtime_->create(spec_);
  ASSERT_FALSE(created.ok());
  EXPECT_THAT(created.error().message, HasSubstr("cannot start tiny-0: "));
  EXPECT_THAT(created.error().message, HasSubstr("cannot be written"));
  EXPECT_TRUE(runtime_->workers().empty());
  std::filesystem::create_directory(records);
  ASSERT_TRUE(runtime_->create(spec_).ok());
  EXPECT_TRUE(becomes_ready());
}

// Given a prefill worker that is made a decode worker; expects its record and its process to say so, and the process that
// follows it after a crash, too.
TEST_F(ProcessesOfARuntime, KeepAChangedRole) {
  const auto records = controller::WorkerRecords::open(folder_.path() / "workers").value();
  controller::LocalRuntimeOptions options;
  options.worker_binary = build_path() + "/windlass-worker";
  options.log_directory = folder_.path().string();
  options.restart_backoff_s = 0;
  runtime_ = std::make_unique<controller::LocalRuntime>(options, transport_, records);
  spec_.role = "prefill";
  ASSERT_TRUE(runtime_->create(spec_).ok());
  ASSERT_TRUE(becomes_ready()) << runtime_->workers().at(0).message;
  const auto ask = [&](kube::HttpRequest request) {
    const controller::Worker worker = runtime_->workers().at(0);
    request.url = "http://" + worker.address + "/role";
    request.headers = {{"Authorization", "Bearer " + worker.duty_token}};
    const auto answer = transport_.send(request);
    return answer.ok() ? answer->body : answer.error().message;
  };
  const std::string decode = R"({"role":"decode"})";
  ASSERT_TRUE(runtime_->begin_role_change(runtime_->workers().at(0), "decode", {monotonic_s(), monotonic_s()}).ok());
  EXPECT_TRUE(runtime_->workers().at(0).changing_role_since_s.has_value());
  EXPECT_EQ(ask({.method = "POST", .body = decode}), decode);
  ASSERT_TRUE(runtime_->end_role_change(runtime_->workers().at(0)).ok());
  EXPECT_FALSE(runtime_->workers().at(0).changing_role_since_s.has_value());
  const controller::WorkerRecord record = records.read().at(0);
  EXPECT_EQ(record.worker.role, "decode");
  EXPECT_EQ(::kill(record.pid, SIGKILL), 0);
  ASSERT_TRUE(eventually(60, [&] {
    runtime_->step({monotonic_s(), monotonic_s()});
    return records.read().at(0).pid != record.pid;
  }));
  ASSERT_TRUE(becomes_ready()) << runtime_->workers().at(0).message;
  EXPECT_EQ(ask({}), decode);
}

// Given an engine whose interpreter is gone, as in a moved virtual environment; expects only a few starts, the reason, and the
// spec to be rejected from then on.
TEST_F(ProcessesOfARuntime, AreGivenUpIfTheyCannotRun) {
  const auto program = folder_.path() / "vllm";
  std::ofstream(program) << "#!/no/such/python\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  spec_.engine = "VLLM";
  spec_.program = program.string();
  const auto created = runtime_->create(spec_);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_THAT(runtime_->workers().at(0).message,
              HasSubstr("cannot run: " + program.string() + ": its interpreter: No such file"));
  EXPECT_TRUE(eventually(60, [&] {
    runtime_->step({monotonic_s(), monotonic_s()});
    return runtime_->workers().at(0).message.find("is not started again until the spec changes") != std::string::npos;
  })) << runtime_->workers().at(0).message;
  EXPECT_FALSE(runtime_->check(spec_).ok());
}

// A worker that starts a process which would outlive it, writes down its id, and waits.
class WorkerWithAChild : public ProcessesOfARuntime {
 protected:
  void SetUp() override {
    ProcessesOfARuntime::SetUp();
    const std::filesystem::path script = folder_.path() / "worker";
    std::ofstream(script) << "#!/bin/sh\n(trap '' TERM; exec sleep 1000000) &\necho $! >" << child_file().string()
                          << ".new\nmv " << child_file().string() << ".new " << child_file().string() << "\nwait\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    controller::LocalRuntimeOptions options;
    options.worker_binary = script.string();
    options.log_directory = folder_.path().string();
    options.restart_backoff_s = options.restart_backoff_max_s = 1e6;
    runtime_ = std::make_unique<controller::LocalRuntime>(options, transport_);
    ASSERT_TRUE(runtime_->create(spec_).ok());
    ASSERT_TRUE(eventually(60, [&] { return std::filesystem::exists(child_file()); }));
    std::ifstream(child_file()) >> child_;
    ASSERT_TRUE(child_runs());
  }

  [[nodiscard]] std::filesystem::path child_file() const { return folder_.path() / "child"; }
  // An ended process may stay in the process table as long as its new parent likes.
  [[nodiscard]] bool child_runs() const {
    std::ifstream in(fmt::format("/proc/{}/stat", child_));
    std::string id, name, state;
    return (in >> id >> name >> state) && state != "Z" && state != "X";
  }

  pid_t child_ = -1;
};

// Given a worker that is killed; expects its child to end, too.
TEST_F(WorkerWithAChild, ChildEndsWithTheWorker) {
  ASSERT_EQ(::kill(::getpgid(child_), SIGKILL), 0);
  ASSERT_TRUE(eventually(60, [&] {
    runtime_->step({monotonic_s(), monotonic_s()});
    return runtime_->workers().at(0).failed;
  }));
  EXPECT_TRUE(eventually(60, [&] { return !child_runs(); }));
}

// Given a runtime that ends; expects the worker's child to end, too, although it ignores SIGTERM.
TEST_F(WorkerWithAChild, ChildEndsWithTheRuntime) {
  runtime_.reset();
  EXPECT_TRUE(eventually(60, [&] { return !child_runs(); }));
}

}  // namespace
}  // namespace windlass::cli
