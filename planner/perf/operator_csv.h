// Reads operator measurements from CSV files of several formats: it recognises the table by its columns and collects the rows.
//
// It knows the tables of ai-dynamo/aiconfigurator and Vidur's profiles, as described in operator_table.h. Pure.
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
  OperatorTables tables;               // from aiconfigurator
  VidurProfiles vidur;                 // from Vidur
  std::vector<std::string> devices;    // names of the measured devices, as in the tables
  std::optional<double> vidur_hidden;  // width of the model behind Vidur's samples, if given

  [[nodiscard]] bool has_vidur() const {
    return !vidur.mlp.empty() || !vidur.attention.empty() || !vidur.all_reduce.empty() || !vidur.cpu.empty();
  }
  [[nodiscard]] bool has_tables() const {
    return !tables.gemm.empty() || !tables.context_attention.empty() || !tables.generation_attention.empty() ||
           !tables.collectives.empty();
  }
};

// The tables that add_operator_csv() knows, for messages.
[[nodiscard]] std::string known_operator_tables();

// Adds the rows of the text. False: its columns match no known table. Errors name the line and the column.
[[nodiscard]] Result<bool> add_operator_csv(std::string_view csv, OperatorMeasurements& to);

// The numbers of GPUs in Vidur's samples, ascending.
[[nodiscard]] std::vector<int> gpus_of(const VidurProfiles& profiles);

}  // namespace windlass::planner
