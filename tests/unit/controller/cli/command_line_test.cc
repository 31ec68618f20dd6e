// Tests valid and invalid command lines: what is printed where, and the exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/controller/cli/example_objects.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// Given no arguments; expects the help on stderr, with every command in it.
TEST(CommandLine, NothingPrintsHelp) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.code, kUsage);
  for (const char* command :
       {"up", "plan", "validate", "model", "top", "wait", "explain", "load", "compare", "chain", "version"}) {
    EXPECT_THAT(outcome.err, HasSubstr(command));
  }
}

// Given wrong command lines; expects exit code 2, no output, and a line that names the command and the mistake.
TEST(CommandLine, WrongUseIsExplained) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"nonsense"}, "windlass: command must be one of up, attach, plan, validate"},
      {{"plan"}, "windlass plan: "},
      {{"plan", "-f"}, "windlass plan: "},
      {{"plan", "-f", "x.yaml", "-o", "xml"}, "xml"},
      {{"plan", "-f", "x.yaml", "--rate", "-1"}, "--rate"},
      {{"plan", "-f", "x.yaml", "--rate", "many"}, "many"},
      {{"plan", "-f", "x.yaml", "--snapshot", "y.json"}, "windlass plan: "},
      {{"validate"}, "windlass validate: --file"},
      {{"up"}, "windlass up: --file"},
      {{"up", "-f", "x.yaml", "--gpus", "0"}, "--gpus"},
      {{"model"}, "windlass model: "},
      {{"model", "describe"}, "windlass model describe: MODEL"},
      {{"model", "fetch"}, "windlass model fetch: NAME"},
      {{"model", "fetch", "gpt-9"}, "smollm2-135m"},
      {{"explain"}, "windlass explain: SERVICE"},
      {{"explain", "pod/x"}, "SERVICE: must be NAME, ms/NAME or modelservice/NAME (got 'pod/x')"},
      {{"explain", "ms/x", "--dir", "a", "--url", "http://b"}, "--url"},
      {{"top", "--interval", "soon"}, "soon"},
      {{"top", "--gateway", "http://x"}, "--url"},
      {{"wait", "ms/x", "--workers", "-3"}, "--workers"},
      {{"wait", "ms/x", "--timeout", "1"}, "--timeout"},
  };
  for (const auto& [arguments, expected] : table) {
    const Outcome outcome = run(arguments);
    const std::string line = testing::PrintToString(arguments);
    EXPECT_EQ(outcome.code, kUsage) << line;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_THAT(outcome.err, HasSubstr(expected)) << line;
    EXPECT_THAT(outcome.err, HasSubstr("--help")) << line;
  }
}

// Given --help on each level, and --version; expects exit code 0 and the text on stdout.
TEST(CommandLine, HelpAndVersion) {
  EXPECT_THAT(run({"--help"}).out, HasSubstr("explain"));
  EXPECT_THAT(run({"plan", "--help"}).out, HasSubstr("--snapshot"));
  EXPECT_THAT(run({"model", "describe", "--help"}).out, HasSubstr("config.json"));
  EXPECT_EQ(run({"version"}).out, "windlass 0.1.0\n");
  EXPECT_EQ(run({"--version"}).out, "windlass 0.1.0\n");
  EXPECT_EQ(run({"plan", "--help"}).code, kDone);
}

// Given an objective that no accelerator meets; expects the reason and exit code 3 in every format.
TEST(CommandLine, PlanFailsForAnInfeasibleObjective) {
  const TempFolder folder;
  const std::string tight =
      folder.file("tight.yaml", replaced(kTinyYaml, "timePerOutputToken: 200ms", "timePerOutputToken: 1ms"));
  for (const char* format : {"table", "json", "yaml"}) {
    EXPECT_EQ(run({"plan", "-f", tight, "-o", format}).code, kInfeasible) << format;
  }
  EXPECT_THAT(run({"plan", "-f", tight}).out, HasSubstr("TpotTooTight"));
}

// Given a recorded snapshot; expects an explanation of the plan made from it. For a service that is not in it, expects an error
// that lists the services that are.
TEST(CommandLine, ExplainReplaysASnapshot) {
  const std::string snapshot = source_path() + "/tests/golden/two_services.snapshot.json";
  const Outcome told = run({"explain", "ms/chat", "--snapshot", snapshot});
  ASSERT_EQ(told.code, kDone) << told.err;
  EXPECT_THAT(told.out, HasSubstr("What would change it"));
  const Outcome unknown = run({"explain", "ms/nobody", "--snapshot", snapshot});
  EXPECT_EQ(unknown.code, kFailed);
  EXPECT_THAT(unknown.err, HasSubstr("the controller has plans for: "));
}

