// See huawei_latency.h.
#include "planner/strategies/huawei/huawei_latency.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace windlass::hetero {

Result<BatchTimesFit> fit_batch_times(std::span<const BatchSample> samples, const planner::FitOptions& options) {
  const auto rows = static_cast<Eigen::Index>(samples.size());
  Eigen::MatrixXd prefill(rows, 4), decode(rows, 4);
  Eigen::VectorXd prefill_s(rows), decode_s(rows);
  for (Eigen::Index row = 0; row < rows; ++row) {
    const BatchSample& sample = samples[static_cast<std::size_t>(row)];
    if (sample.batch < 1 || sample.input_tokens < 1 || sample.output_tokens < 1) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("sample {}: must have at least 1 of each (got a batch of {} with {} tokens in and {} out)", row,
                               sample.batch, sample.input_tokens, sample.output_tokens)};
    }
    const double batch = sample.batch, input = sample.input_tokens, output = sample.output_tokens;
    const double contexts = output * input + output * (output + 1) / 2;
    prefill.row(row) << batch * input, batch, input, 1;
    decode.row(row) << batch * contexts, batch * output, contexts, output;
    prefill_s[row] = sample.prefill_s;
    decode_s[row] = sample.decode_s;
  }
  auto prefill_fit = planner::fit_linear(prefill, prefill_s, options);
  if (!prefill_fit.ok()) return prefill_fit.error().within("prefill");
  auto decode_fit = planner::fit_linear(decode, decode_s, options);
  if (!decode_fit.ok()) return decode_fit.error().within("decode");
  const Eigen::VectorXd &p = prefill_fit->coefficients, &d = decode_fit->coefficients;
  return BatchTimesFit{
      {p[0], p[1], p[2], p[3], d[0], d[1], d[2], d[3]}, std::move(prefill_fit).value(), std::move(decode_fit).value()};
}

std::vector<BatchSample> profile_batches(const planner::IterationModel& model, double kv_tokens, const BatchGrid& grid) {
  std::vector<int> outputs = grid.outputs;
  std::sort(outputs.begin(), outputs.end());
  std::vector<BatchSample> samples;
  for (const int batch : grid.batches) {
    for (const int input : grid.inputs) {
      const double prefill_s = model.iteration_s(planner::prefill_batch(batch, input));
      double decode_s = 0;
      int made = 0;
      for (const int output : outputs) {
        if (batch > 2 && batch * (static_cast<double>(input) + output) > kv_tokens) break;
        while (made < output) decode_s += model.iteration_s(planner::decode_batch(batch, input + ++made));
        samples.push_back({batch, input, output, prefill_s, decode_s});
      }
    }
  }
  return samples;
}

}  // namespace windlass::hetero
