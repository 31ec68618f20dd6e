// Real workers that change their blocks while requests run through them (docs/decisions/2026-11-23-block-range-changes.md). The
// test plays the gateway.
#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

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
using ::testing::Not;
using testing::Process;

// The model of worker_process.h has three blocks.
class ChangingBlocks : public testing::Worker {
 protected:
  void SetUp() override {
    Worker::SetUp();
    make_model();
    std::ofstream(folder_ / "token") << "the-token-of-this-installation\n";
  }
  One with(std::vector<std::string> more) {
    more.insert(more.end(), {"--token-file", (folder_ / "token").string()});
    return start_one(more);
  }
  static Answer change(const One& one, const std::string& blocks) {
    return ask(one.port, "POST", "/blocks", json{{"blocks", blocks}}.dump(), kRight);
  }
  static json blocks_of(const One& one) { return json::parse(ask(one.port, "GET", "/blocks").body); }
  static std::string request(int tokens, bool stream = false) {
    return json{{"model", "tiny"},      {"prompt", "the anchor chain"},
                {"max_tokens", tokens}, {"temperature", 0},
                {"stream", stream},     {"ignore_eos", true}}
        .dump();
  }
  static std::string text_of(const Answer& answer) {
    const json whole = json::parse(answer.body, nullptr, false);
    return whole.is_discarded() || !whole.contains("choices") ? answer.body : whole["choices"][0]["text"].get<std::string>();
  }
  // A stream through `one` and the later worker, and a call that asks `changing` for other blocks. When it returns, that worker
  // waits for the stream, which continues slowly until `slowed` is reset.
  struct ChangeUnderWay {
    ChangeUnderWay(const One& one, const One& later, const One& changing, const std::string& blocks)
        : slowed(std::in_place, *(&changing == &one ? later : one).process), running(one.port), asking(changing.port) {
      running.send("POST", "/v1/completions", request(kTokens, true), "X-Windlass-Chain: " + address(later) + "\r\n");
      EXPECT_TRUE(running.read_until("data: "));
      asking.send("POST", "/blocks", json{{"blocks", blocks}}.dump(), kRight);
      EXPECT_TRUE(eventually([&] { return ask(changing.port, "GET", "/ready").status == 503; }));
    }
    static constexpr int kTokens = 1000;
    std::optional<testing::Slowed> slowed;
    Connection running, asking;
  };

