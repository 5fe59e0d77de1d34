// Writes a bundle with one program, for sm_90: sample_bundle NAME PATH.
#include <algorithm>
#include <cstdio>
#include <span>

#include "store/bundle_samples.hpp"

int main(int, char** arguments) {
  using namespace kiln::store;
  const std::string name = arguments[1];
  const auto written = write_bundle(arguments[2], contents_of({{sm_90, name, "program " + name}}));
  if (!written) std::fprintf(stderr, "%s\n", written.error().message().c_str());
  return written ? 0 : 1;
}
