// The record files with which a restarted controller finds its workers.
#include "controller/runtime/worker_records.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "controller/kube/curl_transport.h"
#include "controller/runtime/local_runtime.h"
#include "planner/deployment/pool_name.h"
#include "tests/unit/controller/kube/temp_dir.h"

namespace windlass::controller {
namespace {

WorkerRecord example() {
  WorkerRecord record;
  record.worker.name = "chat-0";
  record.worker.name_space = "default";
  record.worker.service = "chat";
  record.worker.service_uid = "uid-1";
  record.worker.pool = "l4-1";
  record.worker.slot = 3;
  record.worker.role = "unified";
  record.worker.accelerator = "l4";
  record.worker.gpus = 2;
  record.worker.max_concurrency = 7;
  record.worker.spec_hash = "v1-0123456789abcdef";
  record.worker.uid = "17-1";
  record.worker.address = "127.0.0.1:4711";
  record.worker.created_s = 1000.5;
  record.worker.ready_s = 1001.25;
  record.engine = "Windlass";
  record.log = "/logs/chat-0.log";
  record.drain_timeout_s = 60;
  return record;
}

class Records : public testing::Test {
 protected:
  kube::TempDir folder_;
  WorkerRecords records_ = WorkerRecords::open(folder_.path() / "workers").value();
};

// Given unfinished drafts and a log name that is not valid UTF-8; expects that the drafts are ignored and the record is
// written.
TEST_F(Records, IgnoreDraftsAndAcceptOddNames) {
  WorkerRecord record = example();
  record.log = "/logs/\xff/chat-0.log";
  ASSERT_TRUE(records_.write(record).ok());
  std::ofstream(folder_.path() / "workers" / "default.chat-0.json.new")
      << std::ifstream(folder_.path() / "workers" / "default.chat-0.json").rdbuf();
  ASSERT_EQ(records_.read().size(), 1U);
  EXPECT_EQ(records_.read()[0].worker.name, "chat-0");
}

// A sleeping process that is killed and reaped with this object.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    if (pid_ == 0) {
      execl("/bin/sleep", "sleep", "600", nullptr);
      _exit(127);
    }
  }
  ~Sleeper() { end(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// Given a record of a split service's worker, written by a version until 2026-11-28; expects the pool's current name.
TEST_F(Records, AreReadFromFormerVersions) {
  WorkerRecord record = example();
  record.worker.pool = planner::former_pool_name(record.worker.accelerator, record.worker.gpus, dispatch::Role::kDecode);
  record.worker.role = "decode";
  ASSERT_TRUE(records_.write(record).ok());
  const auto read = records_.read();
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].worker.pool, planner::pool_name(record.worker.accelerator, record.worker.gpus));
  EXPECT_EQ(read[0].worker.role, "decode");
}

// Given a record; expects to read it back once, with its derived fields, and nothing after it is erased.
TEST_F(Records, AreReadAsWritten) {
  WorkerRecord record = example();
  record.pid = 4711;
  record.start_ticks = 99;
  ASSERT_TRUE(records_.write(record).ok());
  record.worker.draining_since_s = 1002.0;
  record.stopping = true;
  record.sent_sigterm = true;
  record.kill_at_s = 77.5;
  ASSERT_TRUE(records_.write(record).ok());

  const auto read = records_.read();
  ASSERT_EQ(read.size(), 1U);
  const WorkerRecord& found = read[0];
  EXPECT_EQ(found.worker.name, "chat-0");
  EXPECT_EQ(found.worker.slot, 3);
  EXPECT_EQ(found.worker.spec_hash, "v1-0123456789abcdef");
  EXPECT_EQ(found.worker.ready_s, 1001.25);
  EXPECT_EQ(found.worker.draining_since_s, 1002.0);
  EXPECT_TRUE(found.worker.terminating);
  EXPECT_FALSE(found.worker.ready) << "it was told to end";
  EXPECT_EQ(found.pid, 4711);
  EXPECT_EQ(found.start_ticks, 99);
  EXPECT_TRUE(found.sent_sigterm);
  EXPECT_EQ(found.kill_at_s, 77.5);

  records_.erase("default", "chat-0");
  EXPECT_TRUE(records_.read().empty());
}

