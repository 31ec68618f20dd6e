// Tests `windlass fit`: the file it writes and how other commands use it, its output, and mistakes on the command line and in
// files.

#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/api/load.h"
#include "controller/api/yaml.h"
#include "planner/base/rng.h"
#include "planner/perf/profile_yaml.h"
#include "tests/paths.h"
#include "tests/says.h"
#include "tests/unit/controller/cli/example_objects.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kSamples = source_path("/examples/fit/made-up-samples.csv");
const std::string kSplitwise = source_path("/../shared/data/profiles/splitwise/perf_model.csv");
const std::string kTables = source_path("/../shared/data/profiles/operators/a100_sxm");
const std::string kVidur = source_path("/../shared/data/profiles/vidur-a100-codellama34b-tp2");

Outcome fit(std::vector<std::string> arguments, bool terminal = false) {
  arguments.insert(arguments.begin(), "fit");
  return run(arguments, {.err_terminal = terminal});
}

// A scenario with one kind of worker and this latency source.
std::string scenario(const std::string& latency, const std::string& accelerator = "l40s", int gpus = 1,
                     const std::string& model = "llama3-8b") {
  return "model: {name: " + model + "}\nlatency: " + latency +
         "\nworkload: {inputTokens: 700, outputTokens: 50, requestsPerSecond: 1, duration: 30s}\ncluster:\n  pools:\n  - " +
         "{accelerator: " + accelerator + ", gpusPerWorker: " + std::to_string(gpus) + ", workers: 1}\n";
}

// Given the example's samples and -o; expects a file that `windlass validate` accepts, the errors on stdout, and no other file.
TEST(Fit, WritesAProfileThatValidates) {
  const TempFolder folder;
  for (const std::string model : {"linear", "profile"}) {
    const std::string path = (folder.path() / (model + ".yaml")).string();
    const auto outcome = fit({"-f", kSamples, "--model", model, "-o", path});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, StartsWith("llama3-8b on l40s, 1 GPU per worker: "));
    for (const char* expected : {"PART", "prefill", "decode", "NEW SHAPES", "90% INTERVAL", "Measured: prompts of ",
                                 "50 measurements", "5 folds", "PerformanceProfile llama3-8b-l40s-1gpu written to "}) {
      EXPECT_THAT(outcome.out, HasSubstr(expected));
    }
    const auto checked = run({"validate", "-f", path});
    EXPECT_EQ(checked.code, kDone) << checked.err;
    EXPECT_THAT(checked.out, HasSubstr("PerformanceProfile default/llama3-8b-l40s-1gpu: valid"));
  }
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 2U);
}

