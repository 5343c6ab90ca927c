#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

// Algorithms of training by rounds, as a table of small parts.
namespace dear::methods::rounds {

enum class Cohort : std::uint8_t { all, drawn };                 // who takes part in a round
enum class LocalSteps : std::uint8_t { one, fixed, geometric };  // how many steps a client makes in it
enum class Sent : std::uint8_t { whole, masked };                // which of its coordinates a client sends
// A control keeps clients from drifting to their own minima: by the direction of the server less that of the
// client, sent beside the point (Scaffold), or by shifts that are learned from what is sent (Scaffnew).
enum class Control : std::uint8_t { none, directions, shifts };
enum class Goal : std::uint8_t { minimum, saddle };  // a saddle has stages around a proximal point

struct Algorithm {
  std::string_view name, summary;
  Cohort cohort;
  LocalSteps steps;
  Sent sent;
  Control control;
  Goal goal = Goal::minimum;

  // Vectors that a client sends in a round, and gets.
  [[nodiscard]] int vectors() const { return control == Control::directions ? 2 : 1; }
};

const std::vector<Algorithm>& algorithms();
// ConfigError with the names that there are.
const Algorithm& find_algorithm(std::string_view name);

}  // namespace dear::methods::rounds
