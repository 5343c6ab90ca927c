// DataParallel for Python: dear._C.Training, on which dear.DataParallel stands.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "dear/base/trace/chrome.h"
#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/streams/stream_collectives.h"
#include "dear/train/tuning/rule_choice.h"
#include "dear/train/tuning/tuning_progress.h"
#include "dear/workload/layers/workload_file.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;
std::vector<Model::Named> named(const Named& tensors) {
  std::vector<Model::Named> result;
  for (const auto& [name, tensor] : tensors) result.push_back({name, tensor});
  return result;
}

// `buffers`: a function that returns them as they are.
Model live_model(const Named& parameters, py::object buffers) {
  Model model{.parameters = named(parameters), .buffers_now = buffers_of(std::move(buffers))};
  model.buffers = model.buffers_now();
  return model;
}

BucketChoice buckets_of(const std::string& fusion, const std::string& cache, const std::string& policy) {
  const FusionChoice rule = FusionChoice::of_training(fusion);
  if (!cache.empty() && rule.kind != FusionChoice::Kind::tuned)
    throw ConfigError("tuning_cache is for fusion=\"auto\", and fusion is \"" + fusion + "\": leave one out");
  return choice_of(rule, cache, policy);
}

BufferSync buffer_sync_of(const std::string& name) {
  if (name == "construction") return BufferSync::at_construction;
  if (name == "average") return BufferSync::averaged;
  return name == "forward" ? BufferSync::at_forward : BufferSync::at_synchronize;
}

GradientCheck check_of(const std::string& text) {
  if (text.empty()) return GradientCheck::none;
  if (text == "error") return GradientCheck::error;
  if (text == "skip") return GradientCheck::skip;
  throw ConfigError("check_gradients=\"" + text + "\": there are \"error\" and \"skip\", and \"\" for none");
}

std::shared_ptr<DataParallel> make(
    const Named& parameters, py::object buffers, std::vector<py::object> sources, const Group& group,
    const std::string& policy, const std::string& fusion, const std::string& tuning_cache,
    const std::string& buffers_become, bool one_copy, bool fp32_masters, bool stochastic_rounding,
    const std::string& update, const std::string& ownership, py::object update_cost,
    const std::string& compression, int profile_steps, bool record_trace, const std::string& check_gradients,
    bool check_parameters, int verify, bool balanced, std::vector<double> weights, std::vector<double> shards,
    bool measured_shards, std::shared_ptr<StreamCollectives> streams) {
  std::unique_ptr<Optimizer> optimizer = make_optimizer(std::move(sources));
  UpdateCost cost = update_cost_of(std::move(update_cost));
  Model model = live_model(parameters, std::move(buffers));
  const py::gil_scoped_release released;
  auto made = std::make_unique<DataParallel>(
      model, std::move(optimizer), group,
      DataParallelOptions{
          .policy = policy,
          .buckets = buckets_of(fusion, tuning_cache, policy),
          .buffers = buffer_sync_of(buffers_become),
          .one_copy = one_copy,
          .fp32_masters = fp32_masters,
          .stochastic_rounding = stochastic_rounding,
          .updates = updates_of(update),
          .ownership = ownership_of(ownership),
          .update_cost = std::move(cost),
          .compression = compression.empty() ? std::nullopt : std::optional(Compression::parse(compression)),
          .check_gradients = check_of(check_gradients),
          .check_parameters = check_parameters,
          .verify_every = verify,
          .profile_steps = profile_steps,
          .shards = std::move(shards),
          .measured_shards = measured_shards ? std::optional(ShardMeasuring()) : std::nullopt,
          .balance = balanced ? std::optional(Balance{.weights = std::move(weights)}) : std::nullopt,
          .record_trace = record_trace,
          // An operator may come here with or without the interpreter's lock.
          .around_wait = without_lock,
          .streams = std::move(streams),
          .translate_error = throw_as_python});
  return share_without_lock(std::move(made));
}

