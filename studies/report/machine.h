#pragma once

#include <string>
#include <vector>

// Measurements, and the machine that they were made on.
namespace dear::studies {

std::string this_machine();     // "AMD EPYC, 2 cores"
double load_of_this_machine();  // in the last minute: programs that wanted a core; 0 where it is unknown

double median_of(std::vector<double> values);  // the upper one of two; at least one value

}  // namespace dear::studies
