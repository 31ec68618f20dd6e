// Real workers that together have a model's blocks (docs/decisions/2026-11-22-chains-of-workers.md). The test plays the
// gateway.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/worker/serve/worker_process.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using testing::Answer;
using testing::ask;
using testing::Connection;
using testing::eventually;
using ::testing::HasSubstr;
using testing::metric;
using testing::Process;
using testing::Slowed;

// The model of worker_process.h has three blocks; each of three workers has one.
class ChainOfWorkers : public testing::Worker {
 protected:
  void SetUp() override {
    Worker::SetUp();
    allow_endless_requests();
    make_model();
    first_ = with_blocks("0:1", {});
    second_ = with_blocks("1:2", {});
    third_ = with_blocks("2:3", {});
  }

  One with_blocks(const std::string& blocks, std::vector<std::string> more) {
    more.insert(more.end(), {"--blocks", blocks});
    return start_one(more);
  }

  static std::string through(const std::vector<const One*>& hops) {
    std::string header = "X-Windlass-Chain: ";
    for (const One* each : hops) header += (header.back() == ' ' ? "" : ",") + address(*each);
    return header + "\r\n";
  }
  // Several hundred tokens: more than one iteration computes.
  static json request() {
    std::string prompt;
    for (int i = 0; i < 60; ++i) prompt += "the anchor chain number " + std::to_string(i) + " ";
    return {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 30}, {"temperature", 0}};
  }
  // The same as a stream that must be cancelled.
  static json endless() {
    json body = request();
    body.update({{"max_tokens", kEndless}, {"stream", true}, {"ignore_eos", true}});
    return body;
  }
  static double refusals(const One& one, const std::string& reason) {
    return metric_of(one, "windlass_worker_chain_refusals_total{model=\"tiny\",reason=\"" + reason + "\"}");
  }
  // No worker holds anything.
  static void expect_empty(const std::vector<const One*>& workers) {
    for (const One* each : workers) {
      EXPECT_TRUE(eventually([&] {
        return metric_of(*each, "windlass_worker_kv_cache_blocks_used{") == 0 &&
               metric_of(*each, "windlass_worker_chain_sessions{") == 0;
      })) << each->process->log();
    }
  }

  One first_, second_, third_;
};

// Given requests that are whole, streamed, sampled with a seed and penalties, and with several choices; expects three workers
// with one block each to give the texts of a worker with all blocks. So do two, the second of which has more than it needs.
TEST_F(ChainOfWorkers, AnswersAsOneWorkerWould) {
  const int port = testing::free_port();
  const auto alone = start_at(port);
  const One rest = with_blocks("1:3", {});
  const One two = with_blocks("0:2", {"--next", address(rest)});  // both have block 1
  json sampled = request();
  sampled.update({{"temperature", 0.8}, {"seed", 7}, {"repetition_penalty", 1.2}, {"logprobs", 2}});
  json several = request();
  several["n"] = 3;
  for (const json& body : {request(), sampled, several}) {
    const json expected = json::parse(ask(port, "POST", "/v1/completions", body.dump()).body);
    const Answer by_three = ask(first_.port, "POST", "/v1/completions", body.dump(), through({&second_, &third_}));
    const Answer by_two = ask(two.port, "POST", "/v1/completions", body.dump());
    for (const Answer& answer : {by_three, by_two}) {
      ASSERT_EQ(answer.status, 200) << answer.body;
      testing::expect_same_completion(json::parse(answer.body), expected);
    }
  }
  json streamed = request();
  streamed["stream"] = true;
  const Answer stream = ask(first_.port, "POST", "/v1/completions", streamed.dump(), through({&second_, &third_}));
  EXPECT_THAT(stream.body, HasSubstr("data: [DONE]"));
  EXPECT_EQ(testing::parse_stream(stream.body).text,
            json::parse(ask(port, "POST", "/v1/completions", request().dump()).body)["choices"][0]["text"]);

  expect_empty({&first_, &second_, &third_, &two, &rest});
  const std::string sent = "windlass_worker_chain_bytes_total{direction=\"sent\",model=\"tiny\"}";
  const std::string received = "windlass_worker_chain_bytes_total{direction=\"received\",model=\"tiny\"}";
  EXPECT_GT(metric_of(first_, sent), 6 * 300 * 128 * 4.0);
  EXPECT_EQ(metric_of(first_, sent), metric_of(second_, received));
  EXPECT_EQ(metric_of(second_, sent), metric_of(third_, received));
  EXPECT_GT(metric_of(first_, "windlass_worker_chain_step_seconds_count"), 30);
  EXPECT_EQ(metric_of(third_, "windlass_worker_chain_sessions_expired_total"), 0);
}

