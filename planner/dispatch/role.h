// Role says which part of a request a worker or chain serves: all of it, its prompt, or its answer.
#pragma once

namespace windlass::dispatch {

enum class Role { kUnified, kPrefill, kDecode };

const char* to_string(Role role);  // "unified", "prefill", "decode"

}  // namespace windlass::dispatch
