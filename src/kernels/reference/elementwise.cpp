#include "kernels/reference/elementwise.h"

#include <cmath>

namespace lockstep::kernels::reference {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x / (1 + std::exp(-x)); }
double softplus(double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }

}  // namespace lockstep::kernels::reference
