// Bucket hooks and metrics of steps for Python: what dear._watching stands on.

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/utils/pybind.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/watch.h"
#include "python/src/held.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

// The iteration, the bucket, its flat gradients; of each tensor its name, values, and where they begin in it.
py::tuple to_python(const BucketGradients& bucket) {
  py::list tensors;
  for (const auto& [name, values, begin] : bucket.tensors)
    tensors.append(py::make_tuple(name, values, begin));
  return py::make_tuple(bucket.iteration, bucket.bucket, bucket.flat, tensors);
}

// The fields of dear.StepMetrics.
py::dict to_python(const StepMetrics& metrics) {
  py::dict reduced;
  for (const auto& [name, value] : metrics.over_ranks)
    reduced[py::str(name)] = py::make_tuple(value.min, value.mean, value.max);
  using namespace py::literals;
  return py::dict("rank"_a = metrics.rank, "ranks"_a = metrics.ranks, "iteration"_a = metrics.iteration,
                  "steps"_a = metrics.steps, "given_up"_a = metrics.given_up, "seconds"_a = metrics.seconds,
                  "exposed_seconds"_a = metrics.exposed_seconds,
                  "communication_seconds"_a = metrics.communication_seconds, "overlap"_a = metrics.overlap,
                  "bytes"_a = metrics.bytes, "bandwidth"_a = metrics.bandwidth, "buckets"_a = metrics.buckets,
                  "tuning"_a = metrics.tuning, "candidate"_a = metrics.candidate,
                  "loss_scale"_a = metrics.loss_scale, "gradient_norm"_a = metrics.gradient_norm,
                  "nonfinite"_a = metrics.nonfinite, "resident_bytes"_a = metrics.resident_bytes,
                  "over_ranks"_a = reduced);
}

// A function of Python that is called, on any thread, with what is told it. What it raises becomes a
// PythonError.
template <typename Told>
auto calling(py::object function) {
  return [held = Held(std::move(function))](Told& told) {
    held.under_lock([&](const py::object& callback) { or_python_error([&] { callback(to_python(told)); }); });
  };
}

py::dict statistics(const DataParallel& parallel) {
  const DataParallelStatistics all = parallel.statistics();
  py::dict result;
  result["iterations"] = all.iterations;
  result["exposed_seconds"] = all.exposed_seconds;
  result["waits"] = all.waits;
  result["parameter_bytes"] = all.parameter_bytes;
  result["buckets"] = all.buckets;
  result["padding_bytes"] = all.padding_bytes;
  result["communication_seconds"] = all.communication_seconds;
  result["bytes"] = all.bytes;
  result["sparse_as_rows"] = all.sparse_as_rows;
  result["sparse_made_dense"] = all.sparse_made_dense;
  return result;
}

HookAt moment_of(const std::string& when) {
  if (when == "before") return HookAt::before_reduction;
  if (when == "after") return HookAt::after_reduction;
  throw ConfigError(
      fmt::format("a bucket hook runs \"before\" the reduction or \"after\" it, not \"{}\"", when));
}

StepReports reports_of(std::int64_t every, const std::string& ranks) {
  if (ranks == "each") return {.every = every, .report = Report::each_rank};
  if (ranks == "first") return {.every = every, .report = Report::rank_0};
  if (ranks == "reduced") return {.every = every, .report = Report::reduced};
  throw ConfigError(fmt::format("ranks=\"{}\": there are \"each\", \"first\" and \"reduced\"", ranks));
}

}  // namespace

void bind_watching(py::module_& module, BoundTraining& training) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<RemovableHandle>(module, "RemovableHandle", "Removes what was registered.")
      .def("remove", &RemovableHandle::remove, Release(),
           "When it returns, the callback is not called again. A second call does nothing.");
  training.def("statistics", &statistics)
      .def(
          "register_bucket_hook",
          [](DataParallel& parallel, py::object hook, const std::string& when) {
            const HookAt at = moment_of(when);
            auto call = calling<BucketGradients>(std::move(hook));
            const py::gil_scoped_release released;  // a hook that runs meanwhile wants it
            return parallel.watch().register_bucket_hook(std::move(call), at);
          },
          py::arg("hook"), py::arg("when"))
      .def(
          "on_step",
          [](DataParallel& parallel, py::object callback, std::int64_t every, const std::string& ranks) {
            const StepReports reports = reports_of(every, ranks);
            auto call = calling<const StepMetrics>(std::move(callback));
            const py::gil_scoped_release released;
            return parallel.watch().on_step(std::move(call), reports);
          },
          py::arg("callback"), py::arg("every"), py::arg("ranks"))
      .def(
          "write_metrics",
          [](DataParallel& parallel, const std::string& path, std::int64_t every, const std::string& ranks) {
            return parallel.watch().write_metrics(path, reports_of(every, ranks));
          },
          py::arg("path"), py::arg("every"), py::arg("ranks"), Release())
      .def("memory", [](DataParallel& parallel) {
        MemoryReport report;
        {
          const py::gil_scoped_release released;
          report = parallel.watch().memory();
        }
        py::dict result;
        for (const auto& [name, bytes] : report.items()) result[py::str(name)] = bytes;
        return result;
      });
}

}  // namespace dear::python
