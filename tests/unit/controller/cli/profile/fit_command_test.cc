// `windlass fit` as a newcomer meets it: the file it writes and what the other commands make of it, what it prints, and the
// mistakes that a command line or a file can hold.

#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/api/load.h"
#include "controller/api/yaml.h"
#include "planner/base/rng.h"
#include "planner/perf/profile_yaml.h"
#include "tests/paths.h"
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

// A scenario of one worker kind with this latency source.
std::string scenario(const std::string& latency, const std::string& accelerator = "l40s", int gpus = 1,
                     const std::string& model = "llama3-8b") {
  return "model: {name: " + model + "}\nlatency: " + latency +
         "\nworkload: {inputTokens: 700, outputTokens: 50, requestsPerSecond: 1, duration: 30s}\ncluster:\n  pools:\n  - " +
         "{accelerator: " + accelerator + ", gpusPerWorker: " + std::to_string(gpus) + ", workers: 1}\n";
}

// Given the example's samples and -o: a file that `windlass validate` takes, the errors on stdout, and nothing beside the file.
TEST(Fit, WritesAProfileThatValidates) {
  const TempFolder folder;
  for (const std::string model : {"linear", "profile"}) {
    const std::string path = (folder.path() / (model + ".yaml")).string();
    const auto outcome = fit({"-f", kSamples, "--model", model, "-o", path});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, StartsWith("llama3-8b on l40s, 1 GPU a worker: "));
    for (const char* expected : {"PART", "prefill", "decode", "NEW SHAPES", "50 measurements", "5 folds",
                                 "PerformanceProfile llama3-8b-l40s-1gpu written to "}) {
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

// Given no -o: the same YAML on stdout, the errors on stderr; twice the same.
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

// Given the file as the API server's object and as the planner's: one profile, which predicts the same to the last bit.
TEST(Fit, ObjectAndFileAreOneProfile) {
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

// Given a scenario whose latency file is the profile: it is simulated by it, inside of what was measured; with another source,
// model, accelerator or number of GPUs: refused by name.
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
    EXPECT_THAT(gpus.err, HasSubstr("cluster.pools[0]: found 2 x l40s, allowed is 1 x l40s: that is what " + model + ".yaml"));
    EXPECT_EQ(simulate(scenario(latency, "h100-80gb")).code, kUsage);
    const auto other = simulate(scenario(latency, "l40s", 1, "llama2-7b"));
    EXPECT_EQ(other.code, kUsage);
    EXPECT_THAT(other.err, HasSubstr("latency.model: found llama2-7b, allowed is llama3-8b"));
  }
  const auto swapped = simulate(scenario("{source: linear, file: profile.yaml}"));
  EXPECT_EQ(swapped.code, kUsage);
  EXPECT_THAT(swapped.err,
              HasSubstr("latency.source: found linear, allowed is profile: that is what profile.yaml was fitted as"));
  const auto formulas = simulate(scenario("{source: distserve, file: profile.yaml}"));
  EXPECT_EQ(formulas.code, kUsage);
  EXPECT_THAT(formulas.err, HasSubstr("latency.source: found distserve, allowed is profile"));
  folder.file("other.yaml", "a: 1\n");
  const auto nothing = simulate(scenario("{source: operators, file: other.yaml}"));
  EXPECT_EQ(nothing.code, kUsage);
  EXPECT_THAT(nothing.err, HasSubstr("other.yaml: found no PerformanceProfile"));
  std::string broken = text_of((folder.path() / "linear.yaml").string());
  broken.replace(broken.find("form: "), 6, "shape: ");
  folder.file("broken.yaml", broken);
  const auto named = simulate(scenario("{source: linear, file: broken.yaml}"));
  EXPECT_EQ(named.code, kUsage);
  EXPECT_THAT(named.err, HasSubstr("broken.yaml:"));
  EXPECT_THAT(named.err, HasSubstr("spec.fit.linear.form"));
}

// Given a form that is asked for, and none: best is the one with the smaller errors.
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

// Given wrong samples: exit code 2 and one line with the file and its line, the column, what was found and what is allowed.
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
      {"model,hardware\nm,h\n", {"line 1: column tensor_parallel is missing, needed are model, hardware"}},
      {header + "m,h,1,128,1,8,-5,20\n", {"line 2: prompt_time: found '-5', allowed is a number from"}},
      {header + rows + "m,h100-80gb,1,128,1,8,5,fast\n", {"line 10: token_time: found 'fast', allowed is a number from"}},
      {header + "m,h,1,128,1,8,5\n", {"line 2: found 7 fields, allowed are 8"}},
      {header + "m,h,1,128,0,8,5,20\n", {"line 2: batch_size: found '0'"}},
      {header, {"holds no row"}},
      {"", {"column model is missing"}},
      {header + "m,h,1,128,1,8,5,20\nm,h,1,256,1,8,9,20\n",
       {"found 2 usable rows for m on h with 1 GPUs, needed are at least 4"}},
      {header + rows + "m,a100-80gb,1,128,1,8,5,20\nm,a100-80gb,2,128,1,8,5,20\n",
       {"found 3 combinations, allowed is one: choose by --target-model, --accelerator and --gpus among m on h100-80gb with 1 "
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
      for (const char* expected : one.expected) EXPECT_THAT(outcome.err, HasSubstr(expected));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "never.yaml"));
}

