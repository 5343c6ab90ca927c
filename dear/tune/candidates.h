#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

// What can be tried. The folder knows nothing of what it tunes: candidates have positions, and somebody
// measures how many seconds each of them takes.
namespace dear::tune {

enum class Scale : std::uint8_t { linear, logarithmic };

// A number to choose, from `low` to `high`, both included.
struct Dimension {
  std::string name;
  double low = 0;
  double high = 1;
  Scale scale = Scale::logarithmic;
};

// One thing to try.
struct Candidate {
  std::string name;
  std::vector<double> values;    // by dimension; none for one that stands apart
  std::vector<double> position;  // coordinates in [0, 1], as many for all candidates
};
using Candidates = std::vector<Candidate>;

// What is tried with these values, as a text: points that give one text are one candidate.
using Key = std::function<std::string(const std::vector<double>& values)>;

struct GridOptions {
  std::size_t points = 129;  // along every dimension, ends included; at least 1
  // Of a candidate by its values; the values themselves when not set.
  std::function<std::string(const std::vector<double>& values)> name = nullptr;
};

// One candidate for each distinct key on an even grid over the dimensions, in the order in which the grid
// meets them, the last dimension innermost. Of the points that share a key, the candidate has the values of
// the one nearest to their middle, and that middle as its position: of a range of bucket sizes that all give
// the same buckets, the centre. ConfigError for no dimension, a range that is empty or not finite, one that
// is not above 0 and logarithmic, and for more than a million points.
Candidates candidates_on_grid(const std::vector<Dimension>& dimensions, const Key& key,
                              const GridOptions& options = {});

// Adds a candidate that is no point of the grid, such as buckets that were planned, beside those that differ
// in size. It gets a coordinate of its own, 1 for it and 0 for all others, so that what it takes is related
// to the others as far as measurements say so; the others of its coordinates are those of `like`, the
// candidate that it resembles most. ConfigError when there is no such candidate.
void add_apart(Candidates& candidates, std::string name, std::size_t like);

// Linear distance of two positions.
double distance(const Candidate& one, const Candidate& other);

// ConfigError unless there is a candidate, and all have the same number of coordinates, at least one, and all
// of them in [0, 1].
void validate(const Candidates& candidates);

}  // namespace dear::tune
