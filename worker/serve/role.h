// Role: which part of a request a worker handles. Can change while the worker runs; requests in progress continue.
#pragma once

#include <optional>
#include <string_view>

namespace windlass::worker {

enum class Role {
  kUnified,  // whole requests, and either part
  kPrefill,  // only prompts for other workers
  kDecode,   // answers to prompts computed by other workers, and whole requests
};

constexpr const char* to_string(Role role) {
  switch (role) {
    case Role::kUnified: return "unified";
    case Role::kPrefill: return "prefill";
    case Role::kDecode: return "decode";
  }
  return "unified";
}

inline std::optional<Role> role_from(std::string_view text) {
  for (const Role role : {Role::kUnified, Role::kPrefill, Role::kDecode}) {
    if (text == to_string(role)) return role;
  }
  return std::nullopt;
}

}  // namespace windlass::worker
