// What the readers of this folder's CSV texts share: token counts, and errors that name the line and the field.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "planner/base/result.h"
#include "planner/workload/context_limit.h"

namespace windlass::workload {

// "<thing>: line <line>: <field>: found '<found>', allowed is <allowed>", in one line whatever bytes were found.
[[nodiscard]] Error bad_field(std::string_view thing, std::size_t line, std::string_view field, std::string_view found,
                              std::string_view allowed);

// Names and texts of a row's two lengths.
struct TokenFields {
  std::string_view input_field, input;
  std::string_view output_field, output;
};

// The row's lengths: integers in 1..kMaxTokens, inside the context or truncated to it.
[[nodiscard]] Result<TokenPair> read_tokens(std::string_view thing, std::size_t line, const TokenFields& fields,
                                            const std::optional<ContextLimit>& context);

// Whether the limit makes sense. The error names what was found and what is allowed.
[[nodiscard]] Result<void> validate(const std::optional<ContextLimit>& context);

}  // namespace windlass::workload
