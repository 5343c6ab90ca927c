// What checkpoints of dear.DataParallel are made of: methods of dear._C.Training, and files of records.

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/archive/shard_set.h"
#include "dear/base/archive/step_folder.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/comm/agreement/host_folders.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/group/single.h"
#include "dear/train/checkpoint/loading.h"
#include "dear/train/checkpoint/own_state.h"
#include "dear/train/checkpoint/patience.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/checkpoint/shards.h"
#include "dear/train/checkpoint/stop_on_signal.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/training_state.h"
#include "python/src/held.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

using checkpoint::Shards;
using checkpoint::TensorSink;
using train::EngineState;
using train::TrainingState;

using archive::TensorRecord;
using archive::Value;

py::object to_python(const Value& value) {
  if (const auto* record = value.get<TensorRecord>()) return py::cast(*record);
  if (const auto* number = value.get<std::int64_t>()) return py::int_(*number);
  if (const auto* list = value.get<Value::List>()) {
    py::list all;
    for (const Value& item : *list) all.append(to_python(item));
    return all;
  }
  if (const auto* dict = value.get<Value::Dict>()) {
    py::dict all;
    for (const auto& [key, item] : *dict) all[py::cast(*key.get<std::string>())] = to_python(item);
    return all;
  }
  return py::none();
}

// None, or the names of the vectors and the scalars, by parameter.
using Outlines = std::vector<std::optional<std::pair<std::vector<std::string>, py::bytes>>>;

Outlines from_outlines(const EngineState::Outlines& outlines) {
  Outlines all;
  for (const auto& outline : outlines) {
    all.emplace_back();
    if (outline)
      all.back().emplace(std::vector<std::string>(outline->vectors.begin(), outline->vectors.end()),
                         py::bytes(outline->scalars));
  }
  return all;
}

EngineState::Outlines to_outlines(const Outlines& outlines) {
  EngineState::Outlines all;
  for (const auto& outline : outlines) {
    all.emplace_back();
    if (outline)
      all.back() = {.vectors = {outline->first.begin(), outline->first.end()}, .scalars = outline->second};
  }
  return all;
}

// The step; of each parameter: itself, residual, momentum, and what the codec remembers.
using SavedCompression =
    std::pair<std::int64_t, std::vector<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>>>;

std::optional<CompressionStates> to_states(const std::optional<SavedCompression>& from) {
  if (!from) return std::nullopt;
  CompressionStates states{.step = from->first, .parameters = {}};
  for (const auto& [parameter, residual, momentum, codec] : from->second)
    states.parameters.push_back({parameter, residual, momentum, codec});
  return states;
}

RandomState random_of(bool random) { return random ? RandomState::of_each_rank : RandomState::none; }

EngineState::Holder holder_of(bool rank_0) {
  return rank_0 ? EngineState::Holder::rank_0 : EngineState::Holder::every_rank;
}

CheckpointOptions options_of(bool random, const Held& say) {
  return {.random = random_of(random), .say = [say](const std::string& sentence) { say.call(sentence); }};
}

// `describe(add, outlines, vectors, ranks)` returns the pickle of a file with all of the checkpoint.
checkpoint::Describe described_by(py::function describe) {
  return [held = Held(std::move(describe))](TensorSink& sink, const EngineState::Outlines& outlines,
                                            const checkpoint::StoredState& vectors, const Value& of_ranks) {
    return held.under_lock([&](const py::object& describe) {
      const py::cpp_function add([&sink](const at::Tensor& tensor) { return sink.add(tensor); });
      return describe(add, from_outlines(outlines), vectors, to_python(of_ranks)).cast<std::string>();
    });
  };
}

// `describe` is called on rank 0. Returns what is to be written later, on rank 0; none where it was written
// now.
std::shared_ptr<checkpoint::CopySink> save(DataParallel& parallel, const std::string& path, bool later,
                                           bool random, py::function describe) {
  std::shared_ptr<checkpoint::CopySink> copies;
  const checkpoint::Describe described = described_by(std::move(describe));
  const py::gil_scoped_release released;
  TrainingState state(parallel);
  const auto make_sink = [&]() -> std::shared_ptr<TensorSink> {
    if (!later) return std::make_shared<checkpoint::FileSink>(path);
    return copies = std::make_shared<checkpoint::CopySink>();
  };
  checkpoint::save_whole(state, random_of(random), make_sink, described);
  return copies;
}

void set_model(DataParallel& parallel, const std::map<std::string, at::Tensor>& values, bool rank_0) {
  const py::gil_scoped_release released;
  TrainingState(parallel).set_model(
      [&](const std::string& name) {
        const auto found = values.find(name);
        return found == values.end() ? at::Tensor() : found->second;
      },
      holder_of(rank_0));
}

