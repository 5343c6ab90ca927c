#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <torch/csrc/utils/pybind.h>

namespace dear::python {

// Held is an object of Python that any thread may copy, call and let go of, with or without the interpreter's
// lock. Copies share one reference. What Python raises leaves a call as py::error_already_set.
class Held {
 public:
  explicit Held(py::object object)  // under the lock
      : object_(new py::object(std::move(object)), [](py::object* last) {
          const py::gil_scoped_acquire lock;
          delete last;
        }) {}

  [[nodiscard]] const py::object& object() const { return *object_; }  // to be used under the lock

  // Returns use(object), called under the lock.
  template <typename Use>
  auto under_lock(const Use& use) const {
    const py::gil_scoped_acquire lock;
    return use(*object_);
  }
  // Calls the object, or a method of it. Result is no type of Python's.
  template <typename Result = void, typename... Arguments>
  Result call(const Arguments&... arguments) const {
    return under_lock([&](const py::object& object) { return cast<Result>(object(arguments...)); });
  }
  template <typename Result = void, typename... Arguments>
  Result call_method(const char* name, const Arguments&... arguments) const {
    return under_lock(
        [&](const py::object& object) { return cast<Result>(object.attr(name)(arguments...)); });
  }

 private:
  template <typename Result>
  static Result cast(const py::object& returned) {
    if constexpr (!std::is_void_v<Result>) return returned.cast<Result>();
  }

  std::shared_ptr<py::object> object_;
};

}  // namespace dear::python
