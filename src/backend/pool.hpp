#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <kiln/result.hpp>

#include "base/mutex.hpp"
#include "base/try.hpp"

namespace kiln::backend {

/// A pool of objects that one thread uses at a time and the next reuses: streams, kernels, command buffers.
/// Thread-safe.
template <class T>
class Pool {
 public:
  /// A borrowed object. The destructor returns it to the pool.
  class Loan {
   public:
    Loan(Pool& pool, std::unique_ptr<T> thing) noexcept : pool_(&pool), thing_(std::move(thing)) {}
    Loan(Loan&&) noexcept = default;
    Loan& operator=(Loan&&) = delete;
    ~Loan() {
      if (thing_ != nullptr) pool_->give_back(std::move(thing_));
    }

    T& operator*() const noexcept { return *thing_; }
    T* operator->() const noexcept { return thing_.get(); }
    /// Destroys the object instead of returning it to the pool. For use after a failure.
    void discard() noexcept { thing_.reset(); }

   private:
    Pool* pool_;
    std::unique_ptr<T> thing_;
  };

  /// Lends an idle object, or a new one from `make`, which returns Result<std::unique_ptr<T>>. The pool must
  /// outlive the loan.
  template <class Make>
  Result<Loan> borrow(Make make) {
    {
      const base::MutexLock lock(mutex_);
      if (!idle_.empty()) {
        Loan loan(*this, std::move(idle_.back()));
        idle_.pop_back();
        return loan;
      }
    }
    auto made = KILN_TRY(make());
    return Loan(*this, std::move(made));
  }

  /// Destroys the idle objects.
  void clear() {
    std::vector<std::unique_ptr<T>> idle;
    const base::MutexLock lock(mutex_);
    std::swap(idle, idle_);
  }

 private:
  void give_back(std::unique_ptr<T> thing) {
    const base::MutexLock lock(mutex_);
    idle_.push_back(std::move(thing));
  }

  base::Mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::backend
