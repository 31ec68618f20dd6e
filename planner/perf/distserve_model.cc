// Predicts iteration times with DistServe's formulas; see distserve_model.h.
#include "planner/perf/distserve_model.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/json_reader.h"
#include "planner/perf/csv_rows.h"

namespace windlass::planner {
namespace {

constexpr int kMaxStageGpus = 4096;
constexpr double kMaxBatchTokens = 1e12;

// Reads three numbers: constant, per token, and per square (prefill) or per request (decode).
std::vector<double> three(JsonReader& reader, const char* key) {
  std::vector<double> numbers;
  reader.list(key, [&](const nlohmann::json& element, const std::string& path) {
    if (element.is_number()) {
      numbers.push_back(element.get<double>());
    } else {
      reader.take(Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be a number (got {})", path, element.dump())});
    }
  });
  if (numbers.size() != 3) reader.fail(key, numbers.size(), "a list of three numbers");
  numbers.resize(3);
  return numbers;
}

Result<DistServeCoefficients> read_coefficients(const nlohmann::json& value, const std::string& path) {
  JsonReader reader(value, path);
  DistServeCoefficients coefficients;
  const std::vector<double> prefill = three(reader, "prefill");
  const std::vector<double> small = three(reader, "decoding_smallbs");
  const std::vector<double> large = three(reader, "decoding_largebs");
  coefficients.prefill = {.constant_ms = prefill[0], .per_token_ms = prefill[1], .per_square_ms = prefill[2]};
  coefficients.decode_small = {.constant_ms = small[0], .per_token_ms = small[1], .per_request_ms = small[2]};
  coefficients.decode_large = {.constant_ms = large[0], .per_token_ms = large[1], .per_request_ms = large[2]};
  coefficients.large_batch_from = reader.int32("decoding_large_small_bs_threshold", 1);
  WINDLASS_RETURN_IF_ERROR(reader.first_mistake());
  return coefficients;
}

// Finds "facebook/opt-13b" by its full name or by "opt-13b".
template <class Map>
auto find_model(const Map& map, std::string_view model) {
  return std::find_if(map.begin(), map.end(), [&](const auto& entry) {
    const std::string& name = entry.first;
    return name == model ||
           (name.size() > model.size() && name.ends_with(model) && name[name.size() - model.size() - 1] == '/');
  });
}

template <class Map, class Name>
std::string names_of(const Map& map, Name name) {
  std::string all;
  for (const auto& [key, value] : map) all += (all.empty() ? "" : ", ") + name(key);
  return all.empty() ? "nothing" : all;
}

std::string as_is(const std::string& name) { return name; }
std::string number(int value) { return std::to_string(value); }
std::string pair(DistServeParallelism p) { return fmt::format("{}x{}", p.tensor_parallel, p.pipeline_parallel); }

double evaluate_ms(const DistServeTerms& terms, double tokens, double squares, double requests) {
  return terms.constant_ms + terms.per_token_ms * tokens + terms.per_square_ms * squares + terms.per_request_ms * requests;
}

}  // namespace

Result<DistServeProfile> parse_distserve_profile(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, "DistServe profile"));
  if (!json.is_object())
    return Error{ErrorCode::kInvalidArgument, "DistServe profile: must be an object with a member for each model"};
  DistServeProfile profile;
  for (const auto& [model, degrees] : json.items()) {
    if (!degrees.is_object()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: must be an object with a member for each tensor parallel degree", model)};
    }
    for (const auto& [degree, value] : degrees.items()) {
      int tensor_parallel = 0;
      const auto [end, error] = std::from_chars(degree.data(), degree.data() + degree.size(), tensor_parallel);
      if (error != std::errc() || end != degree.data() + degree.size() || tensor_parallel < 1 ||
          tensor_parallel > kMaxStageGpus) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("{}: tensor parallel degree: must be a whole number from 1 to {} (got '{}')", model,
                                 kMaxStageGpus, degree)};
      }
      WINDLASS_ASSIGN_OR_RETURN(profile[model][tensor_parallel], read_coefficients(value, fmt::format("{}.{}", model, degree)));
    }
  }
  return profile;
}

