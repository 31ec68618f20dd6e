// Helpers shared by the CSV readers of this folder: reading token counts, and errors that name the line and the field.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "planner/base/result.h"
#include "planner/workload/context_limit.h"

namespace windlass::workload {

// "<thing>: line <line>: <field>: must be <allowed> (got '<found>')", on one line whatever bytes were found.
[[nodiscard]] Error bad_field(std::string_view thing, std::size_t line, std::string_view field, std::string_view found,
                              std::string_view allowed);

// Names and texts of the two lengths in a row.
struct TokenFields {
  std::string_view input_field, input;
  std::string_view output_field, output;
};

// Reads the lengths of a row: integers in 1..kMaxTokens that fit the context or are truncated to it.
[[nodiscard]] Result<TokenPair> read_tokens(std::string_view thing, std::size_t line, const TokenFields& fields,
                                            const std::optional<ContextLimit>& context);

// Checks that the limit is valid. The error names what was found and what is allowed.
[[nodiscard]] Result<void> validate(const std::optional<ContextLimit>& context);

}  // namespace windlass::workload
