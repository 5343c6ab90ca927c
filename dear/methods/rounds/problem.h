#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dear/methods/rounds/theory.h"
#include "dear/schedule/codec/draw.h"

namespace dear::methods::rounds {

// The samples of a gradient: all of the client, or so many that are drawn with replacement.
struct Batch {
  int size = 0;  // 0: all
  codec::Draw* draw = nullptr;
};

// A Problem has clients, each with an operator that it alone evaluates; sought is the zero of their average.
// For a minimum the operator is the gradient of the client's function. For a saddle it is the gradient in the
// primal coordinates, which come first, and the negative gradient in the others. A value: threads may share
// it.
class Problem {
 public:
  virtual ~Problem() = default;
  [[nodiscard]] virtual std::int64_t dimension() const = 0;
  [[nodiscard]] virtual int clients() const = 0;
  [[nodiscard]] virtual Constants constants() const = 0;
  // Writes the operator of a client, or, of a batch, an unbiased estimate.
  virtual void gradient(int client, std::span<const double> point, const Batch& batch,
                        std::span<double> out) const = 0;
  // The point that is sought, as exactly as doubles allow.
  [[nodiscard]] virtual std::vector<double> optimum() const = 0;

  // A saddle says how many coordinates are primal, and above which step size dual steps diverge (0: none).
  [[nodiscard]] virtual std::int64_t primal() const { return dimension(); }
  [[nodiscard]] virtual double step_limit() const { return 0; }
  // Its dual coordinates have a best value at a primal point, which follows from sums over samples: how many
  // there are, the sums of a client's batch, and the values from sums over clients (where these suffice).
  [[nodiscard]] virtual std::int64_t dual_sums() const { return 0; }
  virtual void add_dual_sums(int /*client*/, std::span<const double> /*point*/, const Batch& /*batch*/,
                             std::span<double> /*sums*/) const {}
  virtual void set_dual(std::span<const double> /*sums*/, std::span<double> /*point*/) const {}
};

}  // namespace dear::methods::rounds
