// Template: an interpreter for the Jinja of chat templates, with the rules of Hugging Face's environment: Jinja 3.1's immutable
// sandbox with trim_blocks, lstrip_blocks and loop controls, tojson without HTML escapes, raise_exception, strftime_now and {%
// generation %}. Not supported, and rejected with line and name: inheritance, include and import, call blocks, recursive loops,
// %-formatting, unpacked arguments, dict keys that are not strings, loop.cycle and loop.changed, and filters and tests that no
// chat template needs.
//
// A template is untrusted code, so its use of resources is limited: steps (which include pieces of text and items), depth and
// lengths. Immutable after parse(); any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/base/result.h"
#include "worker/jinja/text.h"
#include "worker/jinja/value.h"

namespace windlass::jinja {

// The variables of a template; if a name occurs twice, the first one counts.
using Variables = std::vector<std::pair<std::string, Value>>;

class Template {
 public:
  // Error: kInvalidArgument naming `name`, the line, the rule and the value.
  [[nodiscard]] static Result<Template> parse(std::string_view source, const std::string& name);

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // `variables` creates the variables; its work counts against the rendering's limits, because clients control them. `unix_s`:
  // current time, for templates that need the date. Error: kInvalidArgument if the template rejects its input
  // (raise_exception), fails, or exceeds a limit.
  [[nodiscard]] Result<Text> render(const std::function<Variables()>& variables, std::int64_t unix_s) const;

 private:
  struct Impl;
  explicit Template(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace windlass::jinja
