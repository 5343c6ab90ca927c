#pragma once

#include <string>
#include <vector>

#include "dear/tools/cases/pipeline_plan.h"

// What `dear pipeline` prints.
namespace dear::cli {

// Who holds what: a line for each stage.
std::string stages_table(const cases::PipelineCase& one);
// Which link carries what for a micro-batch: a line for each pair of neighbour stages.
std::string links_table(const cases::PipelineCase& one);
// A line for each plan; `last` says what the last column is, and `speed_up` what it has.
std::string plans_table(const std::vector<cases::PipelineCase>& cases, const std::string& last,
                        const std::vector<double>& speed_ups);
// A line for each preset.
std::string clusters_table();
// The sites of a cluster and the links inside and between them, from the slowest to the fastest.
std::string sites_table(const PairCluster& cluster);

void print_left_out(const std::vector<cases::LeftOutPlan>& left_out);

}  // namespace dear::cli
