#pragma once

#include <string>

#include <kiln/kernels/kernels.hpp>

#include "kernels/plan.hpp"
#include "kernels/tile.hpp"

namespace kiln::kernels {

/// A variant of the matrix product kernel.
struct GemmVariant {
  Tile tile = {};
  /// Whether to read and write four elements at a time; requires that the width of each matrix is a multiple of
  /// four.
  bool vectors = false;
  /// The number of groups that share the depth of a tile (split-K); more if the depth is very large. If it is more
  /// than one, a second step adds the partial sums.
  int split = 1;
  /// Whether matrices that are contiguous along the depth are loaded element by element, four rows or columns at
  /// the same depth, so that each store to a panel writes four. Otherwise each load reads four.
  bool turned = false;

  /// For example "gemm_tm128_tn128_tk8_rm8_rn8_v4".
  std::string name(std::string_view call) const;
};

/// The sizes of a call: a batch of row-major matrices.
struct GemmSize {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  /// Stride between the matrices of a batch; 0 if all use the same matrix.
  std::int64_t a_batch = 0;
  std::int64_t b_batch = 0;
  std::int64_t c_batch = 0;
  /// A precision that the device supports.
  Precision precision = Precision::f32;

  /// Whether a variant with vectors can be used.
  bool takes_vectors() const {
    return (transpose_a ? m : k) % 4 == 0 && (transpose_b ? k : n) % 4 == 0 && n % 4 == 0;
  }
  /// Whether a matrix is contiguous along the depth.
  bool takes_turned() const { return !transpose_a || transpose_b; }
};

/// Fails if the shapes do not match.
Result<GemmSize> gemm_size(const Tensor& a, const Tensor& b, const GemmOptions& options);
GemmVariant gemm_variant(const DeviceInfo& device, const GemmSize& size);
Tunable gemm_tunable(const DeviceInfo& device, std::string_view call, const GemmSize& size);
/// The variant that the plan's tuner chooses, or the default if it has none.
GemmVariant gemm_variant(Plan& plan, std::string_view call, const GemmSize& size);
Kernel gemm_kernel(std::string_view call, const GemmVariant& variant, bool transpose_a, bool transpose_b);
/// Adds the partial products of a divided depth; with `vectors`, four elements at a time.
Kernel gemm_sum_kernel(bool vectors);

struct GemmMemory {
  Plan::Place a = 0;
  Plan::Place b = 0;
  /// Any valid place if beta is 0.
  Plan::Place c = 0;
  Plan::Place result = 0;
};
/// Adds the steps that compute alpha a b + beta c.
void add_gemm(Plan& plan, std::string_view call, const GemmVariant& variant, const GemmSize& size,
              const GemmMemory& memory, float alpha, float beta);

/// gemm() with a given variant (the default if null); programs are named after `call`.
Result<Tensor> gemm(Runner on, const Tensor& a, const Tensor& b, const GemmOptions& options,
                    const GemmVariant* variant, std::string_view call = "gemm");

}  // namespace kiln::kernels
