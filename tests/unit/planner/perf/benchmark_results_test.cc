// Tests of results of vLLM, AIPerf and GuideLLM, in documents of these tools' format, as rows and as a fit.
#include "planner/perf/benchmark_results.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/perf/profile_fit.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;

// A worker under steady load: prompts take 10 ms + 0.2 ms per token, iterations 8 ms + 0.5 ms per request.
struct Load {
  double at_once = 1, prompt_tokens = 512, output_tokens = 128;

  [[nodiscard]] double prefill_s() const { return 10e-3 + 2e-4 * prompt_tokens; }
  [[nodiscard]] double iteration_s() const { return 8e-3 + 5e-4 * at_once; }
  // Tokens of a request take its iterations plus the prompts computed between them.
  [[nodiscard]] double tpot_s() const { return iteration_s() + (at_once - 1) / (output_tokens - 1) * prefill_s(); }
  [[nodiscard]] double ttft_s() const { return prefill_s() + (at_once > 1 ? tpot_s() / 2 : 0); }
  [[nodiscard]] double requests_per_s() const { return at_once / (tpot_s() * (output_tokens - 1)); }
};

std::string vllm(const Load& load) {
  return fmt::format(
      R"({{"date": "20260110-101500", "endpoint_type": "openai-chat", "backend": "openai-chat", "label": null, "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 200, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": {:.0f}, "duration": {}, "completed": 200, "failed": 0, "total_input_tokens": {:.0f}, "total_output_tokens": {:.0f}, "request_throughput": {}, "request_goodput": null, "output_throughput": 100.0, "total_token_throughput": 500.0, "max_output_tokens_per_s": 130.0, "max_concurrent_requests": 17, "mean_ttft_ms": 190.0, "median_ttft_ms": {}, "std_ttft_ms": 12.0, "p99_ttft_ms": 400.0, "mean_tpot_ms": {}, "median_tpot_ms": {}, "std_tpot_ms": 1.0, "p99_tpot_ms": 30.0, "mean_itl_ms": 12.0, "median_itl_ms": 11.0, "std_itl_ms": 4.0, "p99_itl_ms": 60.0}})",
      load.at_once, 200 / load.requests_per_s(), 200 * load.prompt_tokens, 200 * load.output_tokens, load.requests_per_s(),
      load.ttft_s() * 1e3, load.tpot_s() * 1e3, load.tpot_s() * 1e3);
}

std::string aiperf(const Load& load) {
  const auto metric = [](const char* unit, double value) {
    return fmt::format(
        R"({{"unit": "{0}", "avg": {1}, "p1": {1}, "p50": {1}, "p90": {1}, "p99": {1}, "min": {1}, "max": {1}, "std": 0.0, "count": 100}})",
        unit, value);
  };
  return fmt::format(
      R"({{
  "schema_version": "1.3",
  "aiperf_version": "0.10.0",
  "request_throughput": {{"unit": "requests/sec", "avg": {}}},
  "request_count": {{"unit": "requests", "avg": 100.0}},
  "time_to_first_token": {},
  "inter_token_latency": {},
  "output_sequence_length": {},
  "input_sequence_length": {},
  "input_config": {{"endpoint": {{"model_names": ["Qwen/Qwen3-0.6B"], "type": "chat", "streaming": true}}, "loadgen": {{"concurrency": {:.0f}, "request_count": 100}}}},
  "was_cancelled": false,
  "error_summary": []
}}
)",
      load.requests_per_s(), metric("ms", load.ttft_s() * 1e3), metric("ms", load.tpot_s() * 1e3),
      metric("tokens", load.output_tokens), metric("tokens", load.prompt_tokens), load.at_once);
}