// Given a greedy request; expects one summary of logits per token. Given draws at a high temperature from a random model, which
// need more than summaries; expects full rows as well, and the right tokens.
TEST_F(ChainOfWorkers, LogitsComeAsSummaries) {
  const auto received_for = [&](const json& body) {
    const std::string series = "windlass_worker_chain_bytes_total{direction=\"received\",model=\"tiny\"}";
    const double before = metric_of(first_, series);
    const Answer answer = ask(first_.port, "POST", "/v1/completions", body.dump(), through({&second_, &third_}));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(json::parse(answer.body)["usage"]["completion_tokens"], 30);
    return metric_of(first_, series) - before;
  };
  json body = request();
  body["ignore_eos"] = true;
  EXPECT_EQ(received_for(body), 30 * 24);
  body.update({{"temperature", 1.5}, {"seed", 3}});
  EXPECT_GT(received_for(body), 30 * 528);
}

// Given eight simultaneous clients, two thirds of which leave early; expects the others to get their own texts, and nothing to
// remain.
TEST_F(ChainOfWorkers, ManyAtOnceAndClientsThatLeave) {
  const int port = testing::free_port();
  const auto alone = start_at(port);
  const auto body = [](int i, bool stream) {
    json one = request();
    one["prompt"] = one["prompt"].get<std::string>().substr(0, static_cast<std::size_t>(40 + 50 * i));
    one.update({{"max_tokens", 60}, {"stream", stream}});
    return one.dump();
  };
  std::vector<std::unique_ptr<Connection>> stay;
  {
    std::vector<std::unique_ptr<Connection>> leave;
    for (int i = 0; i < 8; ++i) {
      auto& list = i % 3 == 0 ? stay : leave;
      list.push_back(std::make_unique<Connection>(first_.port));
      list.back()->send("POST", "/v1/completions", body(i, i % 3 != 0), through({&second_, &third_}));
    }
    for (const auto& each : leave) EXPECT_TRUE(each->read_until("data: ")) << each->received();
  }
  for (std::size_t i = 0; i < stay.size(); ++i) {
    const Answer answer = testing::parse_answer(stay[i]->read_all());
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(json::parse(answer.body)["choices"],
              json::parse(ask(port, "POST", "/v1/completions", body(static_cast<int>(3 * i), false)).body)["choices"]);
  }
  expect_empty({&first_, &second_, &third_});
}

