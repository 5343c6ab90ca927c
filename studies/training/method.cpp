#include "studies/training/method.h"

namespace dear::studies::training {

std::string name_of(const Method& method) { return method ? method->text() : "dense"; }

}  // namespace dear::studies::training
