// Tests `windlass chain compose`: its output for valid instances, and that every mistake is named with exit code 2.
#include <gmock/gmock.h>

#include "planner/chain/compose.h"
#include "planner/chain/instance_yaml.h"
#include "tests/paths.h"
#include "tests/unit/controller/cli/chain/chain_command.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// Given the paper's Fig. 2 with c = 1; expects its placement, disjoint chains, chains, capacities and rates, under the
// documented names.
TEST(ChainCompose, PrintsFigure2) {
  const TempFolder folder;
  const auto outcome = run_chain({"compose", "-f", folder.file("f.yaml", kFigure2), "--capacity", "1", "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto json = outcome.json();
  EXPECT_EQ(json.at("capacity"), 1);
  EXPECT_EQ(json.at("disjointChains"), nlohmann::json::parse(R"([["j1", "j2"], ["j3", "j4", "j5"]])"));
  EXPECT_EQ(json.at("placement")[1], nlohmann::json::parse(R"({"server": "j2", "firstBlock": 2, "blocks": 2})"));
  ASSERT_EQ(json.at("chains").size(), 3u);
  EXPECT_EQ(json.at("chains")[1].at("servers"), nlohmann::json::parse(R"(["j1", "j4", "j5"])"));
  for (const auto& chain : json.at("chains")) EXPECT_EQ(chain.at("capacity"), 5);
  EXPECT_EQ(json.at("totalCapacity"), 15);
  EXPECT_NEAR(json.at("totalServiceRatePerSecond").get<double>(), 5 / 3.05 + 5 / 3.10 + 5 / 3.12, 1e-12);
  EXPECT_EQ(json.at("stable"), true);
  EXPECT_LT(json.at("bounds").at("meanResponseTimeLowerSeconds"), json.at("bounds").at("meanResponseTimeUpperSeconds"));
}

// Given an example; expects each way of tuning to give the library's c, and all numbers to be the same doubles.
TEST(ChainCompose, AgreesWithTheLibrary) {
  const std::ifstream file(kBloom);
  std::ostringstream text;
  text << file.rdbuf();
  const auto instance = chain::instance_from_yaml(text.str(), kBloom);
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  for (const auto tuning : {chain::Tuning::kLowerBound, chain::Tuning::kUpperBound, chain::Tuning::kSurrogate}) {
    const auto expected = chain::compose(*instance, tuning);
    ASSERT_TRUE(expected.ok());
    const auto outcome = run_chain({"compose", "-f", kBloom, "--tune", chain::to_string(tuning), "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    const auto json = outcome.json();
    EXPECT_EQ(json.at("capacity"), expected->capacity);
    EXPECT_EQ(json.at("totalServiceRatePerSecond").get<double>(), expected->total_service_rate_per_s);
    EXPECT_EQ(json.at("bounds").at("meanResponseTimeLowerSeconds").get<double>(), *expected->mean_response_lower_s);
    EXPECT_EQ(json.at("chains").size(), expected->chains.size());
    EXPECT_EQ(json.at("algorithm").at("tuning"), chain::to_string(tuning));
  }
  EXPECT_EQ(run_chain({"compose", "-f", kBloom, "-o", "json"}).out,
            run_chain({"compose", "-f", kBloom, "--tune", "lower-bound", "--capacity", "auto", "-o", "json"}).out);
}

// Given a demand above what the servers can serve; expects exit code 0, stable and meetsMaxLoad false, bounds null, and a note
// in the table. Given a demand that is served, but above the load limit; expects stable, bounds, and meetsMaxLoad false.
TEST(ChainCompose, TooMuchDemandIsNoError) {
  const TempFolder folder;
  const std::string file = folder.file("f.yaml", kFigure2);
  const auto json = run_chain({"compose", "-f", file, "--arrival-rate", "1000", "-o", "json"});
  ASSERT_EQ(json.code, kDone) << json.err;
  EXPECT_EQ(json.json().at("stable"), false);
  EXPECT_EQ(json.json().at("meetsMaxLoad"), false);
  EXPECT_TRUE(json.json().at("bounds").is_null());
  EXPECT_EQ(json.json().at("arrivalRate"), 1000);
  EXPECT_THAT(run_chain({"compose", "-f", file, "--arrival-rate", "1000"}).out,
              HasSubstr("NOT STABLE: 1000 requests/s arrive"));

  const auto tight = run_chain({"compose", "-f", file, "--capacity", "1", "--arrival-rate", "4.5", "-o", "json"});
  ASSERT_EQ(tight.code, kDone) << tight.err;
  EXPECT_EQ(tight.json().at("stable"), true);
  EXPECT_EQ(tight.json().at("meetsMaxLoad"), false);
  EXPECT_TRUE(tight.json().at("bounds").is_object());
  const auto wide =
      run_chain({"compose", "-f", file, "--capacity", "1", "--arrival-rate", "4.5", "--max-load", "0.99", "-o", "json"});
  EXPECT_EQ(wide.json().at("meetsMaxLoad"), true);
  EXPECT_THAT(run_chain({"compose", "-f", file, "--capacity", "1", "--arrival-rate", "4.5"}).out,
              HasSubstr("above the load limit"));
}

// Given servers whose memory cannot hold the model under each placement; expects exit code 2 and one line with the missing GB.
TEST(ChainCompose, NoFullChainNamesTheMissingMemory) {
  const TempFolder folder;
  const std::string file = folder.file("f.yaml", replaced(kFigure2, "blocks: 3,", "blocks: 300,"));
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"--capacity", "1"},
                                               {"--placement", "cg-bp"},
                                               {"--placement", "cg-bp", "--design-load", "3"},
                                               {"--placement", "petals"}}) {
    std::vector<std::string> arguments = {"compose", "-f", file, "-o", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto outcome = run_chain(arguments);
    EXPECT_EQ(outcome.code, kUsage) << testing::PrintToString(more);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(file + ": no full chain can be placed")) << testing::PrintToString(more);
    EXPECT_THAT(outcome.err, HasSubstr("GB of memory are missing"));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  const auto too_many = run_chain({"compose", "-f", folder.file("g.yaml", kFigure2), "--capacity", "1000"});
  EXPECT_EQ(too_many.code, kUsage);
  EXPECT_THAT(too_many.err, HasSubstr("GB of memory are missing"));
}

// Given the baseline placements; expects chains that cover the model, and the placement's name. CG-BP takes a design load.
TEST(ChainCompose, BaselinePlacements) {
  for (const char* placement : {"cg-bp", "petals"}) {
    const auto outcome = run_chain({"compose", "-f", kBloom, "--placement", placement, "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    const auto json = outcome.json();
    EXPECT_EQ(json.at("algorithm").at("placement"), placement);
    EXPECT_TRUE(json.at("algorithm").at("tuning").is_null());
    ASSERT_FALSE(json.at("chains").empty());
    for (const auto& chain : json.at("chains")) {
      int blocks = 0;
      for (const auto& hop : chain.at("blocks")) blocks += hop.get<int>();
      EXPECT_EQ(blocks, 70);
    }
  }
  const auto seven = run_chain({"compose", "-f", kBloom, "--placement", "cg-bp", "--design-load", "7", "-o", "json"});
  ASSERT_EQ(seven.code, kDone) << seven.err;
  const auto answer = seven.json();
  EXPECT_EQ(answer.at("capacity"), 7);
  for (const auto& placed : answer.at("placement")) {
    EXPECT_EQ(placed.at("blocks"), placed.at("server").get<std::string>().starts_with("big") ? 19 : 9);
  }
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--placement", "cg-bp"}).out,
              HasSubstr("placement: CG-BP for a design load of"));
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--placement", "petals"}).out, HasSubstr("placement: PETALS"));
}

// Given --optimal; expects no more capacity than without it, within the load limit. If the demand cannot be carried, expects
// unchanged chains with a note and exit code 0.
TEST(ChainCompose, OptimalCaches) {
  const auto greedy = run_chain({"compose", "-f", kBloom, "--capacity", "7", "-o", "json"}).json();
  const auto outcome = run_chain({"compose", "-f", kBloom, "--capacity", "7", "--optimal", "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const auto optimal = outcome.json();
  EXPECT_EQ(optimal.at("algorithm").at("caches"), "ilp");
  EXPECT_EQ(optimal.at("algorithm").at("proved"), true);
  EXPECT_LE(optimal.at("totalCapacity"), greedy.at("totalCapacity"));
  EXPECT_GE(optimal.at("totalServiceRatePerSecond").get<double>(), 0.2 / 0.7);
  EXPECT_EQ(optimal.at("meetsMaxLoad"), true);
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--optimal"}).out, HasSubstr("capacities: the smallest"));

  const auto much = run_chain({"compose", "-f", kBloom, "--optimal", "--arrival-rate", "1000", "-o", "json"});
  ASSERT_EQ(much.code, kDone) << much.err;
  EXPECT_EQ(much.json().at("algorithm").at("caches"), "gca");
  EXPECT_THAT(much.json().at("note").get<std::string>(), HasSubstr("--optimal changes nothing"));
}

// Given a demand that a few servers carry; expects the others to stay empty, and the table to say why. --all-servers uses them.
TEST(ChainCompose, AllServers) {
  const auto few = run_chain({"compose", "-f", kBloom, "--capacity", "1", "--arrival-rate", "0.01"});
  EXPECT_THAT(few.out, HasSubstr("; the chains above already keep to the load limit; --all-servers uses these too"));
  const auto all =
      run_chain({"compose", "-f", kBloom, "--capacity", "1", "--arrival-rate", "0.01", "--all-servers", "-o", "json"});
  ASSERT_EQ(all.code, kDone) << all.err;
  EXPECT_TRUE(all.json().at("unplacedServers").empty());
  EXPECT_EQ(all.json().at("algorithm").at("servers"), "all");
  EXPECT_EQ(run_chain({"compose", "-f", kBloom, "--placement", "cg-bp", "--all-servers"}).code, kUsage);
}

// Given the example as a table; expects how c was chosen, its runners-up, chains with servers and blocks, totals, load, bounds.
TEST(ChainCompose, TablePrintsEverySection) {
  const auto outcome = run_chain({"compose", "-f", kBloom});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* expected :
       {"placement: GBP-CR, memory reserved for c = ", "for the lower bound on the mean response time: ", "next best: c = ",
        "SERVERS AND THEIR BLOCKS", " > ", "total: ", "load: ", "mean response time under JFFC: "}) {
    EXPECT_THAT(outcome.out, HasSubstr(expected));
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("nan")));
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--capacity", "7"}).out,
              HasSubstr("c = 7 concurrent requests on every block (given)"));
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--tune", "surrogate"}).out, HasSubstr("for the surrogate c K(c): "));
}

// Given wrong command lines and files; expects exit code 2, no output, and a message that names the mistake.
TEST(ChainCompose, MistakesAreNamed) {
  const TempFolder folder;
  const std::string file = folder.file("f.yaml", kFigure2);
  const std::string bad = folder.file("bad.yaml", replaced(kFigure2, "memoryGB: 3", "memoryGB: abc"));
  const std::string empty = folder.file("empty.yaml", "");
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{}, "windlass chain: "},
      {{"nonsense"}, "windlass chain: command must be one of compose, simulate, recompose (got 'nonsense')"},
      {{"compose"}, "windlass chain compose: --file is required"},
      {{"compose", "-f"}, "--file"},
      {{"compose", file}, "windlass chain compose: "},
      {{"compose", "-f", file, "-f", file}, "-f: must hold one INSTANCE"},
      {{"compose", "-f", "/no/such.yaml"}, "/no/such.yaml: must be a YAML file with one INSTANCE"},
      {{"compose", "-f", folder.path().string()}, "(cannot be read: it is a folder)"},
      {{"compose", "-f", bad}, bad + ":6: servers[1].memoryGB: must be a number from 1e-09 to 1000000000 (got 'abc')"},
      {{"compose", "-f", empty}, empty + ": must hold one INSTANCE"},
      {{"compose", "-f", file, "--capacity", "0"}, "--capacity: must be auto or a whole number from 1 to "},
      {{"compose", "-f", file, "--capacity", "many"}, "(got 'many')"},
      {{"compose", "-f", file, "--capacity", "1.5"}, "(got '1.5')"},
      {{"compose", "-f", file, "--arrival-rate", "0"}, "--arrival-rate: must be a number from"},
      {{"compose", "-f", file, "--arrival-rate", "nan"}, "(got 'nan')"},
      {{"compose", "-f", file, "--arrival-rate", "-1"}, "--arrival-rate"},
      {{"compose", "-f", file, "--arrival-rate", "1e400"}, "(got '1e400')"},
      {{"compose", "-f", file, "--max-load", "1.5"}, "--max-load: must be a number from 1e-09 to 1 (got '1.5')"},
      {{"compose", "-f", file, "--max-load", "inf"}, "(got 'inf')"},
      {{"compose", "-f", file, "--tune", "best"}, "best"},
      {{"compose", "-f", file, "--tune", "surrogate", "--capacity", "3"}, "--tune: needs --capacity auto"},
      {{"compose", "-f", file, "--placement", "best"}, "best"},
      {{"compose", "-f", file, "--placement", "cg-bp", "--capacity", "3"}, "--capacity: needs --placement gbp-cr"},
      {{"compose", "-f", file, "--placement", "petals", "--tune", "surrogate"}, "--tune: needs --placement gbp-cr"},
      {{"compose", "-f", file, "--design-load", "3"}, "--design-load: needs --placement cg-bp"},
      {{"compose", "-f", file, "-o", "xml"}, "xml"},
      {{"compose", "-f", file, "extra"}, "extra"},
  };
  expect_mistakes(table);
}

// Given --help on each level; expects exit code 0 and the options with their values.
TEST(ChainCompose, Help) {
  EXPECT_THAT(run_chain({"--help"}).out, HasSubstr("recompose"));
  EXPECT_THAT(run_chain({"compose", "--help"}).out, HasSubstr("--design-load"));
  EXPECT_THAT(run_chain({"simulate", "--help"}).out, HasSubstr("--replications"));
  EXPECT_THAT(run_chain({"recompose", "--help"}).out, HasSubstr("--horizon"));
  EXPECT_EQ(run_chain({"compose", "--help"}).code, kDone);
}

// Given every example; expects it to compose, to be stable within its load limit, and to print a table.
TEST(ChainCompose, ExamplesCompose) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("/examples/chains"))) {
    ++files;
    const auto outcome = run_chain({"compose", "-f", entry.path().string(), "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    EXPECT_EQ(outcome.json().at("meetsMaxLoad"), true) << entry.path();
  }
  EXPECT_EQ(files, 3);
}

}  // namespace
}  // namespace windlass::cli
