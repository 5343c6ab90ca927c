#pragma once

#include "studies/homomorphic/recommender.h"
#include "studies/report/by_bandwidth.h"
#include "studies/report/progress.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/schedule/codec/codec_times.h"
#include "dear/schedule/codec/compression.h"

namespace dear::studies::homomorphic {

std::string_view name_of(SketchSpec::Index index);  // "bitmap", "Bloom filter", "automatic"

// The ranks that peel the sum of sketches.
enum class Peeling : std::uint8_t {
  everyone,  // as in the paper: index and rows are all-reduced, and every rank peels all keys
  owners     // as DeAR: rows are reduce-scattered, their owners peel, values alone are all-gathered
};

// How long a sketch takes on a machine. The times are of gradients with so many keys, the part `density` of
// all: encoding, peeling (the second encoding), reading the index and spreading values (decoding).
struct SketchSpeed {
  SketchSpec spec;
  Peeling peeling = Peeling::owners;
  int ranks = 4;
  double density = 0.05;  // of the union, of keys
  CodecTimes times;
};

// One worker's step of the recommender, and how its gradients' sketch fares.
struct RecommenderSpeed {
  RecommenderShape shape;
  int batch = 0;               // of each worker
  double compute_seconds = 0;  // forward, backward and the update of all parameters
  double density = 0;          // of the union, of elements
  SketchSpeed sketch;
};

struct Speeds {
  std::string machine;
  double load = 0;
  std::vector<SketchSpeed> sketches;
  std::vector<RecommenderSpeed> recommenders;
};

struct SpeedOptions {
  std::vector<double> densities{};     // of the union
  std::vector<int> ranks{};            // with owners
  std::vector<double> rows_per_key{};  // others than the codec's own, at `density`, peeled by everyone
  double density = 0.05;
  RecommenderShape recommender{.users = 40'000, .items = 20'000, .width = 32, .first = 64, .second = 32};
  int batch = 128;
  int rounds = 3;  // in each of which all take their turn
};

// On this thread, medians of rounds. ConfigError for less than one round.
Speeds measure_speeds(const SpeedOptions& options, const studies::Progress& progress = {});

// An iteration's communication: encode, add up in rings, peel, decode. Bytes are those of the codec's own
// shapes for keys as many as expected and a twentieth more.
studies::Line sketch_line(const studies::Traffic& traffic, const SketchSpeed& speed, int ranks);

}  // namespace dear::studies::homomorphic
