// Converts an error response of the API server to an Error with the useful details. The response's body is a metav1.Status, or
// any text if a proxy sent it.
#include <charconv>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/kube/json_path.h"
#include "controller/kube/kube_client.h"

namespace windlass::kube {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxForeignText = 300;  // of a body that is not a Status

std::string shortened(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (text.size() > kMaxForeignText) text = text.substr(0, kMaxForeignText) + "...";
  return text;
}

bool has_cause(const ApiFailure& failure, const std::string& reason) {
  for (const auto& cause : failure.causes) {
    if (cause.reason == reason) return true;
  }
  return false;
}

ErrorCode code_of(const ApiFailure& failure, const std::string& message) {
  switch (failure.http_status) {
    case 401: return ErrorCode::kPermissionDenied;
    case 403:
      if (message.find("exceeded quota") != std::string::npos) return ErrorCode::kResourceExhausted;
      if (has_cause(failure, "NamespaceTerminating")) return ErrorCode::kFailedPrecondition;
      return ErrorCode::kPermissionDenied;
    case 404: return ErrorCode::kNotFound;
    case 409: return failure.reason == "AlreadyExists" ? ErrorCode::kAlreadyExists : ErrorCode::kConflict;
    case 410: return ErrorCode::kGone;
    case 429: return ErrorCode::kUnavailable;
    default: break;
  }
  if (failure.http_status >= 500) return ErrorCode::kUnavailable;
  if (failure.http_status >= 400) return ErrorCode::kInvalidArgument;
  return ErrorCode::kInternal;
}

}  // namespace

ApiResult<void> failure_from_status(const std::string& what, const json& status, int http_status) {
  ApiFailure failure;
  failure.http_status = http_status;
  std::string message;
  if (status.is_object()) {
    if (auto code = status.find("code"); code != status.end() && code->is_number_integer())
      failure.http_status = code->get<int>();
    failure.reason = text_at(status, {"reason"});
    message = text_at(status, {"message"});
    if (auto details = status.find("details"); details != status.end() && details->is_object()) {
      if (auto retry = details->find("retryAfterSeconds");
          retry != details->end() && retry->is_number() && retry->get<double>() > 0) {
        failure.retry_after_s = retry->get<double>();
      }
      if (auto causes = details->find("causes"); causes != details->end() && causes->is_array()) {
        for (const auto& cause : *causes) {
          failure.causes.push_back({text_at(cause, {"field"}), text_at(cause, {"reason"}), text_at(cause, {"message"})});
        }
      }
    }
  }
  std::string text = fmt::format("{}: {}", what, failure.http_status);
  if (!failure.reason.empty()) text += " " + failure.reason;
  if (!message.empty()) text += ": " + message;
  for (const auto& cause : failure.causes) {
    // Most messages repeat their causes; append the ones that are missing.
    if (cause.message.empty() || message.find(cause.message) != std::string::npos) continue;
    text += "; " + (cause.field.empty() ? "" : cause.field + ": ") + cause.message;
  }
  ErrorCode code = code_of(failure, message);
  return {Error{code, std::move(text)}, std::move(failure)};
}

ApiResult<void> failure_from_response(const std::string& what, const HttpResponse& response) {
  json status = json::parse(response.body, nullptr, false);
  std::optional<double> header_delay;
  if (auto it = response.headers.find("retry-after"); it != response.headers.end()) {
    int seconds = 0;
    const char* end = it->second.data() + it->second.size();
    if (auto [at, error] = std::from_chars(it->second.data(), end, seconds);
        error == std::errc() && at == end && seconds >= 0) {
      header_delay = seconds;
    }
  }
  if (!status.is_object() || text_at(status, {"kind"}) != "Status") {
    status = json{{"message", shortened(response.body)}};
  }
  status["code"] = response.status;  // the response's status code outranks the one in the body
  ApiResult<void> result = failure_from_status(what, status, response.status);
  if (!header_delay) return result;
  ApiFailure failure = result.failure();
  failure.retry_after_s = header_delay;
  return {result.error(), std::move(failure)};
}

}  // namespace windlass::kube
