#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/methods/edge/channel.h"
#include "dear/methods/edge/classification.h"
#include "dear/methods/edge/over_the_air.h"
#include "dear/methods/edge/quantisers.h"

// Learning at the edge in virtual time: computation is real, its time and the radio are modelled.
namespace dear::methods::edge {

struct EdgeDevice {
  double distance_m = 0;  // from the base station
  double frequency_hz = 0;
};
// Those of a file, "dear-edge-devices" (docs/formats.md). ConfigError that names the file, the place and what
// belongs there.
std::vector<EdgeDevice> read_devices(const std::string& path);
std::vector<EdgeDevice> parse_devices(std::string_view text, const std::string& source);

struct EdgeSettings {
  std::string_view scheduler = "random";  // of schedulers.h, or greedy and most of ofdma.h, under `budget`
  std::string_view aggregator = "mean";
  std::string_view allocator = "min-max";
  Cell cell{};
  int cohort = 4;       // devices of a round, for schedulers that take a number
  int local_steps = 5;  // of a device in a round
  int batch = 10;       // samples of a step; 0 for all
  double step_size = 0.1;
  double cycles_per_sample = 2e6;
  std::vector<EdgeDevice> devices{};          // none: they are drawn
  double slowest_hz = 1e8, fastest_hz = 1e9;  // between these, in the ring of the cell
  double random_share = 0.5;    // of the time of computing: the mean of its exponential part beside the rest
  double budget_seconds = 0;    // of a round, for greedy and most
  double deadline_seconds = 0;  // devices that are later do not count; 0 for none
  double capacitance = 1e-28;   // joules = capacitance f^2 cycles
  QuantiserOptions quantiser{};
  int owners = 0;  // of tamuna: devices of the cohort that send an element; 0 for all
  OverTheAir air{};
  double symbol_share = 0.5;                           // of a-dsgd: symbols for each element of the model
  double outer_step_size = 0.7, outer_momentum = 0.9;  // of diloco
  std::string_view graph = "ring";
  double density = 0.4;
  double consensus = 0.4;  // gamma of CHOCO
  int cells = 4, intra_rounds = 4;
  double backhaul_bits_per_second = 1e9;
  std::int64_t rounds = 100;
  double seconds = 0;  // of virtual time, which end a run too; 0 for no limit
  std::uint64_t seed = 1;
};

// A round, at its end.
struct EdgeRound {
  std::int64_t number = 0;
  double seconds = 0;               // virtual, since the start
  std::vector<int> participants{};  // whose updates counted
  double bits_up = 0;               // sums since the start: over digital links,
  double channel_uses = 0;          // complex symbols over the air,
  double joules = 0;                // of devices
  double mean_age = 0;              // rounds since devices took part
  double loss = 0, accuracy = 0;
};

// ConfigError, in one sentence, for settings that cannot be.
void check(const EdgeSettings& settings, const Classification& task);

// Runs until a limit. Round 0 is the start. The same bits for the same settings. Error for a loss that is not
// finite. `on_round` may be empty.
std::vector<EdgeRound> run_edge(const EdgeSettings& settings, const Classification& task,
                                const std::function<void(const EdgeRound&)>& on_round = {});

// Lines of comma-separated values under a header; `name` goes before each line. Participants are separated by
// blanks.
std::string trace_header();
std::string trace_lines(std::string_view name, const std::vector<EdgeRound>& rounds);

}  // namespace dear::methods::edge
