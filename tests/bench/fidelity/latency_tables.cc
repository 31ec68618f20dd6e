// Implements latency_tables.h.
#include "tests/bench/fidelity/latency_tables.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "planner/perf/distserve_model.h"
#include "planner/perf/profile_table.h"
#include "tests/bench/fidelity/splitwise_fidelity.h"

namespace windlass::bench {
namespace {

constexpr int kSplits = 20;

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, fmt::format("{}: must be a readable file", path)};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<std::vector<planner::ProfileRow>> read_splitwise(const std::string& data) {
  const std::string path = data + "/profiles/splitwise/perf_model.csv";
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  auto rows = planner::parse_profile_csv(text);
  if (!rows.ok()) return rows.error().within(path);
  return rows;
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

// Mean, minimum and maximum over the splits.
struct Spread {
  double mean = 0, low = 0, high = 0;
};
Spread spread(const std::vector<double>& values) {
  Spread result{0, *std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end())};
  for (const double value : values) result.mean += value / static_cast<double>(values.size());
  return result;
}
std::string text_of(const Spread& s) {
  return fmt::format("{:.2f} % ({:.2f} to {:.2f})", 100 * s.mean, 100 * s.low, 100 * s.high);
}

Result<std::string> splitwise_row(const std::string& name, const std::vector<planner::ProfileRow>& rows, Candidate candidate) {
  std::vector<double> prompt, token, both;
  for (const planner::Split& split : eighty_twenty(rows.size(), kSplits)) {
    WINDLASS_ASSIGN_OR_RETURN(const PhaseErrors errors, held_out_errors(rows, candidate, std::span(&split, 1)));
    prompt.push_back(errors.prompt.mape);
    token.push_back(errors.token.mape);
    both.push_back(errors.both_mape);
  }
  WINDLASS_ASSIGN_OR_RETURN(const PhaseErrors left_out, held_out_errors(rows, candidate, leave_one_configuration_out(rows)));
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", name, rows.size(), text_of(spread(prompt)),
                     text_of(spread(token)), text_of(spread(both)), percent(left_out.prompt.mape),
                     percent(left_out.token.mape));
}

Result<std::string> splitwise_table(const std::string& data) {
  WINDLASS_ASSIGN_OR_RETURN(const auto all, read_splitwise(data));
  std::vector<planner::ProfileRow> rows;
  std::copy_if(all.begin(), all.end(), std::back_inserter(rows), planner::is_one_batch);
  // Without an end-to-end time, no row contradicts itself.
  std::vector<planner::ProfileRow> as_given = all;
  for (planner::ProfileRow& row : as_given) row.end_to_end_s = 0;

  // Some measurements occur three times in the file and would be in both parts of a split.
  std::vector<planner::ProfileRow> once;
  for (const planner::ProfileRow& row : rows) {
    if (std::find(once.begin(), once.end(), row) == once.end()) once.push_back(row);
  }

  std::string table = fmt::format(
      "MAPE of held-out rows, pooled over models, hardware and TP. 80:20: mean over {} seeded splits (lowest to highest).\n\n"
      "| model | rows | prompt time, 80:20 | token time, 80:20 | both, 80:20 | prompt time, configuration left out | token "
      "time, "
      "configuration left out |\n|---|---|---|---|---|---|---|\n",
      kSplits);
  const struct {
    const char* name;
    const std::vector<planner::ProfileRow>& rows;
    Candidate candidate;
  } lines[] = {
      {"profile, by shape", rows, Candidate::kShape},
      {"the same, rows as given", as_given, Candidate::kShape},
      {"the same, repeated rows once", once, Candidate::kShape},
      {"profile, Splitwise's reading, token time at prompt x batch (its own validation)", rows, Candidate::kOwnValidation},
      {"the same, rows as given", as_given, Candidate::kOwnValidation},
      {"profile, Splitwise's reading, token time at one per request (its simulator)", rows, Candidate::kSimulator},
      {"linear, Huawei", rows, Candidate::kHuawei},
      {"linear, Aladdin", rows, Candidate::kAladdin},
  };
  for (const auto& line : lines) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string row, splitwise_row(line.name, line.rows, line.candidate));
    table += row;
  }
  return table;
}

