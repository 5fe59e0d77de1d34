#include <algorithm>
#include <cmath>
#include <span>

#include "kernel.hpp"

namespace kiln::cli::demo {
namespace {

// A group takes a row of WIDTH elements, which its threads hold in registers; the sums and maxima they need of
// each other go through shared memory.
constexpr const char* row_start = R"(#version 430
layout(local_size_x = THREADS) in;
layout(std430, binding = 0) readonly buffer Input { float values[]; };
layout(std430, binding = 1) readonly buffer Scale { float scale[]; };
layout(std430, binding = 2) readonly buffer Shift { float shift[]; };
layout(std430, binding = 3) writeonly buffer Output { float result[]; };
layout(std140, binding = 0) uniform Parameters { float temperature; float epsilon; };

const int EACH = WIDTH / THREADS;
shared float partial[THREADS];

float sum_of_all(float value) {
  int thread = int(gl_LocalInvocationID.x);
  barrier();
  partial[thread] = value;
  for (int other = THREADS / 2; other > 0; other >>= 1) {
    barrier();
    if (thread < other) partial[thread] += partial[thread + other];
  }
  barrier();
  return partial[0];
}

float largest_of_all(float value) {
  int thread = int(gl_LocalInvocationID.x);
  barrier();
  partial[thread] = value;
  for (int other = THREADS / 2; other > 0; other >>= 1) {
    barrier();
    if (thread < other) partial[thread] = max(partial[thread], partial[thread + other]);
  }
  barrier();
  return partial[0];
}
)";

constexpr const char* softmax_main = R"(
void main() {
  int thread = int(gl_LocalInvocationID.x);
  int base = int(gl_WorkGroupID.x) * WIDTH;
  float v[EACH];
  for (int i = 0; i < EACH; ++i) v[i] = values[base + thread + i * THREADS] / temperature;

  float most = v[0];
  for (int i = 1; i < EACH; ++i) most = max(most, v[i]);
  most = largest_of_all(most);
  float sum = 0.0;
  for (int i = 0; i < EACH; ++i) {
    v[i] = exp(v[i] - most);
    sum += v[i];
  }
  sum = sum_of_all(sum);
  for (int i = 0; i < EACH; ++i) result[base + thread + i * THREADS] = v[i] / sum;
}
)";

constexpr const char* layernorm_gelu_main = R"(
float gelu(float x) { return 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x))); }

void main() {
  int thread = int(gl_LocalInvocationID.x);
  int base = int(gl_WorkGroupID.x) * WIDTH;
  float v[EACH];
  float sum = 0.0;
  for (int i = 0; i < EACH; ++i) {
    v[i] = values[base + thread + i * THREADS];
    sum += v[i];
  }
  float mean = sum_of_all(sum) / float(WIDTH);
  float squares = 0.0;
  for (int i = 0; i < EACH; ++i) squares += (v[i] - mean) * (v[i] - mean);
  float inverse = inversesqrt(sum_of_all(squares) / float(WIDTH) + epsilon);
  for (int i = 0; i < EACH; ++i) {
    int column = thread + i * THREADS;
    float value = (v[i] - mean) * inverse * scale[column] + shift[column];
    result[base + column] = gelu(value);
  }
}
)";

// softmax(q k^T / sqrt(DIM)) v for a query a thread, no key later than the query, one block of keys and values
// after the other: the running maximum and sum are corrected as larger scores turn up, so that the scores are never
// stored.
constexpr const char* attention_source = R"(#version 430
layout(local_size_x = BLOCK) in;
layout(std430, binding = 0) readonly buffer Queries { vec4 queries[]; };
layout(std430, binding = 1) readonly buffer Keys { vec4 keys[]; };
layout(std430, binding = 2) readonly buffer Content { vec4 content[]; };
layout(std430, binding = 3) writeonly buffer Output { vec4 result[]; };
layout(std140, binding = 0) uniform Parameters { int tokens; float scale; };

const int QUADS = DIM / 4;
shared vec4 key_block[BLOCK][QUADS];
shared vec4 content_block[BLOCK][QUADS];

