// CsvRows: a profile's CSV text taken apart by column name, with numbers checked and mistakes named by line and column.
//
//   WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"tp", "pp"}));
//   for (std::size_t row = 0; row < csv.rows(); ++row) { ... csv.number(row, "tp", kPositiveNumber) ... }
//
// Comma separated, first line the column names, no quoting (no profile has any); LF or CR LF; empty lines are passed over.
// Borrows the text, which must outlive it.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::planner {

class CsvRows {
 public:
  // Errors: no line, a required column that is missing, a row with another number of fields than the first line.
  [[nodiscard]] static Result<CsvRows> parse(std::string_view text, std::initializer_list<const char*> required);

  [[nodiscard]] std::size_t rows() const { return lines_.size(); }
  [[nodiscard]] bool has(std::string_view column) const;

  // Not empty. REQUIRES: has(column).
  [[nodiscard]] Result<std::string> text(std::size_t row, std::string_view column) const;
  // Finite, and low <= number <= high. REQUIRES: has(column).
  [[nodiscard]] Result<double> number(std::size_t row, std::string_view column, double low, double high) const;
  // Whole, and low <= number <= high. REQUIRES: has(column).
  [[nodiscard]] Result<int> integer(std::size_t row, std::string_view column, int low, int high) const;
  // That what stands there is not what is allowed. REQUIRES: has(column).
  [[nodiscard]] Error mistake(std::size_t row, std::string_view column, const std::string& allowed) const;

 private:
  [[nodiscard]] std::string_view field(std::size_t row, std::string_view column) const;

  std::vector<std::string_view> columns_;
  std::vector<std::size_t> lines_;        // number of each row's line in the text, from 1
  std::vector<std::string_view> fields_;  // row by row
};

}  // namespace windlass::planner
