// Tests the measurements of `windlass profile` on simulated workers with noise: what is measured, what is skipped, when repeats
// end, and the fit.
#include "controller/cli/profile/profile_run.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/profile/fitted_profile.h"
#include "controller/cli/profile/profile_problem.h"
#include "planner/base/rng.h"

namespace windlass::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const planner::ProfileKey kKey{"tiny", "cpu", 1};

// A worker that begins with the first prompt and computes the others together after it; each time takes 8 ms + 0.1 ms per
// token. Its other iterations take 5 ms + 0.5 ms per request. Each run is slower by a share drawn from the seed, and one in
// `held_up_every` is much slower. Its clock advances only while it works.
struct Formula {
  double noise = 0;
  int held_up_every = 0;
  std::size_t max_at_once = 1000, max_taken = 1000;
  int longest_prompt = 1'000'000;
  double iteration_s = 5e-3, per_request_s = 5e-4;

  Rng rng{1, "formula"};
  double now_s = 0;
  std::vector<load::LoadOptions> asked = {};

  double slowed() {
    const bool held_up = held_up_every > 0 && rng.integer(1, held_up_every) == 1;
    return 1 + noise * rng.exponential(1) + (held_up ? 20 : 0);
  }

  load::RequestResult answered(std::size_t index, std::size_t batch, const load::LoadOptions& options) {
    load::RequestResult request;
    request.index = index;
    if (batch > max_taken || options.prompt_tokens > longest_prompt) {
      request.outcome = load::Outcome::kRejected;
      request.status = batch > max_taken ? 503 : 400;
      request.problem = batch > max_taken ? "503 this worker is full" : "400 too long";
      return request;
    }
    request.outcome = load::Outcome::kCompleted;
    request.status = 200;
    request.prompt_tokens = options.prompt_tokens;
    request.tokens = options.max_tokens;
    request.ttft_s = 8e-3 + 1e-4 * options.prompt_tokens;
    if (index > 0) *request.ttft_s += 8e-3 + 1e-4 * options.prompt_tokens * static_cast<double>(batch - 1);
    request.tpot_s = iteration_s + per_request_s * static_cast<double>(std::min(batch, max_at_once));
    if (index >= max_at_once) *request.ttft_s += *request.tpot_s * options.max_tokens;
    return request;
  }

  load::LoadResult operator()(const load::LoadOptions& options) {
    asked.push_back(options);
    const auto count = load::arrival_times_s(options.phases, options.arrivals, options.seed).size();
    const double prompts = slowed(), tokens = slowed();
    load::LoadResult result;
    double end_s = 1e-3;
    for (std::size_t i = 0; i < count; ++i) {
      load::RequestResult request = answered(i, count, options);
      if (request.ttft_s) {
        *request.ttft_s *= prompts;
        *request.tpot_s *= tokens;
        request.finished_s = *request.ttft_s + (request.tokens - 1) * *request.tpot_s;
        end_s = std::max(end_s, request.finished_s);
      }
      result.requests.push_back(request);
    }
    now_s += end_s;
    return result;
  }
};

ProfileWorld world_of(Formula& worker) {
  return {[&worker](const load::LoadOptions& options) -> Result<load::LoadResult> { return worker(options); },
          [&worker] { return worker.now_s; }};
}

ProfileGrid grid() {
  ProfileGrid grid;
  grid.prompts = {10, 40, 160};
  grid.batches = {1, 2, 7};
  grid.max_tokens = 32;
  grid.repeats = 2;
  return grid;
}

Result<planner::PerformanceProfile> fit_lines(const std::vector<planner::ProfileRow>& rows) {
  return fit_rows(rows, kKey, {.model = "linear", .form = "aladdin", .validation = {.folds = 3}});
}

Result<MeasuredProfile> measured(Formula& worker, const ProfileGrid& grid, const FitProfile& fit = fit_lines) {
  return measure_profile({}, kKey, grid, fit, world_of(worker));
}

std::vector<std::pair<int, int>> points(const MeasuredProfile& profile) {
  std::vector<std::pair<int, int>> points;
  for (const ProfileCell& cell : profile.cells) points.emplace_back(cell.prompt, cell.batch);
  return points;
}

