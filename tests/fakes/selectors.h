// Label and field selectors with the API server's syntax. Pure functions.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace windlass::fakes {

// "a=b,c!=d,e in (f,g),h notin (i),j,!k"; empty selects everything.
[[nodiscard]] bool labels_match(const nlohmann::json& object, const std::string& selector);

// "metadata.name=x,status.phase!=Running": any path of the object; an absent field counts as "".
[[nodiscard]] bool fields_match(const nlohmann::json& object, const std::string& selector);

}  // namespace windlass::fakes
