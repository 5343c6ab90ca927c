#include "studies/lancet/published.h"

#include "studies/lancet/iterations.h"

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/methods/moe/passes.h"
#include "dear/platform/cluster/presets.h"

namespace dear::studies::lancet {
namespace {

constexpr JsonFormat kLancetFormat = {.name = "dear-published-lancet", .kind = "file of figures of Lancet"};

double above_zero(const JsonField& field) {
  const double number = field.number_from_0();
  if (!(number > 0)) field.fail("expected a number above 0");
  return number;
}

// A name that `find` knows.
template <class Find>
std::string known(const JsonField& field, Find find) {
  std::string name = field.text();
  try {
    (void)find(name);
  } catch (const ConfigError& error) {
    field.fail(error.what());
  }
  return name;
}

std::string preset(const JsonField& field) {
  std::string name = field.text();
  for (const ClusterPreset& one : clusters())
    if (one.cluster.name == name) return name;
  field.fail("expected a cluster that `dear clusters` lists");
}

PublishedLancet::OfCluster of_cluster(const JsonField& field) {
  field.expect_members({"cluster", "gains", "exposed_less"});
  PublishedLancet::OfCluster all{.cluster = preset(field.member("cluster")), .gains = {}, .exposed_less = {}};
  for (const JsonField& one : field.member("gains").elements()) {
    one.expect_members({"gate", "largest", "mean"});
    all.gains.push_back({.gate = known(one.member("gate"), find_gate),
                         .largest = above_zero(one.member("largest")),
                         .mean = above_zero(one.member("mean"))});
  }
  for (const JsonField& one : field.member("exposed_less").elements()) {
    one.expect_members({"than", "largest"});
    all.exposed_less.push_back({.than = known(one.member("than"), methods::moe::find_passes),
                                .largest = above_zero(one.member("largest"))});
  }
  return all;
}

}  // namespace

PublishedLancet parse_published_lancet(std::string_view text, const std::string& source) {
  const Json document = parse_json_file(text, source, kLancetFormat);
  const JsonField root(document, source);
  root.expect_members({"format", "version", "source", "most_parts", "ablation_ranks", "clusters"});
  PublishedLancet published{
      .source = root.member("source").text(),
      .most_parts = static_cast<int>(root.member("most_parts").integer(1, 1024)),
      .ablation_ranks = static_cast<int>(root.member("ablation_ranks").integer(1, 1 << 20)),
      .clusters = {}};
  for (const JsonField& one : root.member("clusters").elements())
    published.clusters.push_back(of_cluster(one));
  return published;
}

PublishedLancet read_published_lancet(const std::string& path) {
  return parse_published_lancet(os::read_file(path), path);
}

}  // namespace dear::studies::lancet
