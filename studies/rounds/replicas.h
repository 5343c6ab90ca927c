#pragma once

#include "studies/rounds/language.h"
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Replicas of a network on sites that exchange seldom: local SGD (Stich 2019, arXiv 1805.09767), DiLoCo
// (Douillard et al. 2023, arXiv 2311.08105) and Streaming DiLoCo (2025, arXiv 2501.18512), with the rules of
// docs/rounds_live.md, in one thread.
namespace dear::studies::rounds {

// How a value of an outer gradient travels. Few bits count in parts of the largest magnitude of a fragment:
// 8 as whole numbers, 4 as a sign and a power of two (or 0). Each site's values are rounded, added in fp32,
// and their mean is rounded again.
enum class Carried : std::uint8_t { fp32, bf16, eight_bits, four_bits };
int bits_of(Carried carried);
std::optional<Carried> carried_in(int bits);
void round_as(Carried carried, std::span<float> values);

// 0 steps a round are every-step training: gradients are averaged, and one optimiser steps.
struct Exchanges {
  int every = 32;
  int fragments = 1;
  int delay = 0;      // steps under which a fragment may travel
  float mixing = 0;   // the weight of a replica's own parameters where global ones come in
  float rate = 0.7F;  // of the outer SGD with Nesterov's momentum
  float momentum = 0.9F;
  Carried carried = Carried::fp32;

  friend bool operator==(const Exchanges&, const Exchanges&) = default;
};
inline constexpr Exchanges kEveryStep{.every = 0};
Exchanges local_sgd(int every);  // plain means
std::string name_of(
    const Exchanges&);  // "every step", "local SGD, H 32", "DiLoCo, H 32, 4 fragments, 8 bits"

// The global parameters and the outer optimiser's state, of replicas that the caller steps.
class OuterSteps {
 public:
  // ConfigError for fragments that do not divide the steps of a round, or a delay that reaches the next turn.
  OuterSteps(const Exchanges& exchanges, std::vector<float> start);

  // Of all replicas, after each has made its inner step number `step`, from 1. Returns the bytes that each of
  // them sent.
  double after(int step, std::vector<std::vector<float>>& replicas);
  // The exchange of what is left: all replicas have the global parameters then.
  double finish(std::vector<std::vector<float>>& replicas);
  [[nodiscard]] std::span<const float> global() const { return global_; }

 private:
  struct InFlight {
    int fragment = 0, due = 0;
    std::vector<float> mean;
  };
  [[nodiscard]] Range range_of(int fragment) const;
  double send(int fragment, int due, const std::vector<std::vector<float>>& replicas);
  void apply(const InFlight& one, float mixing, std::vector<std::vector<float>>& replicas);

  Exchanges exchanges_;
  std::vector<float> global_, velocity_;
  std::vector<bool> moved_;  // by fragment: its momentum has begun
  std::vector<InFlight> in_flight_;
};

struct SitesOptions {
  LanguageShape language{};
  CharacterShape model{};
  int sites = 2;
  bool apart = false;
  std::size_t characters = 200'000;  // of a site
  std::size_t held_back = 4096;      // characters that the test guesses
  int steps = 1600;
  int batch = 32;  // of a site
  double learning_rate = 0.01;
  int looks = 24;  // at the loss of the test on the way
};

// What one training gave.
struct Trained {
  double loss = 0;        // nats of a character of the test, by the global parameters at the end
  double validation = 0;  // likewise, of as long a text by which step sizes are chosen
  double sent_bytes = 0;  // by a site
  double peak_bytes = 0;  // a step, of what travels in one exchange
  std::vector<std::pair<double, double>> by_bytes;  // bytes sent, loss
};
// Trains, each site on its own text, by AdamW whose step size falls to a tenth along a cosine. The same
// bits for the same seed.
Trained train_on_sites(const SitesOptions& options, const Exchanges& exchanges, std::uint64_t seed);

}  // namespace dear::studies::rounds
