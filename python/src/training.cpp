#include "python/src/parts.h"

namespace dear::python {

void bind_training(py::module_& /*module*/) {}

}  // namespace dear::python
