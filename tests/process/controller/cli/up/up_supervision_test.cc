// Kills the programs of `windlass up` one after the other: each loses only what it held itself.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process/controller/cli/local/local_run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

std::string program_of(int pid) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).filename().string();
}

// The ids of this program's live processes in the run.
std::vector<int> pids_of(const LocalRun& run, const std::string& program) {
  std::vector<int> found;
  for (const int pid : run.processes()) {
    if (program_of(pid) == program) found.push_back(pid);
  }
  return found;
}

// Sends one short request after the other until it is stopped.
class Client {
 public:
  explicit Client(const LocalRun& run) : thread_([this, &run] { ask(run); }) {}
  ~Client() { end(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void end() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] int answered() const { return answered_; }
  [[nodiscard]] int failed() const { return failed_; }

 private:
  void ask(const LocalRun& run) {
    kube::CurlTransport transport{kube::CurlOptions{}};
    while (!stopped_) {
      const auto response = transport.send(run.chat("Hello", 4, false));
      ++(response.ok() && response->status == 200 ? answered_ : failed_);
    }
  }

  std::atomic<bool> stopped_{false};
  std::atomic<int> answered_{0};
  std::atomic<int> failed_{0};
  std::thread thread_;
};

// A service with one worker, and a client that gets answers.
class Supervision : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eventually(60, [&] { return run_.at_rest(1); })) << run_.logs();
    client_ = std::make_unique<Client>(run_);
    ASSERT_TRUE(goes_on()) << run_.logs();
  }

  // Whether the client still gets answers.
  [[nodiscard]] bool goes_on() {
    const int before = client_->answered();
    return eventually(60, [&] { return client_->answered() >= before + 5; });
  }

  // Kills the program's only process; returns whether another has replaced it.
  [[nodiscard]] bool is_replaced(const std::string& program) {
    std::vector<int> before;  // while it starts a worker, the controller briefly has two
    if (!eventually(60, [&] { return (before = pids_of(run_, program)).size() == 1; })) return false;
    kill(before[0], SIGKILL);
    return eventually(60, [&] {
      const std::vector<int> now = pids_of(run_, program);
      return now.size() == 1 && now != before;
    });
  }

  LocalRun run_{1};
  std::unique_ptr<Client> client_;
};

// Given a controller that is killed; expects no lost request, and the next controller to adopt the same worker and to end it
// when `up` ends.
TEST_F(Supervision, AKilledControllerLosesNothing) {
  const std::vector<int> workers = pids_of(run_, "windlass-worker");
  ASSERT_TRUE(is_replaced("windlass-controller")) << run_.logs();
  ASSERT_TRUE(eventually(60, [&] { return run_.at_rest(1); })) << run_.logs();
  ASSERT_TRUE(goes_on()) << run_.logs();
  client_->end();
  EXPECT_EQ(client_->failed(), 0) << run_.logs();
  EXPECT_EQ(pids_of(run_, "windlass-worker"), workers);
  EXPECT_THAT(run_.up_log(), HasSubstr("windlass-controller was killed by signal 9; restarting it."));

  run_.up().signal(SIGINT);
  ASSERT_TRUE(eventually(60, [&] { return run_.up().ended().has_value(); })) << run_.logs();
  EXPECT_TRUE(run_.up().ended_well()) << run_.logs();
  EXPECT_TRUE(eventually(10, [&] { return run_.processes().empty(); })) << run_.logs();
}

// Given a gateway that is killed; expects at most its current request to be lost: the others wait for the next gateway.
TEST_F(Supervision, AKilledGatewayLosesOnlyItsOwnRequest) {
  ASSERT_TRUE(is_replaced("windlass-gateway")) << run_.logs();
  ASSERT_TRUE(goes_on()) << run_.logs();
  client_->end();
  EXPECT_LE(client_->failed(), 1) << run_.logs();
}

// Given a worker that is killed, once started and once adopted by its controller; expects another in its place, and at most the
// worker's current request to be lost.
TEST_F(Supervision, AKilledWorkerLosesOnlyItsOwnRequest) {
  ASSERT_TRUE(is_replaced("windlass-worker")) << run_.logs();
  ASSERT_TRUE(goes_on()) << run_.logs();
  ASSERT_TRUE(is_replaced("windlass-controller")) << run_.logs();
  ASSERT_TRUE(eventually(60, [&] { return run_.at_rest(1); })) << run_.logs();  // the new controller has adopted the worker
  ASSERT_TRUE(is_replaced("windlass-worker")) << run_.logs();
  ASSERT_TRUE(goes_on()) << run_.logs();
  client_->end();
  EXPECT_LE(client_->failed(), 2) << run_.logs();
}

// Given `up` and its controller killed at the same time, so that nobody can end the worker; expects the next `up` in the folder
// to adopt it.
TEST_F(Supervision, TheNextUpAdoptsTheWorker) {
  client_->end();
  const std::vector<int> workers = pids_of(run_, "windlass-worker");
  const std::vector<int> controllers = pids_of(run_, "windlass-controller");
  ASSERT_EQ(controllers.size(), 1U);
  kill(controllers[0], SIGSTOP);
  run_.up().signal(SIGKILL);
  kill(controllers[0], SIGKILL);
  ASSERT_TRUE(eventually(60, [&] { return run_.up().ended() && run_.processes() == workers; })) << run_.logs();

  run_.start_again();
  ASSERT_TRUE(eventually(60, [&] { return run_.at_rest(1); })) << run_.logs();
  EXPECT_EQ(pids_of(run_, "windlass-worker"), workers) << run_.logs();
  run_.up().signal(SIGINT);
  ASSERT_TRUE(eventually(60, [&] { return run_.up().ended().has_value(); })) << run_.logs();
  EXPECT_TRUE(eventually(10, [&] { return run_.processes().empty(); })) << run_.logs();
}

}  // namespace
}  // namespace windlass::cli
