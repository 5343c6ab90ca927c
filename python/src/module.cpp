#include <torch/csrc/utils/pybind.h>

#include "python/src/parts.h"

PYBIND11_MODULE(_C, module) {
  module.doc() = "The C++ side of the package dear.";
  module.attr("__version__") = DEAR_VERSION;
  dear::python::bind_errors(module);
  dear::python::bind_groups(module);
  dear::python::bind_distributed(module);
  dear::python::bind_training(module);
  dear::python::bind_batch_norm(module);
  dear::python::bind_moe(module);
  dear::python::bind_pipeline(module);
  dear::python::bind_rounds(module);
  dear::python::bind_planning(module);
}
