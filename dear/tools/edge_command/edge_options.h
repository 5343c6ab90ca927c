#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/methods/edge/drawn_groups.h"
#include "dear/methods/edge/edge_run.h"
#include "dear/methods/edge/paba_file.h"

namespace dear::edge_command {

// The options of a cell, as typed.
struct CellOptions {
  std::string bandwidth = "10MHz", power = "20dBm", down_power = "40dBm", noise = "-174dBm";
  double nearest_m = 50, farthest_m = 500;
  std::string path_loss = "macro";
};
methods::edge::Cell check(const CellOptions& options);

// Options of `dear edge plan`.
struct PlanOptions {
  std::string file;
  std::vector<std::string> schemes;
  CellOptions cell;
  std::int64_t groups = 20, workers = 1, parameters = 1'000'000;
  double bits = 16, cycles = 2000;
  std::string slowest = "100MHz", fastest = "1GHz", deadline;
  std::uint64_t seed = 1;
  std::string json, output;
  bool draws = false;  // an option of drawn groups was given
};
struct PlanSettings {
  methods::edge::PabaFile file;
  std::string described;
  std::vector<std::string> schemes;
};
PlanSettings check(const PlanOptions& options);

// Options of `dear edge run`.
struct RunOptions {
  std::string file;    // of devices
  bool draws = false;  // an option of drawn devices was given
  std::vector<std::string> schedulers, aggregators;
  std::string model = "logistic", split = "sorted", allocator = "min-max", graph = "ring";
  CellOptions cell;
  std::int64_t devices = 20, samples = 60, classes = 10, features = 20, hidden = 32;
  std::int64_t cohort = 4, local_steps = 5, batch = 10, rounds = 100, levels = 4, cells = 4, intra_rounds = 4,
               owners = 0;
  double separation = 0.6, step_size = 0.1, cycles = 2e6, random_share = 0.5, snr_db = 20, threshold = 0.1,
         ratio = 0.05, density = 0.4, consensus = 0.4, symbol_share = 0.5, outer_step_size = 0.7,
         momentum = 0.9;
  std::string slowest = "100MHz", fastest = "1GHz", budget, deadline, seconds, backhaul = "1gbit";
  std::uint64_t seed = 1;
  std::string csv, json, plot;
};
struct RunSettings {
  methods::edge::ClassificationShape shape;
  std::string described;
  // A run each; their names lie in the tables of methods/edge.
  std::vector<methods::edge::EdgeSettings> runs;
};
RunSettings check(const RunOptions& options);

// "10MHz", "2.5 GHz", "180kHz", "5Hz"; "20dBm", "0.1W", "100mW". ConfigError that says what was expected.
double parse_hertz(const std::string& text);
double parse_watts(const std::string& text);

}  // namespace dear::edge_command