// Given wrong command lines: exit code 2, one line, and what is allowed.
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
           Case{{"-f", kSamples, "--model", "linear", "--config", "c.json"}, "--config: belongs to --model operators"},
           Case{{"-f", kSamples, "--model", "linear", "--target-model", "gpt"}, "holds nothing of gpt on any accelerator"},
           Case{{"-f", kSamples, "--model", "linear", "--gpus", "8"}, "it holds llama3-8b on l40s with 1 GPUs"},
           Case{{"-f", kSamples, "--model", "linear", "--name", "Not A Name"}, "metadata.name"},
           Case{{"-f", "/nowhere.csv", "--model", "linear"}, "/nowhere.csv: cannot be read: No such file"},
           Case{{"-f", source_path(), "--model", "linear"}, "must be a result of `vllm bench serve --save-result`"},
           Case{{"-f", kSamples, "--model", "linear", "-o", "/nowhere/p.yaml"}, "/nowhere/p.yaml: cannot be written"},
           Case{{"-f", kSamples, "--model", "operators"}, "--target-model: missing"},
           Case{{"-f", kSamples, "--model", "operators", "--target-model", "gpt"}, "--target-model: found 'gpt', allowed is "},
           Case{{"-f", kSamples, "--model", "operators", "--target-model", "llama3-8b"}, "--accelerator: missing"},
           Case{{"-f", kSamples, "--model", "operators", "--target-model", "llama3-8b", "--accelerator", "cray"},
                "--accelerator: found 'cray', allowed is "},
           Case{{"-f", kSamples, "--model", "operators", "--target-model", "llama3-8b", "--accelerator", "l40s"},
                "line 1: found columns of no known table, allowed is a CSV table of ai-dynamo/aiconfigurator"},
           Case{{"-f", folder.path().string(), "--model", "operators", "--target-model", "llama3-8b", "--accelerator", "l40s"},
                "holds no measured operator"},
       }) {
    const auto outcome = fit(one.arguments);
    EXPECT_EQ(outcome.code, kUsage) << one.expected;
    EXPECT_EQ(outcome.out, "") << one.expected;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(one.expected));
  }
}

// Given an output that exists and a fit that fails: the file stays what it was.
TEST(Fit, AFailedFitLeavesTheFile) {
  const TempFolder folder;
  const std::string path = folder.file("p.yaml", "before\n");
  EXPECT_EQ(fit({"-f", kSamples, "--model", "linear", "--gpus", "8", "-o", path}).code, kUsage);
  EXPECT_EQ(text_of(path), "before\n");
  EXPECT_EQ(fit({"-f", kSamples, "--model", "linear", "-o", path}).code, kDone);
  EXPECT_THAT(text_of(path), StartsWith("apiVersion"));
}

// Given a small folder of operator tables: a profile with the operators' errors, which `simulate` takes; another model's shape
// is refused there.
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
  for (const char* expected : {"Operators fit", "gemm", "Note: ", "other.csv: passed over", "measured on NVIDIA L40S",
                               "nothing was measured of attention to the cache"}) {
    EXPECT_THAT(outcome.out, HasSubstr(expected));
  }
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("NEW SHAPES")));  // of operators there are none
  EXPECT_THAT(text_of(path), HasSubstr("gemmBFloat16: |\n"));
  EXPECT_EQ(run({"validate", "-f", path}).code, kDone);
  const auto simulated =
      run({"simulate", "-f", folder.file("s.yaml", scenario("{source: operators, file: operators.yaml}")), "-o", "json"});
  ASSERT_EQ(simulated.code, kDone) << simulated.err;
  EXPECT_THAT(simulated.out, HasSubstr("operators operators.yaml: llama3-8b"));
}

// Given a terminal: a line that says what is being done, and clears itself.
TEST(Fit, ShowsProgressOnATerminal) {
  const auto outcome = fit({"-f", kSamples, "--model", "linear", "-o", "/dev/null/x"}, true);
  EXPECT_THAT(outcome.err, HasSubstr("\r\x1b[Kfitting"));
  EXPECT_EQ(fit({"-f", kSamples, "--model", "linear"}, false).err.find('\r'), std::string::npos);
}

