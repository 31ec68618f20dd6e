// Target: the endpoint that a request's path names, and its allowed methods. http_server.cc maps targets to handlers.
#pragma once

#include <string_view>

namespace windlass::worker {

inline constexpr std::string_view kModelPath = "/v1/models/";

enum class Target { kUnknown, kGenerate, kTokenize, kChain, kRole, kBlocks, kKv, kModels, kModel, kMetrics, kHealth, kReady };

[[nodiscard]] Target target_of(std::string_view path);
// As the Allow header lists them. REQUIRES: a known target.
[[nodiscard]] std::string_view methods_of(Target target);
[[nodiscard]] bool allows(Target target, std::string_view method);

}  // namespace windlass::worker
