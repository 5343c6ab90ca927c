#pragma once

#include <exception>
#include <memory>

#include <torch/csrc/utils/pybind.h>

#include "dear/train/data_parallel.h"

// The parts of the module dear._C, one source each. Each adds its classes and functions to the module.
namespace dear::python {

// dear.Error and the classes below it, and the translation of C++ exceptions to them. Comes first.
void bind_errors(py::module_& module);
// Throws an error of DeAR as the exception of Python that it becomes; returns for any other. On any thread.
void throw_as_python(const std::exception_ptr& error);
// dear.Group, init() and group_on().
void bind_groups(py::module_& module);
// DataParallel.
using BoundTraining = py::class_<DataParallel, std::shared_ptr<DataParallel>>;
void bind_training(py::module_& module);
// Its samples(), and Join.
void bind_joining(py::module_& module, BoundTraining& training);
// simulate() and plan().
void bind_planning(py::module_& module);

}  // namespace dear::python
