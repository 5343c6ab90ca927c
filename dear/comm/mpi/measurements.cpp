#include "dear/comm/mpi/measurements.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "dear/base/json/json_field.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/mpi/candidates.h"

namespace dear::backends {
namespace {

// The version of the file: another number means another form, or another way of measuring.
constexpr int kForm = 8;
constexpr std::array kOperations = {Collective::reduce_scatter, Collective::all_gather};

std::optional<Collective> operation_called(const std::string& name) {
  const auto* const found = std::find_if(kOperations.begin(), kOperations.end(),
                                         [&](Collective one) { return name_of(one) == name; });
  return found != kOperations.end() ? std::optional(*found) : std::nullopt;
}

// Whether the choice is one of those for any number of ranks and order. What a file names must exist.
bool is_known(Collective collective, const message_programs::AlgorithmChoice& choice) {
  if (!is_program(choice)) {
    return true;
  }
  const std::vector<message_programs::AlgorithmChoice> known = message_programs::algorithm_choices(
      {.collective = collective, .bytes = largest_of(0), .ranks = 2, .exact = false});
  return choice.segment_bytes > 0 &&
         std::any_of(known.begin(), known.end(), [&](const message_programs::AlgorithmChoice& one) {
           return one.algorithm == choice.algorithm && one.then == choice.then;
         });
}

Json to_json(const message_programs::AlgorithmChoice& choice) {
  return {{"algorithm", choice.algorithm}, {"then", choice.then}, {"segment_bytes", choice.segment_bytes}};
}

message_programs::AlgorithmChoice choice_from(const JsonField& entry) {
  return {.algorithm = entry.member("algorithm").text(),
          .then = entry.member("then").text(),
          .segment_bytes = entry.member("segment_bytes").integer()};
}

// An all-reduce is the one after the other, or, small, all contributions on every rank.
message_programs::AlgorithmChoice all_reduce_of(const message_programs::AlgorithmChoice& reduce_scatter,
                                                const message_programs::AlgorithmChoice& all_gather,
                                                std::int64_t bytes) {
  if (bytes <= kMostGathered) {
    return {.algorithm = "gather"};
  }
  if (reduce_scatter.algorithm == all_gather.algorithm && !is_program(all_gather)) {
    return all_gather;
  }
  const message_programs::AlgorithmChoice& cut = is_program(reduce_scatter) ? reduce_scatter : all_gather;
  return {.algorithm = "direct",
          .then = is_program(all_gather) ? all_gather.algorithm : "ring",
          .segment_bytes = cut.segment_bytes};
}

}  // namespace

void Measurements::set(Collective collective, int size_class, MeasuredChoice measurement) {
  by_operation_[collective].at(static_cast<std::size_t>(size_class)) = std::move(measurement);
}

void Measurements::forget(Collective collective, int size_class) {
  by_operation_[collective].at(static_cast<std::size_t>(size_class)).reset();
}

const MeasuredChoice* Measurements::find(Collective collective, int size_class) const {
  const auto found = by_operation_.find(collective);
  if (found == by_operation_.end()) {
    return nullptr;
  }
  const auto& measurement = found->second.at(static_cast<std::size_t>(size_class));
  return measurement ? &*measurement : nullptr;
}

int Measurements::count() const {
  std::ptrdiff_t found = 0;
  for (const auto& [collective, by_size] : by_operation_) {
    found += std::count_if(by_size.begin(), by_size.end(), [](const auto& one) { return one.has_value(); });
  }
  return static_cast<int>(found);
}

// The choice of the measured size class that is nearest, among those from `begin` to before `end`; where none
// was measured, a choice that needs no measurement.
message_programs::AlgorithmChoice Measurements::nearest(Collective collective, int size_class, int begin,
                                                        int end) const {
  for (int distance = 0; distance < kSizeClasses; ++distance) {
    for (const int at : {size_class + distance, size_class - distance}) {
      if (at >= begin && at < end) {
        if (const MeasuredChoice* const measurement = find(collective, at)) {
          return measurement->choice;
        }
      }
    }
  }
  return {.algorithm = collective == Collective::reduce_scatter ? "direct" : "ring",
          .segment_bytes = kEagerSegment};
}

Choices Measurements::choices(bool sums_go_around) const {
  const int split = sums_go_around ? size_class_of(kLargestSumInOrder) + 1 : 0;
  Choices choices;
  for (int size_class = 0; size_class < kSizeClasses; ++size_class) {
    const bool large = size_class >= split;
    const message_programs::AlgorithmChoice reduce_scatter =
        nearest(Collective::reduce_scatter, size_class, large ? split : 0, large ? kSizeClasses : split);
    const message_programs::AlgorithmChoice all_gather =
        nearest(Collective::all_gather, size_class, 0, kSizeClasses);
    choices.set(Collective::reduce_scatter, size_class, reduce_scatter);
    choices.set(Collective::all_gather, size_class, all_gather);
    choices.set(Collective::all_reduce, size_class,
                all_reduce_of(reduce_scatter, all_gather, largest_of(size_class)));
  }
  return choices;
}

std::string Measurements::format(const std::string& key) const {
  Json found = Json::array();
  for (const auto& [collective, by_size] : by_operation_) {
    for (int i = 0; i < kSizeClasses; ++i) {
      if (const auto& measurement = by_size[static_cast<std::size_t>(i)]) {
        found.push_back({{"operation", name_of(collective)},
                         {"size_class", i},
                         {"way", to_json(measurement->choice)},
                         {"seconds", measurement->seconds}});
        if (measurement->second) found.back()["second"] = to_json(*measurement->second);
      }
    }
  }
  return Json{{"dear-mpi-choices", kForm}, {"key", key}, {"found", found}}.dump(1) + "\n";
}

std::optional<Measurements> Measurements::parse(const std::string& text, const std::string& key) try {
  require_shallow(text);
  const Json document = Json::parse(text);  // parse_json() refuses long texts, and the key names all hosts
  const JsonField file(document, "choices of MPI");
  if (file.member("dear-mpi-choices").integer() != kForm || file.member("key").text() != key) {
    return std::nullopt;
  }
  Measurements measurements;
  for (const JsonField& entry : file.member("found").elements()) {
    const auto collective = operation_called(entry.member("operation").text());
    const std::int64_t size_class = entry.member("size_class").integer(0, kSizeClasses - 1);
    MeasuredChoice measurement{.choice = choice_from(entry.member("way")),
                               .seconds = entry.member("seconds").number()};
    if (entry.has("second")) measurement.second = choice_from(entry.member("second"));
    if (!collective || !is_known(*collective, measurement.choice) ||
        (measurement.second && !is_known(*collective, *measurement.second)) ||
        !std::isfinite(measurement.seconds) || measurement.seconds <= 0) {
      return std::nullopt;
    }
    measurements.set(*collective, static_cast<int>(size_class), std::move(measurement));
  }
  return measurements.count() > 0 ? std::optional(std::move(measurements)) : std::nullopt;
} catch (const Json::exception&) {
  return std::nullopt;
} catch (const ConfigError&) {
  return std::nullopt;
}

}  // namespace dear::backends
