#include "kernels/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace kiln::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

Array of(Shape shape) {
  const std::int64_t count = count_of(shape);
  return {std::move(shape), std::vector<float>(size(count))};
}

/// The rows along the last dimension, none where they are empty.
template <class Visit>
void for_each_row(const Array& x, Visit visit) {
  const std::size_t width = size(x.shape.back());
  const std::size_t rows = width == 0 ? 0 : x.values.size() / width;
  for (std::size_t row = 0; row < rows; ++row) visit(row, std::span(x.values).subspan(row * width, width));
}

double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }

}  // namespace

Array conv2d(const Array& x, const Array& w, const std::optional<Array>& bias, const Conv2d& options) {
  const auto [stride, padding, dilation, groups] = options;
  const std::int64_t channels = w.shape[1];
  const auto extent = [&](std::size_t i) {
    return (x.shape[2 + i] + 2 * padding[i] - dilation[i] * (w.shape[2 + i] - 1) - 1) / stride[i] + 1;
  };
  Array out = of({x.shape[0], w.shape[0], extent(0), extent(1)});
  std::size_t at = 0;
  for (std::int64_t n = 0; n < out.shape[0]; ++n)
    for (std::int64_t k = 0; k < out.shape[1]; ++k)
      for (std::int64_t p = 0; p < out.shape[2]; ++p)
        for (std::int64_t q = 0; q < out.shape[3]; ++q) {
          double sum = bias ? double{bias->values[size(k)]} : 0;
          for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t r = 0; r < w.shape[2]; ++r)
              for (std::int64_t s = 0; s < w.shape[3]; ++s) {
                const std::int64_t row = p * stride[0] - padding[0] + r * dilation[0];
                const std::int64_t column = q * stride[1] - padding[1] + s * dilation[1];
                const bool inside = row >= 0 && row < x.shape[2] && column >= 0 && column < x.shape[3];
                const std::int64_t channel = k / (w.shape[0] / groups) * channels + c;
                const double value =
                    inside ? double{x.values[size(((n * x.shape[1] + channel) * x.shape[2] + row) * x.shape[3] +
                                                  column)]}
                           : 0.0;
                sum += value * double{w.values[size(((k * channels + c) * w.shape[2] + r) * w.shape[3] + s)]};
              }
          out.values[at++] = static_cast<float>(sum);
        }
  return out;
}

Array gemm(const Array& a, const Array& b, const std::optional<Array>& c, const Gemm& options) {
  const auto rows = [](const Array& x) { return x.shape[x.shape.size() - 2]; };
  const auto columns = [](const Array& x) { return x.shape.back(); };
  const auto batch = [](const Array& x) { return x.shape.size() == 3 ? x.shape[0] : 1; };
  const auto at = [&](const Array& x, std::int64_t i, std::int64_t row, std::int64_t column) {
    return double{x.values[size(((batch(x) == 1 ? 0 : i) * rows(x) + row) * columns(x) + column)]};
  };
  std::int64_t count = 1;
  bool batched = false;
  for (const Array* x : {&a, &b, c ? &*c : &a}) {
    if (batch(*x) != 1) count = batch(*x);
    batched = batched || x->shape.size() == 3;
  }
  const std::int64_t m = options.transpose_a ? columns(a) : rows(a);
  const std::int64_t k = options.transpose_a ? rows(a) : columns(a);
  const std::int64_t n = options.transpose_b ? rows(b) : columns(b);
  Array out = of(batched ? Shape{count, m, n} : Shape{m, n});
  std::size_t written = 0;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (std::int64_t d = 0; d < k; ++d)
          sum += (options.transpose_a ? at(a, i, d, row) : at(a, i, row, d)) *
                 (options.transpose_b ? at(b, i, column, d) : at(b, i, d, column));
        sum *= options.alpha;
        if (c && options.beta != 0) sum += options.beta * at(*c, i, row, column);
        out.values[written++] = static_cast<float>(sum);
      }
  return out;
}

