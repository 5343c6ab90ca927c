#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/optim/optimizer.h"
#include "python/src/held.h"

// The parts of the module dear._C, one source each. Each adds its classes and functions to the module.
namespace dear::python {

// dear.Error and the classes below it, and the translation of C++ exceptions to them. Comes first.
void bind_errors(py::module_& module);
// Throws an error of DeAR as the exception of Python that it becomes; returns for any other. On any thread.
void throw_as_python(const std::exception_ptr& error);
// What a function of Python raised. Other than pybind11's own, it may be thrown again and again, on any
// thread: Python gets the same exception each time.
class PythonError : public std::runtime_error {
 public:
  explicit PythonError(const py::error_already_set& raised);  // under the interpreter's lock
  [[nodiscard]] const py::object& raised() const { return raised_.object(); }
  // Whether it ends the program, as Ctrl-C does, and Python has got it already: it gets a sentence then.
  [[nodiscard]] bool is_spent() const;

 private:
  Held raised_;
  std::shared_ptr<std::atomic<bool>> given_ = std::make_shared<std::atomic<bool>>(false);
};
// Calls `act` under the interpreter's lock; what it raises in Python becomes a PythonError.
template <typename Act>
void or_python_error(const Act& act) {
  try {
    act();
  } catch (const py::error_already_set& error) {
    throw PythonError(error);
  }
}
// dear.Group, init() and group_on().
void bind_groups(py::module_& module);
// DataParallel.
using BoundTraining = py::class_<DataParallel, std::shared_ptr<DataParallel>>;
void bind_training(py::module_& module);
// Its samples(), and Join.
void bind_joining(py::module_& module, BoundTraining& training);
// Its side of devices with streams. Before what makes one is called.
void bind_streams(py::module_& module, BoundTraining& training);
// Binds what DataParallel has of hooks and metrics.
void bind_watching(py::module_& module, BoundTraining& training);

// PythonState is what an optimiser remembers of a tensor, as Python has it.
using PythonState = std::optional<std::pair<std::map<std::string, at::Tensor>, py::bytes>>;
std::optional<OptimizerState> to_state(const py::object& object);
PythonState from_state(const std::optional<OptimizerState>& state);
// One optimiser of objects of dear._optimizer.Source. Under the interpreter's lock, as what follows.
std::unique_ptr<Optimizer> make_optimizer(std::vector<py::object> sources);
Updates updates_of(const std::string& name);
Ownership ownership_of(const std::string& name);  // ConfigError for a name that is none
using UpdateCost = std::function<double(const std::string& name, const torch::Tensor& parameter)>;
UpdateCost update_cost_of(py::object function);  // none for None
// A function of Python without arguments, to be called on any thread; none for None.
std::function<bool()> predicate_of(py::object function);
// Calls it where buffers are wanted, on the thread that wants them.
std::function<std::vector<Model::Named>()> buffers_of(py::object function);
// Calls `act` without the interpreter's lock, whether this thread has it or not.
void without_lock(const std::function<void()>& act);
// Shares an object that ends where nobody holds the interpreter's lock: its end waits for other threads, or
// for what is on the wire.
template <typename Object>
std::shared_ptr<Object> share_without_lock(std::unique_ptr<Object> object) {
  return {object.release(), [](Object* ended) { without_lock([ended] { delete ended; }); }};
}

// Batch normalisation over ranks.
void bind_batch_norm(py::module_& module);
// Its checkpoints.
void bind_checkpoints(py::module_& module, BoundTraining& training);
// K-FAC.
void bind_kfac(py::module_& module);
// Mixtures of experts.
void bind_moe(py::module_& module);
// Training by rounds.
void bind_rounds(py::module_& module);
// One model over machines that are far apart.
void bind_pipeline(py::module_& module);
// The backend of torch.distributed. After bind_groups().
void bind_distributed(py::module_& module);
// simulate() and plan().
void bind_planning(py::module_& module);

}  // namespace dear::python
