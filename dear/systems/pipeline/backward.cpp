#include "dear/systems/pipeline/backward.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace dear::systems::pipeline {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty() || !node.post_hooks().empty();
}

// Each node before those that it reads, of all that roots depend on. A deep graph needs no deep stack.
std::vector<Node*> in_order(const Tensors& roots) {
  std::vector<Node*> order;
  std::unordered_map<Node*, std::size_t> looked_at;  // edges
  for (const torch::Tensor& root : roots) {
    std::vector<Node*> way;
    const auto enter = [&](Node* node) {
      if (node != nullptr && looked_at.try_emplace(node, 0).second) way.push_back(node);
    };
    enter(torch::autograd::impl::gradient_edge(root).function.get());
    while (!way.empty()) {
      Node* const node = way.back();
      if (std::size_t& next = looked_at[node]; next < node->num_outputs()) {
        enter(node->next_edge(next++).function.get());
      } else {
        order.push_back(node);
        way.pop_back();
      }
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

struct Keep : torch::autograd::FunctionPreHook {
  explicit Keep(std::weak_ptr<Tensors> to) : to_(std::move(to)) {}
  variable_list operator()(const variable_list& gradients) override {
    if (const auto to = to_.lock(); to && to->empty()) *to = gradients;
    return gradients;
  }

 private:
  std::weak_ptr<Tensors> to_;  // of an object that has the node, which has this
};

}  // namespace

Backward::Backward(Tensors roots, Tensors gradients, Tensors leaves)
    : roots_(std::move(roots)), gradients_(std::move(gradients)), leaves_(std::move(leaves)) {
  find();
}
Backward::Backward(Backward&&) noexcept = default;
Backward& Backward::operator=(Backward&&) noexcept = default;
Backward::~Backward() = default;

void Backward::find() {
  const std::vector<Node*> order = in_order(roots_);
  std::unordered_map<const Node*, bool> leads;  // to a leaf
  for (const torch::Tensor& leaf : leaves_)
    leads[torch::autograd::impl::gradient_edge(leaf).function.get()] = true;
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    if (const auto* found = dynamic_cast<torch::autograd::AccumulateGrad*>(*node);
        found != nullptr && !leads[*node])
      parameters_.push_back(found->variable);
    for (const Edge& edge : (*node)->next_edges())
      if (edge.is_valid() && leads[edge.function.get()]) leads[*node] = true;
  }
  // By node beside the ways to leaves, the one on such a way that it belongs to.
  std::unordered_map<const Node*, const Node*> belongs_to;
  for (Node* const node : order) {
    const bool on_way = leads[node];
    const auto owner = belongs_to.find(node);
    if (!on_way && owner == belongs_to.end()) continue;  // of a root that no leaf leads to
    edge_list beside;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid() || leads[edge.function.get()]) continue;
      const Node* const mine = on_way ? node : owner->second;
      if (belongs_to.try_emplace(edge.function.get(), mine).first->second != mine) as_a_whole_ = true;
      if (on_way && has_hooks(*edge.function)) as_a_whole_ = true;
      if (std::find(beside.begin(), beside.end(), edge) == beside.end()) beside.push_back(edge);
    }
    if (!on_way || beside.empty()) continue;
    if (has_hooks(*node)) as_a_whole_ = true;
    passed_.push_back(std::make_shared<Passed>(Passed{.node = node->getptr(), .beside = std::move(beside)}));
  }
  if (as_a_whole_) passed_.clear();
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    const Edge edge = torch::autograd::impl::gradient_edge(roots_[i]);
    if (!edge.is_valid() || leads[edge.function.get()]) continue;
    beside_.push_back(edge);
    of_beside_.push_back(gradients_[i]);
  }
  for (const auto& one : passed_)
    one->node->add_pre_hook(std::make_unique<Keep>(std::shared_ptr<Tensors>(one, &one->gradients)));
}

Tensors Backward::input_gradients() {
  if (leaves_.empty() || roots_.empty()) return Tensors(leaves_.size());
  return torch::autograd::grad(roots_, leaves_, gradients_, /*retain_graph=*/true, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

void Backward::weight_gradients() {
  if (parameters_.empty()) return;
  if (as_a_whole_ || leaves_.empty()) {
    torch::autograd::backward(roots_, gradients_, /*retain_graph=*/false, /*create_graph=*/false,
                              parameters_);
    return;
  }
  edge_list edges = beside_;
  variable_list gradients = of_beside_;
  const auto add = [](edge_list& to, variable_list& with, const Edge& edge, const torch::Tensor& gradient) {
    if (!gradient.defined()) return;
    to.push_back(edge);
    with.push_back(gradient);
  };
  for (const auto& one : passed_) {
    edge_list of_node;
    variable_list reached;
    for (std::size_t i = 0; i < one->gradients.size(); ++i)
      add(of_node, reached, Edge(one->node, static_cast<std::uint32_t>(i)), one->gradients[i]);
    if (of_node.empty()) continue;
    const variable_list found =
        Engine::get_default_engine().execute(of_node, reached, /*keep_graph=*/true, /*create_graph=*/false,
                                             /*accumulate_grad=*/false, one->beside);
    for (std::size_t i = 0; i < found.size(); ++i) add(edges, gradients, one->beside[i], found[i]);
  }
  if (!edges.empty())
    Engine::get_default_engine().execute(edges, gradients, /*keep_graph=*/false, /*create_graph=*/false,
                                         /*accumulate_grad=*/true);
}

}  // namespace dear::systems::pipeline
