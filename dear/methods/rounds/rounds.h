#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dear/methods/rounds/exchange.h"
#include "dear/methods/rounds/problem.h"
#include "dear/methods/rounds/settings.h"
#include "dear/methods/rounds/stage.h"

namespace dear::methods::rounds {

struct Counts {
  std::int64_t rounds = 0;    // in which something was sent
  std::int64_t given_up = 0;  // for want of clients
  std::int64_t steps = 0;     // local steps of a client that took part in all rounds
  std::int64_t up = 0;        // reals that such a client sent, at most: ceil(s d / c) a round
  std::int64_t down = 0;      // reals that it got: d a round
};

// Training by rounds: clients, dealt to the ranks of a group, step by themselves; at the end of a round their
// points are averaged. Points are fp64, and bits do not depend on the number of ranks. Every rank makes the
// same calls, on one thread at a time. `problem` stays alive.
class Rounds {
 public:
  // `settings` are completed(). MismatchError where ranks have others.
  Rounds(Group group, const Problem& problem, const Settings& settings, std::span<const double> start = {});

  // Makes a round, or ends a stage of a saddle. Returns false, and does nothing, after the last stage.
  bool next();
  [[nodiscard]] std::span<const double> model() const { return model_; }
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] const Traffic& traffic() const { return exchange_.traffic(); }
  [[nodiscard]] const Round& last_round() const { return round_; }

  // The control variate of one of this rank's clients: what its steps add to the negative gradient.
  [[nodiscard]] std::vector<double> control_of(int client) const;
  // The largest coordinate, without sign, of the sum of all control variates, which is 0 but for rounding. A
  // collective, whose traffic counts.
  double control_sum();

 private:
  [[nodiscard]] std::size_t place(int client) const {
    return static_cast<std::size_t>(client - exchange_.own_clients().begin);
  }
  [[nodiscard]] Mask mask_of(const Round& round) const;
  std::span<const double> average(const Mask& mask, const Exchange::Vector& vector_of);
  void local_steps(int client);
  void correct(int client, std::span<double> gradient) const;
  void propose_direction(int client);
  void learn(const Mask& mask, std::span<const double> mean);
  bool end_stage();

  const Problem& problem_;
  Settings settings_;
  Exchange exchange_;
  Round round_;
  std::int64_t number_ = 0;
  std::vector<double> model_, gradient_;
  std::vector<double> direction_;             // of the server
  std::vector<std::vector<double>> control_;  // of own clients: shifts or directions
  std::vector<std::vector<double>> sent_;     // of own clients: the point, then the change of the direction
  std::optional<Stage> stage_;
  bool ended_ = false;
  Counts counts_;
};

}  // namespace dear::methods::rounds
