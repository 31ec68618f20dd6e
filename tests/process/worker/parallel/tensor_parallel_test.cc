// Real workers with two ranks (docs/decisions/2026-11-22-tensor-parallel-ranks.md): they answer like one rank, and neither rank
// outlives the other.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sched.h>

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
using testing::parse_stream;
using testing::Process;

constexpr std::chrono::seconds kSoon{5};  // the promise to users
constexpr const char* kCompletions = "/v1/completions";

// As much as can be read: a process may end meanwhile.
std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) out.push_back(std::stoi(name));
  }
  return out;
}

// State and parent from /proc/ID/stat; nothing for a process that has ended or is a zombie.
std::optional<pid_t> parent_of(pid_t id) {
  const std::string text = text_of("/proc/" + std::to_string(id) + "/stat");
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(end_of_name + 1));
  char state = 0;
  pid_t parent = -1;
  rest >> state >> parent;
  if (state == 'Z' || state == 'X') return std::nullopt;
  return parent;
}

std::vector<int> allowed_processors() {
  cpu_set_t mask;
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return out;
  for (int each = 0; each < CPU_SETSIZE; ++each) {
    if (CPU_ISSET(static_cast<std::size_t>(each), &mask)) out.push_back(each);
  }
  return out;
}

// Processors to which threads of this process are pinned, one per pinned thread.
std::vector<int> pinned_threads(pid_t id) {
  std::vector<int> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(id) + "/task", error)) {
    const std::string status = text_of(entry.path() / "status"), name = "Cpus_allowed_list:";
    const auto at = status.find(name);
    if (at == std::string::npos) continue;
    std::istringstream list(status.substr(at + name.size()));
    std::string processors;
    list >> processors;
    if (processors.find_first_of("-,") == std::string::npos) out.push_back(std::stoi(processors));
  }
  return out;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> out;
  for (const pid_t id : all_processes()) {
    if (parent_of(id) == parent) out.push_back(id);
  }
  return out;
}

// Running processes with this text among their arguments.
std::vector<pid_t> processes_named(const std::string& text) {
  std::vector<pid_t> out;
  for (const pid_t id : all_processes()) {
    const bool named = text_of("/proc/" + std::to_string(id) + "/cmdline").find(text) != std::string::npos;
    if (named && parent_of(id)) out.push_back(id);
  }
  return out;
}

// The inode of the memory that a rank shares with others; empty if there is none.
std::string shared_memory_of(pid_t id) {
  std::istringstream maps(text_of("/proc/" + std::to_string(id) + "/maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:windlass-ranks") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string range, rights, offset, device, inode;
    fields >> range >> rights >> offset >> device >> inode;
    return inode;
  }
  return "";
}

