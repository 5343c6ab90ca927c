#include "dear/predict/tune/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"

namespace dear::tune {
namespace {

constexpr double kMostPoints = 1e6;

void check(const std::vector<Dimension>& dimensions, std::size_t points) {
  if (dimensions.empty()) throw ConfigError("there is no dimension to make candidates of: give at least one");
  if (points < 1) throw ConfigError("a grid of no points has no candidates: give at least one");
  if (std::pow(static_cast<double>(points), static_cast<double>(dimensions.size())) > kMostPoints)
    throw ConfigError(fmt::format("{} points along each of {} dimensions are too many: give fewer", points,
                                  dimensions.size()));
  for (const Dimension& dimension : dimensions) {
    const bool usable =
        std::isfinite(dimension.low) && std::isfinite(dimension.high) && dimension.low <= dimension.high;
    if (!usable || (dimension.scale == Scale::logarithmic && !(dimension.low > 0)))
      throw ConfigError(
          fmt::format("'{}' cannot go from {:g} to {:g}: give finite numbers in order, above 0 on a "
                      "logarithmic scale",
                      dimension.name, dimension.low, dimension.high));
  }
}

double value_at(const Dimension& dimension, double position) {
  // The ends are returned as they are, because rounding could leave the range.
  if (position <= 0) return dimension.low;
  if (position >= 1) return dimension.high;
  if (dimension.scale == Scale::linear) return dimension.low + position * (dimension.high - dimension.low);
  return dimension.low * std::pow(dimension.high / dimension.low, position);
}

struct GridPoint {
  std::vector<double> values;
  std::vector<double> position;
};

double squared_distance(const std::vector<double>& one, const std::vector<double>& other) {
  double sum = 0;
  for (std::size_t d = 0; d < one.size(); ++d) sum += (one[d] - other[d]) * (one[d] - other[d]);
  return sum;
}

Candidate candidate_of(const std::vector<GridPoint>& points) {
  Candidate candidate{.name = {}, .values = {}, .position = points.front().position};
  for (std::size_t d = 0; d < candidate.position.size(); ++d) {
    double sum = 0;
    for (const GridPoint& point : points) sum += point.position[d];
    candidate.position[d] = sum / static_cast<double>(points.size());
  }
  const auto nearest =
      std::min_element(points.begin(), points.end(), [&](const GridPoint& one, const GridPoint& other) {
        return squared_distance(one.position, candidate.position) <
               squared_distance(other.position, candidate.position);
      });
  candidate.values = nearest->values;
  return candidate;
}

}  // namespace

Candidates candidates_on_grid(const std::vector<Dimension>& dimensions, const Key& key,
                              const GridOptions& options) {
  check(dimensions, options.points);
  std::unordered_map<std::string, std::size_t> numbers;
  std::vector<std::vector<GridPoint>> groups;
  std::vector<std::size_t> index(dimensions.size(), 0);
  for (bool more = true; more;) {
    GridPoint point;
    for (std::size_t d = 0; d < dimensions.size(); ++d) {
      point.position.push_back(
          options.points > 1 ? static_cast<double>(index[d]) / static_cast<double>(options.points - 1) : 0.5);
      point.values.push_back(value_at(dimensions[d], point.position.back()));
    }
    const auto [found, is_new] = numbers.emplace(key(point.values), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(std::move(point));
    std::size_t d = dimensions.size();
    while (d > 0 && ++index[d - 1] == options.points) index[--d] = 0;
    more = d > 0;
  }
  Candidates candidates;
  for (const std::vector<GridPoint>& group : groups) {
    candidates.push_back(candidate_of(group));
    Candidate& candidate = candidates.back();
    candidate.name = options.name ? options.name(candidate.values)
                                  : fmt::format("{:g}", fmt::join(candidate.values, ", "));
  }
  return candidates;
}

void add_apart(Candidates& candidates, std::string name, std::size_t like) {
  if (like >= candidates.size())
    throw ConfigError(fmt::format("'{}' cannot resemble candidate {} of {}: give one that is there", name,
                                  like, candidates.size()));
  Candidate added{.name = std::move(name), .values = {}, .position = candidates[like].position};
  for (Candidate& candidate : candidates) candidate.position.push_back(0);
  added.position.push_back(1);
  candidates.push_back(std::move(added));
}

double distance(const Candidate& one, const Candidate& other) {
  return std::sqrt(squared_distance(one.position, other.position));
}

void validate(const Candidates& candidates) {
  if (candidates.empty()) throw ConfigError("there is no candidate to tune with: give at least one");
  const std::size_t coordinates = candidates.front().position.size();
  for (const Candidate& candidate : candidates) {
    const bool inside = std::all_of(candidate.position.begin(), candidate.position.end(),
                                    [](double coordinate) { return coordinate >= 0 && coordinate <= 1; });
    if (coordinates == 0 || candidate.position.size() != coordinates || !inside)
      throw ConfigError(fmt::format(
          "candidate '{}' has the position ({:g}): give all candidates {} coordinates from 0 to 1",
          candidate.name, fmt::join(candidate.position, ", "), std::max<std::size_t>(coordinates, 1)));
  }
}

}  // namespace dear::tune
