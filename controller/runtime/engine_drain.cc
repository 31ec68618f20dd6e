// See engine_drain.h.
#include "controller/runtime/engine_drain.h"

#include <cmath>
#include <filesystem>
#include <regex>

#include <fmt/format.h>

#include "metrics/engine_metrics.h"

namespace windlass::controller {
namespace {

EngineVersion version_in(const std::string& text) {
  static const std::regex kVersion("v?([0-9]{1,4})\\.([0-9]{1,4})(\\.([0-9]{1,4}))?([^0-9].*)?");
  std::smatch parts;
  if (!std::regex_match(text, parts, kVersion)) return {};
  return {std::stoi(parts[1]), std::stoi(parts[2]), parts[4].matched ? std::stoi(parts[4]) : 0};
}

}  // namespace

EngineVersion engine_version_of_image(const std::string& image) {
  const std::string name = image.substr(0, image.find('@'));
  const auto colon = name.rfind(':');
  // the colon belongs to a registry's port
  if (colon == std::string::npos || name.find('/', colon) != std::string::npos) return {};
  return version_in(name.substr(colon + 1));
}

EngineVersion engine_version_of_program(const std::string& engine, const std::string& program) {
  namespace fs = std::filesystem;
  if (engine != "VLLM") return {};
  const std::string prefix = "vllm-";
  const std::string suffix = ".dist-info";
  std::error_code failure;
  const fs::path place = fs::canonical(program, failure).parent_path().parent_path() / "lib";
  for (const auto& python : fs::directory_iterator(place, failure)) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(python.path() / "site-packages", none)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
      return version_in(name.substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
    }
  }
  return {};
}

bool waits_by_itself(const std::string& engine, EngineVersion version) {
  return engine == "VLLM" && version >= EngineVersion{0, 18, 0};
}

const char* engine_load_page(const std::string& engine) { return engine == "TensorRTLLM" ? "/prometheus/metrics" : "/metrics"; }

std::string drain_script(const std::string& engine, int port, double limit_s) {
  // Series of running and waiting requests, by engine; see metrics/engine_metrics.h.
  std::string names = "llamacpp:requests_(processing|deferred)";
  if (engine == "VLLM") names = "vllm:num_requests_(running|waiting)";
  if (engine == "SGLang") names = "sglang:num_(running|queue)_reqs";
  if (engine == "TensorRTLLM") names = "trtllm[:_]num_requests_(running|waiting)";
  return fmt::format(
      "case $POD_IP in *:*) host=[$POD_IP];; *) host=$POD_IP;; esac; page_at=http://$host:{}{}; "
      "quiet=0; left={:.0f}; while [ $quiet -lt 2 ] && [ $left -gt 0 ]; do sleep 1; left=$((left - 1)); "
      "page=$(curl -gfsS -m 2 \"$page_at\" || wget -qO- -T 2 \"$page_at\") || exit 0; "
      "if printf '%s\\n' \"$page\" | awk '/^{}[ {{]/ {{n += $NF}} END {{exit n > 0}}'; "
      "then quiet=$((quiet + 1)); else quiet=0; fi; done",
      port, engine_load_page(engine), std::ceil(limit_s), names);
}

bool is_busy(const std::string& page) {
  const auto read = metrics::parse_exposition(page);
  if (!read.ok()) return false;
  const auto load = metrics::read_engine_metrics(*read);
  return load && load->requests_running.value_or(0) + load->requests_waiting.value_or(0) > 0;
}

}  // namespace windlass::controller
