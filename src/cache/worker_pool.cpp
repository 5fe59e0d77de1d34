#include "cache/worker_pool.hpp"

#include <system_error>
#include <utility>

#include <pthread.h>

namespace kiln::cache {

void WorkerPool::finish() {
  std::vector<std::thread> threads;
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

void WorkerPool::submit(std::function<void()> work) {
  {
    const base::MutexLock lock(mutex_);
    // What comes in while the threads end has none of them to wait for.
    if (!stopping_ && waiting_.size() >= idle_ && threads_.size() < size_) start();
    if (!stopping_ && !threads_.empty()) {
      waiting_.push_back(std::move(work));
      changed_.notify_one();
      return;
    }
  }
  work();
}

void WorkerPool::start() {
  try {
    threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {
    // No more threads to be had: those there are do the work, or the one who asks.
  }
}

void WorkerPool::run() {
  pthread_setname_np(pthread_self(), "kiln-worker");
  for (;;) {
    std::function<void()> work;
    {
      const base::MutexLock lock(mutex_);
      ++idle_;
      while (waiting_.empty() && !stopping_) changed_.wait(mutex_);
      --idle_;
      if (waiting_.empty()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace kiln::cache
