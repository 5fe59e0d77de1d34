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
#include <kiln/stream_executor.hpp>

namespace kiln {

/// Runs the kernels of the library: on a cache's device, synchronously, on an executor, asynchronously, or on a
/// stream of the caller's own. A value; a Cache&, an Executor& or a StreamExecutor& converts to it in a call. It
/// owns nothing: cache, executor, device and tuner must outlive all work that they run. May be used from any
/// thread.
class Runner {
 public:
  /// The cache's backend must be a Device; otherwise the kernels fail with invalid_request.
  Runner(Cache& cache);
  /// Kernels return once their job is queued.
  Runner(Executor& executor);
  /// Kernels return once they are enqueued. Results are there in the order of the stream, and their pending() is
  /// ready at once: wait for the stream before Tensor::read(). The cache's backend must be a Device. Used by one
  /// thread at a time, and a Tuner must not measure (TunePolicy).
  Runner(StreamExecutor& executor);
  /// Passes the jobs of kernels on `device` to `run`, which may add uploads and downloads, or keep them for later.
  /// The kernel returns the error of `run`; its result is ready when the Pending is.
  Runner(Device& device, std::function<Result<Pending>(Job)> run) : device_(&device), run_(std::move(run)) {}

  /// The same, with the variants that a tuner for the device chooses.
  Runner tuned_by(Tuner& tuner) const {
    Runner tuned = *this;
    tuned.tuner_ = &tuner;
    return tuned;
  }
  /// The tuner; null if every call runs its initial variant.
  Tuner* tuner() const noexcept { return tuner_; }
  /// The same, with separate programs for the sizes of each call, in which they are constants. Worth the compile
  /// time for calls that are repeated often.
  Runner with_constants() const {
    Runner constant = *this;
    constant.constants_ = true;
    return constant;
  }
  /// Whether sizes are constants: see with_constants().
  bool constants() const noexcept { return constants_; }

  /// The device; null if the backend of the given cache is not one.
  Device* device() const noexcept { return device_; }
  /// Runs a job. On a cache, returns after the job, with the errors of Cache::get(), Device::allocate() and
  /// Device::launch(); only for jobs without uploads and downloads. On an executor, returns once the job is queued,
  /// and the Pending holds the error, if any.
  Result<Pending> run(Job job) const { return run_(std::move(job)); }

 private:
  Device* device_ = nullptr;
  std::function<Result<Pending>(Job)> run_;
  Tuner* tuner_ = nullptr;
  bool constants_ = false;
};

// The kernels. Each returns a new tensor, f32 unless `output` says f16. With a cache its content is complete; with
// an executor it is when pending() is ready. Tensors of f16 are read as they are and computed with as f32.
// Arguments are not needed after the call: queued work shares ownership of the tensors' memory. All kernels may be
// called from any thread. Empty sums are 0; NaN and infinities behave as in IEEE arithmetic. docs/library.md says
// more.
//
// All kernels fail with invalid_request if shapes do not fit each other (the message names the tensor and its
// dimension) or if a tensor is on another device; with the error of an input's pending(); with unsupported if a
// tensor would have more than Tensor::max_count elements or the device cannot run the kernel; and as
// Device::allocate() does. With a cache they also fail as Runner::run() does, and wait for inputs that are pending;
// with an executor, later errors are in pending(). With a tuner whose policy is `exhaustive`, a call may wait for a
// search.

/// The lowest precision allowed for products; sums are always f32. A device without matrix units for a precision
/// computes in f32. Today only CUDA from sm_80 on uses less than f32.
enum class Precision {
  f32,
  /// Ten bits of the factors' mantissas.
  tf32,
  /// Factors as f16: ten bits of their mantissas, and values beyond 65,504 are infinite.
  f16,
};

/// Options of conv2d().
struct Conv2dOptions {
  /// Added to each output channel: [K].
  std::optional<Tensor> bias = {};
  std::array<int, 2> stride = {1, 1};
  /// Rows of zeros above and below, and columns to the left and to the right.
  std::array<int, 2> padding = {0, 0};
  std::array<int, 2> dilation = {1, 1};
  int groups = 1;
  /// Whether 3x3 filters of stride 1 may be computed by Winograd's algorithm, whose sums mix neighbouring pixels: a
  /// NaN or an infinity may then make results up to 4 pixels away NaN, and errors are larger, yet within 1e-3.
  bool allow_winograd = false;
  Precision precision = Precision::f32;
  Type output = Type::f32;
};
/// The convolution of x [N, C, H, W] with the filters w [K, C / groups, R, S]: [N, K, P, Q]. Filters are not
/// flipped.
Result<Tensor> conv2d(Runner on, const Tensor& x, const Tensor& w, const Conv2dOptions& options = {});

/// Options of gemm().
struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1;
  /// If it is 0, c is not read; otherwise c is required.
  float beta = 0;
  std::optional<Tensor> c = {};
  Precision precision = Precision::f32;
  Type output = Type::f32;
};
/// alpha a b + beta c: [M, N]. a is [M, K], or [K, M] if it is to be transposed; b is [K, N], or [N, K]; c is [M,
/// N]. Or a batch of each, [B, …]: a matrix without a batch, or in a batch of 1, is broadcast over the batch.
Result<Tensor> gemm(Runner on, const Tensor& a, const Tensor& b, const GemmOptions& options = {});

