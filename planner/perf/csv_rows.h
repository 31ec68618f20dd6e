// CsvRows reads the CSV text of a profile by column name. It checks numbers, and errors name the line and column.
//
//   WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"tp", "pp"}));
//   for (std::size_t row = 0; row < csv.rows(); ++row) { ... csv.number(row, "tp", kPositiveNumber) ... }
//
// Comma separated; the first line has the column names; no quoting (no profile needs it); LF or CR LF; empty lines are ignored.
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
  // Errors: empty text, a missing required column, or a row whose number of fields differs from that of the first line.
  [[nodiscard]] static Result<CsvRows> parse(std::string_view text, std::initializer_list<const char*> required);

  [[nodiscard]] std::size_t rows() const { return lines_.size(); }
  [[nodiscard]] bool has(std::string_view column) const;

  // Non-empty text. REQUIRES: has(column).
  [[nodiscard]] Result<std::string> text(std::size_t row, std::string_view column) const;
  // A finite number with low <= number <= high. REQUIRES: has(column).
  [[nodiscard]] Result<double> number(std::size_t row, std::string_view column, double low, double high) const;
  // A whole number with low <= number <= high. REQUIRES: has(column).
  [[nodiscard]] Result<int> integer(std::size_t row, std::string_view column, int low, int high) const;
  // The error for a field whose value is not allowed. REQUIRES: has(column).
  [[nodiscard]] Error mistake(std::size_t row, std::string_view column, const std::string& allowed) const;

 private:
  [[nodiscard]] std::string_view field(std::size_t row, std::string_view column) const;

  std::vector<std::string_view> columns_;
  std::vector<std::size_t> lines_;        // line number of each row in the text, from 1
  std::vector<std::string_view> fields_;  // row by row
};

}  // namespace windlass::planner
