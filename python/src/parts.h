#pragma once

#include <torch/csrc/utils/pybind.h>

// The parts of the module dear._C, one source each. Each adds its classes and functions to the module.
namespace dear::python {

// dear.Error and the classes below it, and the translation of C++ exceptions to them. Comes first.
void bind_errors(py::module_& module);
// dear.Group, init() and group_on().
void bind_groups(py::module_& module);
// DataParallel.
void bind_training(py::module_& module);
// simulate() and plan().
void bind_planning(py::module_& module);

}  // namespace dear::python