  // Writes a NaN into a block, in place, between the samples that the fingerprint reads.
  void damage(int block) const {
    std::fstream file(model() / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t header = 0;
    file.read(reinterpret_cast<char*>(&header), sizeof(header));
    std::string text(header, ' ');
    file.read(text.data(), static_cast<std::streamsize>(header));
    const json at = json::parse(text).at("model.layers." + std::to_string(block) + ".mlp.down_proj.weight").at("data_offsets");
    const std::uint64_t size = at[1].get<std::uint64_t>() - at[0].get<std::uint64_t>();
    file.seekp(static_cast<std::streamoff>(8 + header + at[0].get<std::uint64_t>() + size / 16 + 64));
    file.write("\xFF\xFF\xFF\xFF", 4);
  }

  static constexpr const char* kRight = "Authorization: Bearer the-token-of-this-installation\r\n";
};

// Given a chain of two whose split moves back and forth while a client keeps asking; expects every answer to be the whole
// model's text, or an explicit refusal. The worker that gains blocks changes first, so that no block is missing. If the machine
// stalls until the workers consider each other lost, an answer may be broken off, with the reason in the log.
TEST_F(ChangingBlocks, ACutMovesUnderRequests) {
  const One alone = with({});
  const One second = with({"--blocks", "1:3"});
  const One first = with({"--blocks", "0:1", "--next", address(second)});
  const std::string expected = text_of(ask(alone.port, "POST", "/v1/completions", request(40)));
  std::atomic<bool> enough{false};
  std::atomic<int> answered{0};
  std::atomic<int> refused{0};
  int broken = 0;
  std::thread client([&] {
    while (!enough) {
      const Answer answer = ask(first.port, "POST", "/v1/completions", request(40));
      if (answer.status == 200 && !json::accept(answer.body)) {
        ++broken;
        continue;
      }
      if (answer.status == 200) {
        EXPECT_EQ(text_of(answer), expected);
        ++answered;
        continue;
      }
      EXPECT_EQ(answer.status, 503) << answer.body;
      EXPECT_THAT(answer.headers, HasSubstr("X-Windlass-Rejected: "));
      ++refused;
    }
  });
  const auto more_answers = [&] {
    const int before = answered;
    return eventually([&] { return answered > before + 1; });
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(more_answers());
    EXPECT_EQ(change(first, "0:2").body, R"({"blocks":"0:2","layers":3})");
    EXPECT_EQ(change(second, "2:3").status, 200);
    EXPECT_TRUE(more_answers());
    EXPECT_EQ(change(second, "1:3").status, 200);
    EXPECT_EQ(change(first, "0:1").status, 200);
  }
  EXPECT_TRUE(more_answers());
  enough = true;
  client.join();
  EXPECT_EQ(blocks_of(first), json({{"blocks", "0:1"}, {"layers", 3}}));
  for (const One* each : {&first, &second}) {
    EXPECT_TRUE(eventually([&] {
      return metric_of(*each, "windlass_worker_kv_cache_blocks_used{") == 0 &&
             metric_of(*each, "windlass_worker_chain_sessions{") == 0;
    })) << each->process->log();
  }
  EXPECT_GT(answered, 12);
  const std::string log = first.process->log();
  int late = 0;
  for (std::size_t at = 0; (at = log.find("did not answer in time", at)) != std::string::npos; ++at) ++late;
  EXPECT_LE(broken, late) << log;
}

// Given a worker that becomes whole, first, last, middle and whole again; expects it to serve each time.
TEST_F(ChangingBlocks, EveryPlaceOfAModel) {
  const One alone = with({});
  const One other = with({});
  const std::string expected = text_of(ask(alone.port, "POST", "/v1/completions", request(20)));
  const auto chain = [](const One& first, const One& next) {
    return ask(first.port, "POST", "/v1/completions", request(20), "X-Windlass-Chain: " + address(next) + "\r\n");
  };
  ASSERT_EQ(change(other, "1:3").status, 200);
  ASSERT_EQ(change(alone, "0:1").status, 200);
  EXPECT_EQ(text_of(chain(alone, other)), expected);
  EXPECT_EQ(metric_of(other, "windlass_worker_model_blocks_first{"), 1);
  EXPECT_EQ(metric_of(other, "windlass_worker_model_blocks_end{"), 3);
  ASSERT_EQ(change(alone, "1:2").status, 200);
  EXPECT_THAT(ask(alone.port, "POST", "/v1/completions", request(1)).headers, HasSubstr("X-Windlass-Rejected: role"));
  ASSERT_EQ(change(alone, "2:3").status, 200);
  ASSERT_EQ(change(other, "0:2").status, 200);
  EXPECT_EQ(text_of(chain(other, alone)), expected);
  ASSERT_EQ(change(alone, "0:3").status, 200);
  EXPECT_EQ(text_of(ask(alone.port, "POST", "/v1/completions", request(20))), expected);
  EXPECT_EQ(ask(alone.port, "POST", "/tokenize", R"({"prompt":"a"})").status, 200);
  EXPECT_EQ(json::parse(ask(alone.port, "GET", "/v1/models").body)["data"][0]["max_model_len"], 4096);
}

// Given unauthorised or invalid changes; expects a refusal with the reason, and no change. Given the current blocks; expects
// success without a change.
TEST_F(ChangingBlocks, RefusesWhatIsNotAllowed) {
  const One one = with({"--blocks", "0:2"});
  EXPECT_EQ(ask(one.port, "POST", "/blocks", R"({"blocks":"0:1"})").status, 401);
  EXPECT_EQ(ask(one.port, "POST", "/blocks", R"({"blocks":"0:1"})", "Authorization: Bearer the-token-of-this-other\r\n").status,
            401);
  for (const char* wrong :
       {"", "{}", "[]", R"({"blocks":7})", R"({"blocks":"2:2"})", R"({"blocks":"-1:2"})", R"({"blocks":"1"})"}) {
    const Answer refused = ask(one.port, "POST", "/blocks", wrong, kRight);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_THAT(refused.body, HasSubstr("0 <= A < B")) << wrong;
  }
  EXPECT_EQ(change(one, "1:4").status, 400);
  EXPECT_THAT(change(one, "1:4").body, ::testing::AllOf(HasSubstr("blocks: "), HasSubstr("1:4")));
  EXPECT_EQ(change(one, "0:2").body, R"({"blocks":"0:2","layers":3})");
  EXPECT_EQ(ask(one.port, "PUT", "/blocks", "{}", kRight).status, 405);
  EXPECT_EQ(blocks_of(one), json({{"blocks", "0:2"}, {"layers", 3}}));
  EXPECT_EQ(ask(one.port, "POST", "/role", R"({"role":"decode"})", kRight).status, 403);

  const int port = testing::free_port();
  const auto without = start_at(port);
  EXPECT_EQ(ask(port, "POST", "/blocks", R"({"blocks":"0:1"})", kRight).status, 403);
  const One prefill = with({"--role", "prefill"});
  EXPECT_EQ(change(prefill, "0:1").status, 409);
  EXPECT_THAT(change(prefill, "0:1").body, ::testing::AllOf(HasSubstr("role: "), HasSubstr("prefill")));
  ASSERT_EQ(ask(prefill.port, "POST", "/role", R"({"role":"unified"})", kRight).status, 200);
  EXPECT_EQ(change(prefill, "0:1").status, 200);
  EXPECT_EQ(ask(prefill.port, "POST", "/role", R"({"role":"prefill"})", kRight).status, 403);
  const One ranks = with({"--tensor-parallel", "2"});
  EXPECT_EQ(change(ranks, "0:1").status, 403);
  EXPECT_THAT(change(ranks, "0:1").body, HasSubstr("--tensor-parallel: must be 1 to change blocks (got 2)"));
}

// Given a running stream when the change is requested; expects it to end complete. Meanwhile new requests and other changes are
// refused, and the worker reports the change.
TEST_F(ChangingBlocks, RunningRequestsFinish) {
  const One one = with({"--blocks", "0:2"});
  const One later = with({"--blocks", "1:3"});
  ChangeUnderWay change_to_one(one, later, one, "0:1");
  EXPECT_THAT(ask(one.port, "GET", "/ready").body, HasSubstr("changing"));
  EXPECT_EQ(blocks_of(one), json({{"blocks", "0:2"}, {"layers", 3}, {"changing_to", "0:1"}}));
  const Answer refused = ask(one.port, "POST", "/v1/completions", request(1));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.headers, HasSubstr("X-Windlass-Rejected: blocks"));
  EXPECT_EQ(change(one, "1:3").status, 409);
  EXPECT_THAT(change(one, "1:3").body, HasSubstr("until this worker has changed to 0:1"));
  change_to_one.slowed.reset();
  const auto stream = testing::parse_stream(testing::parse_answer(change_to_one.running.read_all()).body);
  EXPECT_EQ(stream.tokens, ChangeUnderWay::kTokens);
  EXPECT_EQ(stream.done, 1);
  EXPECT_EQ(testing::parse_answer(change_to_one.asking.read_all()).status, 200);
  EXPECT_EQ(ask(one.port, "GET", "/ready").status, 200);
}