// `fetch(parameter, vector)` returns a tensor, where this rank holds the state. `path` is the file, for what
// each rank has for itself.
void set_optimizer(DataParallel& parallel, const Outlines& outlines, py::function fetch, bool rank_0,
                   const std::string& path, bool random, py::function say,
                   const std::optional<SavedCompression>& compression) {
  EngineState::Outlines all = to_outlines(outlines);
  const CheckpointOptions options = options_of(random, Held(std::move(say)));
  EngineState::Values values{
      .fetch = [fetch = Held(std::move(fetch))](
                   std::size_t parameter,
                   const std::string& vector) { return fetch.call<at::Tensor>(parameter, vector); },
      .holder = holder_of(rank_0)};
  const py::gil_scoped_release released;
  TrainingState state(parallel);
  std::optional<archive::ZipReader> reader;
  Value file;
  if (rank_0)
    checkpoint::on_rank_0(state.group(), [&] {
      reader.emplace(path);
      file = archive::unpickle(reader->read_text("data.pkl"), path);
    });
  // Before the rest: gcc 12 destroys the members of an aggregate twice where the initialiser of a later one
  // throws.
  std::optional<CompressionStates> states =
      rank_0 ? checkpoint::restore_own(file.find("ranks"), reader ? &*reader : nullptr, path, state, options)
             : to_states(compression);
  state.set_optimizer(
      {.outlines = std::move(all), .values = std::move(values), .compression = std::move(states)});
}

// What this rank is to write, and the name of its file. `describe` is called on every rank.
std::pair<std::shared_ptr<checkpoint::CopySink>, std::string> copy_shard(DataParallel& parallel, bool random,
                                                                         py::function describe) {
  const checkpoint::Describe described = described_by(std::move(describe));
  const py::gil_scoped_release released;
  TrainingState state(parallel);
  checkpoint::Shard shard = checkpoint::copy_shard(state, random_of(random), described);
  return {std::move(shard.copies), shard.file};
}

void set_model_of_shards(DataParallel& parallel, const std::shared_ptr<Shards>& shards,
                         const std::map<std::string, TensorRecord>& records) {
  const py::gil_scoped_release released;
  TrainingState(parallel).set_model(
      [&](const std::string& name) {
        const auto found = records.find(name);
        return found == records.end() ? at::Tensor() : shards->tensor(found->second);
      },
      EngineState::Holder::spread);
  for (const auto& one : records) shards->forget(one.second);
}

// `records` by parameter and name of the vector.
void set_optimizer_of_shards(DataParallel& parallel, const std::shared_ptr<Shards>& shards,
                             const Outlines& outlines, checkpoint::StoredState records, bool random,
                             py::function say) {
  EngineState::Outlines all = to_outlines(outlines);
  const CheckpointOptions options = options_of(random, Held(std::move(say)));
  const py::gil_scoped_release released;
  TrainingState state(parallel);
  auto compression = shards->restore_this_rank(state, options);
  state.set_optimizer({.outlines = std::move(all),
                       .values = checkpoint::values_of(
                           shards, state,
                           [records = std::move(records)](std::size_t parameter, const std::string& name) {
                             return records.at(parameter).at(name);
                           }),
                       .compression = std::move(compression)});
}

}  // namespace