// Given no -o; expects the same YAML on stdout and the errors on stderr, identical in a second run.
TEST(Fit, PrintsYamlWithoutAFile) {
  const TempFolder folder;
  const std::string path = (folder.path() / "p.yaml").string();
  const auto outcome = fit({"-f", kSamples, "--model", "profile"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("apiVersion: windlass.dev/v1alpha1\n"));
  EXPECT_THAT(outcome.err, HasSubstr("prefill"));
  ASSERT_EQ(fit({"-f", kSamples, "--model", "profile", "-o", path}).code, kDone);
  EXPECT_EQ(text_of(path), outcome.out);
  EXPECT_EQ(fit({"-f", kSamples, "--model", "profile", "-o", "-"}).out, outcome.out);
}

// Given the file as the API server's object and as the planner's; expects one profile with bit-identical predictions.
TEST(Fit, ObjectAndFileAreTheSameProfile) {
  for (const std::string model : {"linear", "profile"}) {
    const auto outcome = fit({"-f", kSamples, "--model", model, "--kv-capacity-tokens", "123456"});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    const auto file = planner::parse_performance_profile(outcome.out, "p.yaml");
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto objects = api::load_objects(outcome.out, "p.yaml");
    ASSERT_TRUE(objects.ok()) << objects.error().message;
    const auto& object = std::get<api::PerformanceProfile>(objects->front().value);
    EXPECT_EQ(planner::to_json(object.spec), planner::to_json(*file));
    EXPECT_EQ(object.spec.kv_capacity_tokens, 123456);
    const auto a = planner::iteration_model(*file, {}, {}, 1);
    const auto b = planner::iteration_model(object.spec, {}, {}, 1);
    ASSERT_TRUE(a.ok() && b.ok());
    Rng rng(1, "batches");
    for (int i = 0; i < 200; ++i) {
      const auto batch =
          planner::prefill_batch(static_cast<int>(rng.integer(1, 40)), static_cast<double>(rng.integer(1, 9000)));
      ASSERT_EQ((*a)->iteration_s(batch), (*b)->iteration_s(batch));
    }
  }
}

// Given a scenario whose latency file is the profile; expects a simulation within the measured range. With another source,
// model, accelerator or number of GPUs, expects an error that names it.
TEST(Fit, ProfilesAreALatencySourceOfSimulate) {
  const TempFolder folder;
  const auto simulate = [&](const std::string& text) {
    return run({"simulate", "-f", folder.file("scenario.yaml", text), "-o", "json"});
  };
  for (const std::string model : {"linear", "profile"}) {
    ASSERT_EQ(fit({"-f", kSamples, "--model", model, "-o", (folder.path() / (model + ".yaml")).string()}).code, kDone);
    const std::string latency = "{source: " + model + ", file: " + model + ".yaml}";
    const auto outcome = simulate(scenario(latency));
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(model + " " + model + ".yaml: llama3-8b"));
    EXPECT_THAT(outcome.out, HasSubstr("\"completed\""));

    const auto gpus = simulate(scenario(latency, "l40s", 2));
    EXPECT_EQ(gpus.code, kUsage);
    EXPECT_THAT(gpus.err, HasSubstr("cluster.pools[0]: must be 1 x l40s, on which " + model + ".yaml"));
    EXPECT_EQ(simulate(scenario(latency, "h100-80gb")).code, kUsage);
    const auto other = simulate(scenario(latency, "l40s", 1, "llama2-7b"));
    EXPECT_EQ(other.code, kUsage);
    EXPECT_THAT(other.err, HasSubstr("latency.model: must be llama3-8b"));
  }
  const auto swapped = simulate(scenario("{source: linear, file: profile.yaml}"));
  EXPECT_EQ(swapped.code, kUsage);
  EXPECT_THAT(swapped.err, HasSubstr("latency.source: must be profile, as profile.yaml was fitted (got linear)"));
  const auto formulas = simulate(scenario("{source: distserve, file: profile.yaml}"));
  EXPECT_EQ(formulas.code, kUsage);
  EXPECT_THAT(formulas.err, HasSubstr("latency.source: must be profile"));
  folder.file("other.yaml", "a: 1\n");
  const auto nothing = simulate(scenario("{source: operators, file: other.yaml}"));
  EXPECT_EQ(nothing.code, kUsage);
  EXPECT_THAT(nothing.err, HasSubstr("other.yaml: must be a PerformanceProfile"));
  std::string broken = text_of((folder.path() / "linear.yaml").string());
  broken.replace(broken.find("form: "), 6, "shape: ");
  folder.file("broken.yaml", broken);
  const auto named = simulate(scenario("{source: linear, file: broken.yaml}"));
  EXPECT_EQ(named.code, kUsage);
  EXPECT_THAT(named.err, HasSubstr("broken.yaml:"));
  EXPECT_THAT(named.err, HasSubstr("spec.fit.linear.form"));
}

// Given a form, and none; expects that best is the one with the smaller errors.
TEST(Fit, TakesTheBetterForm) {
  const auto form = [](const std::string& wanted) {
    const auto outcome = fit({"-f", kSamples, "--model", "linear", "--form", wanted});
    EXPECT_EQ(outcome.code, kDone) << outcome.err;
    return outcome;
  };
  EXPECT_THAT(form("aladdin").out, HasSubstr("form: Aladdin"));
  EXPECT_THAT(form("huawei").out, HasSubstr("form: Huawei"));
  const auto best = form("best");
  EXPECT_TRUE(best.out == form("aladdin").out || best.out == form("huawei").out);
}

