#pragma once

#include "studies/report/progress.h"
#include <cstddef>
#include <functional>
#include <string_view>

namespace dear::studies::training {

// Calls `work` with each number below `count`, each once, on as many threads as the machine has cores. The
// first exception is thrown here, and what was not begun by then is left out. `progress` is told of a part of
// that name.
void for_each_in_threads(std::size_t count, const std::function<void(std::size_t)>& work,
                         std::string_view part = "", const studies::Progress& progress = {});

}  // namespace dear::studies::training
