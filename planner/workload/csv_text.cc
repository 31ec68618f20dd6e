// Reads token counts from CSV rows and names errors by line and field; see csv_text.h.
#include "planner/workload/csv_text.h"

#include <charconv>

#include <fmt/format.h>

#include "planner/base/foreign_text.h"

namespace windlass::workload {
namespace {

Result<int> read_count(std::string_view thing, std::size_t line, std::string_view field, std::string_view text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count >= 1 && count <= kMaxTokens) return count;
  return bad_field(thing, line, field, text, fmt::format("an integer from 1 to {}", kMaxTokens));
}

}  // namespace

Error bad_field(std::string_view thing, std::size_t line, std::string_view field, std::string_view found,
                std::string_view allowed) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: line {}: {}: must be {} (got '{}')", thing, line, field, allowed, shown_text(found))};
}

Result<TokenPair> read_tokens(std::string_view thing, std::size_t line, const TokenFields& fields,
                              const std::optional<ContextLimit>& context) {
  TokenPair pair;
  WINDLASS_ASSIGN_OR_RETURN(pair.input_tokens, read_count(thing, line, fields.input_field, fields.input));
  WINDLASS_ASSIGN_OR_RETURN(pair.output_tokens, read_count(thing, line, fields.output_field, fields.output));
  if (!context) return pair;
  if (context->truncate) return truncated(pair, context->tokens);
  if (pair.input_tokens <= context->tokens) return pair;
  return bad_field(thing, line, fields.input_field, fields.input,
                   fmt::format("a prompt within the context of {} tokens, or truncation to it", context->tokens));
}

Result<void> validate(const std::optional<ContextLimit>& context) {
  if (!context || (context->tokens >= 2 && context->tokens <= kMaxTokens)) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("context: must be from 2 to {} tokens (got {})", kMaxTokens, context->tokens)};
}

}  // namespace windlass::workload
