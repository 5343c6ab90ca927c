#include "studies/report/downhill_simplex.h"

#include <algorithm>
#include <utility>

namespace dear::studies {
namespace {

using Point = std::vector<double>;

struct Corner {
  double loss;
  Point at;
};

// from + part · (to − from)
Point between(const Point& from, const Point& to, double part) {
  Point point = from;
  for (std::size_t i = 0; i < point.size(); ++i) point[i] += part * (to[i] - from[i]);
  return point;
}

// The centre of all corners but the worst, which stands last.
Point centre_of(const std::vector<Corner>& corners) {
  Point centre(corners.front().at.size(), 0);
  for (std::size_t corner = 0; corner + 1 < corners.size(); ++corner)
    for (std::size_t i = 0; i < centre.size(); ++i)
      centre[i] += corners[corner].at[i] / static_cast<double>(centre.size());
  return centre;
}

}  // namespace

Point downhill_simplex(const std::function<double(const Point&)>& loss, const Point& start, double step,
                       int moves) {
  const auto corner_at = [&](Point at) {
    const double value = loss(at);
    return Corner{.loss = value, .at = std::move(at)};
  };
  std::vector<Corner> corners = {corner_at(start)};
  for (std::size_t i = 0; i < start.size(); ++i) {
    Point beyond = start;
    beyond[i] += step;
    corners.push_back(corner_at(std::move(beyond)));
  }
  const auto sort = [&] {
    std::stable_sort(corners.begin(), corners.end(),
                     [](const Corner& a, const Corner& b) { return a.loss < b.loss; });
  };
  sort();
  for (int move = 0; move < moves; ++move) {
    Corner& worst = corners.back();
    const Point centre = centre_of(corners);
    Corner reflected = corner_at(between(centre, worst.at, -1));
    if (reflected.loss < corners.front().loss) {
      Corner expanded = corner_at(between(centre, worst.at, -2));
      worst = std::move(expanded.loss < reflected.loss ? expanded : reflected);
    } else if (reflected.loss < corners[corners.size() - 2].loss) {
      worst = std::move(reflected);
    } else if (Corner contracted = corner_at(between(centre, worst.at, 0.5)); contracted.loss < worst.loss) {
      worst = std::move(contracted);
    } else {
      for (std::size_t i = 1; i < corners.size(); ++i)
        corners[i] = corner_at(between(corners.front().at, corners[i].at, 0.5));
    }
    sort();
  }
  return corners.front().at;
}

}  // namespace dear::studies
