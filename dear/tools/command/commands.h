#pragma once

#include <span>

#include "dear/tools/options/add_command.h"

// Each adds a command to `dear`: its options, and what it does.
namespace dear::cli {

std::span<const AddCommand> commands();  // in the order of `dear --help`

void add_train_command(CLI::App& app);      // `dear train`: a small GPT on a text, with several workers
void add_launch_command(CLI::App& app);     // `dear launch`: a program as all ranks of a job
void add_diagnose_command(CLI::App& app);   // `dear diagnose`: the rank by which a job failed
void add_profile_command(CLI::App& app);    // `dear profile`: the layers of a model
void add_replay_command(CLI::App& app);     // `dear replay`: real communication beside timed computation
void add_simulate_command(CLI::App& app);   // `dear simulate`: policies on a modelled cluster
void add_plan_command(CLI::App& app);       // `dear plan`: the policy and buckets for a model on a cluster
void add_pipeline_command(CLI::App& app);   // `dear pipeline`: one model over devices that are far apart
void add_rounds_command(CLI::App& app);     // `dear rounds`: local steps, and an average now and then
void add_edge_command(CLI::App& app);       // `dear edge`: learning on devices in a radio cell
void add_tune_command(CLI::App& app);       // `dear tune`: the bucket size of a job
void add_study_command(CLI::App& app);      // `dear study`: whole studies
void add_models_command(CLI::App& app);     // `dear models`: what --model takes by name, and devices
void add_clusters_command(CLI::App& app);   // `dear clusters`: what --cluster takes by name
void add_trace_command(CLI::App& app);      // `dear trace`: looks into traces
void add_report_command(CLI::App& app);     // `dear report`: a page of HTML of runs
void add_bench_command(CLI::App& app);      // `dear bench`: collectives beside those of rivals
void add_aggregate_command(CLI::App& app);  // `dear aggregate`: sparse gradients through an aggregator

void add_completion_command(CLI::App& app);  // `dear completion`: a script that completes words in a shell
void add_man_command(CLI::App& app);         // `dear man`: the manual page

void add_bench_links(CLI::App& bench);  // `dear bench links`: the link of each pair of ranks
// `dear models export`: a model by name as a workload file
CLI::App* add_models_export(CLI::App& models);
// `dear simulate collective`: one collective alone
CLI::App* add_simulate_collective(CLI::App& simulate);
// `dear pipeline clusters`: clusters with a link for each pair
void add_pipeline_clusters(CLI::App& pipeline);
// `dear pipeline train`: a small GPT whose layers lie on the workers
void add_pipeline_train(CLI::App& pipeline);
void add_tune_training(CLI::App& tune);  // `dear tune training`: the job of `dear train`, while it trains

}  // namespace dear::cli