void main() {
  int thread = int(gl_LocalInvocationID.x);
  int row = int(gl_GlobalInvocationID.x);
  vec4 query[QUADS];
  vec4 sum[QUADS];
  for (int i = 0; i < QUADS; ++i) {
    query[i] = row < tokens ? scale * queries[row * QUADS + i] : vec4(0.0);
    sum[i] = vec4(0.0);
  }
  float most = -1e30;
  float total = 0.0;

  for (int start = 0; start < tokens; start += BLOCK) {
    for (int i = 0; i < QUADS; ++i) {
      int from = min(start + thread, tokens - 1) * QUADS + i;
      key_block[thread][i] = keys[from];
      content_block[thread][i] = content[from];
    }
    barrier();
    int last = min(min(BLOCK, tokens - start), row - start + 1);
    for (int j = 0; j < last; ++j) {
      float score = 0.0;
      for (int i = 0; i < QUADS; ++i) score += dot(query[i], key_block[j][i]);
      float larger = max(most, score);
      float keep = exp(most - larger);
      float weight = exp(score - larger);
      for (int i = 0; i < QUADS; ++i) sum[i] = keep * sum[i] + weight * content_block[j][i];
      total = keep * total + weight;
      most = larger;
    }
    barrier();
  }
  if (row < tokens)
    for (int i = 0; i < QUADS; ++i) result[row * QUADS + i] = sum[i] / total;
}
)";

struct Parameters {
  float temperature = 0.5F;
  float epsilon = 1e-5F;
};
constexpr std::size_t rows = 5;

float gelu(double x) {
  return static_cast<float>(0.5 * x * (1.0 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x))));
}

Kernel row_kernel(std::string name, const char* main, std::size_t width, std::size_t threads) {
  return {.request = Request({.name = std::move(name),
                              .source = std::string(row_start) + main,
                              .defines = {{"WIDTH", std::to_string(width)}, {"THREADS", std::to_string(threads)}}}),
          .groups = {rows, 1, 1},
          .parameters = bytes_of(Parameters{}),
          .inputs = {noise(rows * width, 1, -3.0F, 3.0F), noise(width, 2), noise(width, 3)}};
}

Kernel softmax(std::string name, std::size_t width, std::size_t threads) {
  Kernel kernel = row_kernel(std::move(name), softmax_main, width, threads);
  std::vector<float> result = std::get<std::vector<float>>(kernel.inputs[0]);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto values = std::span(result).subspan(row * width, width);
    double sum = 0;
    for (float& value : values) {
      value = std::exp(value / Parameters{}.temperature);
      sum += double{value};
    }
    for (float& value : values) value = static_cast<float>(double{value} / sum);
  }
  kernel.expected = std::move(result);
  // The results are small numbers: far smaller an error than elsewhere would be a wrong result.
  kernel.tolerance = 1e-6;
  return kernel;
}

Kernel layernorm_gelu(std::string name, std::size_t width, std::size_t threads) {
  Kernel kernel = row_kernel(std::move(name), layernorm_gelu_main, width, threads);
  const auto& values = std::get<std::vector<float>>(kernel.inputs[0]);
  const auto& scale = std::get<std::vector<float>>(kernel.inputs[1]);
  const auto& shift = std::get<std::vector<float>>(kernel.inputs[2]);
  std::vector<float> result;
  for (std::size_t row = 0; row < rows; ++row) {
    double mean = 0;
    double variance = 0;
    for (std::size_t i = 0; i < width; ++i) mean += double{values[row * width + i]} / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i)
      variance += std::pow(double{values[row * width + i]} - mean, 2.0) / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) {
      const double value = (double{values[row * width + i]} - mean) /
                               std::sqrt(variance + double{Parameters{}.epsilon}) * double{scale[i]} +
                           double{shift[i]};
      result.push_back(gelu(value));
    }
  }
  kernel.expected = std::move(result);
  return kernel;
}

Kernel attention(std::string name) {
  constexpr std::size_t tokens = 50;
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

  struct {
    std::int32_t tokens;
    float scale;
  } const parameters{tokens, scale};
  return {.request = Request(
              {.name = std::move(name), .source = attention_source, .defines = {{"BLOCK", "16"}, {"DIM", "16"}}}),
          .groups = {(tokens + 15) / 16, 1, 1},
          .parameters = bytes_of(parameters),
          .inputs = {std::move(queries), std::move(keys), std::move(content)},
          .expected = std::move(result)};
}

}  // namespace

std::vector<Kernel> rows_kernels() {
  return {softmax("softmax_w256", 256, 16), softmax("softmax_w1024", 1024, 32),
          layernorm_gelu("layernorm_w512_gelu", 512, 32), attention("attention_d16_causal")};
}

}  // namespace kiln::cli::demo
