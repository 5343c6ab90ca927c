#include "dear/base/vocabulary/error.h"

#include <system_error>

namespace dear {

std::string with_errno(const std::string& what, int error_number) {
  return what + ": " + std::generic_category().message(error_number);
}

}  // namespace dear
