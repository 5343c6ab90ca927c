#include "engine.h"

#include <simgrid/version.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace dear::judge {
namespace {

namespace s4u = simgrid::s4u;

constexpr double kUnlimited = 1e15;  // bytes per second

// All rates anew at every event (optim:Full): in its lazy mode, SimGrid 3.32 sometimes lets flows of more
// than its capacity through a link when jobs meet (3 of the 100 trials in the test).
std::vector<double> with_an_engine(const std::function<std::vector<double>(s4u::Engine&)>& simulate) {
  std::vector<std::string> words = {"judge",
                                    "--log=root.threshold:error",
                                    "--cfg=network/model:CM02",
                                    "--cfg=network/bandwidth-factor:1",
                                    "--cfg=network/latency-factor:1",
                                    "--cfg=network/weight-S:0",
                                    "--cfg=network/TCP-gamma:0",
                                    "--cfg=network/crosstraffic:0",
                                    "--cfg=network/optim:Full"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  s4u::Engine engine(&count, arguments.data());
  return simulate(engine);
}

}  // namespace

std::vector<double> in_a_process(std::size_t count,
                                 const std::function<std::vector<double>(s4u::Engine&)>& simulate) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe to the judge");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process for the judge");
  std::vector<double> answer(count);
  const auto bytes = static_cast<ssize_t>(count * sizeof(double));
  if (child == 0) {
    answer = with_an_engine(simulate);
    _exit(write(ends[1], answer.data(), static_cast<std::size_t>(bytes)) == bytes ? 0 : 1);
  }
  close(ends[1]);
  const bool answered = read(ends[0], answer.data(), static_cast<std::size_t>(bytes)) == bytes;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!answered || status != 0) throw std::runtime_error("SimGrid failed; its message is above");
  return answer;
}

s4u::NetZone* make_world() {
#if SIMGRID_VERSION_MAJOR >= 4
  return s4u::Engine::get_instance()->get_netzone_root()->add_netzone_full("world");
#else
  return s4u::create_full_zone("world");
#endif
}

s4u::Link* start_up_link(s4u::NetZone* zone, const std::string& name, double seconds) {
  return zone->create_link(name, kUnlimited)
      ->set_latency(seconds)
      ->set_sharing_policy(s4u::Link::SharingPolicy::FATPIPE)
      ->seal();
}

}  // namespace dear::judge
