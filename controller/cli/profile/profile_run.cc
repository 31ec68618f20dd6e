// Chooses, measures and repeats load points; see profile_run.h.
#include "controller/cli/profile/profile_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "controller/cli/profile/profile_problem.h"

namespace windlass::cli {
namespace {

using planner::ProfileRow;

constexpr int kFirstPrompt = 16, kLongestPrompt = 1 << 20;  // words
constexpr int kPromptStep = 4, kBatchStep = 2;
constexpr int kLargestBatch = 64;
constexpr double kGrowing = 1.05;  // throughput that grows less than this from one batch size to the next has stopped growing
constexpr int kFlatSteps = 2;      // in a row: a single one may be noise
// An answer is long enough if its tokens take this long: a scheduler's time slice is a few milliseconds.
constexpr double kTimedS = 0.25;
constexpr int kFewestTokens = 32, kMaxTokens = 256;
constexpr double kExplored = 0.5;  // share of the budget for exploring; the rest is for repeats
constexpr int kTries = 3;          // tries until a batch counts as concurrent or not: a single run may be delayed
constexpr double kSettled = 0.1;   // share of the bound: a median known this well needs no more runs

// Sends a whole batch within a millisecond.
load::LoadOptions batch_of(load::LoadOptions options, int prompt, int batch, int max_tokens, std::uint64_t seed) {
  constexpr double kWithinS = 1e-3;
  options.phases = {{batch / kWithinS, kWithinS}};
  options.arrivals = load::Arrivals::kConstant;
  options.prompt_tokens = prompt;
  options.max_tokens = max_tokens;
  options.seed = seed;
  return options;
}

// Iterations in which the requests had their first tokens. Those of one iteration arrive together. The next iteration takes
// about as long as the first, which had at least one prompt, or as a decode iteration.
double iterations_of(std::vector<double> first_tokens_s, double first_ttft_s, double token_s) {
  constexpr double kApart = 0.75, kLeastApartS = 1e-3;
  const double apart_s = std::max(kApart * std::min(first_ttft_s, token_s), kLeastApartS);
  std::sort(first_tokens_s.begin(), first_tokens_s.end());
  double iterations = 1;
  for (std::size_t i = 1; i < first_tokens_s.size(); ++i) {
    if (first_tokens_s[i] - first_tokens_s[i - 1] > apart_s) ++iterations;
  }
  return iterations;
}

double first_token_s(const load::RequestResult& request) { return request.scheduled_s + *request.ttft_s; }

// The uncertainty of the median, as a share. A few runs may agree by chance, so at least the scatter of other load points is
// assumed.
double relative_error(const planner::RobustMedian& median, std::optional<double> usual_spread) {
  const double usual_error = planner::standard_error(median.value * usual_spread.value_or(0), median.kept);
  return std::max(median.standard_error, usual_error) / median.value;
}

class ProfileRun {
 public:
  ProfileRun(const load::LoadOptions& target, const planner::ProfileKey& key, const ProfileGrid& grid, const FitProfile& fit,
             const ProfileWorld& world)
      : target_(target), key_(key), grid_(grid), fit_(fit), world_(world), seed_(target.seed), begun_s_(world.now_s()) {}

  Result<MeasuredProfile> run() {
    WINDLASS_RETURN_IF_ERROR(warm_up());
    WINDLASS_RETURN_IF_ERROR(explore());
    if (measured_.cells.empty()) {
      std::string why = "no load point could be measured";
      for (const std::string& note : measured_.notes) why += "; " + note;
      return Error{ErrorCode::kFailedPrecondition, why};
    }
    WINDLASS_RETURN_IF_ERROR(repeat_all());
    WINDLASS_RETURN_IF_ERROR(refine());
    return std::move(measured_);
  }

 private:
  enum class Tried { kMeasured, kRefused, kQueued };

