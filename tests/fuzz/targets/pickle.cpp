#include "dear/base/archive/pickle.h"

#include "tests/fuzz/target.h"

namespace dear::fuzz {

void pickle(std::string_view bytes) { static_cast<void>(archive::unpickle(bytes, kSource)); }

}  // namespace dear::fuzz
