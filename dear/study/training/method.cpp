#include "dear/study/training/method.h"

namespace dear::study::training {

std::string name_of(const Method& method) { return method ? method->text() : "dense"; }

}  // namespace dear::study::training
