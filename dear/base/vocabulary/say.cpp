#include "dear/base/vocabulary/say.h"

#include <iostream>

namespace dear {

void tell(const Say& say, const std::string& sentence) {
  say ? say(sentence) : static_cast<void>(std::cerr << "dear: " + sentence + "\n");
}

}  // namespace dear