class TensorParallelWorker : public testing::Worker {
 protected:
  std::unique_ptr<Process> start_ranks() {
    allow_endless_requests();
    auto worker = start(in_two_ranks_);
    const auto others = children_of(worker->id());
    EXPECT_EQ(others.size(), 1U) << worker->log();
    other_ = others.empty() ? -1 : others.front();
    memory_ = shared_memory_of(worker->id());
    EXPECT_FALSE(memory_.empty());
    EXPECT_EQ(shared_memory_of(other_), memory_);
    return worker;
  }
  // Neither rank 1 nor the memory outlives rank 0.
  void expect_nothing_left() const {
    EXPECT_TRUE(eventually([&] { return processes_named(model().string()).empty(); }, kSoon));
    // A killed process exists until init has reaped it.
    EXPECT_TRUE(eventually([&] { return !parent_of(other_).has_value(); }, kSoon));
    for (const pid_t id : all_processes()) EXPECT_NE(shared_memory_of(id), memory_) << "process " << id;
  }
  // Several hundred tokens: more than one iteration computes.
  static json request() {
    std::string prompt;
    for (int i = 0; i < 60; ++i) prompt += "the anchor chain number " + std::to_string(i) + " ";
    return {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 30}, {"temperature", 0}};
  }
  // Endless streams, each with its first token received.
  std::vector<std::unique_ptr<Connection>> load() const {
    std::vector<std::unique_ptr<Connection>> streams;
    for (int i = 0; i < 4; ++i) {
      streams.push_back(std::make_unique<Connection>(port_));
      streams.back()->send("POST", kCompletions, completion(kEndless, true));
    }
    for (const auto& each : streams) EXPECT_TRUE(each->read_until("data: "));
    return streams;
  }

  // Expects the same answer to the request as from one rank, at `port`; returns its answer and theirs.
  std::pair<json, json> expect_answers_of_one_rank(int port, const json& body) const {
    const Answer one = ask(port, "POST", kCompletions, body.dump());
    const Answer two = ask(port_, "POST", kCompletions, body.dump());
    EXPECT_EQ(one.status, 200) << one.body;
    EXPECT_EQ(two.status, 200) << two.body;
    if (one.status != 200 || two.status != 200) return {};
    const json expected = json::parse(one.body), found = json::parse(two.body);
    testing::expect_same_completion(found, expected);
    return {expected, found};
  }
  // Given SIGTERM during a stream; expects the ranks to finish it, and nothing to remain.
  void expect_drains(Process& worker) const {
    Connection connection(port_);
    connection.send("POST", kCompletions, completion(1000, true));
    ASSERT_TRUE(connection.read_until("data: "));
    ::kill(other_, SIGTERM);  // like a signal to a process group: rank 0 decides when the others end
    worker.signal(SIGTERM);
    const auto stream = parse_stream(testing::parse_answer(connection.read_all()).body);
    EXPECT_EQ(stream.tokens, 1000);
    EXPECT_EQ(stream.done, 1);
    EXPECT_EQ(worker.wait(), 0) << worker.log();
    expect_nothing_left();
  }
  // Given rank 1 killed under load, and in another worker while idle; expects the worker to exit within five seconds with a
  // non-zero code and a reason that names the rank. No stream looks complete.
  void expect_lost_rank_ends_the_worker() {
    for (const bool loaded : {true, false}) {
      const auto worker = start_ranks();
      const auto streams = loaded ? load() : std::vector<std::unique_ptr<Connection>>();
      ASSERT_EQ(::kill(other_, SIGKILL), 0);
      EXPECT_EQ(worker->wait(kSoon), 1) << worker->log();
      EXPECT_THAT(worker->log(), HasSubstr("rank 1 of 2 (process " + std::to_string(other_) + ") was ended by signal 9"));
      for (const auto& each : streams) EXPECT_THAT(each->read_all(), Not(HasSubstr("[DONE]")));
      expect_nothing_left();
    }
  }
  // Given rank 1 frozen under load; expects the same: it lives, but nobody would ever get an answer.
  void expect_frozen_rank_ends_the_worker() {
    const auto worker = start_ranks();
    const auto streams = load();
    ASSERT_EQ(::kill(other_, SIGSTOP), 0);
    EXPECT_EQ(worker->wait(kSoon), 1) << worker->log();
    EXPECT_THAT(worker->log(), HasSubstr("rank 1 of 2 is lost: it has given no sign of life for 3 s"));
    for (const auto& each : streams) EXPECT_THAT(each->read_all(), Not(HasSubstr("[DONE]")));
    expect_nothing_left();
  }
  // Given rank 0 killed under load; expects rank 1 and the memory to be gone soon.
  void expect_nothing_outlives_rank_zero() {
    const auto worker = start_ranks();
    const auto streams = load();
    worker->signal(SIGKILL);
    EXPECT_EQ(worker->wait(kSoon), 128 + SIGKILL);
    expect_nothing_left();
  }

  std::vector<std::string> in_two_ranks_ = {"--tensor-parallel", "2"};  // flags
  pid_t other_ = -1;                                                    // rank 1
  std::string memory_;                                                  // inode
};

// Given requests that are whole, streamed, sampled with a seed and with several choices; expects two ranks that have measured
// themselves to give the texts and usage of one, with the same KV cache in the metrics. Given SIGTERM during a stream; expects
// them to finish it, and nothing to remain.
TEST_F(TensorParallelWorker, AnswersAsOneRankDoesAndDrains) {
  in_two_ranks_.insert(in_two_ranks_.end(), {"--measure-time", "2s"});
  const auto worker = start_ranks();
  EXPECT_GT(metric(metrics_text(), R"(windlass_worker_measured_decode_seconds{batch="8",context=)"), 0) << worker->log();
  One alone = start_one({});
  json sampled = request();
  sampled.update({{"temperature", 0.8}, {"seed", 7}, {"repetition_penalty", 1.2}, {"logprobs", 2}});
  json several = request();
  several["n"] = 3;
  for (const json& body : {request(), sampled, several}) {
    const auto [expected, found] = expect_answers_of_one_rank(alone.port, body);
    EXPECT_EQ(found["usage"], expected["usage"]);
  }
  json streamed = request();
  streamed["stream"] = true;
  EXPECT_EQ(parse_stream(ask(port_, "POST", kCompletions, streamed.dump()).body).text,
            parse_stream(ask(alone.port, "POST", kCompletions, streamed.dump()).body).text);
  const std::string blocks = "windlass_worker_kv_cache_blocks{";
  EXPECT_EQ(metric(metrics_text(), blocks), metric_of(alone, blocks));
  EXPECT_EQ(metric(metrics_text(), "windlass_worker_kv_cache_blocks_used{"), 0);

  alone.process.reset();
  expect_drains(*worker);
}

