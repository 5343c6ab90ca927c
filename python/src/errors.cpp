#include <exception>
#include <string>

#include <torch/csrc/utils/pybind.h>

#include "dear/base/os/interruption.h"
#include "dear/base/vocabulary/error.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

// The classes live as long as the interpreter: the translator outlives the module object.
struct ErrorClasses {
  PyObject* error;
  PyObject* config;
  PyObject* schedule;
  PyObject* mismatch;
  PyObject* transport;
  PyObject* timeout;
};
ErrorClasses classes;

// A class of this name in the package, below `bases`.
PyObject* make_class(py::module_& module, const char* name, const char* doc, const py::tuple& bases) {
  PyObject* made =
      PyErr_NewExceptionWithDoc((std::string("dear.") + name).c_str(), doc, bases.ptr(), nullptr);
  if (made == nullptr) throw py::error_already_set();
  module.attr(name) = py::handle(made);
  return made;
}

// Errors of others are left to the translators of PyTorch and pybind11.
void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const PythonError& error) {
    if (error.is_spent()) {
      PyErr_Format(
          classes.transport,
          "%s ended a wait for other ranks, so this training cannot go on, and its parameters may not be "
          "whole: begin again from a checkpoint",
          Py_TYPE(error.raised().ptr())->tp_name);
    } else {
      PyErr_SetObject(py::type::handle_of(error.raised()).ptr(), error.raised().ptr());
    }
  } catch (const ConfigError& error) {
    PyErr_SetString(classes.config, error.what());
  } catch (const ScheduleError& error) {
    PyErr_SetString(classes.schedule, error.what());
  } catch (const MismatchError& error) {
    PyErr_SetString(classes.mismatch, error.what());
  } catch (const TransportError& error) {
    PyErr_SetString(classes.transport, error.what());
  } catch (const TimeoutError& error) {
    PyErr_SetString(classes.timeout, error.what());
  } catch (const Error& error) {
    PyErr_SetString(classes.error, error.what());
  }
}

// Signal handlers of the program, on its main thread.
void run_signal_handlers() {
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw PythonError(py::error_already_set());
}

std::string text_of(const py::error_already_set& raised) {
  const py::handle type = py::type::handle_of(raised.value());
  return py::str(type.attr("__name__")).cast<std::string>() + ": " +
         py::str(raised.value()).cast<std::string>();
}

}  // namespace

PythonError::PythonError(const py::error_already_set& raised)
    : std::runtime_error(text_of(raised)), raised_(raised.value()) {}

bool PythonError::is_spent() const {
  return PyErr_GivenExceptionMatches(raised().ptr(), PyExc_Exception) == 0 && given_->exchange(true);
}

void throw_as_python(const std::exception_ptr& error) {
  const py::gil_scoped_acquire lock;
  try {
    translate(error);
  } catch (...) {
    return;
  }
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
}

void bind_errors(py::module_& module) {
  const auto below = [](auto... bases) { return py::make_tuple(py::handle(bases)...); };
  classes.error =
      make_class(module, "Error",
                 "Whatever DeAR reports: one sentence that names the rank, where one is known, the "
                 "thing and the remedy.",
                 below(PyExc_RuntimeError));
  classes.config = make_class(module, "ConfigError",
                              "An option, file, environment variable or model that cannot be used as given.",
                              below(classes.error, PyExc_ValueError));
  classes.schedule = make_class(
      module, "ScheduleError", "A schedule that is ill-formed, or a use of a schedule that its rules forbid.",
      below(classes.error));
  classes.mismatch =
      make_class(module, "MismatchError",
                 "Ranks disagree about a model, a schedule, or the collective that they take part in.",
                 below(classes.error));
  classes.transport =
      make_class(module, "TransportError",
                 "A peer died or left, or the operating system refused a resource of the transport.",
                 below(classes.error));
  classes.timeout = make_class(module, "TimeoutError", "A peer did not arrive before the deadline.",
                               below(classes.error, PyExc_TimeoutError));
  py::register_local_exception_translator(&translate);
  os::set_interruption_check(&run_signal_handlers);
  // No thread gets the lock of an interpreter that ends.
  py::module_::import("atexit").attr("register")(
      py::cpp_function([] { os::set_interruption_check(nullptr); }));
}

}  // namespace dear::python
