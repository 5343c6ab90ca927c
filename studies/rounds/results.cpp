#include "studies/rounds/report.h"
#include <cmath>

#include <nlohmann/json.hpp>

namespace dear::studies::rounds {
namespace {

using RoundsJson = nlohmann::ordered_json;

RoundsJson rates_in(const std::vector<RateRun>& runs) {
  RoundsJson list = RoundsJson::array();
  for (const RateRun& one : runs)
    list.push_back({{"clients", one.clients},
                    {"cohort", one.cohort},
                    {"owners", one.owners},
                    {"probability", one.probability},
                    {"chi_of_the_largest", one.of_largest_chi},
                    {"promised_log_rate", one.promised},
                    {"seen_log_rate", one.seen}});
  return list;
}

double as_typed(float value) { return std::round(static_cast<double>(value) * 1e6) / 1e6; }  // 0.7

RoundsJson pairs_in(const std::vector<std::pair<double, double>>& points) {
  RoundsJson list = RoundsJson::array();
  for (const auto& [x, y] : points) list.push_back({x, y});
  return list;
}

}  // namespace

std::string to_json(const MinimaFindings& findings) {
  RoundsJson runs = RoundsJson::array();
  for (const MinimumRun& one : findings.runs)
    runs.push_back({{"part", one.part},
                    {"algorithm", one.algorithm},
                    {"clients", one.problem.clients},
                    {"dimension", one.problem.dimension},
                    {"condition", one.problem.condition},
                    {"cohort", one.cohort},
                    {"owners", one.owners},
                    {"absence", one.absence},
                    {"steps_a_round", one.steps_a_round},
                    {"end", methods::rounds::name_of(one.end)},
                    {"rounds", one.rounds},
                    {"reals_up", one.up},
                    {"reals_down", one.down},
                    {"error", one.error},
                    {"largest_control_sum", one.control_sum}});
  return RoundsJson{{"runs", runs},
                    {"rates", rates_in(findings.rates)},
                    {"larger_chi", rates_in(findings.beyond)},
                    {"bound_of_the_cohort", rates_in(findings.of_a_cohort)}}
             .dump(2) +
         "\n";
}

std::string to_json(const AreasFindings& findings) {
  RoundsJson runs = RoundsJson::array(), noise = RoundsJson::array();
  for (const AreaRun& one : findings.runs)
    runs.push_back({{"algorithm", one.algorithm},
                    {"shards", one.shards == Shards::alike ? "alike" : "sorted"},
                    {"steps_a_round", one.every},
                    {"gradients", one.exact ? "exact" : "batches"},
                    {"rounds", one.rounds},
                    {"reals_up", one.reals},
                    {"auc", one.areas},
                    {"best_auc", one.best_areas},
                    {"distance", one.distances}});
  for (const NoiseRun& one : findings.noise)
    noise.push_back({{"clients", one.clients}, {"squared_distance", one.squared_distance}});
  return RoundsJson{{"runs", runs}, {"noise", noise}}.dump(2) + "\n";
}

std::string to_json(const std::vector<Learnt>& learnt) {
  RoundsJson list = RoundsJson::array();
  for (const Learnt& one : learnt) {
    const Exchanges& exchanges = one.lesson.exchanges;
    list.push_back({{"way", name_of(exchanges)},
                    {"steps_a_round", exchanges.every},
                    {"fragments", exchanges.fragments},
                    {"delay", exchanges.delay},
                    {"mixing", as_typed(exchanges.mixing)},
                    {"outer_rate", as_typed(exchanges.rate)},
                    {"outer_momentum", as_typed(exchanges.momentum)},
                    {"bits", bits_of(exchanges.carried)},
                    {"sites_differ", one.lesson.apart},
                    {"steps", one.lesson.steps},
                    {"learning_rate", one.learning_rate},
                    {"loss", one.losses()},
                    {"sent_bytes", one.sent_bytes()},
                    {"peak_bytes_a_step", one.by_seed.front().peak_bytes},
                    {"loss_by_bytes", pairs_in(one.by_seed.front().by_bytes)}});
  }
  return RoundsJson{{"learnt", list}}.dump(2) + "\n";
}

}  // namespace dear::studies::rounds
