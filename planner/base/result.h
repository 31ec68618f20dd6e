// Result<T> holds either a value or an Error.
//
// Errors are values in Windlass. A function that may fail returns Result<T>; exceptions from libraries are caught at the call
// and turned into an Error; our own bugs are assertions. Plain data, owned by the caller, usable on any thread.
//
//   Result<Config> parse(std::string_view text);
//
//   WINDLASS_ASSIGN_OR_RETURN(Config config, parse(text));   // returns the error to our own caller
#pragma once

#include <cassert>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace windlass {

enum class ErrorCode {
  kInvalidArgument,  // the user or peer gave something wrong; the same call will fail again
  kNotFound,
  kAlreadyExists,
  kConflict,            // someone else changed it first: read again, then retry
  kGone,                // the requested version is no longer kept: list again
  kPermissionDenied,    // the peer refuses us: 401, 403
  kResourceExhausted,   // a quota, a budget or a queue is full
  kFailedPrecondition,  // the system is not in the state this needs; also: we no longer lead
  kUnavailable,         // a peer did not answer; worth a retry
  kDeadlineExceeded,
  kCancelled,
  kInternal,  // a peer or library broke its contract
};

// "InvalidArgument", "NotFound", ...
const char* to_string(ErrorCode code);

// The message is for people: it names the thing, the field, what was found and what is allowed. It contains no secrets.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  // Adds the caller's context in front: "reading model.yaml: line 3: ...".
  [[nodiscard]] Error within(const std::string& context) const { return Error{code, context + ": " + message}; }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // REQUIRES: ok().
  const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T& value() & {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  T value_or(T fallback) const& { return ok() ? value() : std::move(fallback); }

  // REQUIRES: !ok().
  const Error& error() const {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : failed_(true), error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }

  // REQUIRES: !ok().
  const Error& error() const {
    assert(failed_);
    return error_;
  }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace windlass

#define WINDLASS_CONCAT_INNER(a, b) a##b
#define WINDLASS_CONCAT(a, b) WINDLASS_CONCAT_INNER(a, b)

// WINDLASS_ASSIGN_OR_RETURN(declaration, expression): binds the value, or returns the error from the enclosing function.
#define WINDLASS_ASSIGN_OR_RETURN(declaration, ...) \
  WINDLASS_ASSIGN_OR_RETURN_INNER(WINDLASS_CONCAT(windlass_result_, __LINE__), declaration, __VA_ARGS__)
#define WINDLASS_ASSIGN_OR_RETURN_INNER(result, declaration, ...) \
  auto result = (__VA_ARGS__);                                    \
  if (!result.ok()) return result.error();                        \
  declaration = std::move(result).value()

#define WINDLASS_RETURN_IF_ERROR(...)                                  \
  do {                                                                 \
    if (auto windlass_status = (__VA_ARGS__); !windlass_status.ok()) { \
      return windlass_status.error();                                  \
    }                                                                  \
  } while (false)