// Given a time limit; expects a longer stream to be cut with an error, and then the blocks to change. Given SIGTERM instead;
// expects the stream to end complete, the change to be answered with the worker's end, and the worker to exit.
TEST_F(ChangingBlocks, TheLimitAndTheEnd) {
  allow_endless_requests();
  make_model();
  const One hasty = with({"--drain-timeout", "0s"});
  Connection cut(hasty.port);
  cut.send("POST", "/v1/completions", request(kEndless, true));
  ASSERT_TRUE(cut.read_until("data: "));
  EXPECT_EQ(change(hasty, "0:2").status, 200);
  EXPECT_THAT(cut.read_all(), HasSubstr("this worker's blocks changed before the answer was complete"));
  EXPECT_THAT(cut.received(), Not(HasSubstr("[DONE]")));

  const One ending = with({"--blocks", "0:2"});
  const One later = with({"--blocks", "1:3"});
  ChangeUnderWay never(ending, later, ending, "0:1");
  ending.process->signal(SIGTERM);
  EXPECT_EQ(testing::parse_answer(never.asking.read_all()).status, 503);
  never.slowed.reset();
  EXPECT_THAT(never.running.read_all(), HasSubstr("data: [DONE]"));
  EXPECT_EQ(ending.process->wait(), 0) << ending.process->log();
}