std::string aiperf_csv(const Load& load) {
  const auto line = [](const char* name, double value) {
    return fmt::format("{0},{1:.2f},{1:.2f},{1:.2f},{1:.2f},{1:.2f},0.00\r\n", name, value);
  };
  return "Metric,avg,min,max,p50,p99,std\r\n" + line("Input Sequence Length (tokens)", load.prompt_tokens) +
         line("Inter Token Latency (ms)", load.tpot_s() * 1e3) + line("Output Sequence Length (tokens)", load.output_tokens) +
         line("Request Latency (ms)", 1000) + line("Time to First Token (ms)", load.ttft_s() * 1e3) +
         "\r\nMetric,Value\r\nBenchmark Duration (sec),60.00\r\nRequest Count,100.00\r\n" +
         fmt::format("Request Throughput (requests/sec),{:.4f}\r\n", load.requests_per_s()) +
         "\r\n\r\nEndpoint,GPU_Index,GPU_Name,GPU_UUID,Metric,avg,min,max\r\nlocalhost:9401,0,H100,GPU-1,GPU Power Usage "
         "(W),348.69,120.57,386.02\r\n";
}

std::string guidellm(const std::vector<Load>& loads) {
  std::string benchmarks;
  for (const Load& load : loads) {
    const auto metric = [](const char* name, double value) {
      const std::string summary = fmt::format(
          R"({{"mean": {0}, "median": {0}, "mode": {0}, "variance": 0.0, "std_dev": 0.0, "min": {0}, "max": {0}, "count": 95, "total_sum": 1.0, "percentiles": {{"p50": {0}, "p95": {0}, "p99": {0}}}}})",
          value);
      return fmt::format(R"("{0}": {{"successful": {1}, "incomplete": null, "errored": null, "total": {1}}})", name, summary);
    };
    benchmarks += fmt::format(
        R"({}{{"type_": "generative_benchmark", "config": {{"run_index": 0, "backend": {{"type_": "openai_http", "model": "tiny"}}}}, "metrics": {{"request_totals": {{"successful": 95, "incomplete": 0, "errored": 0, "total": 95}}, {}, {}, {}, {}, {}, {}}}}})",
        benchmarks.empty() ? "" : ", ", metric("requests_per_second", load.requests_per_s()),
        metric("request_concurrency", load.at_once), metric("prompt_token_count", load.prompt_tokens),
        metric("output_token_count", load.output_tokens), metric("time_to_first_token_ms", load.ttft_s() * 1e3),
        metric("inter_token_latency_ms", load.tpot_s() * 1e3));
  }
  return R"({"metadata": {"version": 2, "guidellm_version": "0.7.0"}, "args": {}, "benchmarks": [)" + benchmarks + "]}";
}

std::vector<Load> sweep() {
  std::vector<Load> loads;
  for (const double prompt : {128, 512, 2048}) {
    for (const double at_once : {1, 4, 16}) loads.push_back({at_once, prompt});
  }
  return loads;
}

std::vector<BenchmarkResult> parsed(const std::string& text) {
  const auto results = parse_benchmark_results(text);
  EXPECT_TRUE(results.ok()) << results.error().message;
  EXPECT_TRUE(results.ok() && *results) << text.substr(0, 200);
  return results.ok() && *results ? **results : std::vector<BenchmarkResult>();
}

// Given one load in the files of each tool; expects the same result from all, with the model's name if the file has it.
TEST(BenchmarkResults, EachToolSaysTheSame) {
  const Load load{16, 512, 128};
  const std::vector<std::pair<std::string, std::string>> files{{vllm(load), "meta-llama/Llama-3.1-8B-Instruct"},
                                                               {aiperf(load), "Qwen/Qwen3-0.6B"},
                                                               {aiperf_csv(load), ""},
                                                               {guidellm({load}), "tiny"}};
  for (const auto& [text, model] : files) {
    const auto results = parsed(text);
    ASSERT_EQ(results.size(), 1U);
    const BenchmarkResult& result = results[0];
    EXPECT_EQ(result.model, model);
    EXPECT_NEAR(result.requests_per_s, load.requests_per_s(), 1e-4);
    EXPECT_DOUBLE_EQ(result.prompt_tokens, 512);
    EXPECT_DOUBLE_EQ(result.output_tokens, 128);
    EXPECT_NEAR(result.ttft_s, load.ttft_s(), 1e-5);
    EXPECT_NEAR(result.tpot_s, load.tpot_s(), 1e-5);
    EXPECT_NEAR(result.mean_tpot_s, load.tpot_s(), 1e-5);
  }
  EXPECT_EQ(parsed(vllm(load) + "\n" + vllm({1})).size(), 2U);
  EXPECT_EQ(parsed(guidellm(sweep())).size(), 9U);
}

