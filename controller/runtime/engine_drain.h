// Lets engines of other projects finish their streams before they are stopped. Only vLLM 0.18 and later can wait for its
// requests (--shutdown-timeout). For the others, we poll the load and send SIGTERM once no request is left.
#pragma once

#include <compare>
#include <string>

namespace windlass::controller {

struct EngineVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;  // 0.0.0: unknown

  auto operator<=>(const EngineVersion&) const = default;
};

// The version in an image's tag ("vllm/vllm-openai:v0.18.1"); unknown for tags without a number and for bare digests.
[[nodiscard]] EngineVersion engine_version_of_image(const std::string& image);

// The version of a program in a Python environment, from its installed metadata; unknown for other programs.
[[nodiscard]] EngineVersion engine_version_of_program(const std::string& engine, const std::string& program);

// Whether this version has --shutdown-timeout.
[[nodiscard]] bool waits_by_itself(const std::string& engine, EngineVersion version);

// The path of the page that shows the engine's load.
[[nodiscard]] const char* engine_load_page(const std::string& engine);

// A shell script for a pod's preStop hook. It ends once the engine at $POD_IP (IPv4 or IPv6) has shown no requests twice in a
// row, or does not answer, and after about `limit_s` seconds at the latest, so that the engine still has time to exit. It ends
// immediately if the image lacks what it needs (a shell, curl or wget, awk).
[[nodiscard]] std::string drain_script(const std::string& engine, int port, double limit_s);

// Whether the page shows a running or waiting request; false if the page does not say.
[[nodiscard]] bool is_busy(const std::string& page);

}  // namespace windlass::controller