// Given a quiet worker; expects every load point to be measured exactly as often as requested, with the batch's last first
// token and its time per token, and the fitted lines to be those of the formula.
TEST(ProfileRun, RowsAndTheirFit) {
  Formula worker;
  const auto profiled = measured(worker, grid());
  ASSERT_TRUE(profiled.ok()) << profiled.error().message;
  EXPECT_EQ(profiled->problem, "");
  ASSERT_EQ(profiled->cells.size(), 9U);
  for (const ProfileCell& cell : profiled->cells) EXPECT_EQ(cell.runs.size(), 2U);
  const planner::ProfileRow last = profiled->cells.back().row();
  EXPECT_EQ(last.batch_size, 7);
  EXPECT_DOUBLE_EQ(last.prompt_tokens, 160);
  EXPECT_DOUBLE_EQ(last.prompt_iterations, 2);
  EXPECT_DOUBLE_EQ(last.prompt_s, 2 * 8e-3 + 1e-4 * 160 * 7);
  EXPECT_DOUBLE_EQ(last.token_s, 5e-3 + 5e-4 * 7);
  EXPECT_DOUBLE_EQ(planner::mean_context_tokens(last), 160 + 16);
  ASSERT_TRUE(profiled->profile);
  for (const planner::FitError& error : profiled->profile->errors) EXPECT_LT(error.mape, 0.01) << error.part;
  EXPECT_EQ(profiled->profile->source.rows, 18);
  const auto rows = all_runs_of(profiled->cells);
  const auto read = planner::parse_profile_csv(profile_csv(rows));
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 18U);
  EXPECT_NEAR(read->back().prompt_s, last.prompt_s, 1e-8);
  EXPECT_EQ(read->back().prompt_iterations, 2);
  EXPECT_EQ(read->front().prompt_iterations, 1);
  const auto& lines = std::get<planner::FittedLines>(profiled->profile->fit);
  EXPECT_NEAR(lines.prefill.coefficients.constant_s, 8e-3, 1e-9);
  EXPECT_NEAR(lines.prefill.coefficients.per_token_s, 1e-4, 1e-11);
}

// Given workers whose runs scatter by a third, one in ten of which takes twenty times as long, over ten seeds; expects repeats
// until the bound is met, outliers to be excluded, and lines near the formula's.
TEST(ProfileRun, NoiseAndOutliersAreRepeatedAway) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Formula worker{.noise = 0.3, .held_up_every = 10, .rng = Rng(seed, "noise")};
    ProfileGrid wanted = grid();
    wanted.repeats = 3;
    wanted.max_error = 0.1;
    const auto profiled = measured(worker, wanted);
    ASSERT_TRUE(profiled.ok()) << profiled.error().message;
    EXPECT_EQ(profiled->problem, "") << "seed " << seed;
    EXPECT_LT(worker.now_s, wanted.budget_s);
    EXPECT_GT(all_runs_of(profiled->cells).size(), 27U);
    EXPECT_LE(worst_error(*profiled->profile), 0.1);
    const auto model = planner::iteration_model(*profiled->profile, {}, {}, 1);
    ASSERT_TRUE(model.ok());
    const double decode_s = (*model)->iteration_s(planner::decode_batch(7, 176));
    EXPECT_NEAR(decode_s / 8.5e-3, 1.2, 0.2) << "seed " << seed;  // the median run is slower by a fifth
  }
}

// Given more noise than the budget can average out; expects a problem with the phase, its error, and a remedy. With the short
// answers of a fast model, expects the advice to use longer ones.
TEST(ProfileRun, NoiseBeyondTheBudgetIsAProblem) {
  Formula worker{.noise = 3, .iteration_s = 1e-4, .per_request_s = 5e-5};
  ProfileGrid wanted = grid();
  wanted.max_error = 0.02;
  wanted.budget_s = 4;
  const auto profiled = measured(worker, wanted);
  ASSERT_TRUE(profiled.ok()) << profiled.error().message;
  EXPECT_GE(worker.now_s, 2);
  ASSERT_TRUE(profiled->profile);
  for (const char* expected :
       {": median error on held-out load points must be at most 2.0% (got ", "--max-error)",
        "Runs of one load point differ by ",
        "something else uses this machine or the worker. Stop it, give more time (--budget), or use longer answers "}) {
    EXPECT_THAT(profiled->problem, HasSubstr(expected));
  }
}

