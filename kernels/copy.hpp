#pragma once

#include <kiln/kernel.hpp>

#include "kernels/plan.hpp"

namespace kiln::kernels {

/// The kernel that copies between types of tensors.
Kernel copy_kernel(Type from, Type to);

struct Typed {
  Plan::Place place = 0;
  Type type = Type::f32;
};
/// Adds the step that copies `count` elements.
void add_conversion(Plan& plan, Typed from, Typed to, std::int64_t count);

}  // namespace kiln::kernels