/// Options of softmax().
struct SoftmaxOptions {
  /// Added to x first. It has x's shape, or the shape of x's last dimensions and is then repeated for the others.
  /// -inf masks an element.
  std::optional<Tensor> mask = {};
  Type output = Type::f32;
};
/// exp(x) / sum exp(x) over the last dimension. A row in which every element is -inf becomes zeros.
Result<Tensor> softmax(Runner on, const Tensor& x, const SoftmaxOptions& options = {});

/// Options of weighted_matmul().
struct WeightedMatmulOptions {
  Type output = Type::f32;
};
/// The product of weights [B, H, Q, K] and values [B, H, K, D] for each B and H: [B, H, Q, D].
Result<Tensor> weighted_matmul(Runner on, const Tensor& weights, const Tensor& values,
                               const WeightedMatmulOptions& options = {});

/// Options of flash_attention().
struct FlashAttentionOptions {
  /// Query i sees the keys up to i + (keys - queries): the last query sees all.
  bool causal = false;
  /// The factor of q k; 1 / sqrt(D) if not given.
  std::optional<float> scale = {};
  Type output = Type::f32;
};
/// softmax(scale q k) v for q [B, H, Q, D], k and v [B, H, K, D]: [B, H, Q, D]. Scores are never stored in memory.
/// A D of more than 256 is unsupported. A query that sees no key gets zeros.
Result<Tensor> flash_attention(Runner on, const Tensor& q, const Tensor& k, const Tensor& v,
                               const FlashAttentionOptions& options = {});

/// A copy of x, converted to `output`. The conversion of values that f16 cannot hold depends on the device.
Result<Tensor> copy(Runner on, const Tensor& x, Type output);
/// A copy of x in its own type.
inline Result<Tensor> copy(Runner on, const Tensor& x) { return copy(on, x, x.type()); }

/// How reduce() combines the elements of a row.
enum class Reduction { sum, max, min, mean };
/// Options of reduce().
struct ReduceOptions {
  Type output = Type::f32;
};
/// Reduces the last dimension to one value, which removes it from the shape. A NaN in a row makes its result NaN.
/// Of an empty row, the sum is 0, the maximum -inf, the minimum inf and the mean NaN.
Result<Tensor> reduce(Runner on, const Tensor& x, Reduction reduction, const ReduceOptions& options = {});

/// Options of scan().
struct ScanOptions {
  /// Whether the sum at an element leaves out the element itself.
  bool exclusive = false;
  Type output = Type::f32;
};
/// The running sums along the last dimension.
Result<Tensor> scan(Runner on, const Tensor& x, const ScanOptions& options = {});

/// The Tunable of a call with f32 tensors and default options, for Tuner::tune(). Fails with invalid_request for
/// another kernel, or for extents that it does not take:
///
///     gemm, gemm_nt, gemm_tn, gemm_tt      M N K, or M N K and a batch; t marks a transposed matrix
///     weighted_matmul                      B H Q K D
///     conv2d, conv2d_winograd              N C H W, and K R S of the filters; padded by R / 2 and S / 2
///     softmax                              rows and their width
///     flash_attention, …_causal            B H Q D, or B H Q K D
Result<Tunable> tunable(const Device& device, std::string_view kernel, const Shape& extents);
/// The same for the call of a record. Fails with invalid_request if this version of Kiln has no kernel for it.
Result<Tunable> tunable(const Device& device, const TuneRecord& record);

}  // namespace kiln
