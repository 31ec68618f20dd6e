// Measuring a worker with a few requests: results on an engine with known times, which workers are probed, and engines that
// answer badly.
#include "controller/reconcile/latency_probe.h"

#include <atomic>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/reconcile/live_calibration.h"
#include "controller/reconcile/observe.h"
#include "controller/reconcile/probe_questions.h"
#include "controller/reconcile/signals.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/linear_model.h"

namespace windlass::controller {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Iteration times: twice what the data sheet gives for the model below.
constexpr double kConstantS = 0.012, kPerRequestS = 0.0005;

// An idle engine behind the transport, in virtual time: the prompts of one call are one iteration, then every token is one
// iteration of the batch.
class Engine final : public kube::HttpTransport {
 public:
  double now_s = 0;
  bool takes_ignore_eos = true, counts_tokens = true;
  int status = 200, max_tokens = 1000, slots = 8, running = 0;
  double per_token_s = 0.00006;  // per prompt token
  std::string token;
  std::set<std::string> beginnings;  // of prompts
  int asked = 0;

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override { return send_all({request}).front(); }
  Result<std::unique_ptr<kube::HttpStream>> stream(const kube::HttpRequest&) override {
    return Error{ErrorCode::kUnavailable, "no streams"};
  }
  void send_each(const std::vector<kube::HttpRequest>& requests, const Take& take) override {
    std::vector<kube::HttpResponse> answers;
    int prompts = 0, longest = 0;
    for (const kube::HttpRequest& request : requests) {
      if (request.method == "GET") {
        answers.push_back(
            kube::HttpResponse{200, {}, fmt::format("vllm:num_requests_running {}\nvllm:num_requests_waiting 0\n", running)});
        continue;
      }
      ++asked;
      const json body = json::parse(request.body);
      EXPECT_EQ(request.url, "http://10.0.0.1:8000/v1/completions");
      EXPECT_EQ(request.headers.contains("authorization"), !token.empty());
      EXPECT_EQ(body.at("model"), "chat");
      const std::string prompt = body.at("prompt");
      beginnings.insert(prompt.substr(0, prompt.find(' ')));
      const bool refused = body.contains("ignore_eos") && !takes_ignore_eos;
      const int prompt_tokens = 2 + static_cast<int>(std::count(prompt.begin(), prompt.end(), ' '));
      const int tokens = std::min(body.at("max_tokens").get<int>(), max_tokens);
      json answer = {{"choices", json::array()}};
      if (counts_tokens) answer["usage"] = {{"prompt_tokens", prompt_tokens}, {"completion_tokens", tokens}};
      answers.push_back(kube::HttpResponse{refused ? 400 : status, {}, answer.dump()});
      prompts += prompt_tokens;
      longest = std::max(longest, tokens);
    }
    const auto batch = static_cast<double>(requests.size());
    EXPECT_LE(requests.size(), static_cast<std::size_t>(slots));
    if (longest > 0) now_s += kConstantS + per_token_s * prompts + (longest - 1) * (kConstantS + kPerRequestS * batch);
    for (std::size_t i = 0; i < answers.size(); ++i) take(i, std::move(answers[i]));
  }
};

ProbeQuestion question(const std::string& uid = "uid-1", const std::string& accelerator = "h100") {
  return {{"default", "m", "VLLM", accelerator, 1}, "chat-0", uid, "10.0.0.1:8000", "", "chat", 8192, 8, 0};
}

Result<std::vector<planner::MeasuredIteration>> probed(
    Engine& engine, ProbeQuestion asked = question(), const std::function<bool()>& stop = [] { return false; }) {
  return probe_worker(
      engine, [&] { return engine.now_s; }, asked, 7, stop);
}

// Given an engine with known iteration times; expects these times from two prompts and two batches, whichever of OpenAI's
// fields it accepts, with a unique beginning for each prompt and the worker's token on each request.
TEST(LatencyProbe, MeasuresIterationTimes) {
  for (const bool takes_ignore_eos : {true, false}) {
    Engine engine;
    engine.takes_ignore_eos = takes_ignore_eos;
    engine.token = "secret";
    ProbeQuestion asked = question();
    asked.token = "secret";
    const auto measured = probed(engine, asked);
    ASSERT_TRUE(measured.ok()) << measured.error().message;
    ASSERT_EQ(measured->size(), 4U);
    for (const std::size_t i : {0, 1}) {
      const planner::MeasuredIteration& prompt = (*measured)[i];
      EXPECT_NEAR(prompt.seconds, kConstantS + 0.00006 * prompt.prompt_tokens, 1e-9);
      EXPECT_EQ(prompt.batch, 0);
    }
    EXPECT_GE((*measured)[1].prompt_tokens, 1000);
    for (const std::size_t i : {2, 3}) {
      const planner::MeasuredIteration& decode = (*measured)[i];
      EXPECT_EQ(decode.batch, i == 2 ? 1 : 4);
      EXPECT_NEAR(decode.seconds, kConstantS + kPerRequestS * decode.batch, 1e-9);
      EXPECT_GT(decode.context_tokens, (*measured)[0].prompt_tokens);
    }
    EXPECT_EQ(engine.beginnings.size(), static_cast<std::size_t>(engine.asked));
  }
}

// Given an engine with 5 ms per token and one slot; expects a long prompt of about a second, and one batch.
TEST(LatencyProbe, ShortensProbesOfSlowAndSingleSlotEngines) {
  Engine engine;
  engine.per_token_s = 0.005;
  engine.slots = 1;
  ProbeQuestion asked = question();
  asked.max_concurrency = 1;
  const auto measured = probed(engine, asked);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  ASSERT_EQ(measured->size(), 3U);
  EXPECT_NEAR((*measured)[1].seconds, 1, 0.1);
  EXPECT_EQ((*measured)[2].batch, 1);
}

// Given a model with a short context; expects prompts that fit it together with their answers.
TEST(LatencyProbe, PromptsFitTheContext) {
  Engine engine;
  ProbeQuestion asked = question();
  asked.max_context_tokens = 160;
  const auto measured = probed(engine, asked);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  for (const planner::MeasuredIteration& one : *measured) EXPECT_LE(one.prompt_tokens, 40);
}

// Given engines that refuse, count nothing, or end their answers immediately, and a controller that is stopping; expects an
// error that says so, and no further request.
TEST(LatencyProbe, BadAnswersAreErrors) {
  Engine engine;
  engine.status = 401;
  EXPECT_THAT(probed(engine).error().message, HasSubstr("HTTP status 401"));
  EXPECT_EQ(engine.asked, 1);
  engine = {};
  engine.counts_tokens = false;
  EXPECT_THAT(probed(engine).error().message, HasSubstr("does not say how many tokens"));
  engine = {};
  engine.max_tokens = 2;
  EXPECT_EQ(probed(engine).value().size(), 2U) << "the prompts";
  engine = {};
  EXPECT_EQ(probed(engine, question(), [] { return true; }).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(engine.asked, 0);
}

// Given workers of two configurations; expects one question per configuration at a time, each worker asked once, each answer
// returned once, and none for workers that are gone.
TEST(ProbeQuestions, OneOfEachConfigurationAtATime) {
  ProbeQuestions questions;
  EXPECT_FALSE(questions.waits());
  for (const char* uid : {"a", "b"}) questions.ask(question(uid));
  questions.ask(question("c", "a100"));
  EXPECT_TRUE(questions.waits());
  EXPECT_EQ(questions.next(), question("a"));
  EXPECT_EQ(questions.next(), question("c", "a100"));
  EXPECT_FALSE(questions.next());
  questions.ask(question("b"));
  EXPECT_FALSE(questions.waits()) << "a is not answered";
  questions.answer(question("a"), {{512, 0, 0, 0.1}});
  questions.ask(question("a"));
  EXPECT_FALSE(questions.waits()) << "it was asked";
  EXPECT_EQ(questions.take("a")->measured.size(), 1U);
  EXPECT_FALSE(questions.take("a"));
  questions.ask(question("b"));
  EXPECT_TRUE(questions.waits());
  questions.keep({"c"});
  EXPECT_FALSE(questions.next());
  questions.keep({});
  questions.answer(question("c", "a100"), {{512, 0, 0, 0.1}});
  EXPECT_FALSE(questions.take("c"));
}

// Given a thread that answers while the loop asks for a hundred kinds of workers; expects an answer for each in the end.
TEST(ProbeQuestions, AnsweredFromAnotherThread) {
  ProbeQuestions questions;
  std::atomic<bool> done = false;
  std::thread thread([&] {
    while (!done) {
      if (const auto one = questions.next()) questions.answer(*one, {{512, 0, 0, 0.1}});
    }
  });
  std::set<std::string> answered;
  while (answered.size() < 100) {
    for (int i = 0; i < 100; ++i) {
      const std::string uid = "uid-" + std::to_string(i);
      questions.ask(question(uid, uid));
      if (questions.take(uid)) answered.insert(uid);
    }
  }
  done = true;
  thread.join();
}

// A service with one worker, as the loop sees both.
class ProbedService : public ::testing::Test {
 protected:
  ProbedService() {
    service_.metadata.name = "chat";
    service_.metadata.name_space = "default";
    service_.metadata.uid = "service";
    service_.spec.engine.type = api::EngineType::kVLLM;
    planned_.shape = planner::model_shape_by_name("llama3-8b").value();
    planned_.workload = {1, 512, 128};
    for (auto* reading : {&planned_.demand.arrivals_per_s, &planned_.demand.queued, &planned_.demand.arrivals_total})
      *reading = planner::Reading{0, 0};
    planner::AcceleratorState state;
    state.spec = planner::accelerator_by_name("h100-80gb").value();
    state.spec.name = "h100";
    accelerators_ = {state};
    Worker worker;
    worker.name = "chat-0";
    worker.uid = "uid-1";
    worker.service_uid = "service";
    worker.address = "10.0.0.1:8000";
    worker.accelerator = "h100";
    worker.gpus = 1;
    worker.ready = true;
    worker.ready_s = 1000;
    worker.max_concurrency = 8;
    workers_ = {worker};
  }

  void step(double wall_s) {
    signals_.scrape({{}, workers_, {}, {{"service", api::to_string(service_.spec.engine.type)}}}, wall_s);
    calibration_.step({{&service_, &planned_, &workers_}}, accelerators_, {}, &signals_, &probes_, wall_s);
  }

  Engine engine_;
  metrics::Registry registry_;
  metrics::ControllerMetrics metrics_{registry_};
  Signals signals_{engine_, metrics_, SignalOptions{}};
  ProbeQuestions probes_;
  LiveCalibration calibration_;
  api::ModelService service_;
  planner::Service planned_;
  std::vector<planner::AcceleratorState> accelerators_;
  std::vector<Worker> workers_;
};

// Given an idle vLLM worker that has just become ready; expects it to be probed, the result to be used at the next step, and no
// second worker of its kind to be probed then.
TEST_F(ProbedService, ANewIdleWorkerIsProbed) {
  step(1001);
  const auto asked = probes_.next();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->model, "chat");
  EXPECT_TRUE(calibration_.estimates(service_).empty());
  const auto measured = probed(engine_, *asked);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  probes_.answer(*asked, *measured);
  workers_.push_back(workers_[0]);
  workers_[1].uid = "uid-2";
  step(1002);
  EXPECT_FALSE(probes_.next());
  const auto estimates = calibration_.estimates(service_);
  ASSERT_EQ(estimates.size(), 1U);
  const planner::LinearModel believed(
      planner::believed_coefficients(*planned_.shape, accelerators_[0].spec, 1, planner::EngineType::kWindlass, estimates));
  EXPECT_NEAR(believed.decode_s(4, 64) / (kConstantS + 4 * kPerRequestS), 1, 0.1);
  EXPECT_NEAR(believed.prefill_s(192) / (kConstantS + 192 * 0.00006), 1, 0.15);
}

// Given windlass-worker, which measures itself; probe: Off; a worker that has long been ready, is draining, or has requests;
// arriving, queued, or unknown requests; expects no probe.
TEST_F(ProbedService, OtherWorkersAreNotProbed) {
  service_.spec.engine.type = api::EngineType::kWindlass;
  step(1001);
  EXPECT_FALSE(probes_.waits());
  service_.spec.engine.type = api::EngineType::kVLLM;
  service_.spec.engine.probe = api::Probe::kOff;
  step(1002);
  EXPECT_FALSE(probes_.waits());
  service_.spec.engine.probe = api::Probe::kAuto;
  step(1100);
  EXPECT_FALSE(probes_.waits());
  workers_[0].ready_s = 1100;
  workers_[0].draining_since_s = 1100;
  step(1101);
  EXPECT_FALSE(probes_.waits());
  workers_[0].draining_since_s.reset();
  engine_.running = 1;
  step(1102);
  EXPECT_FALSE(probes_.waits());
  engine_.running = 0;
  for (auto* reading : {&planned_.demand.arrivals_per_s, &planned_.demand.queued}) {
    for (const std::optional<planner::Reading>& not_quiet : {std::optional(planner::Reading{1, 0}), {}}) {
      *reading = not_quiet;
      step(1103);
      EXPECT_FALSE(probes_.waits());
    }
    *reading = planner::Reading{0, 0};
  }
  step(1104);
  EXPECT_TRUE(probes_.waits());
}

// Given a result from a worker whose service had a request meanwhile, or has another engine now; expects it to be ignored.
TEST_F(ProbedService, DisturbedMeasurementsAreIgnored) {
  step(1001);
  const auto asked = probes_.next();
  ASSERT_TRUE(asked);
  probes_.answer(*asked, {{512, 0, 0, 0.1}, {0, 4, 512, 0.05}});
  planned_.demand.arrivals_total->value = 1;
  step(1002);
  EXPECT_TRUE(calibration_.estimates(service_).empty());
  probes_.keep({});
  planned_.demand.arrivals_total->value = 0;
  step(1003);
  const auto again = probes_.next();
  ASSERT_TRUE(again);
  probes_.answer(*again, {{512, 0, 0, 0.1}, {0, 4, 512, 0.05}});
  service_.spec.engine.type = api::EngineType::kSGLang;
  step(1004);
  EXPECT_TRUE(calibration_.estimates(service_).empty());
}

}  // namespace
}  // namespace windlass::controller
