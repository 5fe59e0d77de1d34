#pragma once

#include <type_traits>

#include "base/process_end.hpp"

namespace kiln::backend {

/// Stands for any function of a driver that has ended: does nothing, and answers with the failure where it answers
/// with such a thing.
template <auto failure>
struct Ended {
  template <class Result, class... Arguments>
  using Function = Result (*)(Arguments...);

  template <class Result, class... Arguments>
  constexpr operator Function<Result, Arguments...>() const noexcept {
    return [](Arguments...) -> Result {
      if constexpr (std::is_same_v<Result, std::remove_const_t<decltype(failure)>>) {
        return failure;
      } else {
        return Result();
      }
    };
  }
};

/// Takes the place of a look-up by name in filling a table with such functions.
template <auto failure>
struct FillEnded {
  template <class Function>
  void operator()(Function*& function, const char* /*name*/) const noexcept {
    function = Ended<failure>();
  }
};

/// The functions of a driver; once the process ends, those that stand for them. So a handle in a static variable
/// may go when its driver is gone.
template <class Functions>
class Calls {
 public:
  Calls(const Functions& functions, const Functions& ended) noexcept : functions_(functions), ended_(ended) {}

  const Functions* operator->() const noexcept { return base::process_ends() ? &ended_ : &functions_; }

 private:
  Functions functions_;
  Functions ended_;
};

}  // namespace kiln::backend
