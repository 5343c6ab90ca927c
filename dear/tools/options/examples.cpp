#include "dear/tools/options/examples.h"

#include <algorithm>
#include <array>

#include <CLI/App.hpp>

namespace dear::cli {
namespace {

struct Example {
  std::string_view command, call;
};
constexpr std::array kExamples{
    Example{"dear train", "dear train --workers 2 --network 1gbit --compare serial,wfbp,dear"},
    Example{"dear launch", "dear launch -n 4 -- ./program --an-option-of-its-own"},
    Example{"dear diagnose", "dear launch -n 4 --record run -- ./program; dear diagnose run"},
    Example{"dear profile", "dear profile resnet50.pt --input 8x3x224x224 --out resnet50.json"},
    Example{"dear replay",
            "dear replay --model resnet50 --workers 2 --network 1gbit --policy serial,wfbp,dear"},
    Example{"dear simulate", "dear simulate --model resnet50 --cluster 10gbe-64 --policy serial,wfbp,dear"},
    Example{"dear simulate collective",
            "dear simulate collective --cluster themis-3d-sw-sw-sw-hetero-1024 --bytes 1GiB"},
    Example{"dear plan", "dear plan --model resnet50 --cluster 10gbe-64 --schedule schedule.json"},
    Example{"dear tune", "dear tune --model resnet50 --cluster 10gbe-64"},
    Example{"dear tune training", "dear tune training --workers 2 --network 1gbit --schedule schedule.json"},
    Example{"dear pipeline plan",
            "dear pipeline plan --model gpt2-xl --cluster two-sites --compress ada-top-k --output plan.json"},
    Example{"dear pipeline simulate",
            "dear pipeline simulate --model gpt2-xl --cluster two-sites --schedule gpipe,1f1b,zb-h1"},
    Example{
        "dear pipeline train",
        "dear pipeline clusters --devices 2 --sites 2 --output sites.json && dear pipeline train --workers 2 "
        "--network sites.json --compress ada-top-k"},
    Example{"dear pipeline clusters", "dear pipeline clusters --devices 12 --sites 3 --output cluster.json"},
    Example{"dear rounds run",
            "dear rounds run --clients 20 --dimension 60 --rows 10 --condition 1000 --plot rounds.svg"},
    Example{"dear edge plan", "dear edge plan --groups 10 --workers 2 --json plan.json"},
    Example{"dear edge train", "dear edge train --groups 3 --iterations 20"},
    Example{"dear edge average", "dear edge average --ranks 6 --graph ring --rounds 10"},
    Example{"dear edge run",
            "dear edge run --scheduler random,best-channel,bn2,bc-bn2 --rounds 60 --csv trace.csv"},
    Example{"dear study paper", "dear study paper --out study"},
    Example{"dear study sparse", "dear study sparse --quick --out sparse"},
    Example{"dear study homomorphic", "dear study homomorphic --quick --out homomorphic"},
    Example{"dear study themis", "dear study themis --quick --out themis"},
    Example{"dear study kfac", "dear study kfac --out kfac"},
    Example{"dear study lancet", "dear study lancet --quick --out lancet"},
    Example{"dear study fusionllm", "dear study fusionllm --quick --out fusionllm"},
    Example{"dear study partel", "dear study partel --quick --out partel"},
    Example{"dear study wireless", "dear study wireless --quick --out wireless"},
    Example{"dear study rounds", "dear study rounds --quick --out rounds"},
    Example{"dear study calibration", "dear study calibration"},
    Example{"dear models", "dear models"},
    Example{"dear models export", "dear models export resnet50 --device a100 --out resnet50.json"},
    Example{"dear clusters", "dear clusters"},
    Example{"dear trace summary",
            "dear train --workers 2 --steps 20 --trace run.json && dear trace summary run.json"},
    Example{"dear report",
            "dear simulate --model resnet50 --cluster 10gbe-64 --policy dear --trace run.json && dear report "
            "run.json --out report.html"},
    Example{"dear bench collective", "dear bench collective --ranks 4 --sizes 4KiB..64MiB"},
    Example{"dear bench links", "dear bench links --workers 3 --sizes 1KiB..1MiB --output links.json"},
    Example{"dear aggregate", "dear aggregate --workers 3 --elements 4M --density 0.05 --network 1gbit"},
    Example{"dear completion", "source <(dear completion bash)"},
    Example{"dear man", "dear man > dear.1 && man ./dear.1"},
};

}  // namespace

std::string name_of(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return (parent != nullptr ? name_of(*parent) + " " : "") + command.get_name();
}

std::string example_of(std::string_view command) {
  const auto* const found = std::find_if(kExamples.begin(), kExamples.end(),
                                         [&](const Example& one) { return one.command == command; });
  return found == kExamples.end() ? "" : std::string(found->call);
}

}  // namespace dear::cli
