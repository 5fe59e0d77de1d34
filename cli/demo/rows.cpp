#include <algorithm>
#include <cmath>
#include <span>

#include "case.hpp"

namespace kiln::cli::demo {
namespace {

// A group processes a row of WIDTH elements, which its work items keep in registers. They exchange sums and maxima
// through shared memory: FOLD combines the values of all work items.
constexpr const char* row_start = R"(#define SUM(a, b) ((a) + (b))
#define FOLD(value, of_two)                                                                 \
  group_barrier();                                                                          \
  partial[local_id_x] = value;                                                              \
  for (int other = GROUP_X / 2; other > 0; other >>= 1) {                                   \
    group_barrier();                                                                        \
    if (local_id_x < other)                                                                 \
      partial[local_id_x] = of_two(partial[local_id_x], partial[local_id_x + other]);       \
  }                                                                                         \
  group_barrier();                                                                          \
  value = partial[0];
)";

constexpr const char* softmax_main = R"(
KERNEL {
  int base = group_id_x * WIDTH + local_id_x;
  float v[EACH];
  for (int i = 0; i < EACH; ++i) v[i] = values[base + i * GROUP_X] / temperature;

  float most = v[0];
  for (int i = 1; i < EACH; ++i) most = fmax(most, v[i]);
  FOLD(most, fmax)
  float sum = 0.0f;
  for (int i = 0; i < EACH; ++i) {
    v[i] = exp(v[i] - most);
    sum += v[i];
  }
  FOLD(sum, SUM)
  for (int i = 0; i < EACH; ++i) result[base + i * GROUP_X] = v[i] / sum;
}
)";

constexpr const char* layernorm_gelu_main = R"(
FUNCTION float gelu(float x) {
  return 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

KERNEL {
  int base = group_id_x * WIDTH;
  float v[EACH];
  float sum = 0.0f;
  for (int i = 0; i < EACH; ++i) {
    v[i] = values[base + local_id_x + i * GROUP_X];
    sum += v[i];
  }
  FOLD(sum, SUM)
  float mean = sum / to_float(WIDTH);
  float squares = 0.0f;
  for (int i = 0; i < EACH; ++i) squares += (v[i] - mean) * (v[i] - mean);
  FOLD(squares, SUM)
  float inverse = rsqrt(squares / to_float(WIDTH) + epsilon);
  for (int i = 0; i < EACH; ++i) {
    int column = local_id_x + i * GROUP_X;
    result[base + column] = gelu((v[i] - mean) * inverse * scale[column] + shift[column]);
  }
}
)";

// softmax(q k^T / sqrt(DIM)) v with one query per work item and no key later than the query. Processes one block of
// keys and values after the other, and corrects the running maximum and sum when a larger score appears, so that
// scores are never stored.
constexpr const char* attention_source = R"(KERNEL {
  int row = global_id_x;
  float4 query[QUADS];
  float4 sum[QUADS];
  for (int i = 0; i < QUADS; ++i) {
    query[i] = queries[min(row, tokens - 1) * QUADS + i] * scale;
    sum[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  float most = -1e30f;
  float total = 0.0f;

  for (int start = 0; start < tokens; start += GROUP_X) {
    for (int i = 0; i < QUADS; ++i) {
      int from = min(start + local_id_x, tokens - 1) * QUADS + i;
      key_block[local_id_x][i] = keys[from];
      content_block[local_id_x][i] = content[from];
    }
    group_barrier();
    int last = min(min(GROUP_X, tokens - start), row - start + 1);
    for (int j = 0; j < last; ++j) {
      float score = 0.0f;
      for (int i = 0; i < QUADS; ++i) score += dot(query[i], key_block[j][i]);
      float larger = fmax(most, score);
      float keep = exp(most - larger);
      float weight = exp(score - larger);
      for (int i = 0; i < QUADS; ++i) sum[i] = sum[i] * keep + content_block[j][i] * weight;
      total = keep * total + weight;
      most = larger;
    }
    group_barrier();
  }
  if (row < tokens)
    for (int i = 0; i < QUADS; ++i) result[row * QUADS + i] = sum[i] * (1.0f / total);
}
)";

constexpr float temperature = 0.5F;
constexpr float epsilon = 1e-5F;
constexpr std::size_t rows = 5;

float gelu(double x) {
  return static_cast<float>(0.5 * x * (1.0 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x))));
}

