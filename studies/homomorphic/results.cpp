#include "studies/homomorphic/report.h"
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace dear::studies::homomorphic {
namespace {

using Json = nlohmann::ordered_json;

// JSON knows no infinity.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(); }

template <class All, class Make>
Json array_of(const All& all, const Make& make) {
  Json array = Json::array();
  for (const auto& one : all) array.push_back(make(one));
  return array;
}

Json json_of(const studies::Statement& one) {
  return {{"statement", one.says}, {"seen", one.seen},           {"held", one.held},
          {"cases", one.cases},    {"undecided", one.undecided}, {"verdict", one.verdict()}};
}

Json json_of(const RecoveryRate& one) {
  return {{"keys", one.keys},
          {"rows_per_key", one.rows_per_key},
          {"whole", one.whole},
          {"left", one.left},
          {"rounds", one.rounds}};
}

Json json_of(const ExactSums& one) {
  return {{"workers", one.workers}, {"density", one.density}, {"sized_for", one.sized_for},
          {"trials", one.trials},   {"exact", one.exact},     {"reported", one.reported}};
}

Json json_of(const FloatError& one) {
  return {{"rows_per_key", one.rows_per_key},
          {"heavy_tailed", one.heavy_tailed},
          {"recovered", one.recovered},
          {"relative", one.relative},
          {"largest", one.largest},
          {"plain", one.plain},
          {"wrong", one.wrong}};
}

Json json_of(const SizeAt& one) {
  return {{"density", one.density},
          {"bound", one.bound},
          {"bitmap", one.bitmap},
          {"bloom", one.bloom},
          {"owners", one.owners}};
}

Json json_of(const UnionAt& one) {
  return {{"workers", one.workers}, {"density", one.density},           {"expected", one.expected},
          {"seen", one.seen},       {"gain_of_same", one.gain_of_same}, {"gain_of_own", one.gain_of_own}};
}

Json json_of(const SketchSpeed& one) {
  return {{"density", one.density},
          {"rows_per_key", one.spec.room},
          {"block", one.spec.block},
          {"index", name_of(one.spec.index)},
          {"exact", one.spec.exact},
          {"peeled_by", one.peeling == Peeling::everyone ? "everyone" : "owners"},
          {"ranks", one.ranks},
          {"encode_seconds_per_byte", one.times.encode_seconds_per_byte},
          {"peel_seconds_per_byte", one.times.second_encode_seconds_per_byte},
          {"decode_seconds_per_byte", one.times.decode_seconds_per_byte}};
}

// A sketch among the ranks that peel it, or among those of the tables where everyone peels.
Json json_of(const HomomorphicOptions& options, const SketchSpeed& one, int ranks) {
  Json times = Json::array();
  for (const double bits : options.bits_per_second)
    times.push_back({{"bits_per_second", bits}, {"times", throughput(options, one, ranks, bits / 8)}});
  Json json = json_of(one);
  json["throughput"] = {{"ranks", ranks},
                        {"times_dense", std::move(times)},
                        {"loses_from_bytes_per_second",
                         finite(studies::loses_from(sketch_line(options.traffic, one, ranks),
                                                    studies::dense_line(options.traffic, ranks)))}};
  return json;
}

Json json_of(const MethodLearned& one) {
  const Json rates = array_of(one.rates, [](const LearnedAtRate& at_rate) {
    Json validation = Json::array(), test = Json::array(), diverged = Json::array();
    for (const Learned& run : at_rate.by_seed) {
      validation.push_back(finite(run.validation));
      test.push_back(finite(run.test));
      diverged.push_back(run.diverged);
    }
    return Json{{"learning_rate", at_rate.learning_rate},
                {"validation", std::move(validation)},
                {"test", std::move(test)},
                {"bytes", at_rate.mean_bytes()},
                {"diverged", std::move(diverged)}};
  });
  return {{"compression", name_of(one.method)},
          {"best_learning_rate", one.at_best().learning_rate},
          {"mean_test", finite(one.at_best().mean_test())},
          {"deviation", finite(one.at_best().deviation())},
          {"rates", rates}};
}

Json json_of(const HomomorphicOptions& options, const RecommenderSpeed& one) {
  Json times = Json::array();
  for (const double bits : options.bits_per_second)
    times.push_back({{"bits_per_second", bits}, {"times", iterations(options, one, bits / 8)}});
  return {{"parameters", one.shape.parameters()},   {"batch", one.batch},
          {"compute_seconds", one.compute_seconds}, {"union_density", one.density},
          {"sketch", json_of(one.sketch)},          {"iterations", std::move(times)}};
}

}  // namespace

std::string to_json(const HomomorphicOptions& options, const Findings& findings) {
  const auto plain = [](const auto& one) { return json_of(one); };
  const Json document{
      {"statements", array_of(judge(options, findings), plain)},
      {"recovery", array_of(findings.recovery, plain)},
      {"exact_sums", array_of(findings.exact, plain)},
      {"float_errors", array_of(findings.floats, plain)},
      {"sizes", array_of(findings.sizes, plain)},
      {"index_border", findings.index_border},
      {"unions", array_of(findings.unions, plain)},
      {"steps", options.learning.steps},
      {"batch", options.learning.batch},
      {"seeds", options.learning.seeds},
      {"learned", array_of(findings.learned, plain)},
      {"machine", findings.speeds.machine},
      {"load", findings.speeds.load},
      {"elements", options.traffic.elements},
      {"alpha_seconds", options.traffic.alpha_seconds},
      {"speeds", array_of(findings.speeds.sketches,
                          [&](const SketchSpeed& one) {
                            const bool everyone = one.peeling == Peeling::everyone;
                            return json_of(options, one, everyone ? options.speeds.ranks.front() : one.ranks);
                          })},
      {"recommenders", array_of(findings.speeds.recommenders,
                                [&](const RecommenderSpeed& one) { return json_of(options, one); })}};
  return document.dump(2) + "\n";
}

}  // namespace dear::studies::homomorphic
