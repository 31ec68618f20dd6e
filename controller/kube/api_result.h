// ApiResult<T> is a Result<T> that also keeps the details of the API server's refusal.
//
// Callers that only need success use it as a Result<T>. Callers that distinguish a quota from a missing permission, or honor
// Retry-After, read failure().
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass::kube {

struct ApiFailure {
  struct Cause {
    std::string field;   // "spec.slo.percentile"
    std::string reason;  // "FieldValueInvalid"
    std::string message;
  };
  int http_status = 0;                  // 0: there was no response
  std::string reason;                   // metav1.StatusReason: "Conflict", "Invalid", "Forbidden", ...; may be empty
  std::optional<double> retry_after_s;  // Retry-After of the server
  std::vector<Cause> causes;
};

template <class T>
class [[nodiscard]] ApiResult : public Result<T> {
 public:
  ApiResult(T value) : Result<T>(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  ApiResult(Error error) : Result<T>(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  ApiResult(Error error, ApiFailure failure) : Result<T>(std::move(error)), failure_(std::move(failure)) {}

  // REQUIRES: !ok(). All fields have their defaults if there was no response.
  [[nodiscard]] const ApiFailure& failure() const { return failure_; }

 private:
  ApiFailure failure_;
};

template <>
class [[nodiscard]] ApiResult<void> : public Result<void> {
 public:
  ApiResult() = default;
  ApiResult(Error error) : Result<void>(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  ApiResult(Error error, ApiFailure failure) : Result<void>(std::move(error)), failure_(std::move(failure)) {}

  [[nodiscard]] const ApiFailure& failure() const { return failure_; }

 private:
  ApiFailure failure_;
};

}  // namespace windlass::kube
