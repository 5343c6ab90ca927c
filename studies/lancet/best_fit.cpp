#include "studies/lancet/best_fit.h"

#include "studies/report/draw.h"
#include <algorithm>
#include <set>

#include "dear/methods/moe/mixtures.h"
#include "dear/methods/moe/weight_gradients.h"
#include "dear/platform/cluster/presets.h"
#include "dear/workload/zoo/device.h"

namespace dear::studies::lancet {
namespace {

using methods::moe::InstructionGraph;

std::size_t to_place(const InstructionGraph& graph) {
  std::set<methods::moe::InstructionId> all;
  for (const methods::moe::Overlappable& label : methods::moe::overlappable(graph))
    all.insert(label.instructions.begin(), label.instructions.end());
  return all.size();
}

InstructionGraph draw_graph(studies::Draw& draw, const std::vector<std::string>& clusters) {
  methods::moe::MixtureModel model = methods::moe::find_mixture_model("gpt2-s-moe");
  model.layers = draw.from_to(2, 4);
  model.heads = draw.from_to(2, 32);
  model.width = 64 * model.heads;
  model.inner_width = draw.from_to(1, 4) * model.width;
  model.expert_width = draw.from_to(1, 4) * model.width;
  model.mixture_every = draw.from_to(1, 2);
  model.first_mixture = draw.from_to(0, model.mixture_every - 1);
  const auto at = draw.from_to(0, static_cast<int>(clusters.size()) - 1);
  const int ranks = 8 << draw.from_to(0, 3);
  const Cluster cluster = find_cluster(clusters[static_cast<std::size_t>(at)], ranks);
  zoo::Device device = zoo::find_device(cluster.device);
  const double pace = 1 + draw.below(15);
  device.single.flops_per_second *= pace;
  return methods::moe::make_job(model, device, cluster, {.batch = draw.from_to(4, 32)}).graph;
}

}  // namespace

BestFitOutcome beside_the_optimum(const BestFitOptions& options) {
  studies::Draw draw(options.seed);
  BestFitOutcome outcome;
  while (outcome.graphs < options.graphs) {
    const InstructionGraph graph = draw_graph(draw, options.clusters);
    if (to_place(graph) > options.most_instructions) continue;
    const double most = methods::moe::hide_by_search(graph).hidden_seconds;
    const double part = most > 0 ? methods::moe::hide_by_best_fit(graph).hidden_seconds / most : 1;
    ++outcome.graphs;
    outcome.optimal += part > 1 - 1e-9 ? 1 : 0;
    outcome.mean += part / options.graphs;
    outcome.least = std::min(outcome.least, part);
  }
  return outcome;
}

}  // namespace dear::studies::lancet
