#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <pybind11/stl.h>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include "dear/base/membership/member.h"
#include "dear/base/os/host_key.h"
#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/in_grid.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/group/endings.h"
#include "dear/comm/group/group.h"
#include "dear/comm/group/single.h"
#include "dear/comm/process_group/c10d.h"
#include "dear/comm/shm/shm.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

// The last handle of a group ends its thread, which may be at a collective.
std::shared_ptr<Group> share(Group group) {
  return share_without_lock(std::make_unique<Group>(std::move(group)));
}

std::shared_ptr<Group> watched(Group group) {
  watch(group);
  return share(std::move(group));
}

// "shm" of "shm, 4 ranks on this host".
std::string backend_of(const Group& group) {
  const std::string description = group.description();
  return description.substr(0, description.find(','));
}

std::optional<GridSettings> grid_of(const std::string& grid, const std::string& algorithm, int chunks,
                                    const std::vector<std::string>& interfaces) {
  if (grid.empty()) {
    if (!interfaces.empty())
      throw ConfigError("interfaces are those of the dimensions of a grid: give grid=, too");
    return std::nullopt;
  }
  GridSettings settings = parse_grid(grid);
  settings.algorithm = algorithm;
  settings.chunks = chunks;
  settings.interfaces = interfaces;
  return settings;
}

std::shared_ptr<Group> init_group(const std::optional<std::string>& backend, double timeout,
                                  bool reproducible, const std::string& grid, const std::string& algorithm,
                                  int chunks, const std::vector<std::string>& interfaces,
                                  std::optional<double> meeting) {
  const py::gil_scoped_release released;
  std::optional<std::chrono::duration<double>> deadline;
  if (meeting) deadline.emplace(*meeting);
  return share(init({.timeout = std::chrono::duration<double>(timeout),
                     .meeting = deadline,
                     .grid = grid_of(grid, algorithm, chunks, interfaces),
                     .backend = backend.value_or(""),
                     .reproducible = reproducible}));
}

std::shared_ptr<Group> group_on_process_group(::c10d::ProcessGroup& process_group, double timeout,
                                              bool reproducible) {
  const py::gil_scoped_release released;
  return watched(group_on(c10::intrusive_ptr<::c10d::ProcessGroup>::reclaim_copy(&process_group),
                          {.timeout = std::chrono::duration<double>(timeout), .reproducible = reproducible}));
}

std::shared_ptr<Group> meet_in_shared_memory(const std::string& rendezvous, int rank, int size,
                                             double timeout) {
  const py::gil_scoped_release released;
  const std::chrono::duration<double> limit(timeout);
  std::unique_ptr<Backend> backend;
  if (size > 1) {
    backend = backends::make_shm(
        {.rendezvous = rendezvous, .rank = rank, .size = size, .deadline = Deadline::after(limit)});
  } else {
    backend = comm::make_single();
  }
  return watched(Group(std::move(backend), {.timeout = limit}));
}

}  // namespace