Array softmax(const Array& x, const std::optional<Array>& mask) {
  Array out = of(x.shape);
  for_each_row(x, [&](std::size_t row, std::span<const float> values) {
    const std::size_t width = values.size();
    std::vector<double> logits(values.begin(), values.end());
    if (mask)
      for (std::size_t i = 0; i < width; ++i)
        logits[i] += double{mask->values[(row * width + i) % mask->values.size()]};
    double most = -infinity;
    for (const double logit : logits) most = larger(most, logit);
    double sum = 0;
    for (double& logit : logits) {
      logit = logit == -infinity ? 0 : std::exp(logit - most);
      sum += logit;
    }
    for (std::size_t i = 0; i < width; ++i)
      out.values[row * width + i] = sum == 0 ? 0 : static_cast<float>(logits[i] / sum);
  });
  return out;
}

Array weighted_matmul(const Array& weights, const Array& values) {
  const auto flat = [](const Array& x) {
    return Array{{x.shape[0] * x.shape[1], x.shape[2], x.shape[3]}, x.values};
  };
  Array out = gemm(flat(weights), flat(values), {}, {});
  out.shape = {weights.shape[0], weights.shape[1], weights.shape[2], values.shape[3]};
  return out;
}

Array flash_attention(const Array& q, const Array& k, const Array& v, bool causal, std::optional<float> scale) {
  const std::int64_t queries = q.shape[2];
  const std::int64_t keys = k.shape[2];
  const std::int64_t dimension = q.shape[3];
  const double factor = scale ? double{*scale} : 1 / std::sqrt(static_cast<double>(dimension));
  Array out = of(q.shape);
  for (std::int64_t head = 0; head < q.shape[0] * q.shape[1]; ++head)
    for (std::int64_t row = 0; row < queries; ++row) {
      const std::int64_t seen = causal ? std::clamp<std::int64_t>(row + keys - queries + 1, 0, keys) : keys;
      std::vector<double> scores(size(seen));
      double most = -infinity;
      for (std::int64_t j = 0; j < seen; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < dimension; ++d)
          score += double{q.values[size((head * queries + row) * dimension + d)]} *
                   double{k.values[size((head * keys + j) * dimension + d)]};
        scores[size(j)] = score * factor;
        most = larger(most, score * factor);
      }
      double sum = 0;
      for (double& score : scores) {
        score = score == -infinity ? 0 : std::exp(score - most);
        sum += score;
      }
      for (std::int64_t d = 0; d < dimension; ++d) {
        double value = 0;
        for (std::int64_t j = 0; j < seen; ++j)
          value += scores[size(j)] * double{v.values[size((head * keys + j) * dimension + d)]};
        out.values[size((head * queries + row) * dimension + d)] = sum == 0 ? 0 : static_cast<float>(value / sum);
      }
    }
  return out;
}

Array reduce(const Array& x, Reduction reduction) {
  Shape shape(x.shape.begin(), x.shape.end() - 1);
  Array out = of(shape);
  const double nothing = reduction == Reduction::max ? -infinity : reduction == Reduction::min ? infinity : 0;
  const auto mean = static_cast<double>(x.shape.back());
  std::ranges::fill(out.values, static_cast<float>(reduction == Reduction::mean ? nothing / mean : nothing));
  for_each_row(x, [&](std::size_t row, std::span<const float> values) {
    double result = nothing;
    for (const float value : values) {
      if (reduction == Reduction::max) result = larger(result, double{value});
      if (reduction == Reduction::min) result = -larger(-result, -double{value});
      if (reduction == Reduction::sum || reduction == Reduction::mean) result += double{value};
    }
    out.values[row] = static_cast<float>(reduction == Reduction::mean ? result / mean : result);
  });
  return out;
}

Array scan(const Array& x, bool exclusive) {
  Array out = of(x.shape);
  for_each_row(x, [&](std::size_t row, std::span<const float> values) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double before = sum;
      sum += double{values[i]};
      out.values[row * values.size() + i] = static_cast<float>(exclusive ? before : sum);
    }
  });
  return out;
}

}  // namespace kiln::reference