// Given Splitwise's file: ambiguous until model, accelerator and GPUs are chosen, all that it holds in one line; then a profile
// with errors of a few per cent.
TEST(Fit, SplitwisesFile) {
  if (!std::filesystem::exists(kSplitwise)) GTEST_SKIP() << "needs " << kSplitwise;
  const auto all = fit({"-f", kSplitwise, "--model", "profile"});
  EXPECT_EQ(all.code, kUsage);
  EXPECT_THAT(all.err, HasSubstr("found 8 combinations, allowed is one"));
  EXPECT_THAT(all.err, HasSubstr("llama2-70b on h100-80gb with 2, 4, 8 GPUs"));
  const auto one = fit(
      {"-f", kSplitwise, "--model", "profile", "--target-model", "bloom-176b", "--accelerator", "h100-80gb", "--gpus", "8"});
  ASSERT_EQ(one.code, kDone) << one.err;
  EXPECT_THAT(one.err, HasSubstr("bloom-176b on h100-80gb, 8 GPUs a worker"));
  EXPECT_LT(one.out.size(), 100'000U);
}

// Given aiconfigurator's gzipped tables of an A100, and Vidur's profiles: both become profiles of their model.
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
  EXPECT_THAT(other.err, HasSubstr("n_embd: found 8192, allowed is the model's 4096"));
  const auto gpus = fit(
      {"-f", kVidur, "--model", "operators", "--target-model", "codellama-34b", "--accelerator", "a100-80gb", "--gpus", "4"});
  EXPECT_EQ(gpus.code, kUsage);
  EXPECT_THAT(gpus.err, HasSubstr("--gpus: found 4, allowed is what"));
}

// Of a worker whose prompts take 10 ms + 0.2 ms a token and whose iterations take 8 ms + 0.5 ms a request.
std::string vllm_result(double at_once, double prompt_tokens, double off = 1) {
  const double prefill_ms = 10 + 0.2 * prompt_tokens;
  const double tpot_ms = (8 + 0.5 * at_once + (at_once - 1) / 99 * prefill_ms) * off;
  return fmt::format(
      R"({{"backend": "vllm", "model_id": "org/model", "max_concurrency": {}, "completed": 10, "total_input_tokens": {}, )"
      R"("total_output_tokens": 1000, "request_throughput": {}, "median_ttft_ms": {}, "mean_tpot_ms": {}, "median_tpot_ms": {}}})",
      at_once, 10 * prompt_tokens, at_once / (tpot_ms * 1e-3 * 99), prefill_ms + (at_once > 1 ? tpot_ms / 2 : 0), tpot_ms,
      tpot_ms);
}

// Given a folder with results of `vllm bench serve` among other files; they become a profile that validates, with a page that
// draws it. Without an accelerator, with another fit or a folder without results: refused by name.
TEST(Fit, ReadsResultsOfBenchmarks) {
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
  EXPECT_THAT(outcome.out, StartsWith("org/model on l40s, 1 GPU a worker: Linear fit of 9 measurements"));
  EXPECT_THAT(outcome.out, HasSubstr("results of vLLM, measured under load"));
  EXPECT_THAT(text_of(output), HasSubstr("format: BenchmarkResults"));
  EXPECT_EQ(run({"validate", "-f", output}).code, kDone);
  for (const char* expected : {"Prefill", "Decode", "batch 1<", "Points: medians", "context 150<", "Linear fit of 9"})
    EXPECT_THAT(text_of(page), HasSubstr(expected));

  EXPECT_THAT(fit({"-f", runs, "--model", "linear"}).err, HasSubstr("--accelerator: missing"));
  EXPECT_THAT(fit({"-f", runs, "--model", "profile", "--accelerator", "l40s"}).err, HasSubstr("--model: must be linear"));
  const TempFolder empty;
  empty.file("inputs.json", R"({"data": []})");
  const auto none = fit({"-f", empty.path().string(), "--model", "linear", "--accelerator", "l40s"});
  EXPECT_EQ(none.code, kUsage);
  EXPECT_THAT(none.err, HasSubstr("must be a result of `vllm bench serve --save-result`"));
}

// Given results that contradict each other; the fit is refused with exit code 1 and its error, unless it is wanted anyway or
// the bound is wider. Rows of batches have a bound where one is given.
TEST(Fit, RefusesWhatIsBeyondTheBound) {
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
  EXPECT_THAT(refused.err, HasSubstr("decode: median error "));
  EXPECT_THAT(refused.err, HasSubstr("at most 20.0% allowed (--max-error)"));
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
