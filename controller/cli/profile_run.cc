// Cell by cell, each a load of one batch.
#include "controller/cli/profile_run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace windlass::cli {
namespace {

// All of a batch within a millisecond.
load::LoadOptions batch_of(load::LoadOptions options, int prompt, int batch, std::uint64_t seed) {
  constexpr double kWithinS = 1e-3;
  options.phases = {{batch / kWithinS, kWithinS}};
  options.arrivals = load::Arrivals::kConstant;
  options.prompt_tokens = prompt;
  options.seed = seed;
  return options;
}

}  // namespace

Result<planner::ProfileRow> profile_row(const load::LoadResult& result, const planner::ProfileKey& key, int max_tokens) {
  const load::RequestResult* last = nullptr;
  planner::ProfileRow row;
  row.model = key.model;
  row.hardware = key.hardware;
  row.tensor_parallel = key.tensor_parallel;
  row.batch_size = static_cast<double>(result.requests.size());
  row.output_tokens = max_tokens;
  for (const load::RequestResult& request : result.requests) {
    if (request.outcome == load::Outcome::kLost)
      return Error{ErrorCode::kUnavailable, fmt::format("request {}: {}", request.index, request.problem)};
    if (request.outcome == load::Outcome::kRejected)
      return Error{ErrorCode::kFailedPrecondition, fmt::format("refused: {}", request.problem)};
    if (!request.ttft_s || request.tokens < 2 || !request.tpot_s) {
      return Error{ErrorCode::kFailedPrecondition,
                   fmt::format("an answer ended after {} tokens, which show no time per token", request.tokens)};
    }
    row.prompt_tokens += (request.prompt_tokens - request.cached_tokens) / row.batch_size;
    row.end_to_end_s = std::max(row.end_to_end_s, request.finished_s);
    if (last == nullptr || *request.ttft_s > *last->ttft_s) last = &request;
  }
  if (last == nullptr) return Error{ErrorCode::kFailedPrecondition, "no request was sent"};
  row.prompt_tokens = std::round(row.prompt_tokens);
  row.prompt_s = *last->ttft_s;
  row.token_s = *last->tpot_s;
  return row;
}

Result<ProfiledRows> profile_grid(const load::LoadOptions& target, const planner::ProfileKey& key, const ProfileGrid& grid,
                                  const std::function<Result<load::LoadResult>(const load::LoadOptions&)>& run,
                                  const std::function<void(const ProfileProgress&)>& on_progress) {
  ProfiledRows profiled;
  ProfileProgress progress;
  progress.cells = grid.prompts.size() * grid.batches.size();
  std::uint64_t seed = target.seed;
  WINDLASS_ASSIGN_OR_RETURN(const load::LoadResult warm,
                            run(batch_of(target, grid.prompts.front(), grid.batches.front(), seed++)));
  if (const auto row = profile_row(warm, key, target.max_tokens); !row.ok()) return row.error().within("the first batch");
  for (const int prompt : grid.prompts) {
    for (const int batch : grid.batches) {
      progress.prompt = prompt;
      progress.batch = batch;
      on_progress(progress);
      for (int repeat = 0; repeat < grid.repeats; ++repeat) {
        WINDLASS_ASSIGN_OR_RETURN(const load::LoadResult result, run(batch_of(target, prompt, batch, seed++)));
        auto row = profile_row(result, key, target.max_tokens);
        if (row.ok()) {
          profiled.rows.push_back(std::move(row).value());
          continue;
        }
        const std::string cell = fmt::format("{} prompts of {} words", batch, prompt);
        if (row.error().code != ErrorCode::kFailedPrecondition) return row.error().within(cell);
        profiled.notes.push_back(cell + " left out: " + row.error().message);
        break;
      }
      ++progress.done;
    }
  }
  return profiled;
}

std::string profile_csv(const std::vector<planner::ProfileRow>& rows) {
  std::string csv = "model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time\n";
  for (const planner::ProfileRow& row : rows) {
    csv += fmt::format("{},{},{},{:g},{:g},{:g},{:.6g},{:.6g},{:.6g}\n", row.model, row.hardware, row.tensor_parallel,
                       row.prompt_tokens, row.batch_size, row.output_tokens, row.prompt_s * 1e3, row.token_s * 1e3,
                       row.end_to_end_s * 1e3);
  }
  return csv;
}

}  // namespace windlass::cli