void bind_groups(py::module_& module) {
  py::class_<Group, std::shared_ptr<Group>> group(module, "Group",
                                                  "The ranks of a job, as a value. Copies share one thread.");
  group.attr("__module__") = "dear";
  group.def_property_readonly("rank", &Group::rank, "The number of this process, from 0.")
      .def_property_readonly("size", &Group::size, "How many ranks there are.")
      .def_property_readonly("backend", &backend_of, "What carries bytes between the ranks, as \"shm\".")
      .def("abort", &Group::abort, py::arg("reason"), py::call_guard<py::gil_scoped_release>(),
           "Ends the group with this reason, without a wait: what waits for it here and on other ranks "
           "throws, and so does every later call.")
      .def("__repr__", [](const Group& self) {
        return "<dear.Group: rank " + std::to_string(self.rank()) + ", " + self.description() + ">";
      });

  module.def(
      "init", &init_group, py::arg("backend") = py::none(), py::arg("timeout") = 120.0,
      py::arg("reproducible") = false, py::arg("grid") = "", py::arg("algorithm") = "themis",
      py::arg("chunks") = 64, py::arg("interfaces") = std::vector<std::string>(),
      py::arg("meeting") = py::none(),
      "The group of all ranks of this job, from the launcher's environment (torchrun, dear launch, mpirun, "
      "Slurm); one rank without a launcher.\n\n"
      "backend: \"shm\", \"mpi\", \"gloo\", ... (docs/backends.md); None for the fastest that reaches all "
      "ranks.\ntimeout: seconds, for every wait, this meeting of the ranks included, unless `meeting` is a "
      "time of its own.\nreproducible: sums in "
      "the order of ranks, so that results are the same bits on every backend that can.\ngrid: "
      "\"2x4\" puts the ranks into a grid whose dimensions are networks of their own, the innermost first, "
      "and "
      "measures their links; the path of a cluster file says sizes and links. algorithm, chunks: how vectors "
      "go "
      "through it. interfaces: the network interface of each dimension, on \"gloo\".\n\n"
      "ConfigError for a bad environment, an unknown backend, or a grid that cannot be; TimeoutError names "
      "the ranks that did not "
      "come.");
  module.def(
      "group_on", &group_on_process_group, py::arg("process_group"), py::arg("timeout") = 120.0,
      py::arg("reproducible") = false,
      "A group over a process group of torch.distributed that carries memory of the host (Gloo, MPI, UCC). "
      "Collective: every rank calls it. The process group carries nothing else while the group lives.");
  module.def("meet_in_shared_memory", &meet_in_shared_memory, py::arg("rendezvous"), py::arg("rank"),
             py::arg("size"), py::arg("timeout"),
             "The group of ranks of one host that call it with the same text, which no other job uses.");
  module.def(
      "abort_groups",
      [](const std::string& reason) {
        const py::gil_scoped_release released;
        comm::abort_groups(reason);
      },
      py::arg("reason"), "Ends every group of this process with this reason, here and on the peers.");
  module.def("note_first_step", &recorder::note_first_step, py::arg("step"),
             "Says in the flight record of this process at which step its training goes on.");
  module.def("begin_record_again", &recorder::begin_again, py::arg("rank"), py::arg("ranks"),
             "The flight record of this process goes on with other ranks.");
  module.def("note_progress", &recorder::note_progress, py::arg("step"),
             "Says in the flight record of this process how many steps of the whole training are done.");
  using membership::Member;
  py::class_<Member>(module, "Member", "A process of a job whose ranks come and go (dear launch --elastic).")
      .def(py::init<const std::string&, int>(), py::arg("place"), py::arg("number"))
      .def(
          "epoch", [](const Member& member) { return member.roster().epoch; },
          "The number of changes of the roster so far.")
      .def(
          "join",
          [](const Member& member, double timeout) {
            membership::Roster roster;
            {
              const py::gil_scoped_release released;
              roster = member.join(Deadline::after(std::chrono::duration<double>(timeout)));
            }
            const int rank = *roster.rank_of(member.number());
            std::map<std::string, std::string> environment{
                {"RANK", std::to_string(rank)},
                {"WORLD_SIZE", std::to_string(roster.members.size())},
                {"LOCAL_RANK", std::to_string(roster.local_rank(rank))},
                {"LOCAL_WORLD_SIZE", std::to_string(roster.local_size(rank))}};
            if (!roster.hosts.empty()) {
              environment["MASTER_ADDR"] = roster.address;
              environment["MASTER_PORT"] = std::to_string(roster.port);
            }
            return std::make_tuple(roster.epoch, environment);
          },
          py::arg("timeout"),
          "The first open epoch of which this process is a member, and its place there, as torchrun's "
          "variables say it. TimeoutError.")
      .def(
          "ask_again", [](const Member& member) { member.ask_again(member.roster()); },
          "The members of the epoch could not meet: asks for another.");
  module.def(
      "note_stacks", &recorder::note_stacks, py::arg("signal"),
      "Says in the flight record of this process at which signal it writes the stacks of Python's threads.");
  module.def(
      "leave_groups",
      [] {
        const py::gil_scoped_release released;
        comm::leave_groups();
      },
      "Ends every group of this process in good order: peers learn that this rank left.");
  module.def("host_key", &os::host_key,
             "The same text for processes that can share memory, and for no others.");
}

}  // namespace dear::python