// Given rank 1 killed; expects a reason and an exit code within five seconds.
TEST_F(TensorParallelWorker, LostRankEndsTheWorker) { expect_lost_rank_ends_the_worker(); }

// Given rank 1 frozen; expects the same.
TEST_F(TensorParallelWorker, FrozenRankEndsTheWorker) { expect_frozen_rank_ends_the_worker(); }

// Given rank 0 killed; expects nothing to remain.
TEST_F(TensorParallelWorker, NothingOutlivesRankZero) { expect_nothing_outlives_rank_zero(); }

// Given two ranks with one processor each; expects one thread of each to be pinned while they compute, to different processors.
// Given more threads than processors; expects an error with their number.
TEST_F(TensorParallelWorker, PinnedRanksShareNoProcessor) {
  const std::vector<int> allowed = allowed_processors();
  if (allowed.size() < 2) GTEST_SKIP() << "two processors are needed, found " << allowed.size();
  in_two_ranks_.insert(in_two_ranks_.end(), {"--threads", "2", "--pin-threads"});
  const auto worker = start_ranks();
  const auto streams = load();
  std::set<int> first, second;  // seen so far
  EXPECT_TRUE(eventually([&] {
    for (const int processor : pinned_threads(worker->id())) first.insert(processor);
    for (const int processor : pinned_threads(other_)) second.insert(processor);
    return !first.empty() && !second.empty();
  }));
  EXPECT_EQ(first.size(), 1U);
  EXPECT_EQ(second.size(), 1U);
  EXPECT_NE(first, second);
  EXPECT_THAT(worker->log(),
              HasSubstr("pinned to processors " + std::to_string(*first.begin()) + ", those of other ranks to others"));
  Process refused({testing::kProgram, "--model", model().string(), "--port", std::to_string(testing::free_port()),
                   "--pin-threads", "--threads", "1024"},
                  folder_ / "refused.log");
  EXPECT_EQ(refused.wait(), 1);
  EXPECT_THAT(refused.log(), HasSubstr("--pin-threads: threads: must be at most "));
}

// Given weights that cannot be loaded; expects all ranks to end, with the reason in the log.
TEST_F(TensorParallelWorker, EndsWhereLoadingFails) {
  make_model();
  std::filesystem::resize_file(model() / "model.safetensors", 5000);
  Process worker({testing::kProgram, "--model", model().string(), "--port", std::to_string(testing::free_port()),
                  "--tensor-parallel", "2"},
                 folder_ / "damaged.log");
  EXPECT_EQ(worker.wait(), 1) << worker.log();
  EXPECT_THAT(worker.log(), HasSubstr("model.safetensors"));
  EXPECT_TRUE(eventually([&] { return processes_named(model().string()).empty(); }, kSoon));
}

// Given degrees that the model or the backend does not support, or a rank that rank 0 did not start; expects one line with the
// flag, the rule and the value.
TEST_F(TensorParallelWorker, RefusesWrongDegrees) {
  make_model();
  const auto refused = [&](std::vector<std::string> more, int code) {
    more.insert(more.begin(), {testing::kProgram, "--model", model().string(), "--port", "1"});
    Process worker(more, folder_ / "refused.log");
    EXPECT_EQ(worker.wait(), code);
    return worker.log();
  };
  EXPECT_THAT(
      refused({"--tensor-parallel", "4"}, 1),
      HasSubstr("--tensor-parallel: must be one of 1, 2 for this model (got 4): config.json's num_key_value_heads (2) must "
                "be divisible by it"));
  EXPECT_THAT(refused({"--tensor-parallel", "0"}, 2), HasSubstr("--tensor-parallel: must be 1 to 64 (got 0)"));
  EXPECT_THAT(refused({"--tensor-parallel", "2", "--backend", "cuda", "--weights", "bf16"}, 2),
              HasSubstr("--weights: must be fp8 or int8 with --backend cuda (got bf16)"));
  EXPECT_THAT(refused({"--tensor-parallel", "2", "--tensor-rank", "1"}, 2),
              HasSubstr("--tensor-rank: must not be given (got 1)"));
}

// Two ranks with one GPU each.
class Gpu2Worker : public TensorParallelWorker {
 protected:
  void SetUp() override {
    TensorParallelWorker::SetUp();
    std::string found;
    if (gpus(found) < 2) GTEST_SKIP() << "two GPUs are needed: " << found;
    in_two_ranks_.insert(in_two_ranks_.end(), {"--backend", "cuda", "--precision", "fp32"});
  }
};