  // Uses options that some endpoints reject, and stops using them when rejected.
  Result<void> warm_up() {
    target_.ignore_eos = target_.include_usage = true;
    max_tokens_ = grid_.max_tokens.value_or(kFewestTokens);
    const int prompt = grid_.prompts.empty() ? kFirstPrompt : grid_.prompts.front();
    for (int warm = 0; warm < 2;) {
      WINDLASS_ASSIGN_OR_RETURN(const load::LoadResult result, send(prompt, 1, max_tokens_));
      const auto batch = measured_batch(result, key_, max_tokens_);
      if (batch.ok()) {
        ++warm;
        if (!grid_.max_tokens) {
          const double timed = std::min(std::ceil(kTimedS / batch->row.token_s) + 1, double{kMaxTokens});
          max_tokens_ = std::max(max_tokens_, static_cast<int>(timed));
        }
        if (batch->row.prompt_tokens <= 0 && warm == 1)
          measured_.notes.emplace_back("the endpoint reports no usage; prompts are counted in words, answers in events");
        continue;
      }
      const int status = result.requests.empty() ? 0 : result.requests.front().status;
      const bool refused = status == 400 || status == 422;
      if (refused && target_.ignore_eos) {
        target_.ignore_eos = false;
      } else if (refused && target_.include_usage) {
        target_.include_usage = false;
      } else {
        return batch.error().within("the first batch");
      }
    }
    return {};
  }

  Result<load::LoadResult> send(int prompt, int batch, int max_tokens) {
    return world_.run(batch_of(target_, prompt, batch, max_tokens, seed_++));
  }

  void tell(int prompt, int batch) {
    now_.prompt = prompt;
    now_.batch = batch;
    now_.cells = measured_.cells.size();
    world_.on_progress(now_);
    ++now_.runs;
  }

  [[nodiscard]] double spent_s() const { return world_.now_s() - begun_s_; }

  [[nodiscard]] static std::string name_of(int prompt, int batch) {
    return fmt::format("{} prompt{} of {} words", batch, batch == 1 ? "" : "s", prompt);
  }

  Result<Tried> run_once(ProfileCell& cell) {
    tell(cell.prompt, cell.batch);
    WINDLASS_ASSIGN_OR_RETURN(const load::LoadResult result, send(cell.prompt, cell.batch, cell.max_tokens));
    auto batch = measured_batch(result, key_, cell.max_tokens);
    if (!batch.ok()) {
      if (batch.error().code != ErrorCode::kFailedPrecondition) return batch.error().within(name_of(cell.prompt, cell.batch));
      why_ = batch.error().message;
      return Tried::kRefused;
    }
    max_at_once_ = std::max(max_at_once_, batch->at_once);
    if (batch->at_once < result.requests.size()) return Tried::kQueued;
    if (batch->row.prompt_tokens <= 0) batch->row.prompt_tokens = cell.prompt;
    cell.runs.push_back(std::move(batch->row));
    return Tried::kMeasured;
  }

  // Measures a new load point; failures are noted and skipped. If the first answer of a batch ends before the last one starts,
  // tries again with longer answers: that is enough for long prompts, but not if requests queue. A batch may also have been
  // delayed once.
  Result<Tried> measure(int prompt, int batch, int runs) {
    ProfileCell cell{prompt, batch, max_tokens_, {}};
    max_at_once_ = 0;
    for (int in_queue = 0; static_cast<int>(cell.runs.size()) < runs;) {
      WINDLASS_ASSIGN_OR_RETURN(Tried tried, run_once(cell));
      if (tried == Tried::kMeasured) continue;
      if (tried == Tried::kQueued && !grid_.max_tokens && cell.max_tokens < kMaxTokens) {
        cell.max_tokens = std::min(kMaxTokens, cell.max_tokens * 4);
        cell.runs.clear();
        continue;
      }
      if (tried == Tried::kQueued && ++in_queue < kTries) continue;
      if (tried == Tried::kQueued) why_ = fmt::format("only {} of them ran concurrently", max_at_once_);
      measured_.notes.push_back(name_of(prompt, batch) + " skipped: " + why_);
      return tried;
    }
    measured_.cells.push_back(std::move(cell));
    return Tried::kMeasured;
  }

  [[nodiscard]] const ProfileCell* find(int prompt, int batch) const {
    const auto found = std::find_if(measured_.cells.begin(), measured_.cells.end(),
                                    [&](const ProfileCell& cell) { return cell.prompt == prompt && cell.batch == batch; });
    return found == measured_.cells.end() ? nullptr : &*found;
  }