// None where nothing is tuned.
py::object tuning(const DataParallel& parallel) {
  const TuningProgress* progress = parallel.tuning();
  if (progress == nullptr) return py::none();
  py::list trials;
  for (const tune::Trial& trial : progress->trials) {
    py::dict entry;
    entry["iteration"] = trial.at_iteration;
    entry["candidate"] = trial.candidate;
    entry["seconds"] = trial.seconds;
    trials.append(entry);
  }
  py::dict result;
  result["settled"] = progress->converged;
  result["trials"] = trials;
  result["paid_seconds"] = progress->paid_seconds;
  result["cache_error"] = progress->cache_error;
  return result;
}

py::list optimizer_state(DataParallel& parallel) {
  std::vector<DataParallel::StateOfParameter> states;
  {
    const py::gil_scoped_release released;
    states = parallel.optimizer_state();
  }
  py::list result;
  for (const auto& [parameter, state] : states)
    result.append(py::make_tuple(parameter, py::cast(from_state(state))));
  return result;
}

void load_optimizer_state(DataParallel& parallel, const py::list& states) {
  std::vector<DataParallel::StateOfParameter> all;
  for (const py::handle item : states) {
    const auto pair = item.cast<py::tuple>();
    all.push_back({pair[0].cast<at::Tensor>(), to_state(pair[1])});
  }
  const py::gil_scoped_release released;
  parallel.load_optimizer_state(all);
}

py::dict compression_report(DataParallel& parallel) {
  CompressionReport all;
  without_lock([&] { all = parallel.compression_report(); });
  py::dict result;
  result["steps"] = all.steps;
  result["bytes"] = all.bytes;
  result["dense_bytes"] = all.dense_bytes;
  result["residual_norm"] = all.residual_norm;
  result["dense_exchanges"] = all.dense_exchanges;
  result["not_finite"] = all.not_finite;
  result["not_finite_rank"] = all.not_finite_rank;
  return result;
}

// The step; of each parameter: itself, residual, momentum, and what the codec remembers.
using StateOfCompression = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

std::pair<std::int64_t, std::vector<StateOfCompression>> compression_states(DataParallel& parallel) {
  CompressionStates states;
  without_lock([&] { states = parallel.compression_states(); });
  std::vector<StateOfCompression> all;
  for (const auto& [parameter, residual, momentum, codec] : states.parameters)
    all.emplace_back(parameter, residual, momentum, codec);
  return {states.step, std::move(all)};
}

void load_compression_states(DataParallel& parallel, std::int64_t step,
                             const std::vector<StateOfCompression>& states) {
  CompressionStates all{.step = step, .parameters = {}};
  for (const auto& [parameter, residual, momentum, codec] : states)
    all.parameters.push_back({parameter, residual, momentum, codec});
  without_lock([&] { parallel.load_compression_states(all); });
}

}  // namespace