// Given SIGTERM at any moment of a change; expects its caller to learn that the blocks have changed, or that the worker stops.
TEST_F(ChangingBlocks, AStopAtAnyMoment) {
  std::vector<One> workers(6);
  for (One& each : workers) each = with({});
  std::vector<std::unique_ptr<Connection>> asking;
  for (const One& each : workers) {
    asking.push_back(std::make_unique<Connection>(each.port));
    asking.back()->send("POST", "/blocks", R"({"blocks":"1:3"})", kRight);
  }
  for (const One& each : workers) {
    each.process->signal(SIGTERM);
    ::poll(nullptr, 0, 40);
  }
  for (std::size_t i = 0; i < workers.size(); ++i) {
    EXPECT_THAT(testing::parse_answer(asking[i]->read_all()).status, ::testing::AnyOf(200, 503)) << workers[i].process->log();
    EXPECT_EQ(workers[i].process->wait(), 0) << workers[i].process->log();
  }
}

// Given a later worker with sessions; expects them to end before its blocks change. With a time limit they are cut, and the
// client learns that its chain is lost.
TEST_F(ChangingBlocks, SessionsOfOtherWorkers) {
  allow_endless_requests();
  make_model();
  const One second = with({"--blocks", "1:3"});
  const One first = with({"--blocks", "0:2", "--next", address(second)});
  ChangeUnderWay patient(first, second, second, "2:3");
  patient.slowed.reset();
  EXPECT_THAT(patient.running.read_all(), HasSubstr("data: [DONE]"));
  EXPECT_EQ(testing::parse_answer(patient.asking.read_all()).status, 200);
  EXPECT_EQ(ask(first.port, "POST", "/v1/completions", request(5)).status, 200);

  const One hasty = with({"--blocks", "1:3", "--drain-timeout", "0s"});
  const std::string through = "X-Windlass-Chain: " + address(hasty) + "\r\n";
  Connection cut(first.port);
  cut.send("POST", "/v1/completions", request(kEndless, true), through);
  ASSERT_TRUE(cut.read_until("data: "));
  EXPECT_EQ(change(hasty, "2:3").status, 200);
  EXPECT_THAT(cut.read_all(), HasSubstr("a later worker of the request's chain is lost"));
  EXPECT_EQ(ask(first.port, "POST", "/v1/completions", request(5), through).status, 200);
}

// Given a folder with other weights than those loaded; expects the change to be refused with the reason, and the worker to go
// on.
TEST_F(ChangingBlocks, OtherWeights) {
  const One one = with({"--blocks", "0:3"});
  const std::string before = text_of(ask(one.port, "POST", "/v1/completions", request(10)));
  std::filesystem::rename(model(), folder_ / "was");
  Process init({testing::kProgram, "model", "init", "--layers", "3", "--hidden", "128", "--heads", "4", "--kv-heads", "2",
                "--intermediate", "344", "--max-context", "4096", "--seed", "2", model().string()},
               folder_ / "init.log");
  ASSERT_EQ(init.wait(), 0) << init.log();
  const Answer refused = change(one, "0:2");
  EXPECT_EQ(refused.status, 500);
  EXPECT_THAT(refused.body, HasSubstr("must have the weights that this worker started with"));
  EXPECT_THAT(refused.body, HasSubstr("this worker still serves 0:3"));
  EXPECT_EQ(ask(one.port, "GET", "/ready").status, 200);
  EXPECT_EQ(text_of(ask(one.port, "POST", "/v1/completions", request(10))), before);
  std::filesystem::remove_all(model());
  EXPECT_EQ(change(one, "0:2").status, 500);
  std::filesystem::rename(folder_ / "was", model());
  EXPECT_EQ(change(one, "0:2").status, 200);
}

