#pragma once

#include <memory>
#include <sstream>
#include <typeinfo>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/optim/optimizer.h"

namespace dear {
namespace optim {

// ClassAccess holds what differs between classes of libtorch's optimisers: how one makes a flat optimiser,
// and what of its state is whose.
struct ClassAccess {
  using State = torch::optim::OptimizerParamState;
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  const std::type_info& type;
  bool elementwise;  // but for norms
  std::unique_ptr<torch::optim::Optimizer> (*make)(const torch::optim::Optimizer& original, Groups groups);
  OptimizerState (*read)(const State& state);
  std::unique_ptr<State> (*write)(const OptimizerState& state);
  bool (*equal)(const torch::optim::OptimizerOptions& a, const torch::optim::OptimizerOptions& b);
  std::unique_ptr<State> (*elsewhere)();
};

// Stands in the program's object for the state that is elsewhere.
template <typename State>
struct Elsewhere : State {
  void serialize(torch::serialize::OutputArchive& /*archive*/) const override {
    throw ConfigError(
        "the state of this optimiser lies in shards, each with one rank's DataParallel, and cannot be saved "
        "yet: save the model alone");
  }
};
template <typename State>
std::unique_ptr<ClassAccess::State> elsewhere() {
  return std::make_unique<Elsewhere<State>>();
}

template <typename Class, typename Options>
std::unique_ptr<torch::optim::Optimizer> make_with(const torch::optim::Optimizer& original,
                                                   ClassAccess::Groups groups) {
  return std::make_unique<Class>(std::move(groups), static_cast<const Options&>(original.defaults()));
}

// Asked for by updates ahead of the commit alone.
inline bool never_equal(const torch::optim::OptimizerOptions& /*a*/,
                        const torch::optim::OptimizerOptions& /*b*/) {
  return false;
}

// The state of a tensor that one rank owns is opaque: the bytes of its archive.
template <typename State>
OptimizerState read_whole(const ClassAccess::State& state) {
  torch::serialize::OutputArchive archive;
  static_cast<const State&>(state).serialize(archive);
  std::ostringstream bytes;
  archive.save_to(bytes);
  return {.vectors = {}, .scalars = bytes.str()};
}
template <typename State>
std::unique_ptr<ClassAccess::State> write_whole(const OptimizerState& from) {
  torch::serialize::InputArchive archive;
  archive.load_from(from.scalars.data(), from.scalars.size());
  auto state = std::make_unique<State>();
  state->serialize(archive);
  return state;
}

// `access` is that of the optimiser's class. Both must outlive the result.
std::unique_ptr<Optimizer> make_optimizer(torch::optim::Optimizer& optimizer, const ClassAccess& access);

}  // namespace optim

// A program's own class of optimisers, which updates each tensor by itself and must see it whole, as Muon
// does: for Ownership::automatic and Ownership::whole. `Class` has a constructor of (groups, Options), as
// those of libtorch have; `Options` is of its parameter groups, and `State`, of a tensor, can be serialised.
// The optimiser must outlive the result.
template <typename Class, typename Options, typename State>
std::unique_ptr<Optimizer> make_optimizer(Class& optimizer) {
  static const optim::ClassAccess kAccess{typeid(Class),
                                          false,
                                          optim::make_with<Class, Options>,
                                          optim::read_whole<State>,
                                          optim::write_whole<State>,
                                          optim::never_equal,
                                          optim::elsewhere<State>};
  return optim::make_optimizer(optimizer, kAccess);
}

}  // namespace dear
