#include "dear/methods/rounds/algorithms.h"

#include "dear/base/vocabulary/nearest.h"

namespace dear::methods::rounds {

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> kAlgorithms = {
      {"gd", "gradient descent: one step a round", Cohort::all, LocalSteps::one, Sent::whole, Control::none},
      {"local-sgd", "all clients make a fixed number of steps (Stich 2019, arXiv 1805.09767)", Cohort::all,
       LocalSteps::fixed, Sent::whole, Control::none},
      {"fedavg", "a cohort makes a fixed number of steps (McMahan et al. 2017, arXiv 1602.05629)",
       Cohort::drawn, LocalSteps::fixed, Sent::whole, Control::none},
      {"scaffold", "the same with directions that correct drift (Karimireddy et al. 2020, arXiv 1910.06378)",
       Cohort::drawn, LocalSteps::fixed, Sent::whole, Control::directions},
      {"scaffnew", "random numbers of steps with learned shifts (Mishchenko et al. 2022, arXiv 2202.09357)",
       Cohort::all, LocalSteps::geometric, Sent::whole, Control::shifts},
      {"compressed-scaffnew", "the same with masked vectors (Condat et al. 2022, arXiv 2210.13277)",
       Cohort::all, LocalSteps::geometric, Sent::masked, Control::shifts},
      {"tamuna", "the same with a cohort (Condat et al. 2023, arXiv 2302.09832)", Cohort::drawn,
       LocalSteps::geometric, Sent::masked, Control::shifts},
      {"coda", "saddle points by stages of local steps (Guo et al. 2020, arXiv 2005.02426)", Cohort::all,
       LocalSteps::fixed, Sent::whole, Control::none, Goal::saddle},
      {"codasca", "the same with directions that correct drift (Yuan et al. 2021, arXiv 2102.04635)",
       Cohort::all, LocalSteps::fixed, Sent::whole, Control::directions, Goal::saddle},
  };
  return kAlgorithms;
}

const Algorithm& find_algorithm(std::string_view name) { return find_named(algorithms(), name, "algorithm"); }

}  // namespace dear::methods::rounds
