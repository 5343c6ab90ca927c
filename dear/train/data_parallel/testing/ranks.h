#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/comm/group/single.h"
#include "dear/comm/shaped/shaped.h"
#include "dear/comm/shm/testing/shm_threads.h"

// Ranks as threads, for the tests of train.
namespace dear::train::testing {

inline std::vector<Group> groups_of(int ranks,
                                    std::chrono::duration<double> timeout = std::chrono::seconds(60)) {
  std::vector<Group> groups;
  if (ranks == 1) {
    groups.emplace_back(comm::make_single(), Group::Options{.timeout = timeout});
  } else {
    for (auto& backend : backends::testing::make_shm_threads(ranks)) {
      groups.emplace_back(std::move(backend), Group::Options{.timeout = timeout});
    }
  }
  return groups;
}

// Ranks whose collectives take milliseconds at least: what is not waited for is not there yet.
inline std::vector<Group> slow_groups(int ranks, double alpha_seconds = 3e-3) {
  std::vector<Group> groups;
  for (auto& backend : backends::testing::make_shm_threads(ranks)) {
    groups.emplace_back(
        backends::make_shaped(
            std::move(backend),
            {.name = "slow", .link = {.alpha_seconds = alpha_seconds, .beta_seconds_per_byte = 1e-9}}),
        Group::Options{});
  }
  return groups;
}

// The message of the Error that `act` throws, or "no such error".
template <typename Error, typename Act>
std::string message_of(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no such error";
}

// Runs `program` once a rank; what each threw, by rank.
inline std::vector<std::exception_ptr> run_each(std::vector<Group> groups,
                                                const std::function<void(int rank, Group group)>& program) {
  std::vector<std::exception_ptr> errors(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        program(static_cast<int>(rank), std::move(groups[rank]));
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Runs the program on all ranks, where nothing may fail.
inline void run_all(int ranks, const std::function<void(int rank, Group group)>& program) {
  for (const std::exception_ptr& error : run_each(groups_of(ranks), program)) {
    if (error) std::rethrow_exception(error);
  }
}

inline std::string what_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

// Batches that depend on (step, row) alone: rank r of W with batch B has rows [r * B, (r + 1) * B).
struct Batch {
  torch::Tensor inputs, targets;
};
inline Batch rows(std::int64_t step, std::int64_t first, std::int64_t count, std::int64_t features) {
  std::vector<torch::Tensor> inputs;
  std::vector<torch::Tensor> targets;
  for (std::int64_t row = first; row < first + count; ++row) {
    const auto ramp = torch::arange(features, torch::kFloat32);
    inputs.push_back(
        torch::sin(ramp * (0.37 * static_cast<double>(row + 1)) + 0.71 * static_cast<double>(step)));
    targets.push_back(torch::cos(ramp.slice(0, 0, 3) + 0.13 * static_cast<double>(row * 7 + step)));
  }
  return {torch::stack(inputs), torch::stack(targets)};
}

}  // namespace dear::train::testing
