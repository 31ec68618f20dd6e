// Template: the Jinja that chat templates are written in, with the rules of Hugging Face's environment: Jinja 3.1's immutable
// sandbox with trim_blocks, lstrip_blocks and loop controls, tojson without escapes of HTML, raise_exception, strftime_now and
// {% generation %}. Left out, and refused with the line and the name: inheritance, include and import, call blocks, recursive
// loops, %-formatting, unpacked arguments, keys of dicts that are no strings, loop.cycle and loop.changed, and the filters and
// tests that no chat template needs.
//
// A template is a stranger's program: what it may take is bounded (steps, which pieces of text and items count for, depth,
// lengths). Immutable after parse(); any thread.
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

// What a template sees, by name; the first of a name is the one that is found.
using Variables = std::vector<std::pair<std::string, Value>>;

class Template {
 public:
  // Errors (kInvalidArgument) name `name`, the line, what was found and what is allowed.
  [[nodiscard]] static Result<Template> parse(std::string_view source, const std::string& name);

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // `variables` makes them within what the rendering may take: strangers say what they are. unix_s: now, for templates that ask
  // for the date. Errors (kInvalidArgument): the template refuses its input (raise_exception), it does what cannot be done, or
  // either takes more than it may.
  [[nodiscard]] Result<Text> render(const std::function<Variables()>& variables, std::int64_t unix_s) const;

 private:
  struct Impl;
  explicit Template(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace windlass::jinja
