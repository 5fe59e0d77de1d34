#pragma once

#include <utility>

#include <kiln/result.hpp>

namespace kiln::base {

template <class T>
T take_value(Result<T>&& result) {
  return *std::move(result);
}
inline void take_value(Result<void>&& /*result*/) {}

}  // namespace kiln::base

/// Evaluates to the value of a Result. On an error, returns that error from the enclosing function or lambda.
///
///     const auto bytes = KILN_TRY(read_file(path));
///
/// Uses a statement expression, a GCC and clang extension, because no standard C++ expression can return. Do not
/// use it inside a braced initialiser or `new`: members that are constructed before it would leak.
#define KILN_TRY(expression)                                      \
  __extension__({                                                 \
    auto kiln_result = (expression);                              \
    if (!kiln_result.ok()) return std::move(kiln_result).error(); \
    ::kiln::base::take_value(std::move(kiln_result));             \
  })
