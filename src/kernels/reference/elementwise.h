// Float64 references of the element-wise functions (kernels/ops/elementwise.h, math.h), by the platform's libm.
#pragma once

namespace lockstep::kernels::reference {

double sigmoid(double x);
double silu(double x);
double softplus(double x);

}  // namespace lockstep::kernels::reference
