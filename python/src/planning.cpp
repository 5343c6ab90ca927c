#include "python/src/parts.h"

namespace dear::python {

void bind_planning(py::module_& /*module*/) {}

}  // namespace dear::python
