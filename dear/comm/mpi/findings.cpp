#include "dear/comm/mpi/findings.h"

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
bool is_known(Collective collective, const programs::AlgorithmChoice& choice) {
  if (!is_program(choice)) {
    return true;
  }
  const std::vector<programs::AlgorithmChoice> known = programs::algorithm_choices(
      {.collective = collective, .bytes = largest_of(0), .ranks = 2, .exact = false});
  return choice.segment_bytes > 0 &&
         std::any_of(known.begin(), known.end(), [&](const programs::AlgorithmChoice& one) {
           return one.algorithm == choice.algorithm && one.then == choice.then;
         });
}

Json to_json(const programs::AlgorithmChoice& choice) {
  return {{"algorithm", choice.algorithm}, {"then", choice.then}, {"segment_bytes", choice.segment_bytes}};
}

programs::AlgorithmChoice choice_from(const JsonField& entry) {
  return {.algorithm = entry.member("algorithm").text(),
          .then = entry.member("then").text(),
          .segment_bytes = entry.member("segment_bytes").integer()};
}

// An all-reduce is the one after the other, or, small, all contributions on every rank.
programs::AlgorithmChoice all_reduce_of(const programs::AlgorithmChoice& reduce_scatter,
                                        const programs::AlgorithmChoice& all_gather, std::int64_t bytes) {
  if (bytes <= kMostGathered) {
    return {.algorithm = "gather"};
  }
  if (reduce_scatter.algorithm == all_gather.algorithm && !is_program(all_gather)) {
    return all_gather;
  }
  const programs::AlgorithmChoice& cut = is_program(reduce_scatter) ? reduce_scatter : all_gather;
  return {.algorithm = "direct",
          .then = is_program(all_gather) ? all_gather.algorithm : "ring",
          .segment_bytes = cut.segment_bytes};
}

}  // namespace

void Findings::set(Collective collective, int size_class, Finding finding) {
  by_operation_[collective].at(static_cast<std::size_t>(size_class)) = std::move(finding);
}

void Findings::forget(Collective collective, int size_class) {
  by_operation_[collective].at(static_cast<std::size_t>(size_class)).reset();
}

const Finding* Findings::find(Collective collective, int size_class) const {
  const auto found = by_operation_.find(collective);
  if (found == by_operation_.end()) {
    return nullptr;
  }
  const auto& finding = found->second.at(static_cast<std::size_t>(size_class));
  return finding ? &*finding : nullptr;
}

int Findings::count() const {
  std::ptrdiff_t found = 0;
  for (const auto& [collective, by_size] : by_operation_) {
    found += std::count_if(by_size.begin(), by_size.end(), [](const auto& one) { return one.has_value(); });
  }
  return static_cast<int>(found);
}

// The choice of the measured size class that is nearest, among those from `begin` to before `end`; where none
// was measured, a choice that needs no measurement.
programs::AlgorithmChoice Findings::nearest(Collective collective, int size_class, int begin, int end) const {
  for (int distance = 0; distance < kSizeClasses; ++distance) {
    for (const int at : {size_class + distance, size_class - distance}) {
      if (at >= begin && at < end) {
        if (const Finding* const finding = find(collective, at)) {
          return finding->choice;
        }
      }
    }
  }
  return {.algorithm = collective == Collective::reduce_scatter ? "direct" : "ring",
          .segment_bytes = kEagerSegment};
}

Choices Findings::choices(bool sums_go_around) const {
  const int split = sums_go_around ? size_class_of(kLargestSumInOrder) + 1 : 0;
  Choices choices;
  for (int size_class = 0; size_class < kSizeClasses; ++size_class) {
    const bool large = size_class >= split;
    const programs::AlgorithmChoice reduce_scatter =
        nearest(Collective::reduce_scatter, size_class, large ? split : 0, large ? kSizeClasses : split);
    const programs::AlgorithmChoice all_gather = nearest(Collective::all_gather, size_class, 0, kSizeClasses);
    choices.set(Collective::reduce_scatter, size_class, reduce_scatter);
    choices.set(Collective::all_gather, size_class, all_gather);
    choices.set(Collective::all_reduce, size_class,
                all_reduce_of(reduce_scatter, all_gather, largest_of(size_class)));
  }
  return choices;
}

std::string Findings::format(const std::string& key) const {
  Json found = Json::array();
  for (const auto& [collective, by_size] : by_operation_) {
    for (int i = 0; i < kSizeClasses; ++i) {
      if (const auto& finding = by_size[static_cast<std::size_t>(i)]) {
        found.push_back({{"operation", name_of(collective)},
                         {"size_class", i},
                         {"way", to_json(finding->choice)},
                         {"seconds", finding->seconds}});
        if (finding->second) found.back()["second"] = to_json(*finding->second);
      }
    }
  }
  return Json{{"dear-mpi-choices", kForm}, {"key", key}, {"found", found}}.dump(1) + "\n";
}

std::optional<Findings> Findings::parse(const std::string& text, const std::string& key) try {
  require_shallow(text);
  const Json document = Json::parse(text);  // parse_json() refuses long texts, and the key names all hosts
  const JsonField file(document, "choices of MPI");
  if (file.member("dear-mpi-choices").integer() != kForm || file.member("key").text() != key) {
    return std::nullopt;
  }
  Findings findings;
  for (const JsonField& entry : file.member("found").elements()) {
    const auto collective = operation_called(entry.member("operation").text());
    const std::int64_t size_class = entry.member("size_class").integer(0, kSizeClasses - 1);
    Finding finding{.choice = choice_from(entry.member("way")), .seconds = entry.member("seconds").number()};
    if (entry.has("second")) finding.second = choice_from(entry.member("second"));
    if (!collective || !is_known(*collective, finding.choice) ||
        (finding.second && !is_known(*collective, *finding.second)) || !std::isfinite(finding.seconds) ||
        finding.seconds <= 0) {
      return std::nullopt;
    }
    findings.set(*collective, static_cast<int>(size_class), std::move(finding));
  }
  return findings.count() > 0 ? std::optional(std::move(findings)) : std::nullopt;
} catch (const Json::exception&) {
  return std::nullopt;
} catch (const ConfigError&) {
  return std::nullopt;
}

}  // namespace dear::backends
