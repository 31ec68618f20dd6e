// Servers run by others, as workers: they are observed and never changed.
#include "controller/runtime/attached_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace windlass::controller {
namespace {

using ::testing::HasSubstr;

// Servers by address, each with its answer.
class Servers final : public kube::HttpTransport {
 public:
  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override { return answers.at(request.url); }
  Result<std::unique_ptr<kube::HttpStream>> stream(const kube::HttpRequest&) override { return Error{}; }

  std::map<std::string, Result<kube::HttpResponse>> answers;
};

class Attached : public testing::Test {
 protected:
  Worker at(double now_s) {
    runtime_.step({now_s, now_s});
    return runtime_.workers().at(0);
  }
  void answer(Result<kube::HttpResponse> with) { servers_.answers.insert_or_assign("http://h:1/v1/models", std::move(with)); }

  Servers servers_;
  std::string uid_ = "uid-1";
  AttachedRuntime runtime_{{{"tiny", "h:1", "this-machine", 2, 4}}, [this](const std::string&) { return uid_; }, servers_};
};

// Given a server that answers, is slow, refuses, fails and answers again; expects that refusals, failures and half a minute of
// silence make it unready.
TEST_F(Attached, AreReadyWhileTheyAnswer) {
  EXPECT_FALSE(runtime_.synced());
  answer(kube::HttpResponse{200, {}, ""});
  const Worker first = at(1);
  EXPECT_TRUE(runtime_.synced());
  EXPECT_TRUE(first.ready);
  EXPECT_EQ(first.name, "tiny-attached-0");
  EXPECT_EQ(first.service_uid, "uid-1");
  EXPECT_EQ(first.pool, "this-machine-2");
  EXPECT_EQ(first.max_concurrency, 4);
  EXPECT_EQ(first.ready_s, 1);
  answer(Error{ErrorCode::kDeadlineExceeded, "slow"});
  EXPECT_TRUE(at(2).ready);
  answer(Error{ErrorCode::kUnavailable, "connection refused"});
  EXPECT_FALSE(at(10).ready);
  EXPECT_EQ(at(10).message, "connection refused");
  answer(Error{ErrorCode::kDeadlineExceeded, "slow"});
  EXPECT_FALSE(at(11).ready) << "it has not come back";
  answer(kube::HttpResponse{500, {}, ""});
  EXPECT_THAT(at(20).message, HasSubstr("must answer with status 200 (got 500)"));
  answer(kube::HttpResponse{200, {}, ""});
  EXPECT_TRUE(at(30).ready);
  EXPECT_EQ(at(30).ready_s, 30);
  EXPECT_FALSE(at(30).failed);
  answer(Error{ErrorCode::kDeadlineExceeded, "slow"});
  EXPECT_TRUE(at(40).ready);
  EXPECT_TRUE(at(59).ready);
  EXPECT_FALSE(at(70).ready);
  EXPECT_EQ(at(80).message, "slow");
}

// Given a service that is no longer in the folder; expects that its server is no longer a worker.
TEST_F(Attached, BelongToAService) {
  answer(kube::HttpResponse{200, {}, ""});
  runtime_.step({1, 1});
  uid_.clear();
  EXPECT_TRUE(runtime_.workers().empty());
}

// Given requests to start, drain or end one; expects an error that says who runs it.
TEST_F(Attached, AreNeverChanged) {
  answer(kube::HttpResponse{200, {}, ""});
  const Worker worker = at(1);
  Launch spec;
  spec.name = "tiny-1";
  for (const auto& refused : {runtime_.check(spec), runtime_.create(spec), runtime_.begin_drain(worker, {}),
                              runtime_.terminate(worker, std::nullopt)}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("does not start or stop attached servers"));
  }
}

// Given servers as JSON; expects them back. Given mistakes; expects errors with the item and the field.
TEST(AttachedServers, AsJson) {
  const auto read = attached_servers_from_json(to_json({{"tiny", "h:1", "core", 2, 16}})).value();
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].address, "h:1");
  EXPECT_EQ(read[0].gpus, 2);
  EXPECT_EQ(read[0].slots, 16);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "must be a list"},
      {"[7]", "servers[0]"},
      {R"([{"service":"a","address":"h:1","accelerator":"c","gpus":1,"slots":0}])", "servers[0].slots"},
      {R"([{"service":"a","address":"h:1","accelerator":"c","gpus":1}])", "servers[0].slots"}};
  for (const auto& [text, expected] : cases) {
    const auto wrong = attached_servers_from_json(text);
    ASSERT_FALSE(wrong.ok()) << text;
    EXPECT_THAT(wrong.error().message, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace windlass::controller
