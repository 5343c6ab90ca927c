// The two parts of a backward pass give the gradients of one, and compute no more than that.

#include "dear/systems/pipeline/backward.h"

#include <string_view>

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/normalization.h>
#include <torch/types.h>

namespace dear::systems::pipeline::backward_test {
namespace {

torch::Tensor drawn(std::initializer_list<std::int64_t> sizes) { return torch::randn(sizes, at::kDouble); }
torch::Tensor trained(std::initializer_list<std::int64_t> sizes) { return drawn(sizes).requires_grad_(); }

// A stage: what it makes of what arrived, by these parameters.
struct Case {
  Tensors leaves, parameters;
  std::function<Tensors()> made;
};

int products = 0;
std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::addmm") ++products;
  return nullptr;
}
// Products of matrices that this computes.
template <typename Act>
int products_of(const Act& act) {
  products = 0;
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(count));
  act();
  at::removeCallback(handle);
  return products;
}

void expect_equal(const torch::Tensor& found, const torch::Tensor& expected) {
  ASSERT_EQ(found.defined(), expected.defined());
  EXPECT_TRUE(!found.defined() || torch::allclose(found, expected, 1e-12, 1e-12));
}

// Returns the products of both parts and of one pass.
std::pair<int, int> check(const Case& stage) {
  const Tensors roots = stage.made();
  Tensors gradients;
  for (const torch::Tensor& root : roots) gradients.push_back(drawn({1}).expand_as(root).contiguous());
  const int in_one = products_of([&] { torch::autograd::backward(roots, gradients, true); });
  const auto taken = [](const Tensors& tensors) {
    Tensors found;
    for (torch::Tensor one : tensors) {
      found.push_back(one.grad());
      one.mutable_grad().reset();
    }
    return found;
  };
  const Tensors of_leaves = taken(stage.leaves), of_parameters = taken(stage.parameters);
  int in_two = 0;
  {
    Backward backward(roots, gradients, stage.leaves);
    Tensors found;
    in_two += products_of([&] { found = backward.input_gradients(); });
    for (std::size_t i = 0; i < found.size(); ++i) expect_equal(found[i], of_leaves[i]);
    for (const torch::Tensor& one : stage.parameters) EXPECT_FALSE(one.grad().defined());
    in_two += products_of([&] { backward.weight_gradients(); });
  }
  for (std::size_t i = 0; i < stage.parameters.size(); ++i)
    expect_equal(stage.parameters[i].grad(), of_parameters[i]);
  for (const torch::Tensor& one : stage.leaves) EXPECT_FALSE(one.grad().defined());
  return {in_two, in_one};
}

TEST(Backward, ComputesEachProductOnce) {
  const torch::Tensor x = trained({4, 6}), first = trained({6, 6}), bias = trained({6}), scale = trained({6}),
                      second = trained({6, 6});
  const auto [in_two, in_one] = check({{x}, {first, bias, scale, second}, [&] {
                                         torch::Tensor y = torch::linear(x, first, bias);
                                         y = torch::layer_norm(y + x, {6}, scale);
                                         return Tensors{torch::linear(torch::gelu(y), second) + y};
                                       }});
  EXPECT_EQ(in_one, 4);
  EXPECT_EQ(in_two, in_one);
}

TEST(Backward, OfNothingThatArrivedIsOnePassLater) {
  const torch::Tensor x = drawn({4, 6}), weight = trained({6, 6});
  EXPECT_EQ(check({{}, {weight}, [&] { return Tensors{torch::linear(x, weight)}; }}), std::pair(1, 1));
}

TEST(Backward, TakesRootsAndLeavesThatHaveNothingToDoWithEachOther) {
  const torch::Tensor x = trained({4, 6}), unused = trained({4, 6}), passes = trained({4, 6}),
                      weight = trained({6, 6}), other = trained({6, 6}), idle = trained({6});
  check({{x, unused, passes}, {weight, other, idle}, [&] {
           return Tensors{torch::linear(x, weight), torch::mm(other, other), passes * 2};
         }});
}

TEST(Backward, TakesOperationsOfSeveralResults) {
  const torch::Tensor x = trained({6, 6}), weight = trained({6, 6});
  check({{x}, {weight}, [&] {
           const Tensors parts = torch::linear(x, weight).chunk(3, 1);
           return Tensors{parts[0] * parts[2], parts[0].exp()};
         }});
}

TEST(Backward, AddsUpWhatOperationsThatShareAWeightGiveIt) {
  const torch::Tensor x = trained({4, 6}), weight = trained({6, 6}), scale = trained({6});
  check({{x}, {weight, scale}, [&] {
           const torch::Tensor once = torch::linear(x, weight) * scale;
           return Tensors{torch::linear(once, weight) * scale * scale};
         }});
  const torch::Tensor raw = trained({6, 6});
  check({{x}, {raw}, [&] {
           const torch::Tensor made = raw.tanh();  // read twice
           return Tensors{torch::linear(torch::linear(x, made), made)};
         }});
}

TEST(Backward, CallsHooksOnGradientsOnceForEach) {
  const torch::Tensor x = trained({4, 6}), first = trained({6, 6}), second = trained({6, 6});
  second.register_hook([](const torch::Tensor& gradient) { return gradient * 3; });
  check({{x}, {first, second}, [&] {
           const torch::Tensor y = torch::linear(x, first);
           y.register_hook([](const torch::Tensor& gradient) { return gradient * 2; });
           return Tensors{torch::linear(y, second)};
         }});
}

TEST(Backward, AddsToGradientsThatAreThere) {
  const torch::Tensor x = trained({4, 6}), weight = trained({6, 6});
  for (int times = 1; times <= 2; ++times) {
    const torch::Tensor y = torch::linear(x, weight);
    Backward backward({y}, {torch::ones_like(y)}, {x});
    (void)backward.input_gradients();
    backward.weight_gradients();
    EXPECT_TRUE(torch::allclose(weight.grad(), times * torch::ones_like(y).t().mm(x), 1e-12, 1e-12));
  }
}

// Far deeper than a stack of calls could be.
TEST(Backward, GoesThroughADeepGraph) {
  const torch::Tensor x = trained({2}), weight = trained({2});
  torch::Tensor y = x * weight;
  for (int i = 0; i < 200'000; ++i) y = y + 1;
  Backward backward({y}, {torch::ones_like(y)}, {x});
  EXPECT_TRUE(torch::equal(backward.input_gradients()[0], weight));
  backward.weight_gradients();
  EXPECT_TRUE(torch::equal(weight.grad(), x.detach()));
}

}  // namespace
}  // namespace dear::systems::pipeline::backward_test
