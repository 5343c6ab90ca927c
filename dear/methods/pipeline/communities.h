#pragma once

#include <vector>

#include "dear/platform/cluster/pair_cluster.h"

// This header finds which devices are near each other, and in which order a pipeline passes them.
namespace dear::methods::pipeline {

// Weights of the edges between nodes, symmetric, 0 or more; the diagonal is 0 where nothing is said.
using Weights = std::vector<std::vector<double>>;

// Bytes a second between two devices in their slower direction: a pipeline sends both ways.
Weights bandwidths(const PairCluster& cluster);

// How much more weight lies inside of communities than would by chance (Newman and Girvan 2004,
// doi:10.1103/PhysRevE.69.026113). `community` by node. 0 where there is no weight at all.
double modularity(const Weights& weights, const std::vector<int>& community);

// A division of great modularity (Blondel et al. 2008, doi:10.1088/1742-5468/2008/10/P10008): nodes move to
// the neighbouring community that gains most, communities become nodes, and again; from several orders of
// the nodes, of which the best result counts, each then refined by moves of single nodes. Communities are
// numbered by their smallest nodes. The same for the same weights.
std::vector<int> louvain(const Weights& weights);

// A path through all nodes whose smallest weight is the greatest there is, and among those the one whose
// nodes' distances, 1 / weight, have the least sum: exact up to 8 nodes. Above, the best of those that go on
// to the nearest node, from each first one. It begins with `first` and ends with `last`, where these are
// nodes and not -1; where neither is, with the smaller of its ends.
std::vector<int> widest_chain(const Weights& weights, int first = -1, int last = -1);

// Communities of devices in the order of widest_chain() over the best links between them, and the devices of
// each likewise, so that it begins and ends with devices that have good links to its neighbours.
std::vector<std::vector<int>> ordered_communities(const PairCluster& cluster);

// Orders whose first and last devices have a good link, for stages at both ends that have something to tell
// each other. These communities as a ring, in the order of the widest_chain() whose ends, joined, leave it
// the widest, devices in it as above; the ring is opened at each of its links, at most 32, the fastest first,
// and passed either way from there. The community that a ring is opened in is in two parts, the first and the
// last. None for less than three devices.
std::vector<std::vector<std::vector<int>>> opened_rings(const PairCluster& cluster,
                                                        const std::vector<std::vector<int>>& communities);

}  // namespace dear::methods::pipeline
