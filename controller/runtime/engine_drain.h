// How engines of other projects end without cutting streams. Only vLLM of 0.18 and later can wait for its requests by itself
// (--shutdown-timeout); the others are asked for their load, and told to end once they have none.
#pragma once

#include <string>

namespace windlass::controller {

struct EngineVersion {
  int major = 0;
  int minor = 0;  // 0.0: not known
};

// Of an image, by its tag ("vllm/vllm-openai:v0.18.1"). Tags without a number, and digests alone, say nothing.
[[nodiscard]] EngineVersion engine_version_of_image(const std::string& image);

// Of a program in a Python environment, by the metadata that was installed with it; other programs say nothing.
[[nodiscard]] EngineVersion engine_version_of_program(const std::string& engine, const std::string& program);

// Whether it knows --shutdown-timeout.
[[nodiscard]] bool waits_by_itself(const std::string& engine, EngineVersion version);

// The path of the page that shows its load.
[[nodiscard]] const char* engine_load_page(const std::string& engine);

// For a pod's preStop hook: a shell's words that end once the engine at $POD_IP, of either family, has shown no request twice,
// or does not answer. What the image lacks (a shell, curl or wget, awk) makes it end at once. The pod's grace period bounds it.
[[nodiscard]] std::string drain_script(const std::string& engine, int port);

// Whether a request runs or waits, by such a page. A page that says nothing of it: no.
[[nodiscard]] bool is_busy(const std::string& page);

}  // namespace windlass::controller