  [[nodiscard]] bool passes_objectives(const ProfileCell& cell) const {
    const ProfileRow row = cell.row();
    return (grid_.ttft_s && row.prompt_s > *grid_.ttft_s) || (grid_.tpot_s && row.token_s > *grid_.tpot_s);
  }

  // Whether `factor` times this load point's work exceeds the time left for exploring.
  [[nodiscard]] bool is_too_long(const ProfileCell* like, double factor) {
    if (spent_s() > kExplored * grid_.budget_s) return true;
    return like != nullptr && factor * like->row().end_to_end_s > kExplored * grid_.budget_s - spent_s();
  }

  // Chooses the batch sizes with the shortest prompt.
  Result<std::vector<int>> climb(int prompt) {
    std::vector<int> batches;
    double best_per_s = 0;
    int flat = 0;
    for (int batch = 1; batch <= kLargestBatch; batch *= kBatchStep) {
      if (!batches.empty() && is_too_long(find(prompt, batches.back()), kBatchStep)) {
        short_of_time_ = true;
        break;
      }
      WINDLASS_ASSIGN_OR_RETURN(const Tried tried, measure(prompt, batch, std::max(grid_.repeats, kTries)));
      if (tried != Tried::kMeasured) {
        const int most = static_cast<int>(max_at_once_);
        if (tried == Tried::kQueued && most > 1 && find(prompt, most) == nullptr) {
          WINDLASS_ASSIGN_OR_RETURN(const Tried max_at_once, measure(prompt, most, grid_.repeats));
          if (max_at_once == Tried::kMeasured) batches.push_back(most);
        }
        break;
      }
      batches.push_back(batch);
      const ProfileCell& cell = measured_.cells.back();
      if (passes_objectives(cell)) break;
      const double per_s = batch / cell.row().token_s;
      flat = per_s < kGrowing * best_per_s ? flat + 1 : 0;
      best_per_s = std::max(best_per_s, per_s);
      if (flat == kFlatSteps) break;
    }
    return batches;
  }

  // Measures all batches of one prompt size, until one fails. Returns whether a longer prompt is worth a try.
  Result<bool> across(int prompt, const std::vector<int>& batches) {
    const bool chosen = grid_.prompts.empty() || grid_.batches.empty();
    for (const int batch : batches) {
      if (find(prompt, batch) == nullptr) {
        // A second prompt size, once, is worth any time: with one, no fit can tell tokens from requests.
        const bool needed = prompt == kFirstPrompt * kPromptStep && batch == batches.front();
        if (chosen && !needed &&
            (is_too_long(find(prompt, batch / kBatchStep), kBatchStep) ||
             is_too_long(find(prompt / kPromptStep, batch), kPromptStep))) {
          short_of_time_ = true;
          return batch != batches.front();
        }
        WINDLASS_ASSIGN_OR_RETURN(const Tried tried, measure(prompt, batch, 1));
        if (tried != Tried::kMeasured && chosen) return batch != batches.front();
        if (tried != Tried::kMeasured) continue;
      }
      if (chosen && passes_objectives(*find(prompt, batch))) return batch != batches.front();
    }
    return true;
  }

  Result<void> explore() {
    std::vector<int> batches = grid_.batches;
    if (batches.empty()) {
      WINDLASS_ASSIGN_OR_RETURN(batches, climb(grid_.prompts.empty() ? kFirstPrompt : grid_.prompts.front()));
    }
    if (batches.empty()) return {};
    for (const int prompt : grid_.prompts) WINDLASS_RETURN_IF_ERROR(across(prompt, batches));
    if (grid_.prompts.empty()) {
      int prompt = kFirstPrompt;
      for (bool goes_on = true; goes_on && prompt <= kLongestPrompt; prompt *= kPromptStep) {
        WINDLASS_ASSIGN_OR_RETURN(goes_on, across(prompt, batches));
      }
      // The last prompt was rejected: the longest context is between this one and the one before.
      const int between = prompt / kPromptStep / 2;
      if (find(prompt / kPromptStep, batches.front()) == nullptr && !short_of_time_)
        WINDLASS_RETURN_IF_ERROR(across(between, batches));
    }
    if (short_of_time_)
      measured_.notes.emplace_back("larger load points skipped: they would take more than half of the budget (--budget)");
    return {};
  }