// Evaluates the published formulas from the JSON tree itself, in the order of operations of the original program: times 1 / pp.
struct OwnFormulas {
  const nlohmann::json& file;
  double pp = 1;

  [[nodiscard]] double prefill_ms(double tokens, double squares) const {
    const auto& c = file["prefill"];
    return (c[0].get<double>() + c[1].get<double>() * tokens + c[2].get<double>() * squares) * (1 / pp) + 1 * pp;
  }
  [[nodiscard]] double decode_ms(double context, int requests) const {
    const bool small = requests < file["decoding_large_small_bs_threshold"].get<int>();
    const auto& c = file[small ? "decoding_smallbs" : "decoding_largebs"];
    return (c[0].get<double>() + c[1].get<double>() * context + c[2].get<double>() * requests) * (1 / pp);
  }
};

Result<std::string> distserve_table(const std::string& data) {
  constexpr int kBatches = 1000;
  const std::string folder = data + "/profiles/distserve/";
  WINDLASS_ASSIGN_OR_RETURN(const std::string capacities_text, read_file(folder + "max_num_tokens.csv"));
  WINDLASS_ASSIGN_OR_RETURN(const auto capacities, planner::parse_distserve_capacities(capacities_text));
  std::string table =
      "| profile | models x TP x PP | batches | largest relative difference, prefill | largest relative difference, decode |\n"
      "|---|---|---|---|---|\n";
  Rng rng(0, "distserve fidelity");
  for (const char* engine : {"distserve", "vllm"}) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_file(fmt::format("{}profiler-a100-80g.{}.json", folder, engine)));
    WINDLASS_ASSIGN_OR_RETURN(const auto profile, planner::parse_distserve_profile(text));
    const nlohmann::json json = nlohmann::json::parse(text);
    int configurations = 0;
    double prefill_worst = 0;
    double decode_worst = 0;
    for (const auto& [name, degrees] : profile) {
      for (const auto& [parallelism, tokens] : capacities.at(name)) {
        if (!degrees.contains(parallelism.tensor_parallel)) continue;
        ++configurations;
        WINDLASS_ASSIGN_OR_RETURN(const auto model, planner::DistServeModel::make(profile, capacities, name, parallelism));
        const OwnFormulas own{json[name][std::to_string(parallelism.tensor_parallel)],
                              static_cast<double>(parallelism.pipeline_parallel)};
        for (int i = 0; i < kBatches; ++i) {
          planner::Batch prefill, decode;
          double squares = 0;
          for (std::int64_t n = rng.integer(1, 8); n > 0; --n) {
            const auto length = static_cast<double>(rng.integer(1, 2048));
            prefill.add_prefill(length);
            squares += length * length;
          }
          for (std::int64_t n = rng.integer(1, 200); n > 0; --n) decode.add_decode(static_cast<double>(rng.integer(1, 2048)));
          const double prefill_ms = own.prefill_ms(prefill.prefill_tokens, squares);
          const double decode_ms = own.decode_ms(decode.decode_context_tokens, decode.decode_sequences);
          prefill_worst = std::max(prefill_worst, std::abs(model.prefill_stage_ms(prefill) / prefill_ms - 1));
          decode_worst = std::max(decode_worst, std::abs(model.decode_stage_ms(decode) / decode_ms - 1));
        }
      }
    }
    table += fmt::format("| {} | {} | {} | {:.1e} | {:.1e} |\n", engine, configurations, configurations * kBatches,
                         prefill_worst, decode_worst);
  }
  return table;
}

}  // namespace

const std::vector<LatencyTable>& latency_tables() {
  static const std::vector<LatencyTable> kTables = {{"splitwise", splitwise_table}, {"distserve", distserve_table}};
  return kTables;
}

}  // namespace windlass::bench
