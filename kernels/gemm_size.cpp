#include <optional>

#include "kernels/gemm.hpp"

namespace kiln::kernels {
namespace {

/// A matrix argument, or a batch of matrices.
struct Matrix {
  const char* name;
  const Tensor& tensor;
  bool transposed;

  std::size_t dimension(bool second) const { return tensor.shape().size() - (second != transposed ? 1 : 2); }
  std::int64_t rows() const { return tensor.shape()[dimension(false)]; }
  std::int64_t columns() const { return tensor.shape()[dimension(true)]; }
  std::int64_t batch() const { return tensor.shape().size() == 3 ? tensor.shape()[0] : 1; }
  std::int64_t stride() const { return batch() == 1 ? 0 : rows() * columns(); }
};

}  // namespace

Result<GemmSize> gemm_size(const Tensor& left, const Tensor& right, const GemmOptions& options) {
  const Matrix a{"a", left, options.transpose_a};
  const Matrix b{"b", right, options.transpose_b};
  std::optional<Matrix> c;
  if (options.c) c.emplace(Matrix{"c", *options.c, false});
  std::vector<const Matrix*> all = {&a, &b};
  if (c) all.push_back(&*c);
  for (const Matrix* matrix : all)
    if (const auto dimensions = matrix->tensor.shape().size(); dimensions != 2 && dimensions != 3)
      return unfit("gemm: {} has {} dimensions; it must have 2, or 3 with a batch", matrix->name, dimensions);
  if (b.rows() != a.columns())
    return unfit("gemm: b has {} rows (dimension {}{}), but a has {} columns (dimension {}{}); they must be equal",
                 b.rows(), b.dimension(false), b.transposed ? ", transposed" : "", a.columns(), a.dimension(true),
                 a.transposed ? ", transposed" : "");
  GemmSize size{.m = a.rows(),
                .n = b.columns(),
                .k = a.columns(),
                .transpose_a = a.transposed,
                .transpose_b = b.transposed,
                .a_batch = a.stride(),
                .b_batch = b.stride(),
                .c_batch = c ? c->stride() : 0};
  const char* whose = "a";
  for (const Matrix* matrix : all) {
    if (matrix->batch() == 1) continue;
    if (size.batch != 1 && matrix->batch() != size.batch)
      return unfit("gemm: {} has a batch of {} (dimension 0), but {} has a batch of {}; it must be 1 or the same",
                   matrix->name, matrix->batch(), whose, size.batch);
    whose = matrix->name;
    size.batch = matrix->batch();
  }
  if (c && c->rows() != size.m)
    return unfit("gemm: c has {} rows (dimension {}), but the product has {}", c->rows(), c->dimension(false),
                 size.m);
  if (c && c->columns() != size.n)
    return unfit("gemm: c has {} columns (dimension {}), but the product has {}", c->columns(), c->dimension(true),
                 size.n);
  return size;
}

}  // namespace kiln::kernels