// Given a sweep of three prompt sizes under three loads; expects for each a single prompt and an iteration of the decoding
// requests, and fitted lines equal to the worker's.
TEST(BenchmarkResults, RowsAndTheirFit) {
  const ProfileKey key{"tiny", "l40s", 1};
  const auto rows = rows_of(parsed(guidellm(sweep())), key);
  ASSERT_EQ(rows.size(), 18U);
  for (std::size_t i = 0; i < sweep().size(); ++i) {
    const Load load = sweep()[i];
    EXPECT_EQ(rows[2 * i].batch_size, 1);
    EXPECT_NEAR(rows[2 * i].prompt_s, load.prefill_s(), 1e-9);
    EXPECT_EQ(rows[2 * i + 1].batch_size, load.at_once);
    EXPECT_NEAR(rows[2 * i + 1].token_s / load.iteration_s(), 1, 0.02);
  }
  const auto profile = fit_lines(rows, key, LinearForm::kAladdin);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  ASSERT_EQ(profile->errors.size(), 2U);
  for (const FitError& error : profile->errors) {
    EXPECT_EQ(error.samples, 9) << error.part;
    EXPECT_LT(error.max_ape, 0.03) << error.part;
  }
  const auto model = iteration_model(*profile, {}, {}, 1);
  ASSERT_TRUE(model.ok());
  EXPECT_NEAR((*model)->iteration_s(prefill_batch(1, 1000)), 0.21, 0.002);
  EXPECT_NEAR((*model)->iteration_s(decode_batch(8, 600)), 12e-3, 0.5e-3);
}

// Given unrelated texts; expects them to be ignored. Given a result with a figure that is missing, zero or not a number;
// expects an error with its path.
TEST(BenchmarkResults, OthersAndMistakes) {
  for (const char* other : {"", "{}", "[1]", "model,hardware\na,b\n", R"({"benchmarks": []})", R"({"benchmarks": [{"a": 1}]})",
                            "{\"a\":1}\n{\"b\":2}", "nonsense"}) {
    const auto results = parse_benchmark_results(other);
    ASSERT_TRUE(results.ok()) << other;
    EXPECT_FALSE(*results) << other;
  }
  const auto without = [](std::string text, const std::string& from, const std::string& to) {
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto results = parse_benchmark_results(text);
    EXPECT_FALSE(results.ok());
    return results.ok() ? std::string() : results.error().message;
  };
  EXPECT_EQ(without(vllm({}), "\"median_tpot_ms\"", "\"renamed\""), "/median_tpot_ms: must be a number above 0 (got nothing)");
  EXPECT_EQ(without(vllm({}), "\"completed\": 200", "\"completed\": 0"), "/completed: must be a number above 0 (got 0)");
  EXPECT_EQ(without(vllm({}) + "\n" + vllm({}), "\"completed\": 200", "\"completed\": \"x\""),
            "line 1: /completed: must be a number above 0 (got \"x\")");
  EXPECT_EQ(without(aiperf({}), "\"request_throughput\"", "\"renamed\""),
            "/request_throughput/avg: must be a number above 0 (got nothing)");
  EXPECT_THAT(without(guidellm({{}, {}}), "\"output_token_count\"", "\"renamed\""),
              HasSubstr("/benchmarks/0/metrics/output_token_count/successful/mean: must be a number above 0 (got nothing)"));
}

}  // namespace
}  // namespace windlass::planner
