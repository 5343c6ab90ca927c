#include "dear/base/os/testing/paths.h"

namespace dear::testing {

std::string source_file(std::string_view path) { return DEAR_SOURCE_FOLDER "/" + std::string(path); }

std::string dear_command() { return DEAR_BUILD_FOLDER "/dear"; }

}  // namespace dear::testing
