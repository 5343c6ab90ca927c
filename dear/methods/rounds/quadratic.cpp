#include "dear/methods/rounds/quadratic.h"

#include <vector>

#include "dear/base/vocabulary/ids.h"
#include "dear/methods/rounds/draws.h"
#include "dear/methods/rounds/shapes.h"

namespace dear::methods::rounds {
namespace {

class Quadratic final : public Problem {
 public:
  explicit Quadratic(const QuadraticShape& shape) : shape_(shape) {
    codec::Draw common = draws_of(shape.seed, Purpose::data, 0);
    std::vector<double> middle(static_cast<std::size_t>(shape.dimension));
    for (double& value : middle) value = normal(common);
    for (int client = 0; client < shape.clients; ++client) {
      codec::Draw draw = draws_of(shape.seed, Purpose::data, 1, client);
      Client& one = clients_.emplace_back();
      for (const double value : middle) {
        one.curvature.push_back(coin(draw, 0.5) ? 1 : 1 / shape.condition);
        one.minimum.push_back(value + shape.heterogeneity * normal(draw));
      }
    }
  }

  [[nodiscard]] std::int64_t dimension() const override { return shape_.dimension; }
  [[nodiscard]] int clients() const override { return shape_.clients; }
  [[nodiscard]] Constants constants() const override {
    return {.smoothness = 1, .convexity = 1 / shape_.condition};
  }
  void gradient(int client, std::span<const double> point, const Batch& /*batch*/,
                std::span<double> out) const override {
    const Client& one = clients_[index_of(client)];
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = one.curvature[i] * (point[i] - one.minimum[i]);
  }
  [[nodiscard]] std::vector<double> optimum() const override {
    std::vector<double> optimum;
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape_.dimension); ++i) {
      double weighted = 0, weight = 0;
      for (const Client& one : clients_) {
        weighted += one.curvature[i] * one.minimum[i];
        weight += one.curvature[i];
      }
      optimum.push_back(weighted / weight);
    }
    return optimum;
  }

 private:
  struct Client {
    std::vector<double> curvature, minimum;
  };
  QuadraticShape shape_;
  std::vector<Client> clients_;
};

}  // namespace

std::unique_ptr<Problem> make_quadratic(const QuadraticShape& shape) {
  check_shape(shape.clients, shape.dimension, shape.heterogeneity);
  check_condition(shape.condition);
  return std::make_unique<Quadratic>(shape);
}

}  // namespace dear::methods::rounds
