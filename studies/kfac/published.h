#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dear/methods/kfac/costs.h"

namespace dear::studies::kfac {

// The published figures of SPD-KFAC, in seconds of an iteration. Numbers of papers stand in a file, never in
// the code.
struct PublishedKfac {
  struct Model {
    std::string model;  // of the zoo
    int batch = 0;      // samples on one rank
    double d = 0, mpd = 0, spd = 0;
    struct FactorsSent {  // exposed
      double bulk = 0, alone = 0, threshold = 0, rule = 0;
      [[nodiscard]] double of(std::string_view name) const {  // one of these
        return name == "bulk" ? bulk : name == "alone" ? alone : name == "threshold" ? threshold : rule;
      }
    } factors_sent;
    struct Inverses {  // computed and sent
      double local = 0, round_robin = 0, balanced = 0;
    } inverses;
    struct Steps {  // neither, one, or both of pipelining and balance
      double none = 0, pipelining = 0, balance = 0, both = 0;
    } steps;
  };
  struct Parts {
    std::string model, strategy;
    double passes = 0, gradients = 0, factors = 0, factors_sent = 0, inverses = 0, inverses_sent = 0;
  };
  std::string source, device;
  int ranks = 0;
  // The layer that carries collectives: it fuses what becomes ready within a cycle, up to a threshold.
  double cycle_seconds = 0;
  std::int64_t threshold_elements = 0;
  dear::methods::kfac::LinearCost all_reduce, broadcast;
  double inverse_start_seconds = 0, inverse_growth = 0;
  std::vector<Model> models;
  std::vector<Parts> parts;
};

// The parts of an iteration of a model. ConfigError where they are not published.
const PublishedKfac::Parts& parts_of(const PublishedKfac& published, std::string_view model,
                                     std::string_view strategy);

// ConfigError "FILE: ..." with the field for what is no such file.
PublishedKfac read_published_kfac(const std::string& path);
PublishedKfac parse_published_kfac(std::string_view text, const std::string& source);

}  // namespace dear::studies::kfac
