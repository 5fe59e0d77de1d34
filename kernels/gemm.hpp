#pragma once

#include <string>

#include <kiln/kernels/kernels.hpp>

#include "kernels/plan.hpp"
#include "kernels/tile.hpp"

namespace kiln::kernels {

/// One of the forms of the kernel that multiplies matrices.
struct GemmVariant {
  Tile tile = {};
  /// Whether four elements are read and written at once: each matrix must be a multiple of four wide.
  bool vectors = false;
  /// Among how many groups the depth of a tile is divided, or more where it is very long. With more than one, a
  /// second step adds up what they have.
  int split = 1;
  /// Whether matrices that lie along the depth are read element by element, four rows or columns at the same
  /// depth, and put into the panels four at once. Otherwise it is the reading that takes four at once.
  bool turned = false;

  /// As in "gemm_tm128_tn128_tk8_rm8_rn8_v4".
  std::string name(std::string_view call) const;
};

/// Matrices in memory, row after row, and a batch of them: what the shapes of a call come to.
struct GemmSize {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  /// From one matrix of a batch to the next; 0 where it is always the same.
  std::int64_t a_batch = 0;
  std::int64_t b_batch = 0;
  std::int64_t c_batch = 0;
  /// What the device has units for.
  Precision precision = Precision::f32;

  /// Whether a variant with vectors can be used.
  bool takes_vectors() const {
    return (transpose_a ? m : k) % 4 == 0 && (transpose_b ? k : n) % 4 == 0 && n % 4 == 0;
  }
  /// Whether there is a matrix that lies along the depth.
  bool takes_turned() const { return !transpose_a || transpose_b; }
};

/// The error is that of shapes that do not fit each other.
Result<GemmSize> gemm_size(const Tensor& a, const Tensor& b, const GemmOptions& options);
GemmVariant gemm_variant(const DeviceInfo& device, const GemmSize& size);
Tunable gemm_tunable(const DeviceInfo& device, std::string_view call, const GemmSize& size);
/// The one that the plan's tuner chooses, if it has one.
GemmVariant gemm_variant(Plan& plan, std::string_view call, const GemmSize& size);
Kernel gemm_kernel(std::string_view call, const GemmVariant& variant, bool transpose_a, bool transpose_b);
/// What adds up the products of a depth that was divided; with `vectors`, four elements at once.
Kernel gemm_sum_kernel(bool vectors);

struct GemmMemory {
  Plan::Place a = 0;
  Plan::Place b = 0;
  /// Any other place where beta is 0.
  Plan::Place c = 0;
  Plan::Place result = 0;
};
/// Adds the steps of alpha a b + beta c.
void add_gemm(Plan& plan, std::string_view call, const GemmVariant& variant, const GemmSize& size,
              const GemmMemory& memory, float alpha, float beta);

/// gemm() by a variant of the caller's choice, with programs that are named after `call`.
Result<Tensor> gemm(Runner on, const Tensor& a, const Tensor& b, const GemmOptions& options,
                    const GemmVariant* variant, std::string_view call = "gemm");

}  // namespace kiln::kernels