// Given wrong samples; expects exit code 2 and one line with the file, its line, the column, the value and the rule.
TEST(Fit, NamesWhatIsWrongInAFile) {
  const TempFolder folder;
  const std::string header = "model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time\n";
  std::string rows;
  for (int i = 1; i <= 8; ++i) {
    rows += "m,h100-80gb,1," + std::to_string(128 * i) + "," + std::to_string(i) + ",8," + std::to_string(10 * i) + ",20\n";
  }
  struct Case {
    std::string text;
    std::vector<const char*> expected;
  };
  const std::vector<Case> cases = {
      {"model,hardware\nm,h\n", {"line 1: must have the columns model, hardware"}},
      {header + "m,h,1,128,1,8,-5,20\n", {"line 2: prompt_time: must be a number from*(got '-5')"}},
      {header + rows + "m,h100-80gb,1,128,1,8,5,fast\n", {"line 10: token_time: must be a number from*(got 'fast')"}},
      {header + "m,h,1,128,1,8,5\n", {"line 2: must have 8 fields, as in the first line (got 7)"}},
      {header + "m,h,1,128,0,8,5,20\n", {"line 2: batch_size: must*(got '0')"}},
      {header, {"must have at least one row"}},
      {"", {"(missing: model)"}},
      {header + "m,h,1,128,1,8,5,20\nm,h,1,256,1,8,9,20\n", {"usable rows for m on h with 1 GPUs: must be at least 4 (got 2)"}},
      {header + rows + "m,a100-80gb,1,128,1,8,5,20\nm,a100-80gb,2,128,1,8,5,20\n",
       {"must select one combination (got 3); choose with --target-model, --accelerator and --gpus from m on h100-80gb with 1 "
        "GPUs; m on a100-80gb with 1, 2 GPUs"}},
  };
  for (const Case& one : cases) {
    const std::string path = folder.file("samples.csv", one.text);
    for (const char* model : {"linear", "profile"}) {
      const auto outcome = fit({"-f", path, "--model", model, "-o", (folder.path() / "never.yaml").string()});
      EXPECT_EQ(outcome.code, kUsage) << one.text;
      EXPECT_EQ(outcome.out, "");
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
      EXPECT_THAT(outcome.err, StartsWith(path + ": "));
      for (const char* expected : one.expected) EXPECT_THAT(outcome.err, Says(expected));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "never.yaml"));
}

// Given wrong command lines; expects exit code 2 and one line with the rule.
TEST(Fit, NamesWhatIsWrongInTheCommandLine) {
  const TempFolder folder;
  struct Case {
    std::vector<std::string> arguments;
    const char* expected;
  };
  for (const Case& one : {
           Case{{}, "--file is required"},
           Case{{"-f", kSamples}, "--model is required"},
           Case{{"-f", kSamples, "--model", "forest"}, "linear"},
           Case{{"-f", kSamples, "--model", "linear", "--gpus", "0"}, "--gpus"},
           Case{{"-f", kSamples, "--model", "linear", "--folds", "1"}, "--folds"},
           Case{{"-f", kSamples, "--model", "linear", "--config", "c.json"}, "--config: must go with --model operators"},
           Case{{"-f", kSamples, "--model", "linear", "--target-model", "gpt"},
                "must have measurements of gpt on any accelerator"},
           Case{{"-f", kSamples, "--model", "linear", "--gpus", "8"}, "(got llama3-8b on l40s with 1 GPUs"},
           Case{{"-f", kSamples, "--model", "linear", "--name", "Not A Name"}, "metadata.name"},
           Case{{"-f", "/nowhere.csv", "--model", "linear"}, "(cannot be read: No such file"},
           Case{{"-f", source_path(), "--model", "linear"}, "must be a result of `vllm bench serve --save-result`"},
           Case{{"-f", kSamples, "--model", "linear", "-o", "/nowhere/p.yaml"}, "/nowhere/p.yaml: cannot be written"},
           Case{{"-f", kSamples, "--model", "operators"}, "--target-model: must be given"},
           Case{{"-f", kSamples, "--model", "operators", "--target-model", "gpt"}, "--target-model: must be "},
           Case{{"-f", kSamples, "--model", "operators", "--target-model", "llama3-8b"}, "for --model operators (got none)"},
           Case{{"-f", kSamples, "--model", "operators", "--target-model", "llama3-8b", "--accelerator", "cray"},
                "(got 'cray')"},
           Case{{"-f", kSamples, "--model", "operators", "--target-model", "llama3-8b", "--accelerator", "l40s"},
                "line 1: must have the columns of a known table: a CSV table of ai-dynamo/aiconfigurator"},
           Case{{"-f", folder.path().string(), "--model", "operators", "--target-model", "llama3-8b", "--accelerator", "l40s"},
                "(got no measured operator)"},
       }) {
    const auto outcome = fit(one.arguments);
    EXPECT_EQ(outcome.code, kUsage) << one.expected;
    EXPECT_EQ(outcome.out, "") << one.expected;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(one.expected));
  }
}