// Given runs that agree on values that no line describes; expects repeats to end early, since more would change nothing, and a
// message that names the other fit. "best" chooses that fit.
TEST(ProfileRun, TellsAMisfitFromNoise) {
  const auto steps = [](Formula& worker) {
    ProfileWorld world = world_of(worker);
    world.run = [&worker](const load::LoadOptions& options) -> Result<load::LoadResult> {
      load::LoadResult result = worker(options);
      const double step = result.requests.size() < 4 ? 1 : 40;
      for (load::RequestResult& request : result.requests) {
        *request.tpot_s *= step;
        request.finished_s = *request.ttft_s + (request.tokens - 1) * *request.tpot_s;
      }
      return result;
    };
    return world;
  };
  ProfileGrid wanted = grid();
  wanted.batches = {1, 2, 3, 5, 6, 7};
  wanted.max_error = 0.15;  // tables hold the times of whole batches: 11% on shapes between theirs
  Formula worker;
  const auto lines = measure_profile({}, kKey, wanted, fit_lines, steps(worker));
  ASSERT_TRUE(lines.ok()) << lines.error().message;
  EXPECT_LT(worker.now_s, wanted.budget_s);
  EXPECT_THAT(lines->problem, HasSubstr("decode: median error "));
  EXPECT_THAT(lines->problem, Not(HasSubstr("prefill")));
  EXPECT_THAT(lines->problem, HasSubstr("they agree, so the fit is at fault. Try --fit profile"));
  Formula again;
  const auto best = measure_profile(
      {}, kKey, wanted,
      [](const std::vector<planner::ProfileRow>& rows) { return fit_rows(rows, kKey, {.model = "best", .max_error = 0.15}); },
      steps(again));
  ASSERT_TRUE(best.ok()) << best.error().message;
  EXPECT_EQ(best->problem, "");
  EXPECT_STREQ(planner::fit_type(*best->profile), "Profile");
  for (const planner::MeasuredCell& cell : std::get<planner::MeasuredCells>(best->profile->fit).cells) EXPECT_EQ(cell.runs, 2);
}

ProfileGrid chosen() { return {.repeats = 2}; }

// Given no sizes and a worker that runs eight requests concurrently, queues more and takes 1,500 words; expects batches to
// double up to eight, and prompts up to the longest that it takes, with one between the last two.
TEST(ProfileRun, ChoosesSizesUpToWhatTheEndpointTakes) {
  Formula worker{.max_at_once = 8, .longest_prompt = 1500};
  const auto profiled = measured(worker, chosen());
  ASSERT_TRUE(profiled.ok()) << profiled.error().message;
  EXPECT_EQ(profiled->problem, "");
  std::vector<std::pair<int, int>> expected;
  for (const int prompt : {16, 64, 256, 1024}) {
    for (const int batch : {1, 2, 4, 8}) expected.emplace_back(prompt, batch);
  }
  EXPECT_EQ(points(*profiled), expected);
  EXPECT_THAT(profiled->notes, Contains("16 prompts of 16 words skipped: only 8 of them ran concurrently"));
  EXPECT_THAT(profiled->notes, Contains("1 prompt of 4096 words skipped: rejected: 400 too long"));

  Formula odd{.max_at_once = 6, .longest_prompt = 700};
  const auto between = measured(odd, chosen());
  ASSERT_TRUE(between.ok());
  EXPECT_THAT(points(*between), Contains(std::pair(512, 1)));
  EXPECT_THAT(points(*between), Contains(std::pair(16, 6)));
  EXPECT_THAT(points(*between), Not(Contains(std::pair(16, 8))));

  Formula full{.max_taken = 4, .longest_prompt = 100};
  const auto refused = measured(full, chosen());
  ASSERT_TRUE(refused.ok());
  EXPECT_EQ(points(*refused).size(), 6U);
  EXPECT_THAT(refused->notes, Contains("8 prompts of 16 words skipped: rejected: 503 this worker is full"));
}

// Given objectives; expects batches and prompts up to the first load point that misses each. Given a worker whose throughput
// stops growing; expects two more batch sizes after that.
TEST(ProfileRun, ChoosesSizesUpToTheObjectives) {
  Formula worker;
  ProfileGrid wanted = chosen();
  wanted.tpot_s = 6.8e-3;  // batches of 4 take 7 ms
  wanted.ttft_s = 0.05;    // 420 tokens
  const auto profiled = measured(worker, wanted);
  ASSERT_TRUE(profiled.ok()) << profiled.error().message;
  for (const auto& [prompt, batch] : points(*profiled)) {
    EXPECT_LE(batch, 4);
    EXPECT_LE(prompt, 1024);
  }
  EXPECT_THAT(points(*profiled), Contains(std::pair(1024, 1)));
  EXPECT_THAT(points(*profiled), Not(Contains(std::pair(1024, 2))));
  EXPECT_THAT(points(*profiled), Contains(std::pair(16, 4)));

  Formula flat{.longest_prompt = 20, .iteration_s = 0};
  const auto stopped = measured(flat, chosen());
  ASSERT_TRUE(stopped.ok()) << stopped.error().message;
  EXPECT_EQ(points(*stopped).back(), std::pair(16, 4));
}

