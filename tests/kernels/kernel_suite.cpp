#include "kernels/kernel_suite.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/half.hpp"

namespace kiln::tests {

int shapes_to_try() {
  const char* asked = std::getenv("KILN_KERNEL_SHAPES");
  return asked != nullptr ? std::max(std::atoi(asked), 1) : 25;
}

void KernelSuite::SetUp() {
  Contract::SetUp();
  if (device_ == nullptr) return;
  CacheOptions kept;
  kept.directory = KILN_KERNEL_CACHE;
  kept.log = book_.log();
  cache_ = std::make_unique<Cache>(device_, std::move(kept));
}

Array KernelSuite::noise(Shape shape, float low, float high) {
  std::uniform_real_distribution<float> value(low, high);
  Array array{shape, std::vector<float>(static_cast<std::size_t>(count_of(shape)))};
  for (float& x : array.values) x = value(random_);
  return array;
}

Array KernelSuite::halved(Array array) {
  for (float& x : array.values) x = kernels::from_half(kernels::to_half(x));
  return array;
}

int KernelSuite::initial(const Tunable& tunable, std::string_view parameter) {
  const auto found = std::find_if(tunable.parameters.begin(), tunable.parameters.end(),
                                  [parameter](const TuneParameter& known) { return known.name == parameter; });
  return tunable.initial.at(static_cast<std::size_t>(found - tunable.parameters.begin()));
}

testing::AssertionResult KernelSuite::matches(const Result<Tensor>& got, const Array& expected, double tolerance) {
  if (!got) return testing::AssertionFailure() << got.error().describe();
  if (got->shape() != expected.shape)
    return testing::AssertionFailure() << to_string(got->shape()) << " instead of " << to_string(expected.shape);
  const auto read = got->read();
  if (!read) return testing::AssertionFailure() << read.error().describe();
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const auto wanted = double{expected.values[i]};
    const auto value = double{(*read)[i]};
    const bool same = std::isnan(wanted) ? std::isnan(value)
                      : std::isinf(wanted)
                          ? value == wanted
                          : std::abs(value - wanted) <= tolerance * std::max(1.0, std::abs(wanted));
    if (!same)
      return testing::AssertionFailure() << "element " << i << " of " << to_string(expected.shape) << " is "
                                         << value << " and should be " << wanted;
  }
  return testing::AssertionSuccess();
}

}  // namespace kiln::tests