// Given an existing output and a failing fit; expects the file unchanged.
TEST(Fit, AFailedFitLeavesTheFile) {
  const TempFolder folder;
  const std::string path = folder.file("p.yaml", "before\n");
  EXPECT_EQ(fit({"-f", kSamples, "--model", "linear", "--gpus", "8", "-o", path}).code, kUsage);
  EXPECT_EQ(text_of(path), "before\n");
  EXPECT_EQ(fit({"-f", kSamples, "--model", "linear", "-o", path}).code, kDone);
  EXPECT_THAT(text_of(path), StartsWith("apiVersion"));
}

// Given a small folder of operator tables; expects a profile with the operators' errors that `simulate` accepts, except for
// another model's shape.
TEST(Fit, OperatorTablesOfAFolder) {
  const TempFolder folder;
  std::string products = "device,gemm_dtype,m,n,k,latency\n";
  for (const int m : {1, 16, 256, 4096}) {
    for (const int n : {1024, 4096, 16384, 65536}) {
      for (const int k : {1024, 4096, 16384, 65536}) {
        const double ms = 0.005 + 2e-12 * n * k + 1e-11 * m * n * k;
        products += "NVIDIA L40S,bfloat16," + std::to_string(m) + "," + std::to_string(n) + "," + std::to_string(k) + "," +
                    std::to_string(ms) + "\n";
      }
    }
  }
  folder.file("tables/gemm_perf.csv", products);
  folder.file("tables/readme.txt", "not a table");
  folder.file("tables/other.csv", "a,b\n1,2\n");
  const std::string path = (folder.path() / "operators.yaml").string();
  const auto outcome = fit({"-f", (folder.path() / "tables").string(), "--model", "operators", "--target-model", "llama3-8b",
                            "--accelerator", "l40s", "-o", path});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* expected : {"Operators fit", "gemm", "Note: ", "other.csv: skipped", "measured on NVIDIA L40S",
                               "no measurements of attention to the cache"}) {
    EXPECT_THAT(outcome.out, HasSubstr(expected));
  }
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("NEW SHAPES")));  // operators have no such column
  EXPECT_THAT(text_of(path), HasSubstr("gemmBFloat16: |\n"));
  EXPECT_EQ(run({"validate", "-f", path}).code, kDone);
  const auto simulated =
      run({"simulate", "-f", folder.file("s.yaml", scenario("{source: operators, file: operators.yaml}")), "-o", "json"});
  ASSERT_EQ(simulated.code, kDone) << simulated.err;
  EXPECT_THAT(simulated.out, HasSubstr("operators operators.yaml: llama3-8b"));
}