// Given an invalid chain (a gap, an early end, one worker too many, a wrong order, another model, another weight format, an
// absent worker); expects the request to be refused before it begins, with what was found and needed, and no worker to hold
// anything.
TEST_F(ChainOfWorkers, RefusesInvalidChains) {
  const One again = with_blocks("1:2", {});
  const auto other = folder_ / "other";
  Process init({testing::kProgram, "model", "init", "--layers", "3", "--hidden", "128", "--heads", "4", "--kv-heads", "2",
                "--intermediate", "344", "--max-context", "4096", "--seed", "99", other.string()},
               folder_ / "init-other.log");
  ASSERT_EQ(init.wait(), 0) << init.log();
  One foreign;
  foreign.port = testing::free_port();
  foreign.process =
      std::make_unique<Process>(std::vector<std::string>{testing::kProgram, "--model", other.string(), "--port",
                                                         std::to_string(foreign.port), "--name", "tiny", "--blocks", "2:3"},
                                folder_ / "foreign.log");
  ASSERT_TRUE(eventually([&] { return ask(foreign.port, "GET", "/ready").status == 200; })) << foreign.process->log();
  const One eight_bits = with_blocks("2:3", {"--weights", "int8"});
  One nobody;
  nobody.port = testing::free_port();

  struct Case {
    std::vector<const One*> hops;
    std::string says;
  };
  for (const Case& each : {Case{{&third_}, "must be 1:3 or the first of them (got 2:3 here)"},
                           Case{{&second_}, "must also have 2:3 (got a chain that ends here with 1:2)"},
                           Case{{&second_, &third_, &again}, "the chain must end here"},
                           Case{{&second_, &again}, "must be 2:3 or the first of them (got 1:2 here)"},
                           Case{{&second_, &foreign}, "model: must have fingerprint"},
                           Case{{&second_, &eight_bits}, "model: must have fingerprint"},
                           Case{{&second_, &nobody}, "worker " + address(nobody) + ": "}, Case{{&first_}, "(got 0:1 here)"}}) {
    const Answer answer = ask(first_.port, "POST", "/v1/completions", request().dump(), through(each.hops));
    EXPECT_EQ(answer.status, 503) << answer.body;
    EXPECT_THAT(answer.headers, HasSubstr("X-Windlass-Rejected: chain"));
    EXPECT_THAT(answer.body, HasSubstr(each.says));
  }
  expect_empty({&first_, &second_, &third_, &again, &foreign, &eight_bits});
  EXPECT_EQ(refusals(third_, "mismatch"), 2);
  EXPECT_EQ(refusals(second_, "unreachable"), 1);

  EXPECT_EQ(ask(first_.port, "POST", "/v1/completions", request().dump(), "X-Windlass-Chain: a b\r\n").status, 400);
  const Answer lone = ask(first_.port, "POST", "/v1/completions", request().dump());
  EXPECT_EQ(lone.status, 503);
  EXPECT_THAT(lone.headers, HasSubstr("X-Windlass-Rejected: role"));
  const Answer later = ask(second_.port, "POST", "/v1/completions", request().dump());
  EXPECT_EQ(later.status, 503);
  EXPECT_THAT(later.body, HasSubstr("serves only blocks 1:2 of 3"));
  EXPECT_EQ(ask(first_.port, "POST", "/v1/completions", request().dump(),
                through({&second_, &third_}) + "X-Windlass-Phase: prefill\r\n")
                .status,
            400);
}

// Given a last worker with room for one sequence; expects a second request to be refused while the first runs, to release what
// it had reserved, and to be served afterwards.
TEST_F(ChainOfWorkers, RefusesWhenTheLastWorkerIsFull) {
  const One small = with_blocks("2:3", {"--max-context-tokens", "60700", "--kv-cache-tokens", "60700"});
  std::optional<Connection> running(first_.port);
  running->send("POST", "/v1/completions", endless().dump(), through({&second_, &small}));
  ASSERT_TRUE(running->read_until("data: "));
  const Answer refused = ask(first_.port, "POST", "/v1/completions", request().dump(), through({&second_, &small}));
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_THAT(refused.headers, HasSubstr("X-Windlass-Rejected: full"));
  EXPECT_EQ(metric_of(second_, "windlass_worker_chain_sessions{"), 1);
  EXPECT_EQ(refusals(small, "full"), 1);
  running.reset();
  expect_empty({&second_, &small});
  EXPECT_EQ(ask(first_.port, "POST", "/v1/completions", request().dump(), through({&second_, &small})).status, 200);
  json longer = request();
  longer["max_tokens"] = 60'699;
  EXPECT_THAT(ask(first_.port, "POST", "/v1/completions", longer.dump(), through({&second_, &small})).body,
              HasSubstr("this worker's --max-context-tokens, which is 60700"));
}