  Result<void> repeat_all() {
    for (int runs = 1; runs < grid_.repeats; ++runs) {
      for (ProfileCell& cell : measured_.cells) {
        if (spent_s() > grid_.budget_s) return {};
        if (static_cast<int>(cell.runs.size()) > runs) continue;
        WINDLASS_RETURN_IF_ERROR(run_once(cell));
      }
    }
    return {};
  }

  // Fits, and repeats the half of the load points with the highest uncertainty, until one of the end conditions holds.
  Result<void> refine() {
    ProfileEnd end;
    end.max_error = grid_.max_error;
    for (;;) {
      auto fitted = fit_(rows_of(measured_.cells));
      if (!fitted.ok()) {
        measured_.problem = fitted.error().message + (short_of_time_ ? "; a larger --budget measures more load points" : "");
        return {};
      }
      measured_.profile = std::move(fitted).value();
      now_.error = worst_error(*measured_.profile);
      end.out_of_time = spent_s() >= grid_.budget_s;
      const std::vector<ProfileCell*> unsettled = least_known(*measured_.profile);
      if (end.out_of_time || unsettled.empty()) break;
      for (ProfileCell* cell : unsettled) {
        if (spent_s() >= grid_.budget_s) break;
        WINDLASS_RETURN_IF_ERROR(run_once(*cell));
      }
    }
    end.runs = now_.runs;
    measured_.problem = problem_of(*measured_.profile, measured_.cells, end);
    note_outliers();
    return {};
  }

  // The uncertainty of each load point's median, relative to what is good enough: the bound itself in a phase whose fit meets
  // it, so that a point that was delayed in every run does not bend the fit, and kSettled of the bound otherwise.
  [[nodiscard]] std::vector<double> uncertainties(const planner::PerformanceProfile& profile) const {
    std::vector<double> worst(measured_.cells.size());
    for (const planner::FitError& error : profile.errors) {
      const bool prefill = error.part == kPrefillPart;
      const double enough = grid_.max_error * (error.median_ape <= grid_.max_error ? 1 : kSettled);
      const auto usual = usual_spread(measured_.cells, prefill);
      for (std::size_t i = 0; i < worst.size(); ++i) {
        const ProfileCell& cell = measured_.cells[i];
        worst[i] = std::max(worst[i], relative_error(prefill ? cell.prompt_s() : cell.token_s(), usual) / enough);
      }
    }
    return worst;
  }

