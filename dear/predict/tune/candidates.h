#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

// The candidates of tuning. This folder knows nothing of what it tunes: candidates have positions, and the
// caller measures how many seconds each candidate takes.
namespace dear::tune {

enum class Scale : std::uint8_t { linear, logarithmic };

// A number to choose, from `low` to `high`, both included.
struct Dimension {
  std::string name;
  double low = 0;
  double high = 1;
  Scale scale = Scale::logarithmic;
};

// One setting that can be tried.
struct Candidate {
  std::string name;
  std::vector<double> values;    // by dimension; none for a candidate of add_apart()
  std::vector<double> position;  // coordinates in [0, 1], as many for all candidates
};
using Candidates = std::vector<Candidate>;

// Returns a text that says what these values mean: points with the same text are one candidate.
using Key = std::function<std::string(const std::vector<double>& values)>;

struct GridOptions {
  std::size_t points = 129;  // along every dimension, ends included; at least 1
  // Returns the name of a candidate with these values; without it the values themselves are the name.
  std::function<std::string(const std::vector<double>& values)> name = nullptr;
};

// Returns one candidate for each distinct key on an even grid over the dimensions, in the order in which the
// grid meets them, the last dimension innermost. The position of a candidate is the middle of the points that
// share its key, and its values are those of the point nearest to that middle: of a range of bucket sizes
// that all give the same buckets, the centre. ConfigError for no dimension, for a range that is empty or not
// finite, for a logarithmic range that is not above 0, and for more than a million points.
Candidates candidates_on_grid(const std::vector<Dimension>& dimensions, const Key& key,
                              const GridOptions& options = {});

// Adds a candidate that is no point of the grid, such as planned buckets beside buckets of a size. The
// candidate gets a coordinate of its own, 1 for it and 0 for all others, so that measurements say how far its
// time is related to theirs. Its other coordinates are those of `like`, the candidate that it resembles most.
// ConfigError when `like` does not exist.
void add_apart(Candidates& candidates, std::string name, std::size_t like);

// Returns the Euclidean distance of two positions.
double distance(const Candidate& one, const Candidate& other);

// ConfigError unless there is a candidate, and all have the same number of coordinates, at least one, and all
// of them in [0, 1].
void validate(const Candidates& candidates);

}  // namespace dear::tune