void bind_checkpoints(py::module_& module, BoundTraining& training) {
  using Release = py::call_guard<py::gil_scoped_release>;
  training
      .def("trained",
           [](DataParallel& parallel) {
             std::vector<std::pair<std::string, at::Tensor>> all;
             for (const auto& parameter : TrainingState::trained(parallel))
               all.emplace_back(parameter.name, parameter.tensor);
             return all;
           })
      .def("save", &save, py::arg("path"), py::arg("later"), py::arg("random"), py::arg("describe"))
      .def("set_model", &set_model, py::arg("values"), py::arg("rank_0"))
      .def("set_optimizer", &set_optimizer, py::arg("outlines"), py::arg("fetch"), py::arg("rank_0"),
           py::arg("path"), py::arg("random"), py::arg("say"), py::arg("compression") = py::none())
      .def("copy_shard", &copy_shard, py::arg("random"), py::arg("describe"))
      .def("set_model_of_shards", &set_model_of_shards, py::arg("shards"), py::arg("records"))
      .def("set_optimizer_of_shards", &set_optimizer_of_shards, py::arg("shards"), py::arg("outlines"),
           py::arg("records"), py::arg("random"), py::arg("say"))
      .def("settle", &TrainingState::settle, Release());

  py::class_<TensorRecord>(module, "StoredTensor", "A tensor that is a record of a file.")
      .def(py::init([](const std::string& key, const at::Tensor& like) {
             return checkpoint::describe(like, key);
           }),
           py::arg("key"), py::arg("like"))
      .def_readonly("key", &TensorRecord::key)
      .def_readonly("storage", &TensorRecord::storage)
      .def_readonly("elements", &TensorRecord::storage_elements)
      .def_readonly("sizes", &TensorRecord::sizes)
      .def_readonly("strides", &TensorRecord::strides);

  py::class_<checkpoint::CopySink, std::shared_ptr<checkpoint::CopySink>>(
      module, "UnwrittenCheckpoint", "A checkpoint in memory, that is to be written.")
      .def("write", &checkpoint::CopySink::write_file, py::arg("path"), Release());

  py::class_<Shards, std::shared_ptr<Shards>>(
      module, "Shards", "The newest whole set of shards of a folder, of which this rank has read some.")
      .def(py::init([](const std::optional<Group>& group, const std::string& folder) {
             return Shards::open(group ? *group : Group(comm::make_single(), Group::Options{}), folder);
           }),
           py::arg("group"), py::arg("folder"), Release())
      .def("manifest", [](const Shards& shards) { return py::bytes(shards.manifest()); })
      .def("is_small", &Shards::is_small, py::arg("record"))
      .def(
          "whole",
          [](const Shards& shards, const TensorRecord& record) { return shards.whole(record).clone(); },
          py::arg("record"), Release());
  using agreement::HostFolders;
  using checkpoint::on_every_rank_at_once;
  py::class_<HostFolders>(module, "HostFolders", "Folders of hosts, whose files ranks copy to other hosts.")
      .def(py::init<const Group&, std::string>(), py::arg("group"), py::arg("folder"), Release())
      .def_property_readonly("several", &HostFolders::several)
      .def_property_readonly("leads", &HostFolders::leads)
      .def(
          "mirror",
          [](HostFolders& folders, const std::string& file) {
            on_every_rank_at_once(folders.group(), [&](const auto& run) { folders.mirror(file, run); });
          },
          py::arg("file"), Release())
      .def(
          "gather",
          [](HostFolders& folders) {
            on_every_rank_at_once(folders.group(), [&](const auto& run) { folders.gather(run); });
          },
          Release());
  module.def("remove_other_shards", &archive::remove_other_shards, py::arg("folder"), py::arg("file"),
             Release());
  module.def(
      "write_checkpoint",
      [](const std::string& path, py::function describe) {
        checkpoint::FileSink sink(path);
        sink.finish(described_by(std::move(describe))(sink, {}, {}, {}));
      },
      py::arg("path"), py::arg("describe"),
      "A file of what `describe` returns, as Training.save() writes it.");

  module.def(
      "verify_checkpoint", [](const std::string& path) { archive::ZipReader(path).verify(); },
      py::arg("path"), Release(), "ConfigError where a file of records is damaged, or no such file.");
  module.def(
      "patiently",
      [](const Group& group, const py::function& act) {
        py::object result;
        {
          const py::gil_scoped_release released;
          checkpoint::patiently(group, [&] {
            const py::gil_scoped_acquire lock;
            or_python_error([&] { result = act(); });
          });
        }
        return result;
      },
      py::arg("group"), py::arg("act"),
      "What `act` returns, which may take longer than the timeout of the group on any rank. All ranks call "
      "it.");
  module.def(
      "gather_bytes",
      [](const Group& group, const py::bytes& mine) {
        const std::string text = mine;
        std::vector<std::string> all;
        {
          const py::gil_scoped_release released;
          all = all_gather_text(group, text);
        }
        py::list result;
        for (const std::string& one : all) result.append(py::bytes(one));
        return result;
      },
      py::arg("group"), py::arg("mine"), "Every rank's bytes, by rank. All ranks call it.");

  py::class_<StopOnSignal, std::shared_ptr<StopOnSignal>>(
      module, "StopOnSignal", "Whether a signal has come to a rank, agreed by all.")
      .def(py::init([](const Group& group, int signal, double interval, std::string file) {
             auto made = std::make_unique<StopOnSignal>(
                 group, StopOnSignal::Options{.signal = signal,
                                              .interval = std::chrono::duration<double>(interval),
                                              .file = std::move(file)});
             return share_without_lock(std::move(made));
           }),
           py::arg("group"), py::arg("signal"), py::arg("interval"), py::arg("file"), Release())
      .def("comes", &StopOnSignal::comes, Release())
      .def("requested", &StopOnSignal::requested, Release())
      .def("request", &StopOnSignal::request);

  py::class_<archive::StepFolder>(module, "StepFolder", "A folder of checkpoints, by their steps.")
      .def(py::init<std::string>(), py::arg("path"))
      .def(
          "path_of",
          [](const archive::StepFolder& folder, std::int64_t step, bool sharded) {
            return folder.of(step, sharded).path;
          },
          py::arg("step"), py::arg("sharded"))
      .def("saved",
           [](const archive::StepFolder& folder) {
             std::vector<std::tuple<std::int64_t, std::string, bool, bool>> all;
             for (const auto& one : folder.saved())
               all.emplace_back(one.step, one.path, one.sharded, one.cut_short);
             return all;
           })
      .def("refuse_all", &archive::StepFolder::refuse_all, py::arg("why"))
      .def("open_for_writing", &archive::StepFolder::open_for_writing)
      .def("keep_newest", &archive::StepFolder::keep_newest, py::arg("keep"), py::arg("step") = py::none());
}

}  // namespace dear::python