  std::vector<ProfileCell*> least_known(const planner::PerformanceProfile& profile) {
    std::vector<std::pair<double, ProfileCell*>> cells;
    const std::vector<double> errors = uncertainties(profile);
    for (std::size_t i = 0; i < errors.size(); ++i) cells.emplace_back(errors[i], &measured_.cells[i]);
    std::stable_sort(cells.begin(), cells.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    cells.resize((cells.size() + 1) / 2);
    std::vector<ProfileCell*> chosen;
    for (const auto& [error, cell] : cells) {
      if (error > 1) chosen.push_back(cell);
    }
    return chosen;
  }

  void note_outliers() {
    std::int64_t outliers = 0, runs = 0;
    for (const ProfileCell& cell : measured_.cells) {
      outliers += cell.outliers();
      runs += static_cast<std::int64_t>(cell.runs.size());
    }
    if (outliers > 0) measured_.notes.push_back(fmt::format("{} of {} runs are outliers and excluded", outliers, runs));
    measured_.profile->source.rows = runs - outliers;
    measured_.profile->source.left_out += outliers;
    auto* fitted = std::get_if<planner::MeasuredCells>(&measured_.profile->fit);
    if (fitted == nullptr) return;
    for (const ProfileCell& cell : measured_.cells) {
      const ProfileRow row = cell.row();
      for (planner::MeasuredCell& point : fitted->cells) {
        if (point.prompt_tokens == row.prompt_tokens && point.batch_size == row.batch_size)
          point.runs = static_cast<std::int64_t>(cell.runs.size());
      }
    }
  }

  load::LoadOptions target_;
  const planner::ProfileKey& key_;
  const ProfileGrid& grid_;
  const FitProfile& fit_;
  const ProfileWorld& world_;
  std::uint64_t seed_;
  const double begun_s_;
  int max_tokens_ = kFewestTokens;
  bool short_of_time_ = false;
  std::size_t max_at_once_ = 0;  // highest concurrency of the last load point
  std::string why_;              // why the last run failed
  ProfileProgress now_;
  MeasuredProfile measured_;
};

}  // namespace

Result<MeasuredBatch> measured_batch(const load::LoadResult& result, const planner::ProfileKey& key, int max_tokens) {
  const load::RequestResult* last = nullptr;
  ProfileRow row;
  row.model = key.model;
  row.hardware = key.hardware;
  row.tensor_parallel = key.tensor_parallel;
  row.batch_size = static_cast<double>(result.requests.size());
  row.output_tokens = max_tokens;
  double first_end_s = std::numeric_limits<double>::infinity();
  double first_ttft_s = std::numeric_limits<double>::infinity();
  std::vector<double> first_tokens_s;
  for (const load::RequestResult& request : result.requests) {
    if (request.outcome == load::Outcome::kLost)
      return Error{ErrorCode::kUnavailable, fmt::format("request {}: {}", request.index, request.problem)};
    if (request.outcome == load::Outcome::kRejected)
      return Error{ErrorCode::kFailedPrecondition, fmt::format("rejected: {}", request.problem)};
    if (!request.ttft_s || request.tokens < 2 || !request.tpot_s) {
      return Error{ErrorCode::kFailedPrecondition,
                   fmt::format("an answer ended after {} tokens, too few to measure a time per token", request.tokens)};
    }
    row.prompt_tokens += (request.prompt_tokens - request.cached_tokens) / row.batch_size;
    row.end_to_end_s = std::max(row.end_to_end_s, request.finished_s - request.scheduled_s);
    first_end_s = std::min(first_end_s, request.finished_s);
    first_ttft_s = std::min(first_ttft_s, *request.ttft_s);
    first_tokens_s.push_back(first_token_s(request));
    if (last == nullptr || *request.ttft_s > *last->ttft_s) last = &request;
  }
  if (last == nullptr) return Error{ErrorCode::kFailedPrecondition, "no request was sent"};
  constexpr double kLeastS = 1e-9;  // if a delayed client received a whole answer at once
  row.prompt_tokens = std::round(row.prompt_tokens);
  row.prompt_s = std::max(*last->ttft_s, kLeastS);
  row.token_s = std::max(*last->tpot_s, kLeastS);
  row.prompt_iterations = iterations_of(std::move(first_tokens_s), first_ttft_s, row.token_s);
  const auto at_once = std::count_if(result.requests.begin(), result.requests.end(),
                                     [&](const load::RequestResult& request) { return first_token_s(request) < first_end_s; });
  return MeasuredBatch{std::move(row), static_cast<std::size_t>(at_once)};
}

Result<MeasuredProfile> measure_profile(const load::LoadOptions& target, const planner::ProfileKey& key,
                                        const ProfileGrid& grid, const FitProfile& fit, const ProfileWorld& world) {
  return ProfileRun(target, key, grid, fit, world).run();
}

std::string profile_csv(const std::vector<ProfileRow>& rows) {
  std::string csv =
      "model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time,"
      "prompt_iterations\n";
  for (const ProfileRow& row : rows) {
    csv += fmt::format("{},{},{},{:g},{:g},{:g},{:.6g},{:.6g},{:.6g},{:g}\n", row.model, row.hardware, row.tensor_parallel,
                       row.prompt_tokens, row.batch_size, row.output_tokens, row.prompt_s * 1e3, row.token_s * 1e3,
                       row.end_to_end_s * 1e3, row.prompt_iterations);
  }
  return csv;
}

}  // namespace windlass::cli