// Given requests of several hundred tokens, whole, streamed and with several choices; expects two GPUs to give the greedy texts
// of the CPU. Given SIGTERM during a stream; expects them to finish it, and nothing to remain.
TEST_F(Gpu2Worker, AnswersAsTheCpuAndDrains) {
  const auto worker = start_ranks();
  One alone = start_one({});
  json several = request();
  several["n"] = 3;
  for (const json& body : {request(), several}) expect_answers_of_one_rank(alone.port, body);
  alone.process.reset();
  expect_drains(*worker);
}

// Given a chain of a worker on the CPU and one on two GPUs; expects the answers of one worker on the CPU.
TEST_F(Gpu2Worker, ChainsWithTheCpu) {
  make_model();
  const One alone = start_one({});
  in_two_ranks_.insert(in_two_ranks_.end(), {"--blocks", "1:3"});
  const One rest = start_one(in_two_ranks_);
  const One head = start_one({"--blocks", "0:1", "--next", address(rest)});
  const Answer expected = ask(alone.port, "POST", kCompletions, request().dump());
  const Answer found = ask(head.port, "POST", kCompletions, request().dump());
  ASSERT_EQ(found.status, 200) << found.body;
  EXPECT_EQ(json::parse(found.body)["choices"][0]["text"], json::parse(expected.body)["choices"][0]["text"]);
}

// Given rank 1 killed, so that rank 0's GPU waits for ever; expects a reason and an exit code within five seconds.
TEST_F(Gpu2Worker, LostRankEndsTheWorker) { expect_lost_rank_ends_the_worker(); }

// Given rank 1 frozen; expects the same.
TEST_F(Gpu2Worker, FrozenRankEndsTheWorker) { expect_frozen_rank_ends_the_worker(); }

// Given rank 0 killed; expects nothing to remain.
TEST_F(Gpu2Worker, NothingOutlivesRankZero) { expect_nothing_outlives_rank_zero(); }

// Given models with experts and OPT, and weights of each format; expects a worker of two ranks and a chain of two workers to
// answer like one rank, which also reports the memory of its weights.
TEST_F(TensorParallelWorker, OtherArchitecturesAndFormats) {
  for (const auto& [architecture, format] :
       {std::pair{"opt", "fp32"}, std::pair{"mixtral", "int8"}, std::pair{"qwen3_moe", "fp32"}, std::pair{"llama", "fp8"}}) {
    SCOPED_TRACE(std::string(architecture) + " " + format);
    make_model(architecture);
    const std::vector<std::string> weights{"--weights", format};
    const auto with = [&](std::vector<std::string> flags) {
      flags.insert(flags.end(), weights.begin(), weights.end());
      return flags;
    };
    const One alone = start_one(weights);
    const One ranks = start_one(with({"--tensor-parallel", "2"}));
    const One rest = start_one(with({"--blocks", "1:3"}));
    const One head = start_one(with({"--blocks", "0:1", "--next", address(rest)}));
    const Answer expected = ask(alone.port, "POST", kCompletions, request().dump());
    ASSERT_EQ(expected.status, 200) << expected.body;
    EXPECT_EQ(json::parse(expected.body)["usage"]["completion_tokens"], 30);
    for (const int port : {ranks.port, head.port}) {
      const Answer found = ask(port, "POST", kCompletions, request().dump());
      ASSERT_EQ(found.status, 200) << found.body;
      EXPECT_EQ(json::parse(found.body)["choices"][0]["text"], json::parse(expected.body)["choices"][0]["text"]);
    }
    if (format != std::string("fp32")) {
      EXPECT_THAT(alone.process->log(), HasSubstr(std::string("weights as ") + format + " take "));
      EXPECT_THAT(ranks.process->log(), HasSubstr(" MiB at each rank instead of "));
    } else {
      EXPECT_THAT(alone.process->log(), Not(HasSubstr("weights as")));
    }
  }
}

// Given a chain of two workers with two ranks each; expects the answers of one worker with one rank.
TEST_F(TensorParallelWorker, ChainsOfCutWorkers) {
  const auto alone = start();
  const int later = testing::free_port(), first = testing::free_port();
  const auto rest = start_at(later, {"--blocks", "1:3", "--tensor-parallel", "2"});
  const auto head =
      start_at(first, {"--blocks", "0:1", "--tensor-parallel", "2", "--next", "127.0.0.1:" + std::to_string(later)});
  const Answer expected = ask(port_, "POST", kCompletions, request().dump());
  const Answer found = ask(first, "POST", kCompletions, request().dump());
  ASSERT_EQ(found.status, 200) << found.body;
  EXPECT_EQ(json::parse(found.body)["choices"][0]["text"], json::parse(expected.body)["choices"][0]["text"]);
}

}  // namespace
}  // namespace windlass::worker