// Given files that are not records; expects that they are not read and are removed.
TEST_F(Records, InvalidFilesAreRemoved) {
  const auto folder = folder_.path() / "workers";
  std::ofstream(folder / "a.b.json") << "{\"name\": 1";
  std::ofstream(folder / "a.c.json") << "{\"name\": \"c\"}";
  std::ofstream(folder / "a.d.json.new") << "";
  EXPECT_TRUE(records_.read().empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

// Given a folder that cannot be created; expects an error with its name.
TEST_F(Records, NeedAFolder) {
  std::ofstream(folder_.path() / "file") << "";
  const auto opened = WorkerRecords::open(folder_.path() / "file" / "workers");
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, testing::HasSubstr("/file/workers"));
}

// Given a process; expects a constant start time that differs from another process's, and 0 for no process.
TEST(StartTicks, BelongToOneProcess) {
  Sleeper sleeper;
  const long long ticks = start_ticks_of(sleeper.pid());
  EXPECT_GT(ticks, 0);
  EXPECT_EQ(start_ticks_of(sleeper.pid()), ticks);
  const pid_t gone = sleeper.pid();
  sleeper.end();
  EXPECT_NE(start_ticks_of(gone), ticks);
}

// Given records of a running process, of one whose id was reused, and of one that is gone; expects that the runtime adopts only
// the first, sees it end, and forgets it when it is released.
TEST_F(Records, ARuntimeAdoptsRunningWorkers) {
  Sleeper sleeper;
  WorkerRecord runs = example();
  runs.pid = sleeper.pid();
  runs.start_ticks = start_ticks_of(sleeper.pid());
  WorkerRecord reused = runs;
  reused.worker.name = "chat-1";
  ++reused.start_ticks;
  WorkerRecord gone = runs;
  gone.worker.name = "chat-2";
  gone.pid = 0;
  for (const WorkerRecord& record : {runs, reused, gone}) ASSERT_TRUE(records_.write(record).ok());

  kube::CurlTransport transport{kube::CurlOptions{}};
  LocalRuntime runtime({}, transport, records_);
  ASSERT_EQ(runtime.workers().size(), 1U);
  EXPECT_EQ(runtime.workers()[0].name, "chat-0");
  EXPECT_TRUE(runtime.workers()[0].ready) << "a first slow answer would take it out of the table otherwise";
  EXPECT_EQ(records_.read().size(), 1U);
  Launch again;
  again.name = "chat-0";
  again.name_space = "default";
  EXPECT_EQ(runtime.create(again).error().code, ErrorCode::kAlreadyExists);

  sleeper.end();
  runtime.step({1, 1});
  const Worker ended = runtime.workers().at(0);
  EXPECT_TRUE(ended.finished);
  EXPECT_TRUE(ended.failed);
  EXPECT_THAT(ended.message, testing::HasSubstr("chat-0 has ended; its log is /logs/chat-0.log"));
  ASSERT_TRUE(runtime.release(ended).ok());
  EXPECT_TRUE(records_.read().empty());
}

// Given an adopted worker that is draining; expects that it is asked to end once, and that its end is not a failure.
TEST_F(Records, AnAdoptedWorkerIsEnded) {
  Sleeper sleeper;
  WorkerRecord record = example();
  record.pid = sleeper.pid();
  record.start_ticks = start_ticks_of(sleeper.pid());
  record.worker.draining_since_s = 1002.0;
  ASSERT_TRUE(records_.write(record).ok());
  kube::CurlTransport transport{kube::CurlOptions{}};
  LocalRuntime runtime({}, transport, records_);
  ASSERT_TRUE(runtime.terminate(runtime.workers().at(0), std::nullopt).ok());
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(sleeper.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(info.si_status, SIGTERM);
  EXPECT_TRUE(records_.read().at(0).sent_sigterm);
  runtime.step({1, 1});
  EXPECT_TRUE(runtime.workers().at(0).finished);
  EXPECT_FALSE(runtime.workers().at(0).failed);
}

}  // namespace
}  // namespace windlass::controller
