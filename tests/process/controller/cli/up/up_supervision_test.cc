// `windlass up` while its programs are killed one after the other: each loses what it held and nothing else.
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

// The ids of the run's live processes of this program.
std::vector<int> pids_of(const LocalRun& run, const std::string& program) {
  std::vector<int> found;
  for (const int pid : run.processes()) {
    if (program_of(pid) == program) found.push_back(pid);
  }
  return found;
}

// Asks for one short answer after the other until it is ended.
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

// A service of one worker, and a client that is answered.
class Supervision : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eventually(60, [&] { return run_.at_rest(1); })) << run_.logs();
    client_ = std::make_unique<Client>(run_);
    ASSERT_TRUE(goes_on()) << run_.logs();
  }

  // Whether the client gets further answers.
  [[nodiscard]] bool goes_on() {
    const int before = client_->answered();
    return eventually(60, [&] { return client_->answered() >= before + 5; });
  }

  // Kills the only process of the program; another has taken its place.
  [[nodiscard]] bool is_replaced(const std::string& program) {
    std::vector<int> before;  // the controller's are two for the moment in which it starts a worker
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

// Given a controller that is killed; expects that no request is lost, and that the next one takes over the same worker and ends
// it when `up` ends.
TEST_F(Supervision, AKilledControllerLosesNothing) {
  const std::vector<int> workers = pids_of(run_, "windlass-worker");
  ASSERT_TRUE(is_replaced("windlass-controller")) << run_.logs();
  ASSERT_TRUE(eventually(60, [&] { return run_.at_rest(1); })) << run_.logs();
  ASSERT_TRUE(goes_on()) << run_.logs();
  client_->end();
  EXPECT_EQ(client_->failed(), 0) << run_.logs();
  EXPECT_EQ(pids_of(run_, "windlass-worker"), workers);
  EXPECT_THAT(run_.up_log(), HasSubstr("windlass-controller was ended by signal 9; it is started again."));

  run_.up().signal(SIGINT);
  ASSERT_TRUE(eventually(60, [&] { return run_.up().ended().has_value(); })) << run_.logs();
  EXPECT_TRUE(run_.up().ended_well()) << run_.logs();
  EXPECT_TRUE(eventually(10, [&] { return run_.processes().empty(); })) << run_.logs();
}

// Given a gateway that is killed; expects that at most the request that it held is lost: the others wait for the next gateway.
TEST_F(Supervision, AKilledGatewayLosesWhatItHeld) {
  ASSERT_TRUE(is_replaced("windlass-gateway")) << run_.logs();
  ASSERT_TRUE(goes_on()) << run_.logs();
  client_->end();
  EXPECT_LE(client_->failed(), 1) << run_.logs();
}

// Given a worker that is killed, also one that its controller had to adopt; expects another in its place, and that at most the
// request that it held is lost.
TEST_F(Supervision, AKilledWorkerLosesWhatItHeld) {
  ASSERT_TRUE(is_replaced("windlass-worker")) << run_.logs();
  ASSERT_TRUE(goes_on()) << run_.logs();
  ASSERT_TRUE(is_replaced("windlass-controller")) << run_.logs();
  ASSERT_TRUE(eventually(60, [&] { return run_.at_rest(1); })) << run_.logs();  // it has adopted the worker
  ASSERT_TRUE(is_replaced("windlass-worker")) << run_.logs();
  ASSERT_TRUE(goes_on()) << run_.logs();
  client_->end();
  EXPECT_LE(client_->failed(), 2) << run_.logs();
}

// Given `up` and its controller killed at once, so that nobody is left to end the worker; expects that the next `up` in the
// folder takes it over.
TEST_F(Supervision, TheNextUpAdoptsWhatIsLeft) {
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