// Given a last worker that dies while computing; expects requests through it to fail immediately, those through another last
// worker to go on, and the others to hold nothing. Given a first worker that dies; expects its sessions elsewhere to end with
// their lease.
TEST_F(ChainOfWorkers, ALostWorkerLeavesNothingBehind) {
  One mortal = with_blocks("2:3", {});
  Connection lost(first_.port);
  lost.send("POST", "/v1/completions", endless().dump(), through({&second_, &mortal}));
  json sound = request();
  sound.update({{"max_tokens", 400}, {"stream", true}, {"ignore_eos", true}});
  Connection well(first_.port);
  well.send("POST", "/v1/completions", sound.dump(), through({&second_, &third_}));
  ASSERT_TRUE(lost.read_until("data: "));
  ASSERT_TRUE(well.read_until("data: "));
  mortal.process->signal(SIGKILL);
  mortal.process->wait();
  const std::string& end = lost.read_all();
  EXPECT_THAT(end, HasSubstr("a later worker of the request's chain is lost"));
  EXPECT_THAT(end, ::testing::Not(HasSubstr("[DONE]")));
  EXPECT_THAT(well.read_all(), HasSubstr("data: [DONE]"));
  expect_empty({&first_, &second_, &third_});
  EXPECT_EQ(metric_of(first_, "windlass_worker_requests_finished_total{model=\"tiny\",reason=\"error\"}"), 1);

  Connection orphan(first_.port);
  orphan.send("POST", "/v1/completions", endless().dump(), through({&second_, &third_}));
  ASSERT_TRUE(orphan.read_until("data: "));
  EXPECT_EQ(metric_of(second_, "windlass_worker_chain_sessions{"), 1);
  first_.process->signal(SIGKILL);
  first_.process->wait();
  expect_empty({&second_, &third_});
  EXPECT_EQ(metric_of(second_, "windlass_worker_chain_sessions_expired_total"), 1);
}

// Given a last worker that is frozen; expects the request to fail once the limit of silence is reached. When it continues, it
// holds nothing of the request and accepts new ones.
TEST_F(ChainOfWorkers, FrozenWorkerCountsAsLost) {
  Connection client(first_.port);
  client.send("POST", "/v1/completions", endless().dump(), through({&second_, &third_}));
  ASSERT_TRUE(client.read_until("data: "));
  third_.process->signal(SIGSTOP);
  const auto began = testing::steady_clock::now();
  EXPECT_THAT(client.read_all(), HasSubstr("did not answer in time"));
  EXPECT_LT(testing::steady_clock::now() - began, std::chrono::seconds(30));
  expect_empty({&first_, &second_});
  third_.process->signal(SIGCONT);
  expect_empty({&third_});
  EXPECT_EQ(ask(first_.port, "POST", "/v1/completions", request().dump(), through({&second_, &third_})).status, 200);
}

// Given a last worker that dies before any of a whole answer is sent. If a gateway named the chain, expects the connection to
// break so that it can retry; if the first worker chose it, expects an error for the client, or a body that breaks off.
TEST_F(ChainOfWorkers, ALostChainBeforeTheAnswer) {
  json whole = endless();
  whole["stream"] = false;
  for (const bool named : {true, false}) {
    One mortal = with_blocks("1:3", {});
    const One first = with_blocks("0:1", {"--next", address(mortal)});
    Connection client(first.port);
    client.send("POST", "/v1/completions", whole.dump(), named ? through({&mortal}) : "");
    ASSERT_TRUE(eventually([&] { return metric_of(mortal, "windlass_worker_iteration_seconds_count") > 3; }));
    mortal.process->signal(SIGKILL);
    const std::string& received = client.read_all();
    EXPECT_THAT(received, ::testing::Not(HasSubstr("choices")));
    if (named || received.find(" 200 ") != std::string::npos) {
      EXPECT_THAT(received, ::testing::Not(::testing::EndsWith("0\r\n\r\n")));
    } else {
      EXPECT_THAT(received, HasSubstr(" 502 "));
      EXPECT_THAT(received, HasSubstr("chain_lost"));
    }
    expect_empty({&first});
  }
}