Result<DistServeCapacities> parse_distserve_capacities(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"model", "tp", "pp", "max_num_tokens"}));
  DistServeCapacities capacities;
  for (std::size_t row = 0; row < csv.rows(); ++row) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string model, csv.text(row, "model"));
    WINDLASS_ASSIGN_OR_RETURN(const int tensor_parallel, csv.integer(row, "tp", 1, kMaxStageGpus));
    WINDLASS_ASSIGN_OR_RETURN(const int pipeline_parallel, csv.integer(row, "pp", 1, kMaxStageGpus));
    WINDLASS_ASSIGN_OR_RETURN(const double tokens, csv.number(row, "max_num_tokens", 0, kMaxBatchTokens));
    capacities[model][{tensor_parallel, pipeline_parallel}] = tokens;
  }
  return capacities;
}

Result<DistServeModel> DistServeModel::make(const DistServeProfile& profile, const DistServeCapacities& capacities,
                                            std::string_view model, DistServeParallelism parallelism) {
  const auto found = find_model(profile, model);
  if (found == profile.end()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("DistServe profile: model: must be one of {} (got '{}')", names_of(profile, as_is), model)};
  }
  const auto coefficients = found->second.find(parallelism.tensor_parallel);
  if (coefficients == found->second.end()) {
    return Error{ErrorCode::kNotFound, fmt::format("DistServe profile: {}: tensor parallel degree: must be one of {} (got {})",
                                                   found->first, names_of(found->second, number), parallelism.tensor_parallel)};
  }
  const auto with_capacity = find_model(capacities, model);
  if (with_capacity == capacities.end()) {
    return Error{ErrorCode::kNotFound, fmt::format("DistServe KV capacities: model: must be one of {} (got '{}')",
                                                   names_of(capacities, as_is), model)};
  }
  const auto tokens = with_capacity->second.find(parallelism);
  if (tokens == with_capacity->second.end()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("DistServe KV capacities: {}: tensor x pipeline parallel: must be one of {} (got {})",
                             with_capacity->first, names_of(with_capacity->second, pair), pair(parallelism))};
  }
  return DistServeModel(coefficients->second, parallelism.pipeline_parallel, tokens->second);
}

double DistServeModel::prefill_stage_ms(const Batch& batch) const {
  const double stages = pipeline_parallel_;
  return evaluate_ms(coefficients_.prefill, batch.prefill_tokens, batch.prefill_attention, 0) / stages + stages;
}

double DistServeModel::decode_stage_ms(const Batch& batch) const {
  const bool large = batch.decode_sequences >= coefficients_.large_batch_from;
  const DistServeTerms& terms = large ? coefficients_.decode_large : coefficients_.decode_small;
  return evaluate_ms(terms, batch.decode_context_tokens, 0, batch.decode_sequences) / pipeline_parallel_;
}

double DistServeModel::iteration_s(const Batch& batch) const {
  const bool prefills = batch.prefill_sequences > 0;
  const bool decodes = batch.decode_sequences > 0;
  double stage_ms = (prefills ? prefill_stage_ms(batch) : 0) + (decodes ? decode_stage_ms(batch) : 0);
  if (prefills && decodes) {
    const bool large = batch.decode_sequences >= coefficients_.large_batch_from;
    const double decode_constant_ms = (large ? coefficients_.decode_large : coefficients_.decode_small).constant_ms;
    stage_ms -= std::min(coefficients_.prefill.constant_ms, decode_constant_ms) / pipeline_parallel_;
  }
  // One profile has a negative square term: its parabola falls below zero far beyond any context.
  return std::max(stage_ms, 0.0) * pipeline_parallel_ * 1e-3;
}

Coverage DistServeModel::coverage(const Batch& batch) const {
  const bool mixed = batch.prefill_sequences > 0 && batch.decode_sequences > 0;
  const bool fits = batch.prefill_tokens + batch.decode_context_tokens <= kv_capacity_tokens_;
  return mixed || !fits || pipeline_parallel_ > 1 ? Coverage::kExtrapolated : Coverage::kMeasured;
}

}  // namespace windlass::planner
