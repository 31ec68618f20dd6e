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
#include <type_traits>
#include <vector>

#include "planner/base/result.h"

namespace windlass::planner {

class CsvRows {
 public:
  // Errors: empty text, a missing required column, or a row whose number of fields differs from that of the first line.
  [[nodiscard]] static Result<CsvRows> parse(std::string_view text, std::initializer_list<const char*> required);

  // A column by its name. column() also knows its place, which saves a search per field in tables of many rows.
  class Column {
   public:
    template <class Name>
    requires std::is_convertible_v<const Name&, std::string_view> Column(const Name& name)
        : name_(name) {}  // NOLINT(google-explicit-constructor)

   private:
    friend class CsvRows;
    Column(std::string_view name, std::size_t at) : name_(name), at_(at) {}

    static constexpr std::size_t kUnknown = static_cast<std::size_t>(-1);
    std::string_view name_;
    std::size_t at_ = kUnknown;
  };

  [[nodiscard]] std::size_t rows() const { return lines_.size(); }
  [[nodiscard]] bool has(std::string_view column) const;
  // REQUIRES: has(name).
  [[nodiscard]] Column column(std::string_view name) const;

  // The text as it stands, which may be empty. REQUIRES (here and below): has(column).
  [[nodiscard]] std::string_view field(std::size_t row, const Column& column) const;
  // Non-empty text; word() borrows it.
  [[nodiscard]] Result<std::string_view> word(std::size_t row, const Column& column) const;
  [[nodiscard]] Result<std::string> text(std::size_t row, const Column& column) const;
  // A finite number with low <= number <= high.
  [[nodiscard]] Result<double> number(std::size_t row, const Column& column, double low, double high) const;
  // A whole number with low <= number <= high.
  [[nodiscard]] Result<int> integer(std::size_t row, const Column& column, int low, int high) const;
  // The error for a field whose value is not allowed.
  [[nodiscard]] Error mistake(std::size_t row, const Column& column, const std::string& allowed) const;

 private:
  std::vector<std::string_view> columns_;
  std::vector<std::size_t> lines_;        // line number of each row in the text, from 1
  std::vector<std::string_view> fields_;  // row by row
};

}  // namespace windlass::planner