// Given a terminal; expects a progress line that is erased at the end.
TEST(Fit, ShowsProgressOnATerminal) {
  const auto outcome = fit({"-f", kSamples, "--model", "linear", "-o", "/dev/null/x"}, true);
  EXPECT_THAT(outcome.err, HasSubstr("\r\x1b[Kfitting"));
  EXPECT_EQ(fit({"-f", kSamples, "--model", "linear"}, false).err.find('\r'), std::string::npos);
}

// Given Splitwise's file; expects an error that lists all combinations until model, accelerator and GPUs are chosen, then a
// profile with errors of a few per cent.
TEST(Fit, SplitwisesFile) {
  if (!std::filesystem::exists(kSplitwise)) GTEST_SKIP() << "needs " << kSplitwise;
  const auto all = fit({"-f", kSplitwise, "--model", "profile"});
  EXPECT_EQ(all.code, kUsage);
  EXPECT_THAT(all.err, HasSubstr("must select one combination (got 8)"));
  EXPECT_THAT(all.err, HasSubstr("llama2-70b on h100-80gb with 2, 4, 8 GPUs"));
  const auto one = fit(
      {"-f", kSplitwise, "--model", "profile", "--target-model", "bloom-176b", "--accelerator", "h100-80gb", "--gpus", "8"});
  ASSERT_EQ(one.code, kDone) << one.err;
  EXPECT_THAT(one.err, HasSubstr("bloom-176b on h100-80gb, 8 GPUs per worker"));
  EXPECT_LT(one.out.size(), 100'000U);
}

// Given aiconfigurator's gzipped tables of an A100, and Vidur's profiles; expects a profile of their model from each.
TEST(Fit, MeasuredOperators) {
  if (!std::filesystem::exists(kTables)) GTEST_SKIP() << "needs " << kTables;
  const auto tables = fit({"-f", kTables, "--model", "operators", "--target-model", "llama3-8b", "--accelerator", "a100-80gb"});
  ASSERT_EQ(tables.code, kDone) << tables.err;
  EXPECT_THAT(tables.err, HasSubstr("generationAttention"));
  EXPECT_THAT(tables.err, HasSubstr("measured on NVIDIA A100-SXM4-80GB"));
  const auto vidur =
      fit({"-f", kVidur, "--model", "operators", "--target-model", "codellama-34b", "--accelerator", "a100-80gb"});
  ASSERT_EQ(vidur.code, kDone) << vidur.err;
  EXPECT_THAT(vidur.out, HasSubstr("gpusPerWorker: 2"));
  EXPECT_THAT(vidur.out, HasSubstr("VidurProfiles"));
  const auto other = fit({"-f", kVidur, "--model", "operators", "--target-model", "llama2-7b", "--accelerator", "a100-80gb"});
  EXPECT_EQ(other.code, kUsage);
  EXPECT_THAT(other.err, HasSubstr("n_embd: must be the model's (got 8192, the model has 4096)"));
  const auto gpus = fit(
      {"-f", kVidur, "--model", "operators", "--target-model", "codellama-34b", "--accelerator", "a100-80gb", "--gpus", "4"});
  EXPECT_EQ(gpus.code, kUsage);
  EXPECT_THAT(gpus.err, HasSubstr("--gpus: must be a number of GPUs that"));
}

// A worker whose prompts take 10 ms + 0.2 ms per token and whose iterations take 8 ms + 0.5 ms per request.
std::string vllm_result(double at_once, double prompt_tokens, double off = 1) {
  const double prefill_ms = 10 + 0.2 * prompt_tokens;
  const double tpot_ms = (8 + 0.5 * at_once + (at_once - 1) / 99 * prefill_ms) * off;
  return fmt::format(
      R"({{"backend": "vllm", "model_id": "org/model", "max_concurrency": {}, "completed": 10, "total_input_tokens": {}, )"
      R"("total_output_tokens": 1000, "request_throughput": {}, "median_ttft_ms": {}, "mean_tpot_ms": {}, "median_tpot_ms": {}}})",
      at_once, 10 * prompt_tokens, at_once / (tpot_ms * 1e-3 * 99), prefill_ms + (at_once > 1 ? tpot_ms / 2 : 0), tpot_ms,
      tpot_ms);
}

// Given a folder with results of `vllm bench serve` among other files; expects a valid profile and a page that plots it.
// Without an accelerator, with another fit or with a folder without results, expects an error that says so.
TEST(Fit, ReadsBenchmarkResults) {
  const TempFolder folder;
  for (const int prompt : {100, 400, 1600}) {
    for (const int at_once : {1, 4, 16})
      folder.file(fmt::format("run-{}-{}.json", prompt, at_once), vllm_result(at_once, prompt));
  }
  folder.file("inputs.json", R"({"data": []})");
  const std::string output = (folder.path() / "profile.yaml").string(), page = (folder.path() / "page.html").string();
  const std::string runs = folder.path().string();
  const auto outcome = fit({"-f", runs, "--model", "linear", "--accelerator", "l40s", "-o", output, "--html", page});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("org/model on l40s, 1 GPU per worker: Linear fit of 9 measurements"));
  EXPECT_THAT(outcome.out, HasSubstr("results of vLLM, measured under load"));
  EXPECT_THAT(text_of(output), HasSubstr("format: BenchmarkResults"));
  EXPECT_EQ(run({"validate", "-f", output}).code, kDone);
  for (const char* expected : {"Prefill", "Decode", "batch 1<", "Points: medians", "context 150<", "Linear fit of 9"})
    EXPECT_THAT(text_of(page), HasSubstr(expected));

  EXPECT_THAT(fit({"-f", runs, "--model", "linear"}).err, HasSubstr("--accelerator: must be given"));
  EXPECT_THAT(fit({"-f", runs, "--model", "profile", "--accelerator", "l40s"}).err, HasSubstr("--model: must be linear"));
  const TempFolder empty;
  empty.file("inputs.json", R"({"data": []})");
  const auto none = fit({"-f", empty.path().string(), "--model", "linear", "--accelerator", "l40s"});
  EXPECT_EQ(none.code, kUsage);
  EXPECT_THAT(none.err, HasSubstr("must be a result of `vllm bench serve --save-result`"));
}

