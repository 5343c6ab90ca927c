#include "dear/papers/training/method.h"

namespace dear::papers::training {

std::string name_of(const Method& method) { return method ? method->text() : "dense"; }

}  // namespace dear::papers::training