// Given a slow worker and a short budget; expects that sizes which would take too long are skipped with a note, but a second
// prompt size is measured, and that given sizes are measured anyway.
TEST(ProfileRun, TheBudgetBoundsWhatIsChosen) {
  Formula worker{.iteration_s = 0.05, .per_request_s = 0.01};
  ProfileGrid wanted = chosen();
  wanted.budget_s = 60;
  const auto profiled = measured(worker, wanted);
  ASSERT_TRUE(profiled.ok()) << profiled.error().message;
  EXPECT_LT(worker.now_s, 60);
  EXPECT_THAT(profiled->notes, Contains("larger load points skipped: they would take more than half of the budget (--budget)"));
  Formula again{.iteration_s = 0.05, .per_request_s = 0.01};
  wanted.budget_s = 4;
  const auto hurried = measured(again, wanted);
  ASSERT_TRUE(hurried.ok()) << hurried.error().message;
  EXPECT_THAT(points(*hurried), Contains(std::pair(64, 1)));
  Formula slow{.iteration_s = 5};
  wanted = grid();
  wanted.budget_s = 1;
  const auto given = measured(slow, wanted);
  ASSERT_TRUE(given.ok());
  EXPECT_EQ(given->cells.size(), 9U);
  for (const ProfileCell& cell : given->cells) EXPECT_EQ(cell.runs.size(), 1U);
}

// Given a worker that rejects batches above two; expects a note for those, and the others measured. Given one that answers
// nothing at first, or loses a request; expects an error that says which.
TEST(ProfileRun, SkipsLoadPointsThatFail) {
  Formula full{.max_taken = 2};
  const auto profiled = measured(full, grid());
  ASSERT_TRUE(profiled.ok());
  EXPECT_EQ(profiled->cells.size(), 6U);
  EXPECT_THAT(profiled->notes, Contains("7 prompts of 10 words skipped: rejected: 503 this worker is full"));

  const auto with = [](const std::function<void(load::LoadResult&, std::size_t)>& change) {
    Formula worker;
    ProfileWorld world = world_of(worker);
    world.run = [&](const load::LoadOptions& options) -> Result<load::LoadResult> {
      load::LoadResult result = worker(options);
      change(result, worker.asked.size());
      return result;
    };
    return measure_profile({}, kKey, grid(), fit_lines, world);
  };
  EXPECT_THAT(with([](load::LoadResult& result, std::size_t run) {
                if (run == 3) result.requests[0].outcome = load::Outcome::kLost;
              })
                  .error()
                  .message,
              HasSubstr("1 prompt of 10 words: request 0"));
  EXPECT_THAT(with([](load::LoadResult& result, std::size_t) { result.requests[0].tokens = 1; }).error().message,
              HasSubstr("the first batch: an answer ended after 1 tokens"));
  EXPECT_THAT(with([](load::LoadResult& result, std::size_t run) {
                if (run > 2) result.requests[0].outcome = load::Outcome::kRejected;
              })
                  .error()
                  .message,
              HasSubstr("no load point could be measured; 1 prompt of 10 words skipped: rejected: "));
}

// Given one load point, which is too few for a fit; expects its runs to be kept, and a problem that says why.
TEST(ProfileRun, TooFewLoadPoints) {
  Formula worker;
  ProfileGrid wanted = grid();
  wanted.prompts = {10};
  wanted.batches = {1};
  const auto profiled = measured(worker, wanted);
  ASSERT_TRUE(profiled.ok());
  EXPECT_EQ(profiled->cells.size(), 1U);
  EXPECT_FALSE(profiled->profile);
  EXPECT_THAT(profiled->problem, HasSubstr("must be at least 4 (got 1)"));
}

// Given endpoints that reject ignore_eos, or that and stream_options; expects that rejected options are not sent again. Given
// one that reports no usage; expects prompts counted in words, with a note.
TEST(ProfileRun, DropsOptionsThatTheEndpointRejects) {
  for (const bool takes_usage : {true, false}) {
    Formula worker;
    ProfileWorld world = world_of(worker);
    world.run = [&](const load::LoadOptions& options) -> Result<load::LoadResult> {
      load::LoadResult result = worker(options);
      for (load::RequestResult& request : result.requests) {
        if (!takes_usage) request.prompt_tokens = 0;
        if (!options.ignore_eos && (takes_usage || !options.include_usage)) continue;
        request.outcome = load::Outcome::kRejected;
        request.status = 400;
      }
      return result;
    };
    const auto profiled = measure_profile({}, kKey, grid(), fit_lines, world);
    ASSERT_TRUE(profiled.ok()) << profiled.error().message;
    EXPECT_TRUE(worker.asked.front().ignore_eos);
    EXPECT_FALSE(worker.asked.back().ignore_eos);
    EXPECT_EQ(worker.asked.back().include_usage, takes_usage);
    EXPECT_EQ(profiled->cells.back().row().prompt_tokens, 160);
    const std::string note = "the endpoint reports no usage; prompts are counted in words, answers in events";
    EXPECT_EQ(std::count(profiled->notes.begin(), profiled->notes.end(), note), takes_usage ? 0 : 1);
  }
}

}  // namespace
}  // namespace windlass::cli
