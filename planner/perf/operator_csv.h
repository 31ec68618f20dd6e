// Operator measurements in whatever CSV file they come: tells by the columns which table a text is, and collects the rows.
//
// Known are the tables of ai-dynamo/aiconfigurator and Vidur's profiles, as operator_table.h reads them. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/operator_table.h"
#include "planner/perf/profile_operators.h"

namespace windlass::planner {

struct OperatorMeasurements {
  OperatorTables tables;               // aiconfigurator's
  VidurProfiles vidur;                 // Vidur's
  std::vector<std::string> devices;    // as the tables name what they were measured on
  std::optional<double> vidur_hidden;  // the width of the model that Vidur's samples are of, where they say so

  [[nodiscard]] bool has_vidur() const {
    return !vidur.mlp.empty() || !vidur.attention.empty() || !vidur.all_reduce.empty() || !vidur.cpu.empty();
  }
  [[nodiscard]] bool has_tables() const {
    return !tables.gemm.empty() || !tables.context_attention.empty() || !tables.generation_attention.empty() ||
           !tables.collectives.empty();
  }
};

// What add_operator_csv() knows, for messages.
[[nodiscard]] std::string known_operator_tables();

// Adds the text's rows. False: its columns are those of no known table. Errors name the line and the column.
[[nodiscard]] Result<bool> add_operator_csv(std::string_view csv, OperatorMeasurements& to);

// Numbers of GPUs that Vidur's samples have, ascending.
[[nodiscard]] std::vector<int> gpus_of(const VidurProfiles& profiles);

}  // namespace windlass::planner
