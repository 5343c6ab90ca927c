// Uneven inputs for Python: dear._C.Join, on which dear.join() stands.

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "dear/predict/balance/shard_weights.h"
#include "dear/train/data_parallel/join.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

using Models = std::vector<std::shared_ptr<DataParallel>>;

// Keeps the models for its own time.
class JoinOfModels {
 public:
  JoinOfModels(Models models, bool ranks_with_data, bool error)
      : models_(std::move(models)),
        join_(pointers(models_), {.divisor = ranks_with_data ? Divisor::ranks_with_data : Divisor::all_ranks,
                                  .uneven = error ? Uneven::error : Uneven::go_on}) {}
  void begin_step(std::size_t model) { join_.begin_step(model); }
  void end() { join_.end(); }
  [[nodiscard]] std::int64_t shadowed() const { return join_.shadowed(); }
  void abandon(const std::string& reason) { join_.abandon(reason); }

 private:
  static std::vector<DataParallel*> pointers(const Models& models) {
    std::vector<DataParallel*> all;
    for (const auto& model : models) all.push_back(model.get());
    return all;
  }
  Models models_;
  Join join_;
};

// Weights, and the seconds of a byte with them and with equal shards.
py::tuple plan_shards_for(const std::vector<double>& send, const std::vector<double>& receive,
                          const std::vector<double>& update, bool all_reduced) {
  std::vector<RankSpeed> ranks;
  for (std::size_t i = 0; i < send.size(); ++i)
    ranks.push_back({.send = send[i], .receive = receive.at(i), .update = update.at(i)});
  const ShardPlan plan = plan_shards(ranks, all_reduced ? ShardUse::all_reduced : ShardUse::scattered);
  return py::make_tuple(plan.weights, plan.seconds, plan.equal_seconds);
}

}  // namespace

void bind_joining(py::module_& module, BoundTraining& training) {
  using Release = py::call_guard<py::gil_scoped_release>;
  training.def("samples", &DataParallel::samples, py::arg("count"), Release())
      .def("batch_fractions", [](const DataParallel& dp) { return dp.batch_shares().fractions(); })
      .def("batch_changes", [](const DataParallel& dp) { return dp.batch_shares().changes(); })
      .def("batch_steps", [](const DataParallel& dp) { return dp.batch_shares().steps(); })
      .def(
          "batch_counts",
          [](const DataParallel& dp, std::int64_t samples, std::int64_t step) {
            return dp.batch_shares().counts(samples, step);
          },
          py::arg("samples"), py::arg("step"))
      .def("broadcast_buffers", &DataParallel::broadcast_buffers, Release());
  module.def("plan_shards", &plan_shards_for, py::arg("send"), py::arg("receive"), py::arg("update"),
             py::arg("all_reduced"));
  py::class_<JoinOfModels>(module, "Join", "The engine behind dear.join().")
      .def(py::init<Models, bool, bool>(), py::arg("models"), py::kw_only(), py::arg("ranks_with_data"),
           py::arg("error"), Release())
      .def("begin_step", &JoinOfModels::begin_step, py::arg("model"), Release())
      .def("end", &JoinOfModels::end, Release())
      .def("shadowed", &JoinOfModels::shadowed)
      .def("abandon", &JoinOfModels::abandon, py::arg("reason"), Release());
}

}  // namespace dear::python
