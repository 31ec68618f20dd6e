// Implements paths.h.
#include "tests/paths.h"

namespace windlass {

std::string source_path(std::string_view below) { return WINDLASS_SOURCE_DIR + std::string(below); }

std::string build_path(std::string_view below) { return WINDLASS_BINARY_DIR + std::string(below); }

}  // namespace windlass