// Given a first worker that is full; expects the reservations of a request that it refuses to be released.
TEST_F(ChainOfWorkers, AFullFirstWorkerGivesBack) {
  const One first = with_blocks("0:1", {"--max-concurrent", "1"});
  json quick = request();
  quick["stream"] = true;
  std::vector<std::unique_ptr<Connection>> running;
  for (int i = 0; i < 3; ++i) {
    running.push_back(std::make_unique<Connection>(first.port));
    running.back()->send("POST", "/v1/completions", (i == 0 ? endless() : quick).dump(), through({&second_, &third_}));
    ASSERT_TRUE(eventually([&] { return metric_of(third_, "windlass_worker_chain_sessions{") == i + 1; }));
  }
  ASSERT_TRUE(running[0]->read_until("data: "));
  const Answer refused = ask(first.port, "POST", "/v1/completions", quick.dump(), through({&second_, &third_}));
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_THAT(refused.headers, HasSubstr("X-Windlass-Rejected: full"));
  EXPECT_TRUE(eventually([&] { return metric_of(third_, "windlass_worker_chain_sessions{") <= 3; }));
  running.front().reset();
  for (int i : {1, 2}) EXPECT_THAT(running[static_cast<std::size_t>(i)]->read_all(), HasSubstr("data: [DONE]"));
  expect_empty({&first, &second_, &third_});
}

// Given invalid calls; expects answers that say so, and workers that go on.
TEST_F(ChainOfWorkers, WrongCalls) {
  for (const char* verb : {"reserve", "step", "keep", "release"}) {
    for (const std::string& body : {std::string(), std::string("{}"), std::string(5000, 'x')}) {
      EXPECT_EQ(ask(second_.port, "POST", std::string("/chain/") + verb, body).status, 400) << verb;
    }
    EXPECT_EQ(ask(first_.port, "POST", std::string("/chain/") + verb, "{}").status, verb == std::string("keep") ? 400 : 409)
        << verb;
    EXPECT_EQ(ask(second_.port, "GET", std::string("/chain/") + verb).status, 405) << verb;
  }
  EXPECT_EQ(ask(second_.port, "POST", "/chain/other").status, 404);
  for (const One* each : {&first_, &second_}) {
    const Answer over = ask(each->port, "POST", "/chain/keep", std::string(32, 'a'));
    EXPECT_EQ(over.status, 404);
    EXPECT_EQ(over.body, std::string(32, 'a')) << "a session that is not there";
  }
  EXPECT_EQ(ask(second_.port, "POST", "/chain/release", std::string(32, 'a')).status, 200);
  EXPECT_EQ(ask(second_.port, "POST", "/role", R"({"role":"prefill"})").status, 403);
  EXPECT_EQ(ask(second_.port, "POST", "/tokenize", R"({"prompt":"a"})").status, 503);
  EXPECT_EQ(ask(first_.port, "POST", "/v1/completions", request().dump(), through({&second_, &third_})).status, 200);
}

// Given a later worker that is asked to stop during a session; expects the session to finish, new ones to be refused, and then
// the worker to exit.
TEST_F(ChainOfWorkers, DrainsItsSessions) {
  const One other = with_blocks("0:1", {});
  json slow = request();
  slow.update({{"max_tokens", 1000}, {"stream", true}, {"ignore_eos", true}});
  std::optional<Slowed> slowed(*other.process);
  Connection running(other.port);
  running.send("POST", "/v1/completions", slow.dump(), through({&second_, &third_}));
  ASSERT_TRUE(running.read_until("data: "));
  third_.process->signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return ask(third_.port, "GET", "/ready").status == 503; }));
  const Answer refused = ask(first_.port, "POST", "/v1/completions", request().dump(), through({&second_, &third_}));
  EXPECT_EQ(refused.status, 503) << refused.body;
  slowed.reset();
  EXPECT_THAT(running.read_all(), HasSubstr("data: [DONE]"));
  EXPECT_EQ(third_.process->wait(), 0) << third_.process->log();
}

// Given flags that do not fit the model; expects an error and exit.
TEST_F(ChainOfWorkers, FlagsThatDoNotFit) {
  const auto fails_with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {testing::kProgram, "--model", model().string(), "--port",
                                          std::to_string(testing::free_port())};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Process worker(arguments, folder_ / "wrong.log");
    EXPECT_EQ(worker.wait(), 1);
    return worker.log();
  };
  EXPECT_THAT(fails_with({"--blocks", "1:4"}),
              HasSubstr("--blocks: must end at 3 or before, the model's number of blocks (got 1:4)"));
  EXPECT_THAT(fails_with({"--blocks", "0:3", "--next", "a:1"}), HasSubstr("--next: must not be given (got a:1)"));
}

}  // namespace
}  // namespace windlass::worker