void bind_training(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  BoundTraining training(module, "Training",
                         "The engine behind dear.DataParallel: tensors, an optimiser and a group.");
  training
      .def(py::init(&make), py::arg("parameters"), py::arg("buffers"), py::arg("optimizers"),
           py::arg("group"), py::kw_only(), py::arg("policy"), py::arg("fusion"), py::arg("tuning_cache"),
           py::arg("buffers_become"), py::arg("one_copy"), py::arg("fp32_masters"),
           py::arg("stochastic_rounding"), py::arg("update"), py::arg("ownership"), py::arg("update_cost"),
           py::arg("compression"), py::arg("profile_steps"), py::arg("record_trace"),
           py::arg("check_gradients"), py::arg("check_parameters"), py::arg("verify"), py::arg("balanced"),
           py::arg("weights"), py::arg("shards"), py::arg("measured_shards"), py::arg("streams"))
      .def("step", py::overload_cast<>(&DataParallel::step), Release())
      .def(
          "step_scaled",
          [](DataParallel& parallel, double loss_scale) {
            parallel.step({.loss_scale = loss_scale, .skip_nonfinite = false});
          },
          py::arg("loss_scale"), Release())
      .def(
          "clip_gradients_by_norm",
          [](DataParallel& parallel, double max_norm, double norm_type, bool error_if_nonfinite) {
            return parallel.clip_gradients_by_norm(
                max_norm, {.type = norm_type, .error_if_nonfinite = error_if_nonfinite});
          },
          py::arg("max_norm"), py::arg("norm_type"), py::arg("error_if_nonfinite"), Release())
      .def("clip_gradients_by_value", &DataParallel::clip_gradients_by_value, py::arg("limit"), Release())
      .def("unscale_gradients", &DataParallel::unscale_gradients, py::arg("loss_scale"), Release())
      .def("reduce_gradients", &DataParallel::reduce_gradients, Release())
      .def("discard_step", &DataParallel::discard_step, Release())
      .def("synchronize", &DataParallel::synchronize, Release())
      .def("wait", &DataParallel::wait, Release())
      .def("gradients_arrived", &DataParallel::gradients_arrived)
      .def("ends_alone", [](DataParallel& parallel) { train::Trainer::of(parallel).ends_alone(); })
      .def("has_state", &DataParallel::has_state)
      .def("by_program", &DataParallel::by_program)
      .def("has_stepped", &DataParallel::has_stepped)
      .def("mean_over_ranks", &DataParallel::mean_over_ranks, py::arg("mine"), Release())
      .def("defer", &DataParallel::defer)
      .def("resume", &DataParallel::resume)
      .def(
          "regroup",
          [](DataParallel& parallel, const std::string& fusion) { parallel.regroup(Fusion::parse(fusion)); },
          py::arg("fusion"), Release())
      .def("reshard", &DataParallel::reshard, py::arg("weights"), Release())
      .def(
          "rebuild",
          [](DataParallel& parallel, const Named& parameters, py::object buffers) {
            const Model model = live_model(parameters, std::move(buffers));
            const py::gil_scoped_release released;
            parallel.rebuild(model);
          },
          py::arg("parameters"), py::arg("buffers"))
      .def("optimizer_state", &optimizer_state)
      .def("load_optimizer_state", &load_optimizer_state, py::arg("states"))
      .def("compression_report", &compression_report)
      .def("compression_states", &compression_states)
      .def("load_compression_states", &load_compression_states, py::arg("step"), py::arg("states"))
      .def("tuning", &tuning)
      .def("policy", [](const DataParallel& parallel) { return parallel.schedule().policy(); })
      .def("buckets",
           [](const DataParallel& parallel) {
             std::vector<std::vector<std::string>> names;
             for (const Bucket& bucket : parallel.grouping().buckets()) {
               names.emplace_back();
               for (const TensorId tensor : bucket.tensors)
                 names.back().push_back(parallel.workload().tensors.at(tensor).name);
             }
             return names;
           })
      .def(
          "trace", [](DataParallel& parallel) { return to_chrome_json(parallel.trace()); }, Release())
      .def("profile", [](DataParallel& parallel) { return to_json(parallel.profile()); }, Release());
  bind_streams(module, training);
  bind_checkpoints(module, training);

  bind_joining(module, training);
  bind_watching(module, training);
  bind_kfac(module);

  module.def(
      "training_policies",
      [] {
        std::vector<std::string> names;
        for (const Policy& policy : training_policies()) names.emplace_back(policy.name);
        return names;
      },
      "The names of the policies that can train.");
  module.def(
      "await_whole", [](const at::Tensor& tensor) { autograd::await_whole(tensor); }, py::arg("tensor"),
      "Waits until the tensor may be read past the operators: until its bucket is whole.");
  module.def(
      "norm", [](const at::Tensor& tensor) { return std::sqrt(sum_of_squares(tensor).value()); },
      py::arg("tensor"), py::call_guard<py::gil_scoped_release>(),
      "The 2-norm of a tensor on the CPU, as optimisers that take norms of whole tensors compute it.");
  module.def(
      "keep_forever", [](py::object object) { object.release(); }, py::arg("object"),
      "The object is never destroyed.");
  module.def("stop_observing_after_fork", &autograd::stop_observing_after_fork,
             "In the child of a fork: no operator waits for anything any more.");
}

}  // namespace dear::python
