#include "dear/plan/plan.h"

#include <gtest/gtest.h>
