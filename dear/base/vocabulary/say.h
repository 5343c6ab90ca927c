#pragma once

#include <functional>
#include <string>

namespace dear {

// Is told one sentence at a time, without an end of line, for whoever runs the program.
using Say = std::function<void(const std::string& sentence)>;

// Tells `say` the sentence; without one it goes to standard error, after "dear: ".
void tell(const Say& say, const std::string& sentence);

}  // namespace dear