// Given blocks that turn out to be damaged after the old ones are dropped; expects the worker to return to the old ones and to
// say why. If these are damaged too, nothing is left to serve: the caller gets both reasons, and the worker exits.
TEST_F(ChangingBlocks, DamageFoundTooLate) {
  const One one = with({"--blocks", "0:2", "--weights", "int8"});
  const One last = with({"--blocks", "2:3", "--weights", "int8"});
  const std::string chain = "X-Windlass-Chain: " + address(last) + "\r\n";
  const std::string before = text_of(ask(one.port, "POST", "/v1/completions", request(10), chain));
  const auto answer_of_change = [&](int damaged) {
    ChangeUnderWay under_way(one, last, one, "1:3");
    damage(damaged);
    under_way.slowed.reset();
    EXPECT_THAT(under_way.running.read_all(), HasSubstr("data: [DONE]"));
    return testing::parse_answer(under_way.asking.read_all());
  };
  const Answer back = answer_of_change(2);
  EXPECT_EQ(back.status, 500);
  EXPECT_THAT(back.body, HasSubstr("'model.layers.2.mlp.down_proj.weight'"));
  EXPECT_THAT(back.body, HasSubstr("this worker still serves 0:2"));
  EXPECT_EQ(text_of(ask(one.port, "POST", "/v1/completions", request(10), chain)), before);
  const Answer end = answer_of_change(0);
  EXPECT_EQ(end.status, 500);
  EXPECT_THAT(end.body, HasSubstr("'model.layers.2.mlp.down_proj.weight'"));
  EXPECT_THAT(end.body, HasSubstr("the previous ones, 0:2"));
  EXPECT_EQ(one.process->wait(), 1);
  EXPECT_THAT(one.process->log(), HasSubstr("this worker has nothing to serve"));
}

// Given too little memory for the KV cache of more blocks; expects the worker to go on with its blocks, without a pause, and to
// report the missing amount. The same for one with nearly enough memory, which is allowed to try.
TEST_F(ChangingBlocks, NoRoomForTheCache) {
  // 512 bytes of keys and values for each position and block: 205 MB a block, so that two more take 410 MB.
  ::setenv("MALLOC_ARENA_MAX", "1", 1);  // otherwise a thread's first allocation may reserve 64 MB of addresses
  const One one = with({"--blocks", "0:1", "--kv-cache-tokens", "400000"});
  ::unsetenv("MALLOC_ARENA_MAX");
  std::ifstream status("/proc/" + std::to_string(one.process->id()) + "/statm");
  std::uint64_t pages = 0;
  status >> pages;
  const auto change_with_room = [&](rlim_t bytes) {
    const rlim_t limit = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + bytes;
    const rlimit address_space{limit, RLIM_INFINITY};
    EXPECT_EQ(::prlimit(one.process->id(), RLIMIT_AS, &address_space, nullptr), 0);
    return change(one, "0:3");
  };
  const Answer missing = change_with_room(250'000'000);
  EXPECT_EQ(missing.status, 500) << missing.body;
  EXPECT_THAT(missing.body, HasSubstr("memory: 0.1"));
  EXPECT_THAT(missing.body, HasSubstr("GB are missing: 0.41 GB more are needed"));
  EXPECT_THAT(missing.body, HasSubstr("this worker still serves 0:1"));
  const Answer refused = change_with_room(402'000'000);
  EXPECT_EQ(refused.status, 500) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("a KV cache of 400000 tokens"));
  EXPECT_THAT(refused.body, HasSubstr("this worker still serves 0:1"));
  EXPECT_EQ(blocks_of(one), json({{"blocks", "0:1"}, {"layers", 3}}));
  const One rest = with({"--blocks", "1:3"});
  EXPECT_EQ(ask(one.port, "POST", "/v1/completions", request(5), "X-Windlass-Chain: " + address(rest) + "\r\n").status, 200);
}

}  // namespace
}  // namespace windlass::worker
