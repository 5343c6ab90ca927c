#pragma once

#include <cstddef>
#include <functional>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

// SimGrid with its raw flow model, CM02: no window of TCP, no factors, no traffic of acknowledgements.
namespace dear::judge {

// Runs a simulation that answers `count` numbers, in a process of its own, since SimGrid knows one simulation
// in each; throws std::runtime_error when that fails.
std::vector<double> in_a_process(std::size_t count,
                                 const std::function<std::vector<double>(simgrid::s4u::Engine&)>& simulate);

simgrid::s4u::NetZone* make_world();

// Carries anything, for all that use it at once; only its latency matters.
simgrid::s4u::Link* start_up_link(simgrid::s4u::NetZone* zone, const std::string& name, double seconds);

}  // namespace dear::judge
