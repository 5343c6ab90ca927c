#pragma once

#include <string>
#include <string_view>

#include "dear/base/archive/value.h"

namespace dear::archive {

// The pickle (protocol 2, as torch.save() writes it) of a value, for torch.load(weights_only=True).
std::string pickle(const Value& value);

// The value of a pickle that pickle() or torch.save() made. Runs nothing: an object of a class that it does
// not know becomes Opaque. ConfigError that names `file` for bytes that are no such pickle, are cut short, or
// nest or repeat so much that they would fill the memory.
Value unpickle(std::string_view bytes, std::string_view file);

}  // namespace dear::archive
