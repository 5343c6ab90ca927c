#pragma once

#include <string>
#include <vector>

#include "dear/tools/cases/pipeline_plan.h"

// The tables that `dear pipeline` prints.
namespace dear::cli {

// The table has a line for each stage: its device, operators, parameters and memory.
std::string stages_table(const cases::PipelineCase& one);
// The table has a line for each pair of neighbour stages: what their link carries for a micro-batch.
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
