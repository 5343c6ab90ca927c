#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

void add_study(CLI::App& app);      // `dear study`: whole studies
void add_aggregate(CLI::App& app);  // `dear aggregate`: sparse gradients through an aggregator

}  // namespace dear::cli
