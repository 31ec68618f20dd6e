// What a worker or a chain does with a request: all of it, its prompt, or its answer.
#pragma once

namespace windlass::dispatch {

enum class Role { kUnified, kPrefill, kDecode };

const char* to_string(Role role);  // "unified", "prefill", "decode"

}  // namespace windlass::dispatch