Case row_case(std::string name, const char* main, std::size_t width, std::uint32_t threads) {
  return {.kernel = {.name = std::move(name),
                     .buffers = {{"values"}, {"scale"}, {"shift"}, {"result", Type::f32, Access::write}},
                     .scalars = {{"temperature", Type::f32}, {"epsilon", Type::f32}},
                     .shared = {{"partial", Type::f32, {"GROUP_X"}}},
                     .group_size = {threads, 1, 1},
                     .parameters = {{"WIDTH", std::to_string(width)}, {"EACH", "(WIDTH / GROUP_X)"}},
                     .source = std::string(row_start) + main},
          .groups = {rows, 1, 1},
          .scalars = {temperature, epsilon},
          .inputs = {noise(rows * width, 1, -3.0F, 3.0F), noise(width, 2), noise(width, 3)}};
}

Case softmax(std::string name, std::size_t width, std::uint32_t threads) {
  Case one = row_case(std::move(name), softmax_main, width, threads);
  std::vector<float> result = std::get<std::vector<float>>(one.inputs[0]);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto values = std::span(result).subspan(row * width, width);
    double sum = 0;
    for (float& value : values) {
      value = std::exp(value / temperature);
      sum += double{value};
    }
    for (float& value : values) value = static_cast<float>(double{value} / sum);
  }
  one.expected = std::move(result);
  // The results are small numbers, so the tolerance is smaller too.
  one.tolerance = 1e-6;
  return one;
}

Case layernorm_gelu(std::string name, std::size_t width, std::uint32_t threads) {
  Case one = row_case(std::move(name), layernorm_gelu_main, width, threads);
  const auto& values = std::get<std::vector<float>>(one.inputs[0]);
  const auto& scale = std::get<std::vector<float>>(one.inputs[1]);
  const auto& shift = std::get<std::vector<float>>(one.inputs[2]);
  std::vector<float> result;
  for (std::size_t row = 0; row < rows; ++row) {
    double mean = 0;
    double variance = 0;
    for (std::size_t i = 0; i < width; ++i) mean += double{values[row * width + i]} / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i)
      variance += std::pow(double{values[row * width + i]} - mean, 2.0) / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) {
      const double value =
          (double{values[row * width + i]} - mean) / std::sqrt(variance + double{epsilon}) * double{scale[i]} +
          double{shift[i]};
      result.push_back(gelu(value));
    }
  }
  one.expected = std::move(result);
  return one;
}

Case attention(std::string name) {
  constexpr std::int32_t tokens = 50;
  constexpr std::size_t dim = 16;
  constexpr float scale = 0.25F;
  std::vector<float> queries = noise(tokens * dim, 1);
  std::vector<float> keys = noise(tokens * dim, 2);
  std::vector<float> content = noise(tokens * dim, 3);

  std::vector<float> result;
  for (std::size_t row = 0; row < tokens; ++row) {
    std::array<double, dim> sum = {};
    double total = 0;
    for (std::size_t j = 0; j <= row; ++j) {
      double score = 0;
      for (std::size_t i = 0; i < dim; ++i) score += double{queries[row * dim + i]} * double{keys[j * dim + i]};
      const double weight = std::exp(score * double{scale});
      total += weight;
      for (std::size_t i = 0; i < dim; ++i) sum[i] += weight * double{content[j * dim + i]};
    }
    for (const double value : sum) result.push_back(static_cast<float>(value / total));
  }

  return {.kernel = {.name = std::move(name),
                     .buffers = {{"queries", Type::f32x4},
                                 {"keys", Type::f32x4},
                                 {"content", Type::f32x4},
                                 {"result", Type::f32x4, Access::write}},
                     .scalars = {{"tokens"}, {"scale", Type::f32}},
                     .shared = {{"key_block", Type::f32x4, {"GROUP_X", "QUADS"}},
                                {"content_block", Type::f32x4, {"GROUP_X", "QUADS"}}},
                     .group_size = {16, 1, 1},
                     .parameters = {{"QUADS", std::to_string(dim / 4)}},
                     .source = attention_source},
          .groups = {(tokens + 15) / 16, 1, 1},
          .scalars = {tokens, scale},
          .inputs = {std::move(queries), std::move(keys), std::move(content)},
          .expected = std::move(result)};
}

}  // namespace

std::vector<Case> rows_cases() {
  return {softmax("softmax_w256", 256, 16), softmax("softmax_w1024", 1024, 32),
          layernorm_gelu("layernorm_w512_gelu", 512, 32), attention("attention_d16_causal")};
}

}  // namespace kiln::cli::demo
