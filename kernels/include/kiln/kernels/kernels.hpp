#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include <kiln/cache.hpp>
#include <kiln/executor.hpp>
#include <kiln/kernels/tensor.hpp>
#include <kiln/kernels/tuner.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// Where a kernel of the library runs: on a cache's device, and done on return, or on an executor, which is given
/// the work and has it done some time. A value, made of either where a call wants one; both outlive what runs.
class Runner {
 public:
  /// The cache's backend must be a Device.
  Runner(Cache& cache);
  Runner(Executor& executor);
  /// Hands the jobs of kernels on `device` to `run`, which may add uploads and downloads, or keep them for later.
  Runner(Device& device, std::function<Result<Pending>(Job)> run) : device_(&device), run_(std::move(run)) {}

  /// The same with the variants that a tuner for the device chooses; it outlives what runs.
  Runner tuned_by(Tuner& tuner) const {
    Runner tuned = *this;
    tuned.tuner_ = &tuner;
    return tuned;
  }
  /// Null where every call runs its initial variant.
  Tuner* tuner() const noexcept { return tuner_; }
  /// The same with programs for the sizes of each call alone, in which they are constants: worth it for calls that
  /// come again and again.
  Runner with_constants() const {
    Runner constant = *this;
    constant.constants_ = true;
    return constant;
  }
  bool constants() const noexcept { return constants_; }

  /// Null where a cache was given whose backend is no device.
  Device* device() const noexcept { return device_; }
  /// Runs a job; what it returns is ready when the job has ended, at once where it ran on a cache.
  Result<Pending> run(Job job) const { return run_(std::move(job)); }

 private:
  Device* device_ = nullptr;
  std::function<Result<Pending>(Job)> run_;
  Tuner* tuner_ = nullptr;
  bool constants_ = false;
};

// The kernels. Each returns a new tensor, f32 unless `output` says f16, which is there at once with a cache, and
// when its pending() is with an executor. Tensors of f16 are read as they are and computed with as f32. Shapes that
// do not fit each other are `invalid_request` errors that name the tensor and its dimension; more elements than
// Tensor::max_count are `unsupported`. What is a sum of nothing is 0; NaN and infinities take the course they have
// in IEEE arithmetic. docs/library.md says more.

/// How exact products must be at least; sums are of f32 always. What a device has no units for that multiply
/// matrices so is computed in f32: of less than that, only CUDA from sm_80 on makes use today.
enum class Precision {
  f32,
  /// Ten bits of the factors' mantissas.
  tf32,
  /// Factors as f16: ten bits of their mantissas, and what is larger than 65,504 is infinite.
  f16,
};

struct Conv2dOptions {
  /// Added to each output channel: [K].
  std::optional<Tensor> bias = {};
  std::array<int, 2> stride = {1, 1};
  /// Rows of zeros above and below, and columns to the left and to the right.
  std::array<int, 2> padding = {0, 0};
  std::array<int, 2> dilation = {1, 1};
  int groups = 1;
  /// May compute 3x3 filters of stride 1 by sums that mix neighbouring pixels (Winograd's algorithm): a NaN or an
  /// infinity may then make results up to 4 pixels away NaN, and errors are larger, yet within 1e-3.
  bool allow_winograd = false;
  Precision precision = Precision::f32;
  Type output = Type::f32;
};
/// x [N, C, H, W] with the filters w [K, C / groups, R, S]: [N, K, P, Q]. The filters are not turned around.
Result<Tensor> conv2d(Runner on, const Tensor& x, const Tensor& w, const Conv2dOptions& options = {});

struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1;
  /// With beta 0, c is not read.
  float beta = 0;
  std::optional<Tensor> c = {};
  Precision precision = Precision::f32;
  Type output = Type::f32;
};
/// alpha a b + beta c, with a [M, K], b [K, N] and c [M, N] before they are transposed; or a batch of each, [B, …],
/// where a matrix without a batch, or one in a batch of 1, goes with all.
Result<Tensor> gemm(Runner on, const Tensor& a, const Tensor& b, const GemmOptions& options = {});

struct SoftmaxOptions {
  /// Added to x before: of x's shape, or of its last dimensions and the same for all before. -inf masks an element.
  std::optional<Tensor> mask = {};
  Type output = Type::f32;
};
/// exp(x) / sum exp(x) over the last dimension. A row of which every element is -inf becomes zeros.
Result<Tensor> softmax(Runner on, const Tensor& x, const SoftmaxOptions& options = {});

struct WeightedMatmulOptions {
  Type output = Type::f32;
};
/// The sum of values [B, H, K, D] by weights [B, H, Q, K]: [B, H, Q, D].
Result<Tensor> weighted_matmul(Runner on, const Tensor& weights, const Tensor& values,
                               const WeightedMatmulOptions& options = {});

struct FlashAttentionOptions {
  /// Query i sees the keys up to i + (keys - queries): the last query sees all.
  bool causal = false;
  /// What q k is multiplied by; 1 / sqrt(D) where not given.
  std::optional<float> scale = {};
  Type output = Type::f32;
};
/// softmax(scale q k) v for q [B, H, Q, D], k and v [B, H, K, D], without the scores ever being stored: [B, H, Q,
/// D]. D is at most 256. A query that sees no key gets zeros.
Result<Tensor> flash_attention(Runner on, const Tensor& q, const Tensor& k, const Tensor& v,
                               const FlashAttentionOptions& options = {});

/// x again, as `output`. Values that f16 cannot hold become what the device's conversion makes of them.
Result<Tensor> copy(Runner on, const Tensor& x, Type output);
inline Result<Tensor> copy(Runner on, const Tensor& x) { return copy(on, x, x.type()); }

enum class Reduction { sum, max, min, mean };
struct ReduceOptions {
  Type output = Type::f32;
};
/// Folds the last dimension away. A NaN in a row makes its result NaN. Of an empty row, the sum is 0, the maximum
/// -inf, the minimum inf and the mean NaN.
Result<Tensor> reduce(Runner on, const Tensor& x, Reduction reduction, const ReduceOptions& options = {});

struct ScanOptions {
  /// Whether an element's own value is left out of its sum.
  bool exclusive = false;
  Type output = Type::f32;
};
/// The running sums along the last dimension.
Result<Tensor> scan(Runner on, const Tensor& x, const ScanOptions& options = {});

/// What a Tuner takes to tune a call, of f32 and without further options:
///
///     gemm, gemm_nt, gemm_tn, gemm_tt      M N K, or M N K and a batch; the letters say what is transposed
///     weighted_matmul                      B H Q K D
///     conv2d, conv2d_winograd              N C H W, and K R S of the filters; padded by R / 2 and S / 2
///     softmax                              rows and their width
///     flash_attention, …_causal            B H Q D, or B H Q K D
Result<Tunable> tunable(const Device& device, std::string_view kernel, const Shape& extents);
/// The same for a call that a record is of.
Result<Tunable> tunable(const Device& device, const TuneRecord& record);

}  // namespace kiln