// Given bad input of each kind; expects exit code 1, no output, and a message that names the file and the mistake.
TEST(CommandLine, BadInputIsExplained) {
  const TempFolder folder;
  const std::string unknown = folder.file("unknown.yaml", replaced(kTinyYaml, "{class: local-cpu}", "{class: h100}"));
  const std::string misspelt = folder.file("misspelt.yaml", replaced(kTinyYaml, "timePerOutputToken", "timePerOutputTokem"));
  const std::string malformed = folder.file("malformed.yaml", "spec: [1, 2\n");
  const std::string snapshot = folder.file("snapshot.json", "{\"now\": }");
  const std::string good = folder.file("tiny.yaml", kTinyYaml);
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"plan", "-f", "/no/such.yaml"}, "/no/such.yaml"},
      {{"plan", "-f", unknown}, "(got 'h100')"},
      {{"plan", "-f", misspelt}, "timePerOutputTokem"},
      {{"plan", "-f", malformed}, "malformed.yaml"},
      {{"plan", "--snapshot", snapshot}, "snapshot.json"},
      {{"plan", "--snapshot", "/no/such.json"}, "/no/such.json"},
      {{"validate", "-f", misspelt}, "misspelt.yaml:"},
      {{"up", "-f", misspelt, "--dir", (folder.path() / "run").string()}, "timePerOutputTokem"},
      {{"up", "-f", good, "--dir", (folder.path() / "run").string()}, "windlass model init"},
      {{"model", "describe", "/no/such"}, "/no/such/config.json"},
      {{"explain", "ms/tiny", "--dir", (folder.path() / "run").string(), "--kubeconfig", "/no/such"}, "/no/such"},
      {{"explain", "ms/tiny", "--snapshot", "/no/such.json"}, "/no/such.json"},
      {{"explain", "ms/tiny", "--url", "https://127.0.0.1:1", "--token-file", "/no/such"}, "/no/such"},
      {{"top", "--once", "--dir", (folder.path() / "run").string()}, "windlass up"},
      {{"wait", "ms/tiny", "--timeout", "10ms", "--dir", (folder.path() / "run").string()}, "windlass up"},
  };
  for (const auto& [arguments, expected] : table) {
    const Outcome outcome = run(arguments);
    const std::string line = testing::PrintToString(arguments);
    EXPECT_EQ(outcome.code, kFailed) << line;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_THAT(outcome.err, HasSubstr(expected)) << line;
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run")) << "a rejected file must leave nothing behind";
}

// Given a valid file; expects validate to name each object with its line.
TEST(CommandLine, ValidateNamesObjects) {
  const TempFolder folder;
  const Outcome outcome = run({"validate", "-f", folder.file("tiny.yaml", kTinyYaml)});
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("AcceleratorClass local-cpu: valid"));
  EXPECT_THAT(outcome.out, HasSubstr("ModelService default/tiny: valid"));
}

// Given a model folder; expects describe to print a stanza with its config, and a comment with its size.
TEST(CommandLine, ModelDescribePrintsTheStanza) {
  const TempFolder folder;
  folder.file("model/config.json",
              R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
                  "max_position_embeddings": 512, "torch_dtype": "float32"})");
  const Outcome outcome = run({"model", "describe", (folder.path() / "model").string()});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("# llama: 2 layers"));
  EXPECT_THAT(outcome.out, HasSubstr("config:\n"));
  EXPECT_THAT(outcome.out, HasSubstr("num_hidden_layers: 2"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("experts")));
}

// Given a model with experts, a sliding window and quantised weights; expects describe to summarise them.
TEST(CommandLine, ModelDescribeSummarisesSpecialShapes) {
  const TempFolder folder;
  folder.file("model/config.json",
              R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
                  "sliding_window": 4096, "torch_dtype": "float16",
                  "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}})");
  const Outcome outcome = run({"model", "describe", (folder.path() / "model").string()});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("4.67e+10 parameters"));
  EXPECT_THAT(outcome.out, HasSubstr("# 2 of 8 experts per token in 32 layers: 1.29e+10 active parameters\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("# sliding window of 4096 tokens in 32 layers: 512.0MiB of KV cache for a full context\n"));
  EXPECT_THAT(outcome.out, HasSubstr("# weights quantised to 4 bits (awq)\n"));
}

}  // namespace
}  // namespace windlass::cli