// Given results that contradict each other; expects exit code 1 and the error, unless --output-anyway is given or the bound is
// higher. Rows of batches have a bound only if one is given.
TEST(Fit, RefusesErrorsAboveTheBound) {
  const TempFolder folder;
  double off = 1;
  for (const int at_once : {1, 2, 4, 8, 16, 32}) {
    folder.file(fmt::format("run-{}.json", at_once), vllm_result(at_once, 200 + 100 * at_once, off));
    off = off == 1 ? 8 : 1;
  }
  const std::string output = (folder.path() / "profile.yaml").string();
  std::vector<std::string> flags{"-f", folder.path().string(), "--model", "linear", "--accelerator", "l40s", "-o", output};
  const auto refused = fit(flags);
  EXPECT_EQ(refused.code, kFailed) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("windlass fit: "));
  EXPECT_THAT(refused.err, HasSubstr("decode: median error on held-out load points "));
  EXPECT_THAT(refused.err, HasSubstr("must be at most 20.0% (got"));
  EXPECT_FALSE(std::filesystem::exists(output));
  flags.emplace_back("--output-anyway");
  EXPECT_EQ(fit(flags).code, kFailed);
  EXPECT_TRUE(std::filesystem::exists(output));
  flags.back() = "--max-error";
  flags.emplace_back("100000%");
  EXPECT_EQ(fit(flags).code, kDone);

  EXPECT_EQ(fit({"-f", kSamples, "--model", "linear", "--max-error", "0%"}).code, kFailed);
  EXPECT_THAT(fit({"-f", kSamples, "--model", "linear", "--max-error", "a fifth"}).err, HasSubstr("must be a percentage"));
}

}  // namespace
}  // namespace windlass::cli
